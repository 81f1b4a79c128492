//! Read operations: one resource, those of a group, those of a parent, those of a subscription. The type, and
//! with it the permission, comes from the path.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use super::access::{
    authenticate, authorize_call, has_assignment_around, is_authorized, json_reply, list_reply,
    parse_request_scope, path_scope, require_group,
};
use super::error::{ArmServiceError, bad_request};
use super::long_running::{is_missing_after_write, poll_resource};
use crate::resource_types::find_resource_type;

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

/// A stored resource as in replies; `null` if it does not exist.
pub fn render_resource(call: &OperationContext<'_>, id: &AccessScope) -> Value {
    let resources = &call.azure().resources;
    resources.resource(id).map_or(Value::Null, |resource| render_stored(call, resource))
}

/// A resource as in replies.
pub fn render_stored(call: &OperationContext<'_>, resource: &ArmResource) -> Value {
    let (clouds, resources) = (call.clouds, &call.azure().resources);
    let kind = find_resource_type(call.services, &resource.kind);
    let Some(kind) = kind else { return resource.to_json() };
    let mut wire = match kind.render {
        Some(render) => render(resources, resource),
        None => resource.to_json(),
    };
    for pointer in kind.endpoints {
        match wire.pointer_mut(pointer) {
            Some(Value::String(url)) => *url = clouds.url_with_port(url),
            Some(Value::Object(urls)) => {
                for url in urls.values_mut() {
                    *url = url.as_str().map(|url| clouds.url_with_port(url)).into();
                }
            }
            _ => {}
        }
    }
    wire
}

/// The resource of a `GET`, if the caller may read it.
pub(super) fn authorize_and_find<'c>(
    call: &'c mut OperationContext<'_>,
) -> Result<&'c ArmResource, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{}/read", resource_type(&id)?), &id)?;
    find_resource(call, &id)
}

/// A resource, or the error for the missing part.
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

/// `GET` of a collection in a resource group or below a resource: permission `<type>/read` there.
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

/// The `wanted` resources of a type below `subscription` for which the caller has the permission for
/// `action`. A caller without any assignment below it is rejected.
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

/// The resource type in an id.
pub fn resource_type(id: &AccessScope) -> Result<String, ServiceReply> {
    let parsed: Result<ArmResourceId, _> = id.as_str().parse();
    match parsed.map(|id| id.resource_type()) {
        Ok(Some(kind)) => Ok(kind),
        Ok(None) => Err(bad_request("InvalidResourceId", format!("'{id}' names no resource."))),
        Err(error) => Err(bad_request("InvalidResourceId", error.to_string())),
    }
}

/// The parent of a collection's path, and the type of its members.
fn parse_collection_path(
    call: &OperationContext<'_>,
) -> Result<(AccessScope, String), ServiceReply> {
    let path = path_scope(call)?;
    let kind = resource_type(&path.child("_"))?;
    let segments: Vec<_> = path.as_str().trim_start_matches('/').split('/').collect();
    // Without the collection itself; for a group, also without `providers/<namespace>`.
    let direct =
        segments.len() >= 3 && segments[segments.len() - 3].eq_ignore_ascii_case("providers");
    let retained = segments.len() - if direct { 3 } else { 1 };
    Ok((parse_request_scope(&format!("/{}", segments[..retained].join("/")))?, kind))
}

/// Collections below a resource require that resource. Implicit resources such as `blobServices/default`
/// exist with their account.
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

/// The resource above a child resource.
pub fn parent_scope(child: &AccessScope) -> Result<AccessScope, ServiceReply> {
    parse_request_scope(child.as_str().rsplitn(3, '/').nth(2).unwrap_or_default())
}
