//! Pages of objects of several types, and of references to them.

use http::StatusCode;
use lanyard_emulator_state::directory::DirectoryObject;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::GraphCall;
use super::directory_objects::DIRECTORY_OBJECTS;
use super::error::GraphError;
use super::object_json::{resource_name, type_name};
use super::query::ListQuery;
use super::replies::{json_reply, list_reply};

/// The existing objects among `ids`.
pub(super) fn stored_objects<'c>(
    call: &'c GraphCall<'_, '_>,
    ids: &[Uuid],
) -> Vec<DirectoryObject<'c>> {
    ids.iter().filter_map(|id| call.directory().object(*id)).collect()
}

/// A page of objects.
pub(super) fn list_objects(
    call: &GraphCall<'_, '_>,
    objects: &[DirectoryObject<'_>],
) -> Result<ServiceReply, GraphError> {
    let query = ListQuery::parse::<DirectoryObject<'_>>(call)?;
    list_reply(call, DIRECTORY_OBJECTS, &query, objects.iter())
}

/// A page of the objects of one type, for a path that ends with a type such as `group`.
pub(super) fn list_objects_of_type(
    call: &GraphCall<'_, '_>,
    mut objects: Vec<DirectoryObject<'_>>,
    wanted: &str,
) -> Result<ServiceReply, GraphError> {
    const TYPES: [&str; 4] = ["application", "group", "servicePrincipal", "user"];
    if !TYPES.iter().any(|known| known.eq_ignore_ascii_case(wanted)) {
        return Err(GraphError::malformed(format!(
            "Resource not found for the segment '{wanted}'."
        )));
    }
    objects.retain(|object| type_name(object).eq_ignore_ascii_case(wanted));
    list_objects(call, &objects)
}

/// References to objects, as `GET …/$ref` returns them.
pub(super) fn list_references(
    call: &GraphCall<'_, '_>,
    objects: &[DirectoryObject<'_>],
) -> ServiceReply {
    let origin = call.context.request.origin();
    let tenant = &call.caller.tenant;
    let reference = |object: &DirectoryObject<'_>| {
        let (id, kind) = (object.object_id(), resource_name(object));
        let url = format!(
            "{origin}/v2/{tenant}/directoryObjects/{id}/Microsoft.DirectoryServices.{kind}"
        );
        json!({ "@odata.id": url })
    };
    let body = json!({
        "@odata.context": format!("{}/$metadata#Collection($ref)", call.root_url()),
        "value": objects.iter().map(reference).collect::<Vec<Value>>(),
    });
    json_reply(StatusCode::OK, &body)
}
