//! Applications: create, read, change, delete.

use http::StatusCode;
use lanyard_emulator_state::directory::{
    Application, DeletedDirectoryObject, DirectoryObject, RestorableObject,
};
use lanyard_vocabulary::EntraClientId;
use serde_json::{Map, Value, json};

use super::access::GraphCall;
use super::application_entity::{APPLICATION, APPLICATION_PROPERTIES};
use super::application_rules::{check_app_roles, check_identifier_uris, check_scopes};
use super::credential_json::{
    new_secret_text, parse_password, replace_key_credentials, retain_passwords,
};
use super::entity::GraphEntity;
use super::error::{GraphError, GraphResult};
use super::owners::bound_owners;
use super::path::ObjectKey;
use super::query::ListQuery;
use super::replies::{
    count_reply, created_reply, entity_reply, list_reply, no_content, object_reply,
};
use super::rights::GraphRight;
use super::schema::{optional_text, required_text, store_properties};
use super::tenant_objects::{path_application, path_application_for_write, tenant_applications};

/// The name of the collection.
pub(super) const APPLICATIONS: &str = "applications";
/// The number of objects that a user without a directory role may own, deleted ones included.
const OBJECT_QUOTA: usize = 250;
const MAX_DISPLAY_NAME: usize = 256;

pub(super) fn list_applications(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let query = ListQuery::parse::<Application>(call)?;
    // Clients mostly look up one application by its id.
    if let Some(client) = query.required_text("appId") {
        let client = client.parse::<EntraClientId>().ok();
        let found = client.and_then(|client| call.directory().application_by_client_id(client));
        let own = found.into_iter().filter(|application| call.is_own_tenant(&application.tenant));
        let deleted = deleted_applications(call);
        let deleted = deleted.filter(|application| Some(application.client_id) == client);
        return list_reply(call, APPLICATIONS, &query, own.chain(deleted));
    }
    list_reply(call, APPLICATIONS, &query, listed_applications(call))
}

pub(super) fn count_applications(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    count_reply(call, listed_applications(call))
}

pub(super) fn get_application(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    entity_reply(call, StatusCode::OK, APPLICATIONS, path_application(call)?)
}

pub(super) fn create_application(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_create(call)?;
    let body = call.body()?;
    let application = new_application(call, &body)?;
    store_new_application(call, application, &body)
}

/// Changes an application. With `Prefer: create-if-missing`, creates the one that the path names by
/// `uniqueName`.
pub(super) fn update_application(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let key = ObjectKey::parse(call.path_parameter("id"));
    if let Some(unique_name) = key.alternate("uniqueName")
        && call.has_header_value("prefer", "create-if-missing")
        && path_application(call).is_err()
    {
        require_create(call)?;
        let body = call.body()?;
        let mut application = new_application(call, &body)?;
        application.properties.insert("uniqueName".to_owned(), json!(unique_name));
        return store_new_application(call, application, &body);
    }
    let mut application = path_application_for_write(call)?.clone();
    let body = call.body()?;
    apply_body(call, &mut application, &body, false)?;
    store_application(call, application);
    Ok(no_content())
}

pub(super) fn delete_application(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let object_id = path_application_for_write(call)?.object_id;
    let now = call.context.now;
    call.directory_mut().delete_application(object_id, now);
    Ok(no_content())
}

/// Rejects a caller who may not create applications and service principals.
pub(super) fn require_create(call: &GraphCall<'_, '_>) -> Result<(), GraphError> {
    call.caller.require_any(&[GraphRight::CreateApplications, GraphRight::WriteApplications])
}

/// The deleted applications that lists still contain.
fn deleted_applications<'c>(call: &'c GraphCall<'_, '_>) -> impl Iterator<Item = &'c Application> {
    call.listed_deleted_objects().filter_map(|object| match object {
        RestorableObject::Application(application) => Some(application),
        _ => None,
    })
}

fn listed_applications<'c>(call: &'c GraphCall<'_, '_>) -> impl Iterator<Item = &'c Application> {
    tenant_applications(call).chain(deleted_applications(call))
}

fn new_application(
    call: &mut GraphCall<'_, '_>,
    body: &Map<String, Value>,
) -> Result<Application, GraphError> {
    check_quota(call)?;
    let display_name = required_text(body, "displayName", APPLICATION)?;
    let ids = &mut *call.context.ids;
    let (object_id, client_id) = (ids.next_uuid(), EntraClientId::from(ids.next_uuid()));
    let tenant = call.caller.tenant.clone();
    let mut application =
        Application::new(object_id, client_id, tenant, display_name, call.context.now);
    application.owners = bound_owners(call, body)?;
    // Applications with the permission to manage their own applications own what they create, as users do.
    let is_owner = call.caller.is_user || !call.caller.has(GraphRight::WriteApplications);
    if is_owner && !application.owners.contains(&call.caller.object_id) {
        application.owners.push(call.caller.object_id);
    }
    Ok(application)
}

/// Completes a new application with the rest of the body. The reply shows the generated secrets once.
fn store_new_application(
    call: &mut GraphCall<'_, '_>,
    mut application: Application,
    body: &Map<String, Value>,
) -> GraphResult {
    apply_body(call, &mut application, body, true)?;
    let passwords = body.get("passwordCredentials").and_then(Value::as_array);
    for given in passwords.into_iter().flatten().filter_map(Value::as_object) {
        let ids = &mut *call.context.ids;
        let (key_id, secret_ids) = (ids.next_uuid(), [ids.next_uuid(), ids.next_uuid()]);
        let now = call.context.now;
        application.passwords.push(parse_password(
            given,
            key_id,
            new_secret_text(secret_ids),
            now,
        )?);
    }
    let mut json = application.to_json(call.directory());
    if let Some(shown) = json.get_mut("passwordCredentials").and_then(Value::as_array_mut) {
        for (shown, password) in shown.iter_mut().zip(&application.passwords) {
            shown["secretText"] = json!(password.text.expose());
        }
    }
    let has_secret = !application.passwords.is_empty();
    let reply = created_reply(call, APPLICATIONS, &application)?;
    call.directory_mut().insert_application(application);
    if !has_secret {
        return Ok(reply);
    }
    Ok(object_reply(call, StatusCode::CREATED, APPLICATIONS, json))
}

/// Applies the properties of a body. Checks everything before the application is stored.
fn apply_body(
    call: &mut GraphCall<'_, '_>,
    application: &mut Application,
    body: &Map<String, Value>,
    is_new: bool,
) -> Result<(), GraphError> {
    if let Some(name) = optional_text(body, "displayName", APPLICATION)? {
        if name.chars().count() > MAX_DISPLAY_NAME {
            return Err(GraphError::invalid_value("displayName", APPLICATION));
        }
        name.clone_into(&mut application.display_name);
    }
    let before = application.properties.clone();
    let properties = &mut application.properties;
    store_properties(properties, body, APPLICATION_PROPERTIES, APPLICATION, is_new)?;
    check_identifier_uris(call, application, &before)?;
    check_unique_name(call, application)?;
    check_app_roles(application, &before)?;
    check_scopes(application, &before)?;
    if let Some(given) = body.get("keyCredentials") {
        let ids = &mut *call.context.ids;
        let next_id = || ids.next_uuid();
        application.keys = replace_key_credentials(&application.keys, given, APPLICATION, next_id)?;
    }
    match body.get("passwordCredentials") {
        Some(given) if !is_new => {
            application.passwords = retain_passwords(&application.passwords, given, APPLICATION)?;
        }
        _ => {}
    }
    Ok(())
}

/// Stores a changed application; its service principal has the same display name.
fn store_application(call: &mut GraphCall<'_, '_>, application: Application) {
    let directory = call.directory_mut();
    let name = application.display_name.clone();
    if let Some(principal) = directory.service_principal_by_client_id_mut(application.client_id) {
        principal.display_name = name;
    }
    directory.insert_application(application);
}

/// Checks that the `uniqueName` is unique in the tenant.
pub(super) fn check_unique_name(
    call: &GraphCall<'_, '_>,
    application: &Application,
) -> Result<(), GraphError> {
    let Some(name) = application.properties.get("uniqueName") else { return Ok(()) };
    let is_taken = tenant_applications(call).any(|other| {
        other.object_id != application.object_id && other.properties.get("uniqueName") == Some(name)
    });
    if is_taken {
        return Err(GraphError::value_in_use(
            "Request_MultipleObjectsWithSameKeyValue",
            "uniqueName",
        ));
    }
    Ok(())
}

/// Rejects a new object of a user who has reached the quota. Administrators have no quota.
pub(super) fn check_quota(call: &GraphCall<'_, '_>) -> Result<(), GraphError> {
    let caller = &call.caller;
    if !caller.is_user || caller.has(GraphRight::WriteApplications) {
        return Ok(());
    }
    let directory = call.directory();
    let deleted = directory.deleted_objects().values();
    let deleted = deleted.map(DeletedDirectoryObject::as_directory_object);
    let owned = directory
        .objects_owned_by(caller.object_id)
        .chain(deleted.filter(|object| object.owners().contains(&caller.object_id)))
        .filter(|object| !matches!(object, DirectoryObject::ServicePrincipal(_)));
    if owned.count() < OBJECT_QUOTA {
        return Ok(());
    }
    Err(GraphError::new(
        StatusCode::FORBIDDEN,
        "Directory_QuotaExceeded",
        "The directory object quota limit for the Principal has been exceeded. Please ask your administrator to increase the quota limit or delete objects to reduce the used quota.",
    ))
}
