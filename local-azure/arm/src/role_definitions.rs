//! Role definitions: the built-in roles and custom roles. Reference: Microsoft.Authorization, 2022-04-01.

use std::sync::Arc;

use http::{Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::{
    AccessScope, BuiltInRoles, CustomRole, CustomRoleError, MAX_CUSTOM_ROLES, RoleDefinition,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::RoleDefinitionId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::{
    authenticate, authorize, authorize_call, authorize_links, empty_reply, json_body, json_reply,
    list_reply,
};
use super::error::{ArmServiceError, LinkedAction, bad_request, conflict};
use super::odata_filter::ODataFilter;
use super::request_scopes::extension_scope;
use super::role_permissions::{parse_custom_role, permission_json};

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "RoleDefinitions_List",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleDefinitions",
        support: OperationSupport::Full,
        handler: list_definitions,
    },
    definition_operation(
        "RoleDefinitions_Get",
        Method::GET,
        OperationSupport::Full,
        get_definition,
    ),
    definition_operation(
        "RoleDefinitions_CreateOrUpdate",
        Method::PUT,
        OperationSupport::Partial("actions are checked by their provider and form, not by name"),
        put_definition,
    ),
    definition_operation(
        "RoleDefinitions_Delete",
        Method::DELETE,
        OperationSupport::Full,
        delete_definition,
    ),
];

const DEFINITION: &str = "Microsoft.Authorization/roleDefinitions";
const WRITE_ACTION: &str = "Microsoft.Authorization/roleDefinitions/write";
const DELETE_ACTION: &str = "Microsoft.Authorization/roleDefinitions/delete";
/// The first api-version whose replies have data actions.
const DATA_ACTIONS_SINCE: &str = "2018-01-01-preview";

const fn definition_operation(
    id: &'static str,
    method: Method,
    support: OperationSupport,
    handler: OperationHandler,
) -> ServiceOperation {
    let path = "/{*scope}/providers/Microsoft.Authorization/roleDefinitions/{name}";
    ServiceOperation { id, method, path, support, handler }
}

/// Checks the permission to read role definitions at a scope. Every caller may read them at the
/// root scope.
fn authorize_read(
    call: &mut OperationContext<'_>,
    at: &AccessScope,
) -> Result<Arc<AuthenticatedCaller>, ServiceReply> {
    if *at == AccessScope::root() {
        return authenticate(call);
    }
    authorize_call(call, &format!("{DEFINITION}/read"), at)
}

fn list_definitions(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authorize_read(call, &at)?;
    let filter = ODataFilter::from_request(call, &["roleName", "type", "atScopeAndBelow"])?;
    let includes_kind = |kind: &str| {
        filter.equals_value("type").is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
    };
    let has_name = |name: &str| {
        filter.equals_value("roleName").is_none_or(|wanted| wanted.eq_ignore_ascii_case(name))
    };
    let below = filter.function_argument("atScopeAndBelow").is_some();
    let built_in = BuiltInRoles::embedded()
        .iter()
        .filter(|role| includes_kind("BuiltInRole") && has_name(role.name))
        .map(|role| built_in_role_json(call, &at, role.definition()));
    let azure = call.azure();
    let management_groups = azure.management_groups_above(&at);
    let custom = azure
        .authorization
        .custom_roles_of(&caller.tenant)
        .filter(|role| includes_kind("CustomRole") && has_name(&role.definition.name))
        .filter(|role| {
            at == AccessScope::root()
                || role.is_assignable_at(&at, &management_groups)
                || (below && role.assignable_scopes.iter().any(|scope| at.contains(scope)))
        })
        .map(|role| custom_role_json(call, &at, role));
    let items = built_in.chain(custom).collect();
    list_reply(call, items)
}

fn get_definition(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authorize_read(call, &at)?;
    let id = definition_name(call)?;
    let found = match find_custom_role(call, &caller, id) {
        Some(role) => Some(custom_role_json(call, &at, role)),
        None => BuiltInRoles::embedded()
            .role(id)
            .map(|role| built_in_role_json(call, &at, role.definition())),
    };
    match found {
        Some(role) => Ok(json_reply(call, StatusCode::OK, &role)),
        None => Err(role_definition_not_found(&id.0.to_string())),
    }
}

fn put_definition(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authorize_call(call, WRITE_ACTION, &at)?;
    let id = definition_name(call)?;
    reject_built_in_role(id)?;
    let role = parse_custom_role(call, &caller, id, &json_body(call)?)?;
    let previous = find_custom_role(call, &caller, id).map(|known| &known.assignable_scopes);
    let scopes: Vec<_> =
        role.assignable_scopes.iter().chain(previous.into_iter().flatten()).cloned().collect();
    authorize_assignable_scopes(call, &caller, WRITE_ACTION, &at, &scopes)?;
    match call.azure_mut().authorization.put_custom_role(role) {
        Ok(()) => {}
        Err(CustomRoleError::SameName) => {
            let message = "A custom role with the same name already exists in this directory. Use a different name.";
            return Err(conflict("RoleDefinitionWithSameNameExists", message));
        }
        Err(CustomRoleError::SameId) => {
            let message = "A role definition with the same ID exists in another directory.";
            return Err(conflict("RoleDefinitionExists", message));
        }
        Err(CustomRoleError::Limit) => {
            let message = format!(
                "Role definition limit exceeded. No more than {MAX_CUSTOM_ROLES} role definitions can be created."
            );
            return Err(bad_request("RoleDefinitionLimitExceeded", message));
        }
    }
    let stored = find_custom_role(call, &caller, id).map(|role| custom_role_json(call, &at, role));
    Ok(json_reply(call, StatusCode::CREATED, &stored.unwrap_or_default()))
}

fn delete_definition(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authorize_call(call, DELETE_ACTION, &at)?;
    let id = definition_name(call)?;
    reject_built_in_role(id)?;
    let Some(role) = find_custom_role(call, &caller, id) else {
        return Ok(empty_reply(call, StatusCode::NO_CONTENT));
    };
    let (scopes, wire) = (role.assignable_scopes.clone(), custom_role_json(call, &at, role));
    authorize_assignable_scopes(call, &caller, DELETE_ACTION, &at, &scopes)?;
    if call.azure().authorization.is_role_assigned(id) {
        let message = "There are existing role assignments referencing role.";
        return Err(bad_request("RoleDefinitionHasAssignments", message));
    }
    call.azure_mut().authorization.remove_custom_role(id);
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Rejects a caller that lacks the permission on one of the assignable scopes of a custom role.
fn authorize_assignable_scopes(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    action: &str,
    at: &AccessScope,
    scopes: &[AccessScope],
) -> Result<(), ServiceReply> {
    // Checked separately, so that the error names the scope of the request and not linked scopes.
    authorize(call, caller, action, at)?;
    let links: Vec<_> = scopes.iter().map(|scope| LinkedAction { action, scope }).collect();
    authorize_links(call, caller, action, at, &links)
}

fn reject_built_in_role(id: RoleDefinitionId) -> Result<(), ServiceReply> {
    match BuiltInRoles::embedded().role(id) {
        None => Ok(()),
        Some(role) => {
            let message =
                format!("The built-in role '{}' cannot be changed or deleted.", role.name);
            Err(bad_request("BadRequest", message))
        }
    }
}

fn find_custom_role<'c>(
    call: &'c OperationContext<'_>,
    caller: &AuthenticatedCaller,
    id: RoleDefinitionId,
) -> Option<&'c CustomRole> {
    call.azure().authorization.custom_role(id).filter(|role| role.tenant == caller.tenant)
}

/// Returns the role definition id in the path.
fn definition_name(call: &OperationContext<'_>) -> Result<RoleDefinitionId, ServiceReply> {
    parse_role_definition_id(call.path_parameter("name"))
}

/// Parses the GUID of a role. Rejects a display name, which HyperShift sends.
pub(super) fn parse_role_definition_id(name: &str) -> Result<RoleDefinitionId, ServiceReply> {
    Uuid::try_parse(name).map(RoleDefinitionId).map_err(|error| {
        let message = format!("The role definition ID '{name}' is not valid: {error}.");
        bad_request("InvalidRoleDefinitionId", message)
    })
}

/// The error for a role definition that does not exist, or cannot be used at the requested scope.
pub(super) fn role_definition_not_found(id: &str) -> ServiceReply {
    ArmServiceError::Other(
        StatusCode::NOT_FOUND,
        "RoleDefinitionDoesNotExist",
        format!("The specified role definition with ID '{id}' does not exist."),
    )
    .to_reply()
}

/// Returns the resource id of a role definition, in the subscription of `at` if it has one.
pub(super) fn role_definition_id(at: &AccessScope, role: RoleDefinitionId) -> String {
    let subscription =
        at.subscription_id().map(|id| format!("/subscriptions/{id}")).unwrap_or_default();
    format!("{subscription}/providers/{DEFINITION}/{}", role.0)
}

fn built_in_role_json(
    call: &OperationContext<'_>,
    at: &AccessScope,
    role: &RoleDefinition,
) -> Value {
    let roles = BuiltInRoles::embedded();
    let published = format!("{}T00:00:00Z", roles.date());
    let mut wire = role_json(call, at, role);
    let properties = &mut wire["properties"];
    properties["type"] = json!("BuiltInRole");
    properties["description"] =
        json!(format!("As published on {}: {}", roles.date(), roles.source()));
    properties["assignableScopes"] = json!(["/"]);
    for (field, value) in [("createdOn", json!(published)), ("updatedOn", json!(published))] {
        properties[field] = value;
    }
    properties["createdBy"] = Value::Null;
    properties["updatedBy"] = Value::Null;
    wire
}

fn custom_role_json(call: &OperationContext<'_>, at: &AccessScope, role: &CustomRole) -> Value {
    let mut wire = role_json(call, at, &role.definition);
    let properties = &mut wire["properties"];
    properties["type"] = json!("CustomRole");
    properties["description"] = json!(role.description);
    properties["assignableScopes"] = json!(role.assignable_scopes);
    properties["createdOn"] = json!(role.created_on.to_string());
    properties["updatedOn"] = json!(role.updated_on.to_string());
    properties["createdBy"] = json!(role.created_by);
    properties["updatedBy"] = json!(role.updated_by);
    wire
}

/// Renders the fields that built-in and custom roles have in common.
fn role_json(call: &OperationContext<'_>, at: &AccessScope, role: &RoleDefinition) -> Value {
    let with_data_actions = call.api_version().is_ok_and(|version| version >= DATA_ACTIONS_SINCE);
    let permissions: Vec<_> = role
        .permissions
        .iter()
        .map(|permission| permission_json(permission, with_data_actions))
        .collect();
    json!({
        "id": role_definition_id(at, role.id),
        "type": DEFINITION,
        "name": role.id.0,
        "properties": { "roleName": role.name, "permissions": permissions },
    })
}

#[cfg(test)]
mod tests;
