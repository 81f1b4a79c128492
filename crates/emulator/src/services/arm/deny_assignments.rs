//! Deny assignments. Reference: Microsoft.Authorization, 2022-04-01; those that a caller creates:
//! 2024-07-01-preview.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::{
    authorize_call, empty_reply, extension_scope, json_body, json_reply, list_reply,
};
use super::error::{ArmServiceError, bad_request};
use super::odata_filter::ODataFilter;
use super::role_permissions::{parse_permissions, permission_json};
use crate::authorization::{AccessScope, DeniedPrincipal, DenyAssignment};
use crate::operation_context::OperationContext;
use crate::operations::{OperationHandler, OperationSupport, ServiceOperation};
use crate::request::ServiceReply;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "DenyAssignments_ListForScope",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/denyAssignments",
        support: OperationSupport::Full,
        handler: list_deny_assignments,
    },
    deny_operation("DenyAssignments_Get", Method::GET, OperationSupport::Full, get_deny_assignment),
    deny_operation(
        "DenyAssignments_Create",
        Method::PUT,
        OperationSupport::Partial("no conditions, no audit"),
        put_deny_assignment,
    ),
    deny_operation(
        "DenyAssignments_Delete",
        Method::DELETE,
        OperationSupport::Full,
        delete_deny_assignment,
    ),
];

const DENY: &str = "Microsoft.Authorization/denyAssignments";
/// The first api-version with `PUT` and `DELETE`.
const WRITABLE_SINCE: &str = "2024-07-01";

const fn deny_operation(
    id: &'static str,
    method: Method,
    support: OperationSupport,
    handler: OperationHandler,
) -> ServiceOperation {
    let path = "/{*scope}/providers/Microsoft.Authorization/denyAssignments/{name}";
    ServiceOperation { id, method, path, support, handler }
}

fn list_deny_assignments(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    authorize_call(call, &format!("{DENY}/read"), &at)?;
    let known =
        ["atScope", "principalId", "assignedTo", "gdprExportPrincipalId", "denyAssignmentName"];
    let filter = ODataFilter::from_request(call, &known)?;
    let azure = call.azure();
    let parse = |text: &str| Uuid::try_parse(text).unwrap_or_default();
    let principals =
        match (filter.equals_value("principalId"), filter.function_argument("assignedTo")) {
            (Some(id), _) => Some(vec![parse(id)]),
            (None, Some(id)) => Some(azure.directory.principal_and_group_ids(parse(id))),
            (None, None) => None,
        };
    let concerns = |denied: &DenyAssignment| {
        principals.as_ref().is_none_or(|ids| {
            denied.principals.iter().any(|it| it.is_everyone() || ids.contains(&it.id))
        })
    };
    let management_groups = azure.management_groups_above(&at);
    let include_below = filter.function_argument("atScope").is_none();
    let items = azure
        .authorization
        .deny_assignments_around(&at, &management_groups, include_below)
        .filter(|denied| {
            filter.equals_value("denyAssignmentName").is_none_or(|name| denied.display_name == name)
        })
        .filter(|denied| concerns(denied))
        .map(deny_assignment_json)
        .collect();
    list_reply(call, items)
}

fn get_deny_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    authorize_call(call, &format!("{DENY}/read"), &at)?;
    let name = deny_assignment_name(call)?;
    match find_deny_assignment(call, &at, name) {
        Some(denied) => Ok(json_reply(call, StatusCode::OK, &deny_assignment_json(denied))),
        None => Err(ArmServiceError::Other(
            StatusCode::NOT_FOUND,
            "DenyAssignmentNotFound",
            format!("The deny assignment '{name}' is not found."),
        )
        .to_reply()),
    }
}

fn put_deny_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authorize_call(call, &format!("{DENY}/write"), &at)?;
    require_writable_version(call)?;
    let name = deny_assignment_name(call)?;
    let known = call.azure().authorization.deny_assignment(name);
    let is_new = known.is_none();
    if known.is_some_and(|known| known.is_system_protected || known.scope != at) {
        return Err(invalid("The deny assignment is protected, or at another scope."));
    }
    let body = json_body(call)?;
    let mut denied = parse_deny_assignment(name, at, &body, call)?;
    denied.created_by = Some(caller.object_id);
    let wire = deny_assignment_json(&denied);
    call.azure_mut().authorization.put_deny_assignment(denied);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_reply(call, status, &wire))
}

fn delete_deny_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    authorize_call(call, &format!("{DENY}/delete"), &at)?;
    require_writable_version(call)?;
    let name = deny_assignment_name(call)?;
    match find_deny_assignment(call, &at, name) {
        None => return Ok(empty_reply(call, StatusCode::NO_CONTENT)),
        Some(denied) if denied.is_system_protected => {
            return Err(invalid("The deny assignment is protected: Azure created it."));
        }
        Some(_) => {}
    }
    let removed = call.azure_mut().authorization.remove_deny_assignment(name);
    let wire = removed.as_ref().map(deny_assignment_json).unwrap_or_default();
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Parses the body of `PUT`. The limits are those of deny assignments that a caller creates.
fn parse_deny_assignment(
    name: Uuid,
    scope: AccessScope,
    body: &Value,
    call: &OperationContext<'_>,
) -> Result<DenyAssignment, ServiceReply> {
    let properties = body.get("properties").unwrap_or(&Value::Null);
    let text = |field: &str| properties.get(field).and_then(Value::as_str).map(str::to_owned);
    let is_true = |field: &str| properties.get(field).and_then(Value::as_bool) == Some(true);
    let display_name = text("denyAssignmentName").filter(|name| !name.is_empty());
    let display_name =
        display_name.ok_or_else(|| invalid("`properties.denyAssignmentName` is missing."))?;
    if is_true("doNotApplyToChildScopes") || is_true("isSystemProtected") {
        return Err(invalid(
            "Only Azure can set `doNotApplyToChildScopes` and `isSystemProtected`.",
        ));
    }
    if text("condition").is_some()
        || text("denyAssignmentEffect").is_some_and(|it| it != "enforced")
    {
        let message =
            "The emulator implements neither conditions nor the audit of deny assignments.";
        return Err(ArmServiceError::Other(
            StatusCode::NOT_IMPLEMENTED,
            "NotImplemented",
            message.to_owned(),
        )
        .to_reply());
    }
    let permissions = parse_permissions(properties)?;
    for permission in &permissions {
        if !permission.data_actions.is_empty() {
            return Err(invalid("Data actions cannot be denied."));
        }
        if permission.actions.iter().any(|action| action.as_str().to_lowercase().ends_with("/read"))
        {
            return Err(invalid("Read actions cannot be denied."));
        }
    }
    let principals = parse_principals(properties, "principals")?;
    let exclude_principals = parse_principals(properties, "excludePrincipals")?;
    match principals.as_slice() {
        [only] if only.is_everyone() && exclude_principals.is_empty() => {
            return Err(invalid("A deny assignment for everyone has to exclude a principal."));
        }
        [only] if only.kind.eq_ignore_ascii_case("Group") => {
            return Err(invalid("A deny assignment cannot be for a group."));
        }
        [_] => {}
        _ => return Err(invalid("A deny assignment is for everyone or for one principal.")),
    }
    Ok(DenyAssignment {
        name,
        scope,
        display_name,
        description: text("description"),
        permissions,
        principals,
        exclude_principals,
        only_at_scope: false,
        is_system_protected: false,
        created_on: call.now,
        created_by: None,
    })
}

fn parse_principals(properties: &Value, field: &str) -> Result<Vec<DeniedPrincipal>, ServiceReply> {
    match properties.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(given) => serde_json::from_value(given.clone())
            .map_err(|error| invalid(&format!("`properties.{field}`: {error}."))),
    }
}

fn require_writable_version(call: &OperationContext<'_>) -> Result<(), ServiceReply> {
    let version = call.api_version().unwrap_or_default();
    if version >= WRITABLE_SINCE {
        return Ok(());
    }
    let message = format!(
        "Deny assignments are read-only in api-version '{version}': use 2024-07-01-preview."
    );
    Err(ArmServiceError::Other(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
        .to_reply())
}

fn find_deny_assignment<'c>(
    call: &'c OperationContext<'_>,
    at: &AccessScope,
    name: Uuid,
) -> Option<&'c DenyAssignment> {
    call.azure().authorization.deny_assignment(name).filter(|denied| denied.scope == *at)
}

fn deny_assignment_name(call: &OperationContext<'_>) -> Result<Uuid, ServiceReply> {
    let name = call.path_parameter("name");
    Uuid::try_parse(name).map_err(|error| {
        invalid(&format!("The deny assignment ID '{name}' is not a GUID: {error}."))
    })
}

fn invalid(message: &str) -> ServiceReply {
    bad_request("InvalidDenyAssignment", message)
}

fn deny_assignment_json(denied: &DenyAssignment) -> Value {
    let permissions: Vec<_> =
        denied.permissions.iter().map(|permission| permission_json(permission, true)).collect();
    json!({
        "id": denied.id(),
        "type": DENY,
        "name": denied.name,
        "properties": {
            "denyAssignmentName": denied.display_name,
            "description": denied.description,
            "permissions": permissions,
            "scope": denied.scope,
            "doNotApplyToChildScopes": denied.only_at_scope,
            "principals": denied.principals,
            "excludePrincipals": denied.exclude_principals,
            "isSystemProtected": denied.is_system_protected,
            "createdOn": denied.created_on.to_string(),
            "updatedOn": denied.created_on.to_string(),
            "createdBy": denied.created_by,
            "updatedBy": denied.created_by,
        },
    })
}

#[cfg(test)]
mod tests;
