//! Role definitions and assignments. Reference: Microsoft.Authorization, 2022-04-01.

use http::{Method, StatusCode};
use lanyard_vocabulary::RoleDefinitionId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::{
    authorize_call, empty_reply, json_body, json_reply, list_reply, parse_request_scope,
};
use super::error::{ArmServiceError, bad_request, conflict};
use super::odata_filter::ODataFilter;
use crate::authorization::{
    AccessScope, ActionPlane, AssignError, AssignOutcome, RoleAssignment, RoleCatalog,
    RoleDefinition,
};
use crate::operation_context::OperationContext;
use crate::operations::{OperationHandler, OperationSupport, ServiceOperation};
use crate::request::ServiceReply;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "RoleDefinitions_List",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleDefinitions",
        support: OperationSupport::Partial("built-in roles of hosted clusters, no custom roles"),
        handler: list_definitions,
    },
    ServiceOperation {
        id: "RoleDefinitions_Get",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleDefinitions/{name}",
        support: OperationSupport::Partial("built-in roles of hosted clusters, no custom roles"),
        handler: read_definition,
    },
    ServiceOperation {
        id: "RoleAssignments_ListForScope",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleAssignments",
        support: OperationSupport::Full,
        handler: list_assignments,
    },
    assignment_operation("RoleAssignments_Get", Method::GET, read_assignment),
    assignment_operation("RoleAssignments_Create", Method::PUT, create_assignment),
    assignment_operation("RoleAssignments_Delete", Method::DELETE, delete_assignment),
];

const DEFINITION: &str = "Microsoft.Authorization/roleDefinitions";
const ASSIGNMENT: &str = "Microsoft.Authorization/roleAssignments";

const fn assignment_operation(
    id: &'static str,
    method: Method,
    handler: OperationHandler,
) -> ServiceOperation {
    ServiceOperation {
        id,
        method,
        path: "/{*scope}/providers/Microsoft.Authorization/roleAssignments/{name}",
        support: OperationSupport::Partial("conditions are refused"),
        handler,
    }
}

fn list_definitions(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = request_scope(call)?;
    authorize_call(call, &format!("{DEFINITION}/read"), &at)?;
    let filter = ODataFilter::from_request(call, &["roleName", "type", "atScopeAndBelow"])?;
    let kind =
        filter.equals_value("type").is_none_or(|kind| kind.eq_ignore_ascii_case("BuiltInRole"));
    let items = RoleCatalog::built_in()
        .iter()
        .filter(|role| kind && filter.equals_value("roleName").is_none_or(|name| role.name == name))
        .map(|role| role_definition_json(&at, role))
        .collect();
    list_reply(call, items)
}

fn read_definition(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = request_scope(call)?;
    authorize_call(call, &format!("{DEFINITION}/read"), &at)?;
    let role = find_role_definition(call.path_parameter("name"))?;
    Ok(json_reply(call, StatusCode::OK, &role_definition_json(&at, role)))
}

fn list_assignments(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = request_scope(call)?;
    authorize_call(call, &format!("{ASSIGNMENT}/read"), &at)?;
    let filter = ODataFilter::from_request(call, &["atScope", "principalId", "assignedTo"])?;
    let principal =
        filter.equals_value("principalId").or_else(|| filter.function_argument("assignedTo"));
    let not_below = filter.function_argument("atScope").is_some();
    let items = call
        .world()
        .authorization
        .iter()
        .filter(|held| held.scope.contains(&at) || (!not_below && at.contains(&held.scope)))
        .filter(|held| {
            principal.is_none_or(|id| held.principal_id.to_string().eq_ignore_ascii_case(id))
        })
        .map(role_assignment_json)
        .collect();
    list_reply(call, items)
}

fn read_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = request_scope(call)?;
    authorize_call(call, &format!("{ASSIGNMENT}/read"), &at)?;
    let name = assignment_name(call)?;
    match call.world().authorization.assignment(name).filter(|held| held.scope == at) {
        Some(held) => Ok(json_reply(call, StatusCode::OK, &role_assignment_json(held))),
        None => Err(ArmServiceError::Other(
            StatusCode::NOT_FOUND,
            "RoleAssignmentNotFound",
            format!("The role assignment '{name}' does not exist at '{at}'."),
        )
        .to_reply()),
    }
}

fn create_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = request_scope(call)?;
    authorize_call(call, &format!("{ASSIGNMENT}/write"), &at)?;
    require_scope_group(call, &at)?;
    let wanted = parse_assignment(call, at)?;
    let name = wanted.name;
    let status = match call.azure_mut().authorization.assign(wanted) {
        Ok(AssignOutcome::Created) => StatusCode::CREATED,
        Ok(AssignOutcome::Unchanged) => StatusCode::OK,
        Err(problem @ AssignError::AlreadyAssigned { .. }) => {
            return Err(conflict("RoleAssignmentExists", format!("{problem}.")));
        }
        Err(problem @ AssignError::UpdateNotPermitted { .. }) => {
            return Err(conflict("RoleAssignmentUpdateNotPermitted", format!("{problem}.")));
        }
        Err(problem @ AssignError::RoleUnknown { .. }) => {
            return Err(role_definition_not_found(problem.to_string()));
        }
    };
    let wire =
        call.world().authorization.assignment(name).map(role_assignment_json).unwrap_or_default();
    Ok(json_reply(call, status, &wire))
}

fn delete_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = request_scope(call)?;
    authorize_call(call, &format!("{ASSIGNMENT}/delete"), &at)?;
    let name = assignment_name(call)?;
    let removed =
        call.azure_mut().authorization.revoke(|held| held.name == name && held.scope == at);
    match removed.first() {
        Some(held) => Ok(json_reply(call, StatusCode::OK, &role_assignment_json(held))),
        None => Ok(empty_reply(call, StatusCode::NO_CONTENT)),
    }
}

fn parse_assignment(
    call: &OperationContext<'_>,
    scope: AccessScope,
) -> Result<RoleAssignment, ServiceReply> {
    let given = json_body(call)?;
    let properties = given.get("properties").unwrap_or(&Value::Null);
    let text = |field: &str| properties.get(field).and_then(Value::as_str);
    if text("condition").is_some_and(|condition| !condition.is_empty()) {
        return Err(ArmServiceError::Other(
            StatusCode::NOT_IMPLEMENTED,
            "ConditionNotImplemented",
            "The emulator evaluates no conditions, so it stores none.".to_owned(),
        )
        .to_reply());
    }
    let role = text("roleDefinitionId").unwrap_or_default();
    let role = find_role_definition(role.rsplit('/').next().unwrap_or_default())?.id;
    let principal_id =
        text("principalId").and_then(|id| Uuid::try_parse(id).ok()).ok_or_else(|| {
            bad_request("InvalidPrincipalId", "`properties.principalId` is not a GUID.")
        })?;
    // A caller that names the type has just created the principal: its absence is tolerated.
    let principal_type = text("principalType").map(str::to_owned);
    if principal_type.is_none() && call.world().directory.object(principal_id).is_none() {
        return Err(bad_request(
            "PrincipalNotFound",
            format!("Principal {principal_id} does not exist in the directory of the tenant."),
        ));
    }
    Ok(RoleAssignment {
        name: assignment_name(call)?,
        scope,
        role,
        principal_id,
        principal_type: principal_type.unwrap_or_else(|| "ServicePrincipal".to_owned()),
        description: text("description").map(str::to_owned),
        created_on: call.now,
    })
}

/// The scope before the provider.
fn request_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    parse_request_scope(&format!("/{}", call.path_parameter("scope")))
}

/// Rejects a scope whose resource group does not exist.
fn require_scope_group(call: &OperationContext<'_>, at: &AccessScope) -> Result<(), ServiceReply> {
    let segments: Vec<_> = at.as_str().split('/').collect();
    let [_, _, _, keyword, name, ..] = segments.as_slice() else { return Ok(()) };
    let group = parse_request_scope(&segments[..5].join("/"))?;
    let missing = keyword.eq_ignore_ascii_case("resourceGroups")
        && call.world().resources.resource(&group).is_none();
    if missing { Err(ArmServiceError::ResourceGroupNotFound(name).to_reply()) } else { Ok(()) }
}

fn assignment_name(call: &OperationContext<'_>) -> Result<Uuid, ServiceReply> {
    let name = call.path_parameter("name");
    Uuid::try_parse(name).map_err(|error| {
        bad_request(
            "InvalidRoleAssignmentId",
            format!("The role assignment name '{name}' is not a GUID: {error}."),
        )
    })
}

/// Finds a built-in role by name. HyperShift sends a display name in place of a GUID.
fn find_role_definition(name: &str) -> Result<&'static RoleDefinition, ServiceReply> {
    let id = Uuid::try_parse(name).map_err(|error| {
        bad_request(
            "InvalidRoleDefinitionId",
            format!("The role definition '{name}' is not a GUID: {error}."),
        )
    })?;
    RoleCatalog::built_in().role(RoleDefinitionId(id)).ok_or_else(|| {
        role_definition_not_found(format!("the role definition `{id}` does not exist"))
    })
}

fn role_definition_not_found(message: String) -> ServiceReply {
    ArmServiceError::Other(
        StatusCode::NOT_FOUND,
        "RoleDefinitionDoesNotExist",
        format!("{message}."),
    )
    .to_reply()
}

/// The id of a role at a scope: with its subscription, if the scope has one.
fn role_definition_id(at: &AccessScope, role: RoleDefinitionId) -> String {
    let segments: Vec<_> = at.as_str().split('/').take(3).collect();
    let subscription = match segments.as_slice() {
        [_, keyword, id] if keyword.eq_ignore_ascii_case("subscriptions") => {
            format!("/subscriptions/{id}")
        }
        _ => String::new(),
    };
    format!("{subscription}/providers/{DEFINITION}/{}", role.0)
}

fn role_definition_json(at: &AccessScope, role: &RoleDefinition) -> Value {
    let patterns = |granted: bool, plane: ActionPlane| -> Vec<&str> {
        if granted {
            role.granted_patterns(plane).collect()
        } else {
            role.excluded_patterns(plane).collect()
        }
    };
    json!({
        "id": role_definition_id(at, role.id),
        "type": DEFINITION,
        "name": role.id.0,
        "properties": {
            "roleName": role.name,
            "type": "BuiltInRole",
            "description": format!("As Azure published it on {}.", RoleCatalog::built_in().date()),
            "assignableScopes": ["/"],
            "permissions": [{
                "actions": patterns(true, ActionPlane::Control),
                "notActions": patterns(false, ActionPlane::Control),
                "dataActions": patterns(true, ActionPlane::Data),
                "notDataActions": patterns(false, ActionPlane::Data),
            }],
        },
    })
}

fn role_assignment_json(held: &RoleAssignment) -> Value {
    json!({
        "id": held.id(),
        "type": ASSIGNMENT,
        "name": held.name,
        "properties": {
            "roleDefinitionId": role_definition_id(&held.scope, held.role),
            "principalId": held.principal_id,
            "principalType": held.principal_type,
            "scope": held.scope,
            "condition": null,
            "conditionVersion": null,
            "description": held.description,
            "createdOn": held.created_on.to_string(),
            "updatedOn": held.created_on.to_string(),
        },
    })
}
