//! Resources of types that the emulator does not implement: stored and returned as given.
//!
//! No rule of the type is checked. Every reply says so in the header `x-lanyard-provider: echo`, and the
//! request log shows the operations `GenericResources_…`.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::coded_error;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, UpsertOutcome};
use lanyard_vocabulary::ArmResourceId;
use serde_json::{Value, json};

use super::access::{
    authorize_call, empty_reply, json_body, json_reply, list_reply, require_group,
};
use super::creation_statuses::creation_status;
use super::error::ArmServiceError;
use super::providers::{require_namespace, require_registered};
use super::request_scopes::{parse_request_scope, path_scope, resource_type};
use super::resource_removal::remove_resource;
use super::resource_type::USER_ASSIGNED_IDENTITIES;
use super::resource_types::implemented_types;
use super::tags::require_valid_tags;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    generic_operation("GenericResources_CreateOrUpdate", Method::PUT, |call| label(put(call))),
    generic_operation("GenericResources_Update", Method::PATCH, |call| label(patch(call))),
    generic_operation("GenericResources_Get", Method::GET, |call| label(get(call))),
    generic_operation("GenericResources_Delete", Method::DELETE, |call| label(delete(call))),
];

const fn generic_operation(
    id: &'static str,
    method: Method,
    handler: OperationHandler,
) -> ServiceOperation {
    let path = rg!("{namespace}/{*rest}");
    ServiceOperation { id, method, path, support: OperationSupport::Echo, handler }
}

/// Marks a reply for a resource that is stored as given, with the header `x-lanyard-provider`.
fn label(reply: Result<ServiceReply, ServiceReply>) -> Result<ServiceReply, ServiceReply> {
    let label = |reply: ServiceReply| {
        if reply.status == StatusCode::NOT_IMPLEMENTED {
            return reply;
        }
        reply.with_header("x-lanyard-provider", "echo")
    };
    reply.map(label).map_err(label)
}

fn put(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (id, kind) = generic_id(call)?;
    authorize_call(call, &format!("{kind}/write"), &id)?;
    require_group(call)?;
    // For an extension resource, this is the last namespace in the path.
    let (namespace, _) = kind.split_once('/').unwrap_or((&kind, ""));
    require_registered(call, namespace)?;
    let body = json_body(call)?;
    store(call, id, &kind, body)
}

fn patch(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (id, kind) = generic_id(call)?;
    authorize_call(call, &format!("{kind}/write"), &id)?;
    let Some(existing) = call.azure().resources.resource(&id).cloned() else {
        return Err(ArmServiceError::ResourceNotFound(&id).to_reply());
    };
    let mut body = Value::Object(existing.body);
    if let Value::Object(changes) = json_body(call)? {
        for (name, change) in changes {
            body[name] = change;
        }
    }
    store(call, id, &kind, body)
}

fn store(
    call: &mut OperationContext<'_>,
    id: AccessScope,
    kind: &str,
    mut body: Value,
) -> Result<ServiceReply, ServiceReply> {
    require_valid_tags(body.get("tags"))?;
    if !body["properties"].is_object() {
        body["properties"] = json!({});
    }
    body["properties"]["provisioningState"] = json!("Succeeded");
    let now = call.now;
    let resources = &mut call.azure_mut().resources;
    let stored = resources.upsert(ArmResource::new(id.clone(), kind, body, now));
    let status = match stored {
        UpsertOutcome::Created => creation_status(kind),
        UpsertOutcome::Replaced => StatusCode::OK,
    };
    let wire = call.azure().resources.resource(&id).map(ArmResource::to_json);
    Ok(json_reply(call, status, &wire.unwrap_or_default()))
}

/// `GET` of a resource, or of a collection.
fn get(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let path = path_scope(call)?;
    let is_collection = path.as_str().parse::<ArmResourceId>().is_err()
        || call.path_parameter("rest").split('/').count() % 2 == 1;
    if is_collection {
        return list(call, &path);
    }
    let (id, kind) = generic_id(call)?;
    authorize_call(call, &format!("{kind}/read"), &id)?;
    require_group(call)?;
    match call.azure().resources.resource(&id).map(ArmResource::to_json) {
        Some(wire) => Ok(json_reply(call, StatusCode::OK, &wire)),
        None => Err(ArmServiceError::ResourceNotFound(&id).to_reply()),
    }
}

fn list(
    call: &mut OperationContext<'_>,
    collection: &AccessScope,
) -> Result<ServiceReply, ServiceReply> {
    let kind = resource_type(&collection.child("_"))?;
    require_unknown_type(call, &kind)?;
    let group = super::request_scopes::group_scope(call)?;
    authorize_call(call, &format!("{kind}/read"), &group)?;
    require_group(call)?;
    let prefix = parse_request_scope(collection.as_str())?;
    let resources = &call.azure().resources;
    let items = resources
        .of_type_within(&group, &kind)
        .filter(|resource| prefix.contains(&resource.id))
        .map(ArmResource::to_json)
        .collect();
    list_reply(call, items)
}

fn delete(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (id, kind) = generic_id(call)?;
    authorize_call(call, &format!("{kind}/delete"), &id)?;
    if call.azure().resources.resource(&id).is_none() {
        return Ok(empty_reply(call, StatusCode::NO_CONTENT));
    }
    remove_resource(call, &id);
    Ok(empty_reply(call, StatusCode::OK))
}

/// Returns id and type in the path. Rejects types that the emulator implements.
fn generic_id(call: &OperationContext<'_>) -> Result<(AccessScope, String), ServiceReply> {
    let id = path_scope(call)?;
    let kind = resource_type(&id)?;
    require_unknown_type(call, &kind)?;
    Ok((id, kind))
}

/// The types that are never stored as given, and the consequence of storing them. A type includes
/// its child types; a namespace includes all its types.
const REFUSED_TYPES: &[(&str, &str)] = &[
    ("Microsoft.Authorization/denyAssignments", "it would deny nothing"),
    (
        "Microsoft.KeyVault/vaults/secrets",
        "its value would be readable, and no vault would have it",
    ),
    ("Microsoft.Management", "management groups would not be above any subscription"),
];

/// The types whose changes must reach another emulated service. A program without the resource
/// provider of such a type does not store its resources. A type includes its child types.
const TYPES_WITH_PROVIDER: &[&str] = &[
    "Microsoft.KeyVault/vaults",
    USER_ASSIGNED_IDENTITIES,
    "Microsoft.Resources/deployments",
    "Microsoft.Storage/storageAccounts",
];

/// Whether a type is `ancestor` or one of its child types, ignoring case.
fn is_within(kind: &str, ancestor: &str) -> bool {
    kind.get(..ancestor.len()).is_some_and(|start| start.eq_ignore_ascii_case(ancestor))
        && matches!(kind.as_bytes().get(ancestor.len()), None | Some(b'/'))
}

/// Returns the entry of [`REFUSED_TYPES`] that includes the type.
fn refused_type(kind: &str) -> Option<(&'static str, &'static str)> {
    REFUSED_TYPES.iter().find(|(refused, _)| is_within(kind, refused)).copied()
}

/// Returns the entry of [`TYPES_WITH_PROVIDER`] for a type without its resource provider.
fn type_without_provider(
    kind: &str,
    implemented: &BTreeMap<&'static str, BTreeSet<String>>,
) -> Option<&'static str> {
    let is_provided = |entry: &str| {
        entry.split_once('/').is_some_and(|(namespace, name)| {
            implemented.get(namespace).is_some_and(|types| types.contains(name))
        })
    };
    let found = TYPES_WITH_PROVIDER.iter().find(|entry| is_within(kind, entry));
    found.copied().filter(|entry| !is_provided(entry))
}

/// Rejects the types in [`REFUSED_TYPES`], changes of types without their resource provider, and
/// requests for which an implemented type has no operation.
fn require_unknown_type(call: &OperationContext<'_>, kind: &str) -> Result<(), ServiceReply> {
    let (namespace, name) = kind.split_once('/').unwrap_or((kind, ""));
    let namespace = require_namespace(namespace)?;
    if let Some((_, consequence)) = refused_type(kind) {
        return Err(not_implemented_reply(&format!(
            "lanyard's local Azure neither implements nor stores '{kind}': {consequence}."
        )));
    }
    let implemented = implemented_types(call.services);
    if call.request.method != Method::GET
        && let Some(missing) = type_without_provider(kind, implemented)
    {
        return Err(not_implemented_reply(&format!(
            "This program does not contain the provider of '{missing}' of lanyard's local Azure. \
             `lanyard azure serve` contains it."
        )));
    }
    let known = implemented.get(namespace);
    if known.is_some_and(|types| types.iter().any(|known| known.eq_ignore_ascii_case(name))) {
        return Err(not_implemented_reply(&format!(
            "lanyard's local Azure implements '{kind}', but not `{}` of it.",
            call.request.method
        )));
    }
    Ok(())
}

fn not_implemented_reply(message: &str) -> ServiceReply {
    coded_error(StatusCode::NOT_IMPLEMENTED, "NotImplementedByEmulator", message)
        .with_rejection_reason("operation not implemented")
}

#[cfg(test)]
mod tests;
