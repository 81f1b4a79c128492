//! Owners of applications, service principals and groups.

use lanyard_emulator_state::directory::DirectoryObject;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::access::GraphCall;
use super::error::{GraphError, GraphResult};
use super::object_json::resource_name;
use super::object_list::{list_objects, list_references, stored_objects};
use super::path::{PathCollection, parse_object_id, referenced_object_id};
use super::replies::no_content;
use super::rights::GraphRight;
use super::tenant_objects::{
    path_application, path_application_for_write, path_group, path_group_for, path_principal,
    path_principal_for_write,
};

/// The owners of the application, the service principal or the group in the path.
pub(super) fn list_owners(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let owners = path_owners(call)?;
    list_objects(call, &stored_objects(call, &owners))
}

/// Like [`list_owners`], as references.
pub(super) fn list_owner_references(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let owners = path_owners(call)?;
    Ok(list_references(call, &stored_objects(call, &owners)))
}

pub(super) fn add_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = path_object_for_write(call)?.object_id();
    let owner = valid_owner(object_in_body(call, &call.body()?)?)?;
    let owners = owners_mut(call, target)?;
    if owners.contains(&owner) {
        return Err(already_referenced("owners"));
    }
    owners.push(owner);
    Ok(no_content())
}

pub(super) fn remove_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let key = call.path_parameter("child");
    let target = path_object_for_write(call)?;
    let (target_id, owners) = (target.object_id(), target.owners());
    let owner = parse_object_id(key).filter(|owner| owners.contains(owner));
    let owner = owner.ok_or_else(|| GraphError::not_found(key))?;
    if matches!(target, DirectoryObject::Group(_)) && owners.len() == 1 {
        return Err(GraphError::bad_request(
            "The group must have at least one owner, hence this owner cannot be removed.",
        ));
    }
    owners_mut(call, target_id)?.retain(|known| *known != owner);
    Ok(no_content())
}

/// The object ids of the owners of the object in the path, if the caller may read it.
fn path_owners(call: &GraphCall<'_, '_>) -> Result<Vec<Uuid>, GraphError> {
    match call.collection() {
        Some(PathCollection::Groups) => {
            call.caller.require(GraphRight::ReadGroups)?;
            Ok(path_group(call)?.owners.clone())
        }
        Some(PathCollection::ServicePrincipals) => {
            call.caller.require(GraphRight::ReadApplications)?;
            Ok(path_principal(call)?.owners.clone())
        }
        _ => {
            call.caller.require(GraphRight::ReadApplications)?;
            Ok(path_application(call)?.owners.clone())
        }
    }
}

/// The object in the path, if the caller may change it.
fn path_object_for_write<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<DirectoryObject<'c>, GraphError> {
    match call.collection() {
        Some(PathCollection::Groups) => {
            path_group_for(call, GraphRight::WriteGroups).map(DirectoryObject::Group)
        }
        Some(PathCollection::ServicePrincipals) => {
            path_principal_for_write(call).map(DirectoryObject::ServicePrincipal)
        }
        _ => path_application_for_write(call).map(DirectoryObject::Application),
    }
}

fn owners_mut<'c>(
    call: &'c mut GraphCall<'_, '_>,
    target: Uuid,
) -> Result<&'c mut Vec<Uuid>, GraphError> {
    let owners = call.directory_mut().owners_mut(target);
    owners.ok_or_else(|| GraphError::not_found(target))
}

/// The owners that `owners@odata.bind` names.
pub(super) fn bound_owners(
    call: &GraphCall<'_, '_>,
    body: &Map<String, Value>,
) -> Result<Vec<Uuid>, GraphError> {
    let mut owners = Vec::new();
    for object in bound_objects(call, body, "owners@odata.bind")? {
        let owner = valid_owner(object)?;
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    Ok(owners)
}

/// The objects that a property such as `members@odata.bind` names.
pub(super) fn bound_objects<'c>(
    call: &'c GraphCall<'_, '_>,
    body: &Map<String, Value>,
    property: &str,
) -> Result<Vec<DirectoryObject<'c>>, GraphError> {
    let references = match body.get(property) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(references)) => references,
        Some(_) => return Err(GraphError::invalid_value(property, "DirectoryObject")),
    };
    references.iter().map(|reference| referenced_object(call, reference)).collect()
}

/// The object of the body `{"@odata.id": "https://…/directoryObjects/{id}"}`.
pub(super) fn object_in_body<'c>(
    call: &'c GraphCall<'_, '_>,
    body: &Map<String, Value>,
) -> Result<DirectoryObject<'c>, GraphError> {
    match body.get("@odata.id") {
        Some(reference) => referenced_object(call, reference),
        None => Err(GraphError::malformed(
            "Write requests (excluding DELETE) must contain the '@odata.id' of the referenced object.",
        )),
    }
}

/// The object id of a possible owner: a user or a service principal.
fn valid_owner(object: DirectoryObject<'_>) -> Result<Uuid, GraphError> {
    match object {
        DirectoryObject::User(user) => Ok(user.object_id),
        DirectoryObject::ServicePrincipal(principal) => Ok(principal.object_id),
        other => Err(invalid_reference(other, "owners")),
    }
}

fn referenced_object<'c>(
    call: &'c GraphCall<'_, '_>,
    reference: &Value,
) -> Result<DirectoryObject<'c>, GraphError> {
    let id = reference.as_str().and_then(referenced_object_id).ok_or_else(|| {
        GraphError::malformed(format!("Invalid URL format specified in @odata.id: {reference}."))
    })?;
    let object = call.directory().object(id);
    object
        .filter(|object| call.is_own_tenant(object.tenant()))
        .ok_or_else(|| GraphError::not_found(id))
}

/// The error for an object that cannot be in a relationship.
pub(super) fn invalid_reference(object: DirectoryObject<'_>, relationship: &str) -> GraphError {
    let kind = resource_name(&object);
    GraphError::bad_request(format!(
        "The reference target '{kind}_{}' of type '{kind}' is invalid for the '{relationship}' reference.",
        object.object_id()
    ))
}

/// The error for an object that is already in a relationship.
pub(super) fn already_referenced(relationship: &str) -> GraphError {
    GraphError::bad_request(format!(
        "One or more added object references already exist for the following modified properties: '{relationship}'."
    ))
}
