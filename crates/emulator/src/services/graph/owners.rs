//! Owners of applications, service principals and groups.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::access::GraphCall;
use super::error::GraphError;
use super::object_list::{list_objects, list_references, stored_objects};
use super::path::{parse_object_id, referenced_object_id};
use super::rights::GraphRight;
use super::{applications, entity, groups, service_principals};
use crate::directory::DirectoryObject;
use crate::request::ServiceReply;

type GraphResult = Result<ServiceReply, GraphError>;

/// The object whose owners an operation reads or changes, by object id.
#[derive(Debug, Clone, Copy)]
enum OwnedObject {
    Application(Uuid),
    ServicePrincipal(Uuid),
    Group(Uuid),
}

pub(super) fn list_application_owners(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let owners = applications::path_application(call)?.owners.clone();
    list_objects(call, &stored_objects(call, &owners))
}

pub(super) fn list_service_principal_owners(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let owners = service_principals::path_principal(call)?.owners.clone();
    list_objects(call, &stored_objects(call, &owners))
}

pub(super) fn list_group_owners(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    let owners = groups::path_group(call)?.owners.clone();
    list_objects(call, &stored_objects(call, &owners))
}

pub(super) fn list_application_owner_references(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let owners = applications::path_application(call)?.owners.clone();
    Ok(list_references(call, &stored_objects(call, &owners)))
}

pub(super) fn list_service_principal_owner_references(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let owners = service_principals::path_principal(call)?.owners.clone();
    Ok(list_references(call, &stored_objects(call, &owners)))
}

pub(super) fn list_group_owner_references(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    let owners = groups::path_group(call)?.owners.clone();
    Ok(list_references(call, &stored_objects(call, &owners)))
}

pub(super) fn add_application_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let id = applications::path_application_for_write(call)?.object_id;
    add_owner(call, OwnedObject::Application(id))
}

pub(super) fn add_service_principal_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let id = service_principals::path_principal_for_write(call)?.object_id;
    add_owner(call, OwnedObject::ServicePrincipal(id))
}

pub(super) fn add_group_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let id = groups::path_group_for_write(call)?.object_id;
    add_owner(call, OwnedObject::Group(id))
}

pub(super) fn remove_application_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let id = applications::path_application_for_write(call)?.object_id;
    remove_owner(call, OwnedObject::Application(id))
}

pub(super) fn remove_service_principal_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let id = service_principals::path_principal_for_write(call)?.object_id;
    remove_owner(call, OwnedObject::ServicePrincipal(id))
}

pub(super) fn remove_group_owner(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let id = groups::path_group_for_write(call)?.object_id;
    remove_owner(call, OwnedObject::Group(id))
}

fn add_owner(call: &mut GraphCall<'_, '_>, target: OwnedObject) -> GraphResult {
    let owner = owner_in_body(call, &call.body()?)?;
    let owners = owners_mut(call, target)?;
    if owners.contains(&owner) {
        return Err(already_referenced("owners"));
    }
    owners.push(owner);
    Ok(entity::no_content())
}

fn remove_owner(call: &mut GraphCall<'_, '_>, target: OwnedObject) -> GraphResult {
    let key = call.path_parameter("child").to_owned();
    let owner = parse_object_id(&key);
    let owners = owners_mut(call, target)?;
    let position = owners.iter().position(|known| Some(*known) == owner);
    let position = position.ok_or_else(|| GraphError::not_found(&key))?;
    if matches!(target, OwnedObject::Group(_)) && owners.len() == 1 {
        return Err(GraphError::bad_request(
            "The group must have at least one owner, hence this owner cannot be removed.",
        ));
    }
    owners.remove(position);
    Ok(entity::no_content())
}

fn owners_mut<'c>(
    call: &'c mut GraphCall<'_, '_>,
    target: OwnedObject,
) -> Result<&'c mut Vec<Uuid>, GraphError> {
    let directory = call.directory_mut();
    let (id, owners) = match target {
        OwnedObject::Application(id) => {
            (id, directory.application_mut(id).map(|application| &mut application.owners))
        }
        OwnedObject::ServicePrincipal(id) => {
            (id, directory.service_principal_mut(id).map(|principal| &mut principal.owners))
        }
        OwnedObject::Group(id) => (id, directory.group_mut(id).map(|group| &mut group.owners)),
    };
    owners.ok_or_else(|| GraphError::not_found(id))
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

fn owner_in_body(call: &GraphCall<'_, '_>, body: &Map<String, Value>) -> Result<Uuid, GraphError> {
    valid_owner(object_in_body(call, body)?)
}

/// Users and service principals can be owners.
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
    let kind = match object {
        DirectoryObject::Application(_) => "Application",
        DirectoryObject::ServicePrincipal(_) => "ServicePrincipal",
        DirectoryObject::User(_) => "User",
        DirectoryObject::Group(_) => "Group",
    };
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
