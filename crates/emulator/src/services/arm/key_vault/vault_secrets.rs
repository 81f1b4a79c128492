//! Secrets of a vault as ARM resources, for templates. Replies never contain values.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::access::{json_reply, list_reply};
use super::super::error::bad_request;
use super::vault_objects::{
    ArmObjectAttributes, authorized_vault, name_conflict_reply, object_json, object_not_found_reply,
};
use crate::azure_clouds::AzureClouds;
use crate::keys::RedactedText;
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;
use crate::services::keyvault::{
    DeletedNameConflict, EmulatedVault, MAX_VALUE_BYTES, SecretContent, StoredObjectAttributes,
    StoredObjectVersion,
};

const SECRET: &str = "secret";

#[derive(Deserialize)]
struct ArmSecretBody {
    tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    properties: ArmSecretProperties,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ArmSecretProperties {
    value: Option<RedactedText>,
    content_type: Option<String>,
    attributes: ArmObjectAttributes,
}

/// `GET secrets`: permission on the vault.
pub(super) fn list_secrets(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, "secrets/read")?.clone();
    let secrets = call.azure().vaults.secrets.objects_after(&vault.host, None);
    let items = secrets
        .filter_map(|object| Some(secret_json(call.clouds, &vault, &object.name, object.latest()?)))
        .collect();
    list_reply(call, items)
}

/// `GET secrets/{object}`.
pub(super) fn get_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, "secrets/read")?.clone();
    secret_reply(call, &vault, StatusCode::OK)
}

/// `PUT secrets/{object}`: a new version.
pub(super) fn put_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, "secrets/write")?.clone();
    let name = call.path_parameter("object");
    let body = parse_secret(call)?;
    let Some(value) = body.properties.value else {
        return Err(bad_request("BadRequest", "The parameter properties.value is not specified."));
    };
    let status = match call.azure().vaults.secrets.object(&vault.host, name) {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::CREATED,
    };
    require_unmanaged(call, &vault)?;
    let attributes = StoredObjectAttributes::new(call.now);
    let version = StoredObjectVersion {
        id: call.ids.next_hex32(),
        attributes: body.properties.attributes.apply(attributes, call.now)?,
        tags: body.tags.unwrap_or_default(),
        content: SecretContent {
            value,
            content_type: body.properties.content_type,
            key_version: None,
        },
    };
    push_version(call, &vault, version)?;
    secret_reply(call, &vault, status)
}

/// `PATCH secrets/{object}`: a new version if the body has a value, otherwise a change of the current one.
pub(super) fn patch_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, "secrets/write")?.clone();
    let name = call.path_parameter("object");
    let body = parse_secret(call)?;
    let Ok((_, current)) = call.azure().vaults.secrets.version(&vault.host, name, None) else {
        return Err(object_not_found_reply(call, SECRET));
    };
    let mut version = current.clone();
    require_unmanaged(call, &vault)?;
    let ArmSecretProperties { value, content_type, attributes } = body.properties;
    version.content.content_type = content_type.or(version.content.content_type);
    version.tags = body.tags.unwrap_or(version.tags);
    if let Some(value) = value {
        version.id = call.ids.next_hex32();
        version.content.value = value;
        version.attributes = attributes.apply(StoredObjectAttributes::new(call.now), call.now)?;
        push_version(call, &vault, version)?;
    } else {
        version.attributes = attributes.apply(version.attributes, call.now)?;
        let secrets = &mut call.azure_mut().vaults.secrets;
        // The version exists: it was found above.
        let _ = secrets.change_version(&vault.host, name, None, |stored| *stored = version);
    }
    secret_reply(call, &vault, StatusCode::OK)
}

fn parse_secret(call: &OperationContext<'_>) -> Result<ArmSecretBody, ServiceReply> {
    // The parser's message may quote the body, which contains a secret: report only the position.
    let body: ArmSecretBody = call.request.parse_json_body().map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = format!("The body is not valid at line {line}, column {column}.");
        bad_request("InvalidRequestContent", message)
    })?;
    let value = body.properties.value.as_ref();
    if value.is_some_and(|value| value.expose().len() > MAX_VALUE_BYTES) {
        let message = format!("`properties.value` has more than {MAX_VALUE_BYTES} bytes.");
        return Err(bad_request("BadRequest", message));
    }
    Ok(body)
}

fn require_unmanaged(
    call: &OperationContext<'_>,
    vault: &EmulatedVault,
) -> Result<(), ServiceReply> {
    let name = call.path_parameter("object");
    match call.azure().vaults.certificates.object(&vault.host, name) {
        Ok(_) => Err(name_conflict_reply(call, SECRET)),
        Err(_) => Ok(()),
    }
}

fn push_version(
    call: &mut OperationContext<'_>,
    vault: &EmulatedVault,
    version: StoredObjectVersion<SecretContent>,
) -> Result<(), ServiceReply> {
    let name = call.path_parameter("object");
    let pushed = call.azure_mut().vaults.secrets.push_version(&vault.host, name, version);
    pushed.map_err(|DeletedNameConflict| name_conflict_reply(call, SECRET))
}

fn secret_reply(
    call: &OperationContext<'_>,
    vault: &EmulatedVault,
    status: StatusCode,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("object");
    match call.azure().vaults.secrets.version(&vault.host, name, None) {
        Ok((object, version)) => {
            Ok(json_reply(call, status, &secret_json(call.clouds, vault, &object.name, version)))
        }
        Err(_) => Err(object_not_found_reply(call, SECRET)),
    }
}

fn secret_json(
    clouds: &AzureClouds,
    vault: &EmulatedVault,
    name: &str,
    version: &StoredObjectVersion<SecretContent>,
) -> Value {
    let mut wire = object_json(vault, "secrets", name, version.attributes);
    let uri = format!("{}/secrets/{name}", clouds.origin(&vault.host));
    wire["properties"]["secretUriWithVersion"] = json!(format!("{uri}/{}", version.id));
    wire["properties"]["secretUri"] = json!(uri);
    if let Some(content_type) = &version.content.content_type {
        wire["properties"]["contentType"] = json!(content_type);
    }
    if !version.tags.is_empty() {
        wire["tags"] = json!(version.tags);
    }
    wire
}
