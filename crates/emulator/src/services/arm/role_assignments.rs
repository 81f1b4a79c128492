//! Role definitions and assignments. Reference: Microsoft.Authorization, 2022-04-01.

use http::{Method, StatusCode};
use lanyard_vocabulary::RoleDefinitionId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::filter::Filter;
use super::gate::{body, empty, enter, list, reply, scope};
use super::refusal::{Refusal, bad_request, conflict};
use crate::authorization::{
    AccessScope, AssignError, Assigned, Plane, RoleAssignment, RoleCatalog, RoleDefinition,
};
use crate::call::Call;
use crate::operations::{Handler, Operation, Support};
use crate::request::Reply;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "RoleDefinitions_List",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleDefinitions",
        support: Support::Partial("built-in roles of hosted clusters, no custom roles"),
        handler: list_definitions,
    },
    Operation {
        id: "RoleDefinitions_Get",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleDefinitions/{name}",
        support: Support::Partial("built-in roles of hosted clusters, no custom roles"),
        handler: read_definition,
    },
    Operation {
        id: "RoleAssignments_ListForScope",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleAssignments",
        support: Support::Full,
        handler: list_assignments,
    },
    assignment("RoleAssignments_Get", Method::GET, read_assignment),
    assignment("RoleAssignments_Create", Method::PUT, create_assignment),
    assignment("RoleAssignments_Delete", Method::DELETE, delete_assignment),
];

const DEFINITION: &str = "Microsoft.Authorization/roleDefinitions";
const ASSIGNMENT: &str = "Microsoft.Authorization/roleAssignments";

const fn assignment(id: &'static str, method: Method, handler: Handler) -> Operation {
    Operation {
        id,
        method,
        path: "/{*scope}/providers/Microsoft.Authorization/roleAssignments/{name}",
        support: Support::Partial("conditions are refused"),
        handler,
    }
}

fn list_definitions(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let at = target(call)?;
    enter(call, &format!("{DEFINITION}/read"), &at)?;
    let filter = Filter::of(call, &["roleName", "type", "atScopeAndBelow"])?;
    let kind = filter.equals("type").is_none_or(|kind| kind.eq_ignore_ascii_case("BuiltInRole"));
    let items = RoleCatalog::built_in()
        .iter()
        .filter(|role| kind && filter.equals("roleName").is_none_or(|name| role.name == name))
        .map(|role| definition_wire(&at, role))
        .collect();
    list(call, items)
}

fn read_definition(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let at = target(call)?;
    enter(call, &format!("{DEFINITION}/read"), &at)?;
    let role = definition(call.parameter("name"))?;
    Ok(reply(call, StatusCode::OK, &definition_wire(&at, role)))
}

fn list_assignments(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let at = target(call)?;
    enter(call, &format!("{ASSIGNMENT}/read"), &at)?;
    let filter = Filter::of(call, &["atScope", "principalId", "assignedTo"])?;
    let principal = filter.equals("principalId").or_else(|| filter.function("assignedTo"));
    let not_below = filter.function("atScope").is_some();
    let items = call
        .world()
        .authorization
        .iter()
        .filter(|held| held.scope.contains(&at) || (!not_below && at.contains(&held.scope)))
        .filter(|held| {
            principal.is_none_or(|id| held.principal_id.to_string().eq_ignore_ascii_case(id))
        })
        .map(assignment_wire)
        .collect();
    list(call, items)
}

fn read_assignment(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let at = target(call)?;
    enter(call, &format!("{ASSIGNMENT}/read"), &at)?;
    let name = assignment_name(call)?;
    match call.world().authorization.assignment(name).filter(|held| held.scope == at) {
        Some(held) => Ok(reply(call, StatusCode::OK, &assignment_wire(held))),
        None => Err(Refusal::Other(
            StatusCode::NOT_FOUND,
            "RoleAssignmentNotFound",
            format!("The role assignment '{name}' does not exist at '{at}'."),
        )
        .reply()),
    }
}

fn create_assignment(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let at = target(call)?;
    enter(call, &format!("{ASSIGNMENT}/write"), &at)?;
    require_scope(call, &at)?;
    let wanted = parse_assignment(call, at)?;
    let name = wanted.name;
    let status = match call.world_mut().authorization.assign(wanted) {
        Ok(Assigned::Created) => StatusCode::CREATED,
        Ok(Assigned::Unchanged) => StatusCode::OK,
        Err(problem @ AssignError::Exists { .. }) => {
            return Err(conflict("RoleAssignmentExists", format!("{problem}.")));
        }
        Err(problem @ AssignError::UpdateNotPermitted { .. }) => {
            return Err(conflict("RoleAssignmentUpdateNotPermitted", format!("{problem}.")));
        }
        Err(problem @ AssignError::RoleUnknown { .. }) => return Err(no_role(problem.to_string())),
    };
    let wire = call.world().authorization.assignment(name).map(assignment_wire).unwrap_or_default();
    Ok(reply(call, status, &wire))
}

fn delete_assignment(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let at = target(call)?;
    enter(call, &format!("{ASSIGNMENT}/delete"), &at)?;
    let name = assignment_name(call)?;
    let removed =
        call.world_mut().authorization.revoke(|held| held.name == name && held.scope == at);
    match removed.first() {
        Some(held) => Ok(reply(call, StatusCode::OK, &assignment_wire(held))),
        None => Ok(empty(call, StatusCode::NO_CONTENT)),
    }
}

fn parse_assignment(call: &Call<'_>, scope: AccessScope) -> Result<RoleAssignment, Reply> {
    let given = body(call)?;
    let properties = given.get("properties").unwrap_or(&Value::Null);
    let text = |field: &str| properties.get(field).and_then(Value::as_str);
    if text("condition").is_some_and(|condition| !condition.is_empty()) {
        return Err(Refusal::Other(
            StatusCode::NOT_IMPLEMENTED,
            "ConditionNotImplemented",
            "The emulator evaluates no conditions, so it stores none.".to_owned(),
        )
        .reply());
    }
    let role = text("roleDefinitionId").unwrap_or_default();
    let role = definition(role.rsplit('/').next().unwrap_or_default())?.id;
    let principal_id =
        text("principalId").and_then(|id| Uuid::try_parse(id).ok()).ok_or_else(|| {
            bad_request("InvalidPrincipalId", "`properties.principalId` is not a GUID.")
        })?;
    // A caller that names the type has just made the principal: its absence is forgiven.
    let principal_type = text("principalType").map(str::to_owned);
    if principal_type.is_none() && call.world().directory.by_object(principal_id).is_none() {
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

/// The scope in front of the provider.
fn target(call: &Call<'_>) -> Result<AccessScope, Reply> {
    scope(&format!("/{}", call.parameter("scope")))
}

/// Refuses a scope whose resource group is not there.
fn require_scope(call: &Call<'_>, at: &AccessScope) -> Result<(), Reply> {
    let segments: Vec<_> = at.as_str().split('/').collect();
    let [_, _, _, keyword, name, ..] = segments.as_slice() else { return Ok(()) };
    let group = scope(&segments[..5].join("/"))?;
    let missing = keyword.eq_ignore_ascii_case("resourceGroups")
        && call.world().resources.resource(&group).is_none();
    if missing { Err(Refusal::NoResourceGroup(name).reply()) } else { Ok(()) }
}

fn assignment_name(call: &Call<'_>) -> Result<Uuid, Reply> {
    let name = call.parameter("name");
    Uuid::try_parse(name).map_err(|error| {
        bad_request(
            "InvalidRoleAssignmentId",
            format!("The role assignment name '{name}' is not a GUID: {error}."),
        )
    })
}

/// The built-in role of this name. HyperShift sends a display name where a GUID belongs.
fn definition(name: &str) -> Result<&'static RoleDefinition, Reply> {
    let id = Uuid::try_parse(name).map_err(|error| {
        bad_request(
            "InvalidRoleDefinitionId",
            format!("The role definition '{name}' is not a GUID: {error}."),
        )
    })?;
    RoleCatalog::built_in()
        .role(RoleDefinitionId(id))
        .ok_or_else(|| no_role(format!("the role definition `{id}` does not exist")))
}

fn no_role(message: String) -> Reply {
    Refusal::Other(StatusCode::NOT_FOUND, "RoleDefinitionDoesNotExist", format!("{message}."))
        .reply()
}

/// The id of a role as seen from a scope: with its subscription, if the scope is in one.
fn definition_id(at: &AccessScope, role: RoleDefinitionId) -> String {
    let segments: Vec<_> = at.as_str().split('/').take(3).collect();
    let subscription = match segments.as_slice() {
        [_, keyword, id] if keyword.eq_ignore_ascii_case("subscriptions") => {
            format!("/subscriptions/{id}")
        }
        _ => String::new(),
    };
    format!("{subscription}/providers/{DEFINITION}/{}", role.0)
}

fn definition_wire(at: &AccessScope, role: &RoleDefinition) -> Value {
    let patterns = |granted: bool, plane: Plane| -> Vec<&str> {
        if granted { role.granted(plane).collect() } else { role.excluded(plane).collect() }
    };
    json!({
        "id": definition_id(at, role.id),
        "type": DEFINITION,
        "name": role.id.0,
        "properties": {
            "roleName": role.name,
            "type": "BuiltInRole",
            "description": format!("As Azure published it on {}.", RoleCatalog::built_in().date()),
            "assignableScopes": ["/"],
            "permissions": [{
                "actions": patterns(true, Plane::Control),
                "notActions": patterns(false, Plane::Control),
                "dataActions": patterns(true, Plane::Data),
                "notDataActions": patterns(false, Plane::Data),
            }],
        },
    })
}

fn assignment_wire(held: &RoleAssignment) -> Value {
    json!({
        "id": held.id(),
        "type": ASSIGNMENT,
        "name": held.name,
        "properties": {
            "roleDefinitionId": definition_id(&held.scope, held.role),
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
