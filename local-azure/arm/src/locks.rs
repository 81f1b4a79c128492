//! Management locks: `Microsoft.Authorization/locks`.
//!
//! A lock on a scope applies to everything below it. Reference: "Lock your resources to protect
//! your infrastructure", api-version 2020-05-01.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, LOCK_TYPE, UpsertOutcome};
use serde_json::Value;

use super::access::{authorize_call, empty_reply, json_body, json_reply, list_reply};
use super::error::{ArmServiceError, bad_request};
use super::lock_check::locked_scope;
use super::odata_filter::ODataFilter;
use super::request_scopes::extension_scope;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    full!(
        "ManagementLocks_ListByScope",
        GET,
        "/{*scope}/providers/Microsoft.Authorization/locks",
        list_locks
    ),
    full!(
        "ManagementLocks_GetByScope",
        GET,
        "/{*scope}/providers/Microsoft.Authorization/locks/{name}",
        get_lock
    ),
    full!(
        "ManagementLocks_CreateOrUpdateByScope",
        PUT,
        "/{*scope}/providers/Microsoft.Authorization/locks/{name}",
        put_lock
    ),
    full!(
        "ManagementLocks_DeleteByScope",
        DELETE,
        "/{*scope}/providers/Microsoft.Authorization/locks/{name}",
        delete_lock
    ),
];

/// Returns the scope and the id of the lock in the path.
fn requested_lock(call: &OperationContext<'_>) -> Result<(AccessScope, AccessScope), ServiceReply> {
    let scope = extension_scope(call)?;
    let name = call.path_parameter("name");
    let id = scope.child(&format!("providers/{LOCK_TYPE}/{name}"));
    Ok((scope, id))
}

/// `GET` of the locks on and below the scope; with `$filter=atScope()` of those on and above it.
fn list_locks(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = extension_scope(call)?;
    authorize_call(call, "Microsoft.Authorization/locks/read", &scope)?;
    let filter = ODataFilter::from_request(call, &["atScope"])?;
    let at_scope = filter.function_argument("atScope").is_some();
    let items = call
        .azure()
        .resources
        .locks()
        .filter(|lock| {
            let at = locked_scope(lock);
            at.contains(&scope) || (!at_scope && scope.contains(&at))
        })
        .map(ArmResource::to_json)
        .collect();
    list_reply(call, items)
}

fn get_lock(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (scope, id) = requested_lock(call)?;
    authorize_call(call, "Microsoft.Authorization/locks/read", &scope)?;
    if let Some(wire) = call.azure().resources.resource(&id).map(ArmResource::to_json) {
        Ok(json_reply(call, StatusCode::OK, &wire))
    } else {
        let message = format!("The lock '{}' could not be found.", call.path_parameter("name"));
        Err(ArmServiceError::Other(StatusCode::NOT_FOUND, "LockNotFound", message).to_reply())
    }
}

fn put_lock(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (scope, id) = requested_lock(call)?;
    authorize_call(call, "Microsoft.Authorization/locks/write", &scope)?;
    let body = json_body(call)?;
    let level = body.pointer("/properties/level").and_then(Value::as_str).unwrap_or_default();
    if !["CanNotDelete", "ReadOnly"].iter().any(|known| known.eq_ignore_ascii_case(level)) {
        return Err(bad_request(
            "InvalidLockLevel",
            format!("The lock level '{level}' is invalid: it is CanNotDelete or ReadOnly."),
        ));
    }
    let now = call.now;
    let resources = &mut call.azure_mut().resources;
    let stored = resources.upsert(ArmResource::new(id.clone(), LOCK_TYPE, body, now));
    let wire = resources.resource(&id).map(ArmResource::to_json).unwrap_or_default();
    let status = match stored {
        UpsertOutcome::Created => StatusCode::CREATED,
        UpsertOutcome::Replaced => StatusCode::OK,
    };
    Ok(json_reply(call, status, &wire))
}

fn delete_lock(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (scope, id) = requested_lock(call)?;
    authorize_call(call, "Microsoft.Authorization/locks/delete", &scope)?;
    let removed = call.azure_mut().resources.remove(&id);
    let status = if removed.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::OK };
    Ok(empty_reply(call, status))
}
