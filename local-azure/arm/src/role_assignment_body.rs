//! The bodies of role assignments, in requests and replies. Their fields depend on the api-version.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::{
    AccessScope, Condition, ConditionError, RoleAssignment,
};
use lanyard_emulator_state::directory::DirectoryReader;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::RoleDefinitionId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::{ArmServiceError, bad_request};
use super::role_definitions::{
    parse_role_definition_id, role_definition_id, role_definition_not_found,
};

/// The name of the type of role assignments.
pub(super) const ASSIGNMENT: &str = "Microsoft.Authorization/roleAssignments";
/// The types of principals that can have role assignments.
const PRINCIPAL_TYPES: [&str; 5] = ["User", "Group", "ServicePrincipal", "ForeignGroup", "Device"];

/// The features of role assignments that an api-version has.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssignmentApi {
    /// `principalType` in requests and replies: from 2018-09-01-preview on.
    principal_type: bool,
    /// Conditions and descriptions: from 2020-03-01-preview on.
    conditions: bool,
    /// Assignments of roles with data actions: from 2018-01-01-preview on.
    data_actions: bool,
}

impl AssignmentApi {
    pub(super) fn of_request(call: &OperationContext<'_>) -> Self {
        let version = call.api_version().unwrap_or_default();
        Self {
            principal_type: version >= "2018-09-01",
            conditions: version >= "2020-03-01",
            data_actions: version >= "2018-01-01",
        }
    }
}

/// Parses the body of `PUT`, and checks that the role definition and the principal exist.
pub(super) fn parse_assignment(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    name: Uuid,
    scope: AccessScope,
    body: &Value,
) -> Result<RoleAssignment, ServiceReply> {
    let properties = body.get("properties").unwrap_or(&Value::Null);
    let text = |field: &str| properties.get(field).and_then(Value::as_str);
    let api = AssignmentApi::of_request(call);
    reject_unimplemented(properties)?;
    let role = text("roleDefinitionId").unwrap_or_default();
    let role = parse_role_definition_id(role.rsplit('/').next().unwrap_or_default())?;
    let role = find_assignable_role(call, caller, &scope, role)?;
    let principal_id =
        text("principalId").and_then(|id| Uuid::try_parse(id).ok()).ok_or_else(|| {
            let message = "A valid principal ID must be provided for role assignment.";
            bad_request("InvalidPrincipalId", message)
        })?;
    let given_type = text("principalType").filter(|_| api.principal_type);
    let principal_type = check_principal(call, caller, principal_id, given_type)?;
    // An older api-version lacks these fields, so it does not remove them.
    let known = call.azure().authorization.assignment(name);
    let (condition, description) = if api.conditions {
        (parse_condition(properties)?, text("description").map(str::to_owned))
    } else {
        known.map(|known| (known.condition.clone(), known.description.clone())).unwrap_or_default()
    };
    Ok(RoleAssignment {
        principal_type,
        description,
        condition,
        created_by: Some(caller.object_id),
        delay: *call.azure().propagation,
        ..RoleAssignment::new(name, scope, role, principal_id, call.now)
    })
}

/// Returns `id` if the role exists and can be assigned at the scope `at`.
fn find_assignable_role(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    at: &AccessScope,
    id: RoleDefinitionId,
) -> Result<RoleDefinitionId, ServiceReply> {
    let azure = call.azure();
    let not_found = || role_definition_not_found(&id.0.to_string());
    let role = azure.authorization.role(id).ok_or_else(not_found)?;
    if let Some(custom) = azure.authorization.custom_role(id) {
        let management_groups = azure.management_groups_above(at);
        if custom.tenant != caller.tenant || !custom.is_assignable_at(at, &management_groups) {
            return Err(not_found());
        }
        if at.management_group_name().is_some() && role.has_data_actions() {
            let message =
                "Custom roles with DataActions can't be assigned at the management group scope.";
            return Err(bad_request("BadRequest", message));
        }
    }
    if role.has_data_actions() && !AssignmentApi::of_request(call).data_actions {
        let version = call.api_version().unwrap_or_default();
        let message = format!(
            "Assignments to roles with DataActions and NotDataActions are not supported on API version '{version}'. The minimum required API version for this operations is '2018-01-01-preview'."
        );
        return Err(bad_request("UnsupportedApiVersionForRoleDefinitionHasDataActions", message));
    }
    Ok(id)
}

fn reject_unimplemented(properties: &Value) -> Result<(), ServiceReply> {
    let is_set = |field: &str| {
        properties.get(field).is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
    };
    for field in ["canDelegate", "delegatedManagedIdentityResourceId"] {
        if is_set(field) {
            return Err(not_implemented(format!("The emulator does not implement `{field}`.")));
        }
    }
    Ok(())
}

/// Returns the type of a principal. An unknown principal is accepted only if the request has its type: the
/// caller may have just created it.
fn check_principal(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    principal_id: Uuid,
    given_type: Option<&str>,
) -> Result<String, ServiceReply> {
    let given_type = match given_type {
        None => None,
        Some(given) => {
            let known = PRINCIPAL_TYPES.iter().find(|known| known.eq_ignore_ascii_case(given));
            Some(*known.ok_or_else(|| {
                let message = format!(
                    "The principal type '{given}' is not one of: {}.",
                    PRINCIPAL_TYPES.join(", ")
                );
                bad_request("InvalidRequestContent", message)
            })?)
        }
    };
    let directory = &call.azure().directory;
    let is_known = directory.is_known_to(DirectoryReader::ResourceManager, principal_id, call.now);
    let Some(principal) = directory.object(principal_id).filter(|_| is_known) else {
        return given_type.map(str::to_owned).ok_or_else(|| {
            let message = format!(
                "Principal {} does not exist in the directory {}. Check that you have the correct principal ID. If you are creating this principal and then immediately assigning a role, this error might be related to a replication delay. In this case, set the role assignment principalType property to a value, such as ServicePrincipal, User, or Group. See https://aka.ms/docs-principaltype",
                principal_id.simple(),
                caller.tenant
            );
            bad_request("PrincipalNotFound", message)
        });
    };
    let Some(found_type) = principal.principal_type() else {
        let message = "Principals of type Application cannot validly be used in role assignments.";
        return Err(bad_request("PrincipalTypeNotSupported", message));
    };
    match given_type {
        // The misspelling `PrinciaplType` is Azure's.
        Some(given) if given != found_type => Err(bad_request(
            "UnmatchedPrincipalType",
            format!(
                "The PrincipalId '{}' has type '{found_type}' , which is different from specified PrinciaplType '{given}'.",
                principal_id.simple()
            ),
        )),
        _ => Ok(found_type.to_owned()),
    }
}

fn parse_condition(properties: &Value) -> Result<Option<Condition>, ServiceReply> {
    let text = |field: &str| {
        properties.get(field).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    };
    let Some(condition) = text("condition") else { return Ok(None) };
    let version = text("conditionVersion").unwrap_or_default();
    Condition::parse(version, condition).map(Some).map_err(|problem| match problem {
        ConditionError::NotEvaluated(_) => not_implemented(format!(
            "{problem} in conditions. It stores no condition that it cannot evaluate."
        )),
        ConditionError::Version(_)
        | ConditionError::TooLong { .. }
        | ConditionError::Syntax { .. } => bad_request("InvalidCondition", format!("{problem}.")),
    })
}

fn not_implemented(message: String) -> ServiceReply {
    ArmServiceError::Other(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message).to_reply()
}

/// The body of a reply with a role assignment.
pub(super) fn role_assignment_json(assignment: &RoleAssignment, api: AssignmentApi) -> Value {
    let (updated_on, updated_by) = match assignment.updated {
        Some((time, author)) => (time, Some(author)),
        None => (assignment.created_on, assignment.created_by),
    };
    let mut properties = json!({
        "roleDefinitionId": role_definition_id(&assignment.scope, assignment.role),
        "principalId": assignment.principal_id,
        "scope": assignment.scope,
        "createdOn": assignment.created_on.to_string(),
        "updatedOn": updated_on.to_string(),
        "createdBy": assignment.created_by,
        "updatedBy": updated_by,
    });
    if api.principal_type {
        properties["principalType"] = json!(assignment.principal_type);
    }
    if api.conditions {
        let condition = assignment.condition.as_ref();
        properties["condition"] = json!(condition.map(Condition::text));
        properties["conditionVersion"] = json!(condition.map(Condition::version));
        properties["description"] = json!(assignment.description);
        properties["delegatedManagedIdentityResourceId"] = Value::Null;
    }
    json!({ "id": assignment.id(), "type": ASSIGNMENT, "name": assignment.name, "properties": properties })
}
