//! Writes and deletions of resources. Only some checks differ between resource types.
//!
//! The order is that of Azure Resource Manager: token, api-version, permission, resource group,
//! parent, name, region, locks, preconditions, then the checks of the resource provider.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{
    ArmResource, ArmResourceStore, UpsertOutcome,
};
use lanyard_emulator_state::resources::stored_operation::PendingChange;
use serde_json::{Map, Value, json};

use super::access::{authorize_call, empty_reply, json_body, json_reply, require_group};
use super::error::{ArmServiceError, bad_request, conflict};
use super::locations::{normalize_region, require_region};
use super::long_running::PendingOperation;
use super::providers::require_registered;
use super::request_scopes::{parse_request_scope, path_scope, resource_type};
use super::resource_change::{ResourceDeletion, ResourceWrite};
use super::resource_removal::remove_resource;
use super::resource_rendering::render_resource;
use super::resource_type::{RegionRule, ResourceType, require_known_api_version, resource_name};
use super::resource_types::find_resource_type;
use super::tags::require_valid_tags;

/// `PUT {id}`.
pub fn put_resource(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let kind = known_type(call, &id)?;
    let caller = authorize_call(call, &format!("{}/write", kind.name), &id)?;
    let Value::Object(body) = json_body(call)? else {
        return Err(bad_request("InvalidRequestContent", "The body is not a JSON object."));
    };
    require_valid_target(call, kind, &id)?;
    let existing = call.azure().resources.resource(&id).cloned();
    if existing.is_none() {
        let name = resource_name(&id);
        kind.naming.check(name).map_err(|rule| {
            bad_request("InvalidResourceName", format!("The name '{name}' is invalid. {rule}"))
        })?;
    }
    require_preconditions(call, existing.as_ref())?;
    write_resource(call, kind, &caller, id, existing, body)
}

/// `PATCH {id}`: replaces the tags, and merges `properties`, `sku` and `identity` into the resource.
pub fn patch_resource(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let kind = known_type(call, &id)?;
    let caller = authorize_call(call, &format!("{}/write", kind.name), &id)?;
    let body = json_body(call)?;
    require_valid_target(call, kind, &id)?;
    let Some(existing) = call.azure().resources.resource(&id).cloned() else {
        return Err(ArmServiceError::ResourceNotFound(&id).to_reply());
    };
    require_preconditions(call, Some(&existing))?;
    let mut merged = rendered_body(kind, &call.azure().resources, &existing);
    if let Value::Object(changes) = body {
        for (name, change) in changes {
            match merged.get_mut(&name) {
                Some(current) if name != "tags" => merge_json(current, change),
                _ => drop(merged.insert(name, change)),
            }
        }
    }
    write_resource(call, kind, &caller, id, Some(existing), merged)
}

/// Returns the body as a client reads it. It contains the collections that are stored as child
/// resources, such as the subnets of a virtual network, so that a change of the tags keeps them.
fn rendered_body(
    kind: &ResourceType,
    resources: &ArmResourceStore,
    resource: &ArmResource,
) -> Map<String, Value> {
    match kind.render.map(|render| render(resources, resource)) {
        Some(Value::Object(body)) => body,
        _ => resource.body.clone(),
    }
}

/// Merges as in RFC 7396: objects are merged, `null` removes, everything else replaces.
fn merge_json(current: &mut Value, change: Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *current, &change) else {
        *current = change;
        return;
    };
    for (name, change) in changes {
        match (fields.get_mut(name), change) {
            (_, Value::Null) => drop(fields.remove(name)),
            (Some(field), change) => merge_json(field, change.clone()),
            (None, change) => drop(fields.insert(name.clone(), change.clone())),
        }
    }
}

/// `DELETE {id}`: 204 if the resource does not exist.
pub fn delete_resource(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let kind = known_type(call, &id)?;
    authorize_call(call, &format!("{}/delete", kind.name), &id)?;
    let Some(existing) = call.azure().resources.resource(&id).cloned() else {
        return Ok(empty_reply(call, StatusCode::NO_CONTENT));
    };
    require_preconditions(call, Some(&existing))?;
    let resources = &call.azure().resources;
    (kind.check_deletion)(&ResourceDeletion { resources, resource: &existing, scope: &id })?;
    if kind.long_running
        && let Some(operation) =
            PendingOperation::start(call, kind, &id, PendingChange::Delete, false)
    {
        let now = call.now;
        call.azure_mut().resources.set_provisioning_state(&id, "Deleting", now);
        return Ok(operation.accepted_reply(call));
    }
    remove_resource(call, &id);
    Ok(empty_reply(call, kind.deletion_status))
}

fn known_type(
    call: &OperationContext<'_>,
    id: &AccessScope,
) -> Result<&'static ResourceType, ServiceReply> {
    let name = resource_type(id)?;
    find_resource_type(call.services, &name).ok_or_else(|| {
        bad_request("InvalidResourceType", format!("The resource type '{name}' is unknown."))
    })
}

/// Checks the api-version, and that the resource provider is registered and the resource group and
/// the parent exist.
fn require_valid_target(
    call: &OperationContext<'_>,
    kind: &ResourceType,
    id: &AccessScope,
) -> Result<(), ServiceReply> {
    let version = call.api_version().unwrap_or_default();
    require_known_api_version(kind.name, kind.oldest_api_version, version, call.system_now)?;
    require_group(call)?;
    require_registered(call, kind.namespace())?;
    require_parent(call, kind, id)
}

/// Rejects a child resource whose parent does not exist. A parent of an unregistered type, such as
/// `blobServices/default`, exists with its own parent.
fn require_parent(
    call: &OperationContext<'_>,
    kind: &ResourceType,
    id: &AccessScope,
) -> Result<(), ServiceReply> {
    let (mut parent_type, mut parent) = (kind.name, id.as_str());
    while parent_type.matches('/').count() > 1 {
        parent_type = parent_type.rsplit_once('/').map_or(parent_type, |(above, _)| above);
        parent = parent.rsplitn(3, '/').nth(2).unwrap_or_default();
        if find_resource_type(call.services, parent_type).is_none() {
            continue;
        }
        let parent = parse_request_scope(parent)?;
        if call.azure().resources.resource(&parent).is_some() {
            return Ok(());
        }
        return Err(ArmServiceError::Other(
            StatusCode::NOT_FOUND,
            "ParentResourceNotFound",
            format!(
                "Failed to perform 'write' on resource(s) of type '{}', because the parent resource \
                 '{parent}' could not be found.",
                kind.name.split_once('/').map_or(kind.name, |(_, kind)| kind)
            ),
        )
        .to_reply());
    }
    Ok(())
}

/// Checks `If-Match` and `If-None-Match` (RFC 9110, 13.1).
fn require_preconditions(
    call: &OperationContext<'_>,
    existing: Option<&ArmResource>,
) -> Result<(), ServiceReply> {
    let etag = existing.map(ArmResource::etag);
    let names_etag = |header: &str| {
        header.split(',').map(str::trim).any(|text| {
            text == "*" || etag.as_deref().is_some_and(|etag| text == etag || quoted(etag) == text)
        })
    };
    let failed = |condition: &str| {
        Err(ArmServiceError::Other(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            format!("The condition '{condition}' of the request is not satisfied."),
        )
        .to_reply())
    };
    if let Some(header) = call.request.header("if-match")
        && (etag.is_none() || !names_etag(header))
    {
        return failed("If-Match");
    }
    if let Some(header) = call.request.header("if-none-match")
        && etag.is_some()
        && names_etag(header)
    {
        return failed("If-None-Match");
    }
    Ok(())
}

/// Returns the entity tag without the prefix `W/` of a weak one: clients send both forms.
fn quoted(etag: &str) -> &str {
    etag.trim_start_matches("W/")
}

/// Completes, stores and returns a resource, after the checks that are the same for all types.
pub fn write_resource(
    call: &mut OperationContext<'_>,
    kind: &'static ResourceType,
    caller: &AuthenticatedCaller,
    id: AccessScope,
    existing: Option<ArmResource>,
    mut body: Map<String, Value>,
) -> Result<ServiceReply, ServiceReply> {
    for name in ["id", "name", "type", "etag", "eTag", "systemData"] {
        body.remove(name);
    }
    require_valid_tags(body.get("tags"))?;
    complete_region(call, kind, &id, existing.as_ref(), &mut body)?;
    let properties = match body.remove("properties") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(properties)) => properties,
        Some(_) => {
            return Err(bad_request("InvalidRequestContent", "`properties` is not an object."));
        }
    };
    let (children, others) = (Vec::new(), Vec::new());
    let mut write = ResourceWrite {
        call,
        caller,
        id: &id,
        existing,
        body,
        properties,
        children,
        others,
        is_held: false,
    };
    (kind.prepare)(&mut write)?;
    let ResourceWrite { mut body, mut properties, children, others, is_held, .. } = write;
    let pending = kind
        .long_running
        .then(|| PendingOperation::start(call, kind, &id, PendingChange::Write, is_held))
        .flatten();
    let state = match (&pending, call.azure().resources.resource(&id)) {
        (None, _) => "Succeeded",
        (Some(_), None) => "Creating",
        (Some(_), Some(_)) => "Updating",
    };
    if kind.has_provisioning_state {
        properties.insert("provisioningState".to_owned(), json!(state));
    }
    body.insert("properties".to_owned(), Value::Object(properties));
    let now = call.now;
    let resources = &mut call.azure_mut().resources;
    replace_children(resources, &id, children);
    for other in others {
        resources.upsert(other);
    }
    let stored =
        resources.upsert(ArmResource::new(id.clone(), kind.name, Value::Object(body), now));
    let wire = render_resource(call, &id);
    let status = match stored {
        UpsertOutcome::Created => kind.creation_status,
        UpsertOutcome::Replaced => StatusCode::OK,
    };
    let reply = json_reply(call, status, &wire);
    let reply = match wire.get("etag").and_then(Value::as_str) {
        Some(etag) => reply.with_header("etag", etag),
        None => reply,
    };
    Ok(match pending {
        Some(operation) => operation.add_headers(call, reply),
        None => reply,
    })
}

/// Sets `location` to the name of the region, and rejects a missing, unknown or changed region.
fn complete_region(
    call: &OperationContext<'_>,
    kind: &ResourceType,
    id: &AccessScope,
    existing: Option<&ArmResource>,
    body: &mut Map<String, Value>,
) -> Result<(), ServiceReply> {
    let given = body.get("location").and_then(Value::as_str).map(normalize_region);
    match kind.region {
        RegionRule::None => {
            body.remove("location");
            return Ok(());
        }
        RegionRule::Global => {
            body.insert("location".to_owned(), json!("global"));
            return Ok(());
        }
        RegionRule::Regional => {}
    }
    let current = existing.and_then(|known| known.body.get("location")).and_then(Value::as_str);
    let region = match (given, current) {
        (Some(given), _) if !given.is_empty() => given,
        (_, Some(current)) => current.to_owned(),
        _ => {
            let message = "The location property is required for this definition.";
            return Err(bad_request("LocationRequired", message));
        }
    };
    require_region(call, kind.name, &region)?;
    if let Some(current) = current
        && normalize_region(current) != region
    {
        let (name, group) = (resource_name(id), call.path_parameter("group"));
        return Err(conflict(
            "InvalidResourceLocation",
            format!(
                "The resource '{name}' already exists in location '{current}' in resource group \
                 '{group}'. A resource with the same name cannot be created in location '{region}'. \
                 Please select a new resource name."
            ),
        ));
    }
    body.insert("location".to_owned(), json!(region));
    Ok(())
}

/// Replaces the child resources of each type. A child resource that is in both lists is updated.
fn replace_children(
    resources: &mut ArmResourceStore,
    id: &AccessScope,
    children: Vec<(&'static str, Vec<ArmResource>)>,
) {
    for (kind, children) in children {
        let obsolete: Vec<_> = resources
            .of_type_within(id, kind)
            .filter(|known| !children.iter().any(|child| child.id == known.id))
            .map(|known| known.id.clone())
            .collect();
        for child in obsolete {
            resources.remove(&child);
        }
        for child in children {
            resources.upsert(child);
        }
    }
}
