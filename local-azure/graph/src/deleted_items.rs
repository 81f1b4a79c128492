//! Deleted applications, service principals and users: list, restore, delete permanently.

use http::StatusCode;
use lanyard_emulator_state::directory::{DeletedDirectoryObject, DirectoryObject, EntraDirectory};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::GraphCall;
use super::application_rules::check_unique_uris;
use super::applications::check_unique_name;
use super::directory_objects::{DIRECTORY_OBJECTS, can_read};
use super::entity::{GraphEntity, time_text};
use super::error::{GraphError, GraphResult};
use super::filter::{FilterTarget, FilterValue};
use super::object_json::type_name;
use super::path::parse_object_id;
use super::query::ListQuery;
use super::replies::{list_reply, no_content, object_reply};
use super::rights::GraphRight;
use super::schema::GraphProperty;

impl GraphEntity for DeletedDirectoryObject {
    const TARGET: FilterTarget = <DirectoryObject<'_> as GraphEntity>::TARGET;
    const PROPERTIES: &'static [GraphProperty] = &[];

    fn id(&self) -> String {
        self.as_directory_object().object_id().to_string()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        _property: &str,
    ) -> FilterValue<'a> {
        FilterValue::text(self.as_directory_object().display_name())
    }

    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let mut json = self.as_directory_object().to_json(directory);
        json.insert("deletedDateTime".to_owned(), json!(time_text(self.deleted)));
        json
    }
}

/// `GET directory/deletedItems/{type}`, and `GET directory/deletedItems/{id}`.
pub(super) fn list_or_get_deleted(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let now = call.context.now;
    purge_expired(call, now);
    let segment = call.path_parameter("id");
    if let Some(id) = parse_object_id(segment) {
        let deleted = readable_object(call, id, segment)?;
        let json = deleted.to_json(call.directory());
        return Ok(object_reply(call, StatusCode::OK, DIRECTORY_OBJECTS, json));
    }
    let right = match segment.to_ascii_lowercase().as_str() {
        "application" | "serviceprincipal" => GraphRight::ReadApplications,
        "user" => GraphRight::ReadUsers,
        "group" => GraphRight::ReadGroups,
        _ => {
            return Err(GraphError::malformed(format!(
                "Resource not found for the segment '{segment}'."
            )));
        }
    };
    call.caller.require(right)?;
    let query = ListQuery::parse::<DeletedDirectoryObject>(call)?;
    let objects = call.directory().deleted_objects().values().filter(|deleted| {
        call.is_own_tenant(deleted.tenant())
            && type_name(&deleted.as_directory_object()).eq_ignore_ascii_case(segment)
    });
    list_reply(call, DIRECTORY_OBJECTS, &query, objects)
}

pub(super) fn restore_deleted(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let now = call.context.now;
    purge_expired(call, now);
    let segment = call.path_parameter("id");
    let id = parse_object_id(segment).ok_or_else(|| GraphError::not_found(segment))?;
    let deleted = writable_object(call, id, segment)?;
    check_conflicts(call, deleted)?;
    let json = deleted.as_directory_object().to_json(call.directory());
    let reply = object_reply(call, StatusCode::OK, DIRECTORY_OBJECTS, json);
    call.directory_mut().restore_deleted(id);
    Ok(reply)
}

pub(super) fn purge_deleted(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let segment = call.path_parameter("id");
    let id = parse_object_id(segment).ok_or_else(|| GraphError::not_found(segment))?;
    writable_object(call, id, segment)?;
    call.directory_mut().purge_deleted(id);
    Ok(no_content())
}

/// Removes the objects whose retention has ended, if there are any.
fn purge_expired(call: &mut GraphCall<'_, '_>, now: jiff::Timestamp) {
    if call.directory().has_expired_objects(now) {
        call.directory_mut().purge_expired(now);
    }
}

fn readable_object<'c>(
    call: &'c GraphCall<'_, '_>,
    id: Uuid,
    segment: &str,
) -> Result<&'c DeletedDirectoryObject, GraphError> {
    call.caller.require_any(&[GraphRight::ReadApplications, GraphRight::ReadUsers])?;
    let found = call.directory().deleted_objects().get(&id);
    let deleted = found
        .filter(|deleted| call.is_own_tenant(deleted.tenant()))
        .ok_or_else(|| GraphError::not_found(segment))?;
    if can_read(&call.caller, deleted.as_directory_object()) {
        Ok(deleted)
    } else {
        Err(GraphError::denied())
    }
}

/// A deleted object that the caller may restore and delete permanently.
fn writable_object<'c>(
    call: &'c GraphCall<'_, '_>,
    id: Uuid,
    segment: &str,
) -> Result<&'c DeletedDirectoryObject, GraphError> {
    call.caller.require_any(&[
        GraphRight::WriteApplications,
        GraphRight::WriteOwnedApplications,
        GraphRight::DeleteUsers,
    ])?;
    let deleted = readable_object(call, id, segment)?;
    let object = deleted.as_directory_object();
    let owns = object.owners().contains(&call.caller.object_id);
    let is_allowed = match object {
        DirectoryObject::Application(_) | DirectoryObject::ServicePrincipal(_) => {
            call.caller.has(GraphRight::WriteApplications)
                || owns && call.caller.has(GraphRight::WriteOwnedApplications)
        }
        DirectoryObject::User(_) | DirectoryObject::Group(_) => {
            call.caller.has(GraphRight::DeleteUsers)
        }
    };
    if is_allowed { Ok(deleted) } else { Err(GraphError::denied()) }
}

/// Rejects the restoration of an object if another object now has one of its unique values.
fn check_conflicts(
    call: &GraphCall<'_, '_>,
    deleted: &DeletedDirectoryObject,
) -> Result<(), GraphError> {
    let directory = call.directory();
    let in_use = |property| {
        Err(GraphError::value_in_use("Request_MultipleObjectsWithSameKeyValue", property))
    };
    match deleted.as_directory_object() {
        DirectoryObject::User(user) if directory.user_by_name(&user.principal_name).is_some() => {
            in_use("userPrincipalName")
        }
        DirectoryObject::ServicePrincipal(principal)
            if directory.service_principal_by_client_id(principal.client_id).is_some() =>
        {
            in_use("servicePrincipalNames")
        }
        DirectoryObject::Application(application) => {
            check_unique_uris(call, application)?;
            check_unique_name(call, application)
        }
        _ => Ok(()),
    }
}
