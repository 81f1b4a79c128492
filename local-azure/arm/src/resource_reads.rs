//! Read operations: one resource, or the resources of a resource group, a parent or a subscription.
//! The path determines the type, and with it the permission.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use serde_json::Value;

use super::access::{
    authenticate, authorize_call, has_assignment_around, is_authorized, json_reply, list_reply,
    require_group,
};
use super::error::ArmServiceError;
use super::long_running::{is_missing_after_write, poll_resource};
use super::request_scopes::{parse_request_scope, path_scope, resource_type};
use super::resource_rendering::{render_resource, render_stored};

/// `GET {id}` of a resource: permission `<type>/read`.
pub fn get_resource(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let unsettled = is_unsettled(authorize_and_find(call)?);
    let mut retry_after = None;
    if unsettled {
        retry_after = poll_resource(call, &id);
        find_resource(call, &id)?;
    }
    if is_missing_after_write(call, &id) {
        return Err(ArmServiceError::ResourceNotFound(&id).to_reply());
    }
    let wire = render_resource(call, &id);
    let reply = json_reply(call, StatusCode::OK, &wire);
    let reply = match retry_after {
        Some(milliseconds) => reply.with_header("retry-after-ms", milliseconds.to_string()),
        None => reply,
    };
    Ok(match wire.get("etag").and_then(Value::as_str) {
        Some(etag) => reply.with_header("etag", etag),
        None => reply,
    })
}

/// Whether an operation on the resource is pending.
fn is_unsettled(resource: &ArmResource) -> bool {
    let state = resource.property("provisioningState").and_then(Value::as_str);
    matches!(state, Some("Creating" | "Updating" | "Deleting"))
}

/// Returns the resource in the path, if the caller may read it.
pub(super) fn authorize_and_find<'c>(
    call: &'c mut OperationContext<'_>,
) -> Result<&'c ArmResource, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{}/read", resource_type(&id)?), &id)?;
    find_resource(call, &id)
}

/// Returns a resource, or the error reply for a missing resource group or resource.
pub fn find_resource<'c>(
    call: &'c OperationContext<'_>,
    id: &AccessScope,
) -> Result<&'c ArmResource, ServiceReply> {
    require_group(call)?;
    call.azure()
        .resources
        .resource(id)
        .ok_or_else(|| ArmServiceError::ResourceNotFound(id).to_reply())
}

/// `GET` of a collection below a scope; needs the permission `<type>/read` on the scope.
pub fn list_child_collection(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (parent, kind) = parse_collection_path(call)?;
    authorize_call(call, &format!("{kind}/read"), &parent)?;
    require_group(call)?;
    require_parent(call, &parent)?;
    let resources = &call.azure().resources;
    let items = resources
        .of_type_within(&parent, &kind)
        .map(|resource| render_stored(call, resource))
        .collect();
    list_reply(call, items)
}

/// `GET` of a collection of a subscription: the resources that the caller may read.
pub fn list_in_subscription(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (subscription, kind) = parse_collection_path(call)?;
    list_readable(call, &subscription, &kind, &format!("{kind}/read"), |_| true)
}

/// Returns the `wanted` resources of a type on which the caller has the permission for `action`. A
/// caller without any role assignment in `subscription` is rejected.
pub(super) fn list_readable(
    call: &mut OperationContext<'_>,
    subscription: &AccessScope,
    kind: &str,
    action: &str,
    wanted: impl Fn(&ArmResource) -> bool,
) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    if !has_assignment_around(call, &caller, subscription) {
        super::access::authorize(call, &caller, action, subscription)?;
    }
    let items = call
        .azure()
        .resources
        .of_type_within(subscription, kind)
        .filter(|resource| wanted(resource) && is_authorized(call, &caller, action, &resource.id))
        .map(|resource| render_stored(call, resource))
        .collect();
    list_reply(call, items)
}

/// Returns the parent of a collection and the type of its resources.
fn parse_collection_path(
    call: &OperationContext<'_>,
) -> Result<(AccessScope, String), ServiceReply> {
    let path = path_scope(call)?;
    let kind = resource_type(&path.child("_"))?;
    let segments: Vec<_> = path.as_str().trim_start_matches('/').split('/').collect();
    // Drops the name of the collection; in a resource group, also `providers/<namespace>`.
    let direct =
        segments.len() >= 3 && segments[segments.len() - 3].eq_ignore_ascii_case("providers");
    let retained = segments.len() - if direct { 3 } else { 1 };
    Ok((parse_request_scope(&format!("/{}", segments[..retained].join("/")))?, kind))
}

/// Rejects a collection whose parent does not exist. Implicit resources such as
/// `blobServices/default` exist with their storage account.
fn require_parent(call: &OperationContext<'_>, parent: &AccessScope) -> Result<(), ServiceReply> {
    let trimmed = parent.as_str().strip_suffix("/default").and_then(|text| text.rsplit_once('/'));
    let parent = match trimmed {
        Some((account, _)) => parse_request_scope(account)?,
        None => parent.clone(),
    };
    match call.azure().resources.resource(&parent) {
        Some(_) => Ok(()),
        None => Err(ArmServiceError::ResourceNotFound(&parent).to_reply()),
    }
}
