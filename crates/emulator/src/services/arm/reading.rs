//! Reading what is stored: one resource, those of a group, those of a parent, those of a
//! subscription. The type, and with it the permission, is read from the path.

use http::StatusCode;
use lanyard_vocabulary::ArmResourceId;

use super::gate::{authenticate, enter, list, may, path_scope, reply, require_group, scope};
use super::refusal::{Refusal, bad_request};
use super::resources::Resource;
use crate::authorization::AccessScope;
use crate::call::Call;
use crate::request::Reply;

/// `GET {id}` of a resource: permission `<type>/read`.
pub(super) fn read(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (wire, etag) = {
        let resource = enter_and_find(call)?;
        (resource.wire(), resource.etag())
    };
    let tagged = wire.get("etag").is_some();
    let reply = reply(call, StatusCode::OK, &wire);
    Ok(if tagged { reply.with_header("etag", etag) } else { reply })
}

/// The resource that a `GET` names, for a caller who may read it.
pub(super) fn enter_and_find<'c>(call: &'c mut Call<'_>) -> Result<&'c Resource, Reply> {
    let id = path_scope(call)?;
    enter(call, &format!("{}/read", resource_type(&id)?), &id)?;
    find(call, &id)
}

/// A resource, or the refusal for what is missing.
pub(super) fn find<'c>(call: &'c Call<'_>, id: &AccessScope) -> Result<&'c Resource, Reply> {
    require_group(call)?;
    call.world().resources.resource(id).ok_or_else(|| Refusal::NoResource(id).reply())
}

/// `GET` of a collection in a resource group or below a resource: permission `<type>/read` there.
pub(super) fn list_below(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (parent, kind) = collection(call)?;
    enter(call, &format!("{kind}/read"), &parent)?;
    require_group(call)?;
    require_parent(call, &parent)?;
    let items = call.world().resources.below(&parent, &kind).map(Resource::wire).collect();
    list(call, items)
}

/// `GET` of a collection of a subscription: what the caller may read of it.
pub(super) fn list_in_subscription(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (subscription, kind) = collection(call)?;
    list_readable(call, &subscription, &kind, &format!("{kind}/read"), |_| true)
}

/// The `wanted` resources of a type below `subscription` that the caller may do `action` to. A
/// caller who has no assignment anywhere below is refused.
pub(super) fn list_readable(
    call: &mut Call<'_>,
    subscription: &AccessScope,
    kind: &str,
    action: &str,
    wanted: impl Fn(&Resource) -> bool,
) -> Result<Reply, Reply> {
    let caller = authenticate(call)?;
    let authorization = &call.world().authorization;
    let any = authorization
        .of_principal(caller.object_id)
        .any(|held| held.scope.contains(subscription) || subscription.contains(&held.scope));
    if !any {
        super::gate::authorize(call, &caller, action, subscription)?;
    }
    let items = call
        .world()
        .resources
        .below(subscription, kind)
        .filter(|resource| wanted(resource) && may(call, &caller, action, &resource.id))
        .map(Resource::wire)
        .collect();
    list(call, items)
}

/// The type of the resource that an id names.
pub(super) fn resource_type(id: &AccessScope) -> Result<String, Reply> {
    let parsed: Result<ArmResourceId, _> = id.as_str().parse();
    match parsed.map(|id| id.resource_type()) {
        Ok(Some(kind)) => Ok(kind),
        Ok(None) => Err(bad_request("InvalidResourceId", format!("'{id}' names no resource."))),
        Err(error) => Err(bad_request("InvalidResourceId", error.to_string())),
    }
}

/// The parent of a collection's path, and the type of its members.
fn collection(call: &Call<'_>) -> Result<(AccessScope, String), Reply> {
    let path = path_scope(call)?;
    let kind = resource_type(&path.child("_"))?;
    let segments: Vec<_> = path.as_str().trim_start_matches('/').split('/').collect();
    // Without the collection itself; of a group, without `providers/<namespace>` too.
    let direct =
        segments.len() >= 3 && segments[segments.len() - 3].eq_ignore_ascii_case("providers");
    let kept = segments.len() - if direct { 3 } else { 1 };
    Ok((scope(&format!("/{}", segments[..kept].join("/")))?, kind))
}

/// Collections below a resource need that resource. `blobServices/default` and its like are there
/// with their account.
fn require_parent(call: &Call<'_>, parent: &AccessScope) -> Result<(), Reply> {
    let trimmed = parent.as_str().strip_suffix("/default").and_then(|text| text.rsplit_once('/'));
    let parent = match trimmed {
        Some((account, _)) => scope(account)?,
        None => parent.clone(),
    };
    match call.world().resources.resource(&parent) {
        Some(_) => Ok(()),
        None => Err(Refusal::NoResource(&parent).reply()),
    }
}
