//! The body of a new role assignment.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::{
    AccessScope, Condition, ConditionError, RoleAssignment,
};
use lanyard_emulator_state::directory::DirectoryReader;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::Value;
use uuid::Uuid;

use super::error::{ArmServiceError, bad_request};
use super::role_assignments::{AssignmentApi, find_assignable_role};
use super::role_definitions::parse_role_definition_id;

/// The types of principals that can have role assignments.
const PRINCIPAL_TYPES: [&str; 5] = ["User", "Group", "ServicePrincipal", "ForeignGroup", "Device"];

/// Parses the body of `PUT`, and checks that role and principal exist.
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
    // An older api-version does not know these fields, so it does not remove them.
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
        // The spelling is Azure's.
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
        ConditionError::Version(_) | ConditionError::Syntax { .. } => {
            bad_request("InvalidCondition", format!("{problem}."))
        }
    })
}

fn not_implemented(message: String) -> ServiceReply {
    ArmServiceError::Other(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message).to_reply()
}
