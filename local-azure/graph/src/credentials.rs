//! `addPassword`, `removePassword`, `addKey` and `removeKey` of applications and service principals.

use http::StatusCode;
use lanyard_emulator_state::directory::{KeyCredential, PasswordCredential};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::GraphCall;
use super::application_entity::APPLICATION;
use super::credential_json::{
    key_credential_json, key_id, new_secret_text, parse_key, parse_password,
    password_credential_json,
};
use super::error::{GraphError, GraphResult};
use super::key_proof::verify_key_proof;
use super::replies::{json_reply, no_content};
use super::service_principal_entity::SERVICE_PRINCIPAL;
use super::tenant_objects::{
    path_application, path_application_for_write, path_principal_for_write, path_stored_principal,
};

/// The object whose credentials an operation changes, by object id.
#[derive(Debug, Clone, Copy)]
enum CredentialTarget {
    Application(Uuid),
    ServicePrincipal(Uuid),
}

impl CredentialTarget {
    /// The name of the type in messages.
    const fn resource_name(self) -> &'static str {
        match self {
            Self::Application(_) => APPLICATION,
            Self::ServicePrincipal(_) => SERVICE_PRINCIPAL,
        }
    }
}

pub(super) fn add_application_password(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = writable_application(call)?;
    add_password(call, target)
}

pub(super) fn add_service_principal_password(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = writable_service_principal(call)?;
    add_password(call, target)
}

pub(super) fn remove_application_password(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = writable_application(call)?;
    remove_password(call, target)
}

pub(super) fn remove_service_principal_password(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = writable_service_principal(call)?;
    remove_password(call, target)
}

pub(super) fn add_application_key(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = rollable_application(call)?;
    add_key(call, target)
}

pub(super) fn add_service_principal_key(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = rollable_service_principal(call)?;
    add_key(call, target)
}

pub(super) fn remove_application_key(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = rollable_application(call)?;
    remove_key(call, target)
}

pub(super) fn remove_service_principal_key(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let target = rollable_service_principal(call)?;
    remove_key(call, target)
}

fn writable_application(call: &GraphCall<'_, '_>) -> Result<CredentialTarget, GraphError> {
    let application = path_application_for_write(call)?;
    Ok(CredentialTarget::Application(application.object_id))
}

fn writable_service_principal(call: &GraphCall<'_, '_>) -> Result<CredentialTarget, GraphError> {
    let principal = path_principal_for_write(call)?;
    Ok(CredentialTarget::ServicePrincipal(principal.object_id))
}

/// The application whose keys the caller may add and remove. An application needs no permission for
/// its own keys.
fn rollable_application(call: &GraphCall<'_, '_>) -> Result<CredentialTarget, GraphError> {
    let own = call.directory().service_principal(call.caller.object_id);
    match (own, path_application(call)) {
        (Some(own), Ok(application)) if own.client_id == application.client_id => {
            Ok(CredentialTarget::Application(application.object_id))
        }
        _ => writable_application(call),
    }
}

/// Like [`rollable_application`], for the service principal in the path.
fn rollable_service_principal(call: &GraphCall<'_, '_>) -> Result<CredentialTarget, GraphError> {
    match path_stored_principal(call) {
        Ok(principal) if principal.object_id == call.caller.object_id => {
            Ok(CredentialTarget::ServicePrincipal(principal.object_id))
        }
        _ => writable_service_principal(call),
    }
}

fn add_password(call: &mut GraphCall<'_, '_>, target: CredentialTarget) -> GraphResult {
    // The body is optional: without it, the password has no name and the default lifetime.
    let body = if call.context.request.body.is_empty() { Map::new() } else { call.body()? };
    let empty = Map::new();
    let given = match body.get("passwordCredential") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(given)) => given,
        Some(_) => {
            return Err(GraphError::invalid_value("passwordCredential", target.resource_name()));
        }
    };
    let ids = &mut *call.context.ids;
    let (key_id, secret_ids) = (ids.next_uuid(), [ids.next_uuid(), ids.next_uuid()]);
    let password = parse_password(given, key_id, new_secret_text(secret_ids), call.context.now)?;
    let mut json = password_credential_json(&password);
    json["secretText"] = json!(password.text.expose());
    json["@odata.context"] =
        json!(format!("{}/$metadata#microsoft.graph.passwordCredential", call.root_url()));
    let (passwords, _) = credentials_mut(call, target)?;
    passwords.push(password);
    Ok(json_reply(StatusCode::OK, &json))
}

fn remove_password(call: &mut GraphCall<'_, '_>, target: CredentialTarget) -> GraphResult {
    let wanted = required_key_id(&call.body()?)?;
    let (passwords, _) = credentials_mut(call, target)?;
    let before = passwords.len();
    passwords.retain(|password| password.key_id != wanted);
    if passwords.len() == before {
        return Err(GraphError::bad_request(format!(
            "No password credential found with keyId {wanted}."
        )));
    }
    Ok(no_content())
}

fn add_key(call: &mut GraphCall<'_, '_>, target: CredentialTarget) -> GraphResult {
    let body = call.body()?;
    check_proof(call, target, &body)?;
    let Some(Value::Object(given)) = body.get("keyCredential") else {
        return Err(GraphError::value_required("keyCredential", "KeyCredential"));
    };
    let new_id = call.context.ids.next_uuid();
    let key = parse_key(given, key_id(given)?.unwrap_or(new_id))?;
    let mut json = key_credential_json(&key);
    json["key"] = Value::Null;
    json["@odata.context"] =
        json!(format!("{}/$metadata#microsoft.graph.keyCredential", call.root_url()));
    let (_, keys) = credentials_mut(call, target)?;
    if keys.iter().any(|known| known.key_id == key.key_id) {
        return Err(GraphError::bad_request(format!(
            "Update to existing credential with KeyId '{}' is not allowed.",
            key.key_id
        )));
    }
    keys.push(key);
    Ok(json_reply(StatusCode::OK, &json))
}

fn remove_key(call: &mut GraphCall<'_, '_>, target: CredentialTarget) -> GraphResult {
    let body = call.body()?;
    check_proof(call, target, &body)?;
    let wanted = required_key_id(&body)?;
    let (_, keys) = credentials_mut(call, target)?;
    let before = keys.len();
    keys.retain(|key| key.key_id != wanted);
    if keys.len() == before {
        return Err(GraphError::bad_request(format!("No credential found with keyId {wanted}.")));
    }
    Ok(no_content())
}

fn check_proof(
    call: &GraphCall<'_, '_>,
    target: CredentialTarget,
    body: &Map<String, Value>,
) -> Result<(), GraphError> {
    let (object_id, keys) = match target {
        CredentialTarget::Application(id) => {
            let application = call.directory().application(id);
            (id, application.map_or(&[][..], |application| &application.keys))
        }
        CredentialTarget::ServicePrincipal(id) => {
            let principal = call.directory().service_principal(id);
            (id, principal.map_or(&[][..], |principal| &principal.keys))
        }
    };
    let proof = body.get("proof").and_then(Value::as_str).unwrap_or_default();
    verify_key_proof(proof, object_id, keys, call.context.now)
}

fn required_key_id(body: &Map<String, Value>) -> Result<Uuid, GraphError> {
    key_id(body)?.ok_or_else(|| GraphError::value_required("keyId", "Credential"))
}

fn credentials_mut<'c>(
    call: &'c mut GraphCall<'_, '_>,
    target: CredentialTarget,
) -> Result<(&'c mut Vec<PasswordCredential>, &'c mut Vec<KeyCredential>), GraphError> {
    let directory = call.directory_mut();
    match target {
        CredentialTarget::Application(id) => directory
            .application_mut(id)
            .map(|application| (&mut application.passwords, &mut application.keys))
            .ok_or_else(|| GraphError::not_found(id)),
        CredentialTarget::ServicePrincipal(id) => directory
            .service_principal_mut(id)
            .map(|principal| (&mut principal.passwords, &mut principal.keys))
            .ok_or_else(|| GraphError::not_found(id)),
    }
}
