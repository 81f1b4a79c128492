//! Resource groups. Reference: Microsoft.Resources, resource groups, 2021-04-01.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::filter::Filter;
use super::gate::{body, empty, enter, group_scope, reply, scope};
use super::reading::list_readable;
use super::refusal::{Refusal, bad_request};
use super::resources::{RESOURCE_GROUP, Resource, Stored};
use crate::call::Call;
use crate::operations::{Operation, Support};
use crate::request::Reply;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "ResourceGroups_List",
        method: Method::GET,
        path: "/subscriptions/{subscription}/resourceGroups",
        support: Support::Full,
        handler: list_groups,
    },
    group("ResourceGroups_CheckExistence", Method::HEAD, Support::Full, exists),
    group("ResourceGroups_Get", Method::GET, Support::Full, read),
    group("ResourceGroups_CreateOrUpdate", Method::PUT, Support::Full, create),
    group("ResourceGroups_Update", Method::PATCH, Support::Full, update),
    group(
        "ResourceGroups_Delete",
        Method::DELETE,
        Support::Partial("everything is gone at once: there is nothing to poll"),
        delete,
    ),
];

const READ: &str = "Microsoft.Resources/subscriptions/resourceGroups/read";
const WRITE: &str = "Microsoft.Resources/subscriptions/resourceGroups/write";
const DELETE: &str = "Microsoft.Resources/subscriptions/resourceGroups/delete";

const fn group(
    id: &'static str,
    method: Method,
    support: Support,
    handler: crate::operations::Handler,
) -> Operation {
    let path = "/subscriptions/{subscription}/resourceGroups/{group}";
    Operation { id, method, path, support, handler }
}

fn list_groups(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let whole = scope(&format!("/subscriptions/{}", call.parameter("subscription")))?;
    let filter = Filter::of(call, &["tagName", "tagValue"])?;
    list_readable(call, &whole, RESOURCE_GROUP, READ, |group| has_tag(group, &filter))
}

/// Whether a group has the tag of a filter. The names of tags compare without case.
fn has_tag(group: &Resource, filter: &Filter) -> bool {
    let Some(wanted) = filter.equals("tagName") else { return true };
    let tags = group.body.get("tags").and_then(Value::as_object);
    tags.into_iter().flatten().any(|(name, value)| {
        name.eq_ignore_ascii_case(wanted)
            && filter.equals("tagValue").is_none_or(|wanted| value.as_str() == Some(wanted))
    })
}

fn read(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = group_scope(call)?;
    enter(call, READ, &id)?;
    match call.world().resources.resource(&id).map(Resource::wire) {
        Some(found) => Ok(reply(call, StatusCode::OK, &found)),
        None => Err(Refusal::NoResourceGroup(call.parameter("group")).reply()),
    }
}

fn exists(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = group_scope(call)?;
    enter(call, READ, &id)?;
    let found = call.world().resources.resource(&id).is_some();
    let status = if found { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND };
    Ok(empty(call, status))
}

fn create(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = group_scope(call)?;
    enter(call, WRITE, &id)?;
    let given = body(call)?;
    let location = given.get("location").and_then(Value::as_str).unwrap_or_default();
    if location.is_empty() {
        return Err(bad_request("LocationRequired", "The body has no `location`."));
    }
    if let Some(held) = call.world().resources.resource(&id) {
        let place = held.body.get("location").and_then(Value::as_str).unwrap_or_default();
        if !place.eq_ignore_ascii_case(location) {
            return Err(super::refusal::conflict(
                "InvalidResourceGroupLocation",
                format!("The resource group exists in '{place}' and cannot move to '{location}'."),
            ));
        }
    }
    let mut given = given;
    given["properties"] = json!({ "provisioningState": "Succeeded" });
    let now = call.now;
    let resources = &mut call.world_mut().resources;
    let stored = resources.store(Resource::new(id.clone(), RESOURCE_GROUP, given, now));
    let status = if stored == Stored::Created { StatusCode::CREATED } else { StatusCode::OK };
    let wire = call.world().resources.resource(&id).map(Resource::wire).unwrap_or_default();
    Ok(reply(call, status, &wire))
}

/// `PATCH`: replaces the tags.
fn update(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = group_scope(call)?;
    enter(call, WRITE, &id)?;
    let given = body(call)?;
    let now = call.now;
    let Some(held) = call.world_mut().resources.resource_mut(&id) else {
        return Err(Refusal::NoResourceGroup(call.parameter("group")).reply());
    };
    if let Some(tags) = given.get("tags") {
        held.body.insert("tags".to_owned(), tags.clone());
    }
    held.changed = now;
    let wire = held.wire();
    Ok(reply(call, StatusCode::OK, &wire))
}

fn delete(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = group_scope(call)?;
    enter(call, DELETE, &id)?;
    if call.world().resources.resource(&id).is_none() {
        return Err(Refusal::NoResourceGroup(call.parameter("group")).reply());
    }
    let now = call.now;
    let removed = call.world_mut().resources.remove(&id);
    super::forget(call.world_mut(), &removed, now);
    Ok(empty(call, StatusCode::OK))
}
