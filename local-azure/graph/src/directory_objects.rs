//! Objects of any type: look-ups by id.

use http::StatusCode;
use lanyard_emulator_state::directory::{
    DirectoryObject, ServicePrincipal, first_party_by_object_id,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::{GraphCall, GraphCaller};
use super::entity::GraphEntity;
use super::error::{GraphError, GraphResult};
use super::object_json::type_name;
use super::path::parse_object_id;
use super::replies::{json_reply, object_reply};
use super::rights::GraphRight;
use super::schema::properties;

/// The name of the collection.
pub(super) const DIRECTORY_OBJECTS: &str = "directoryObjects";
/// The largest number of ids in one look-up.
const MAX_IDS: usize = 1_000;

/// `POST directoryObjects/getByIds`: the existing objects among the ids. Objects that the caller
/// may not read have only their type and id.
pub(super) fn get_by_ids(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_any_read(call)?;
    let body = call.body()?;
    let ids = parse_ids(&body)?;
    let types: Vec<_> = match body.get("types") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err(GraphError::invalid_value("types", "DirectoryObject")),
    };
    let is_wanted = |kind: &str| {
        types.is_empty()
            || types.iter().any(|wanted| {
                wanted.eq_ignore_ascii_case(kind) || wanted.eq_ignore_ascii_case("directoryObject")
            })
    };
    let mut objects = Vec::new();
    for id in ids {
        let Some(json) = object_json(call, id) else { continue };
        let kind = json.get("@odata.type").and_then(Value::as_str).unwrap_or_default();
        if is_wanted(kind.trim_start_matches("#microsoft.graph.")) {
            objects.push(Value::Object(json));
        }
    }
    let context = format!("{}/$metadata#{DIRECTORY_OBJECTS}", call.root_url());
    Ok(json_reply(StatusCode::OK, &json!({ "@odata.context": context, "value": objects })))
}

/// `GET directoryObjects/{id}`.
pub(super) fn get_object(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_any_read(call)?;
    let segment = call.path_parameter("id");
    let id = parse_object_id(segment).ok_or_else(|| GraphError::invalid_object_id(segment))?;
    let json = object_json(call, id).ok_or_else(|| GraphError::not_found(segment))?;
    Ok(object_reply(call, StatusCode::OK, DIRECTORY_OBJECTS, json))
}

fn parse_ids(body: &Map<String, Value>) -> Result<Vec<Uuid>, GraphError> {
    let ids = body.get("ids").and_then(Value::as_array);
    let ids = ids.ok_or_else(|| GraphError::value_required("ids", "DirectoryObject"))?;
    if ids.len() > MAX_IDS {
        return Err(GraphError::bad_request(format!(
            "Too many ids were provided. The maximum is {MAX_IDS}."
        )));
    }
    let parse = |id: &Value| {
        let id = id.as_str().unwrap_or_default();
        parse_object_id(id).ok_or_else(|| GraphError::bad_request(format!("Invalid GUID:{id}")))
    };
    let mut parsed = ids.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    parsed.sort_unstable();
    parsed.dedup();
    Ok(parsed)
}

/// The JSON of an object of the caller's tenant: only type and id if the caller may not read it.
/// `None` if Microsoft Graph does not know the object.
fn object_json(call: &GraphCall<'_, '_>, id: Uuid) -> Option<Map<String, Value>> {
    let directory = call.directory();
    let tenant = &call.caller.tenant;
    let first_party: ServicePrincipal;
    let object = match directory.object(id) {
        Some(object) if call.is_own_tenant(object.tenant()) && call.is_known(id) => object,
        Some(_) => return None,
        None => {
            first_party = first_party_by_object_id(tenant, id)?.service_principal(tenant);
            DirectoryObject::ServicePrincipal(&first_party)
        }
    };
    if can_read(&call.caller, object) {
        return Some(object.to_json(directory));
    }
    let odata_type = format!("#microsoft.graph.{}", type_name(&object));
    Some(properties([
        ("@odata.type", json!(odata_type)),
        ("id", json!(id)),
        ("displayName", Value::Null),
    ]))
}

/// Whether the caller may read objects of the type of `object`.
pub(super) fn can_read(caller: &GraphCaller, object: DirectoryObject<'_>) -> bool {
    caller.has(match object {
        DirectoryObject::Application(_) | DirectoryObject::ServicePrincipal(_) => {
            GraphRight::ReadApplications
        }
        DirectoryObject::User(_) => GraphRight::ReadUsers,
        DirectoryObject::Group(_) => GraphRight::ReadGroups,
    })
}

fn require_any_read(call: &GraphCall<'_, '_>) -> Result<(), GraphError> {
    call.caller.require_any(&[
        GraphRight::ReadApplications,
        GraphRight::ReadUsers,
        GraphRight::ReadGroups,
    ])
}
