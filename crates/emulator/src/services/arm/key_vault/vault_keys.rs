//! Keys of a vault as ARM resources, for templates.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::access::{json_reply, list_reply};
use super::super::error::{ArmServiceError, bad_request};
use super::vault_objects::{
    ArmObjectAttributes, authorized_vault, name_conflict_reply, object_json, object_not_found_reply,
};
use crate::azure_clouds::AzureClouds;
use crate::keys::{AsymmetricKeyError, AsymmetricKeyType, EllipticCurve, RsaKeySize};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;
use crate::services::keyvault::{
    DeletedNameConflict, EmulatedVault, KeyContent, StoredObjectAttributes, StoredObjectVersion,
    check_key_operations, permitted_operations,
};

const KEY: &str = "key";

#[derive(Deserialize)]
struct ArmKeyBody {
    tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    properties: ArmKeyProperties,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ArmKeyProperties {
    kty: Option<String>,
    key_size: Option<u32>,
    curve_name: Option<String>,
    key_ops: Option<Vec<String>>,
    attributes: ArmObjectAttributes,
}

impl ArmKeyProperties {
    fn key_type(&self) -> Result<AsymmetricKeyType, ServiceReply> {
        let invalid = |message: String| bad_request("BadRequest", message);
        match self.kty.as_deref() {
            Some(kty) if kty.eq_ignore_ascii_case("RSA") => {
                let bits = self.key_size.unwrap_or(RsaKeySize::Bits2048.bits());
                let size = RsaKeySize::try_from(bits);
                size.map(AsymmetricKeyType::Rsa).map_err(|error| invalid(format!("{error}.")))
            }
            Some(kty) if kty.eq_ignore_ascii_case("EC") => {
                let name = self.curve_name.as_deref().unwrap_or("P-256");
                EllipticCurve::from_name(name)
                    .map(AsymmetricKeyType::Ec)
                    .ok_or_else(|| invalid(format!("The curve '{name}' is not known.")))
            }
            Some(kty) => Err(invalid(format!(
                "Keys of type '{kty}' are not available in a vault of software keys."
            ))),
            None => Err(invalid("The parameter properties.kty is not specified.".to_owned())),
        }
    }
}

/// `GET keys`: permission on the vault.
pub(super) fn list_keys(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, "keys/read")?.clone();
    let keys = call.azure().vaults.keys.objects_after(&vault.host, None);
    let items = keys
        .filter_map(|object| Some(key_json(call.clouds, &vault, &object.name, object.latest()?)))
        .collect();
    list_reply(call, items)
}

/// `GET keys/{object}` and `GET keys/{object}/versions/{version}`.
pub(super) fn get_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, key_read_action(call))?.clone();
    key_reply(call, &vault)
}

/// `GET keys/{object}/versions`.
pub(super) fn list_key_versions(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, "keys/versions/read")?.clone();
    let name = call.path_parameter("object");
    let Ok(object) = call.azure().vaults.keys.object(&vault.host, name) else {
        return Err(object_not_found_reply(call, KEY));
    };
    let items = object
        .versions
        .iter()
        .map(|version| key_version_json(call.clouds, &vault, &object.name, version))
        .collect();
    list_reply(call, items)
}

/// `PUT keys/{object}`: creates a key. An existing one stays as it is.
pub(super) fn create_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, "keys/write")?.clone();
    let name = call.path_parameter("object");
    let body: ArmKeyBody = call.request.parse_json_body().map_err(|error| {
        bad_request("InvalidRequestContent", format!("The body is not valid: {error}."))
    })?;
    let key_type = body.properties.key_type()?;
    if call.azure().vaults.keys.object(&vault.host, name).is_ok() {
        return key_reply(call, &vault);
    }
    if call.azure().vaults.certificates.object(&vault.host, name).is_ok() {
        return Err(name_conflict_reply(call, KEY));
    }
    let attributes = StoredObjectAttributes::new(call.now);
    let attributes = body.properties.attributes.apply(attributes, call.now)?;
    let operations = check_key_operations(body.properties.key_ops, key_type.jwk_type())
        .map_err(|error| bad_request("BadRequest", format!("{error}.")))?;
    let key = call.new_key(key_type, key_generation_error_reply)?;
    let content = KeyContent { key, managed: false, operations };
    let (id, tags) = (call.ids.next_hex32(), body.tags.unwrap_or_default());
    let version = StoredObjectVersion { id, attributes, tags, content };
    let pushed = call.azure_mut().vaults.keys.push_version(&vault.host, name, version);
    pushed.map_err(|DeletedNameConflict| name_conflict_reply(call, KEY))?;
    key_reply(call, &vault)
}

fn key_generation_error_reply(error: &AsymmetricKeyError) -> ServiceReply {
    let (status, code) = (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError");
    ArmServiceError::Other(status, code, format!("{error}.")).to_reply()
}

fn key_read_action(call: &OperationContext<'_>) -> &'static str {
    if call.path_parameter("version").is_empty() { "keys/read" } else { "keys/versions/read" }
}

fn key_reply(
    call: &OperationContext<'_>,
    vault: &EmulatedVault,
) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = (call.path_parameter("object"), call.path_parameter("version"));
    let requested = (!version.is_empty()).then_some(version);
    match call.azure().vaults.keys.version(&vault.host, name, requested) {
        Ok((object, version)) => {
            let wire = if requested.is_some() {
                key_version_json(call.clouds, vault, &object.name, version)
            } else {
                key_json(call.clouds, vault, &object.name, version)
            };
            Ok(json_reply(call, StatusCode::OK, &wire))
        }
        Err(_) => Err(object_not_found_reply(call, KEY)),
    }
}

fn key_version_json(
    clouds: &AzureClouds,
    vault: &EmulatedVault,
    name: &str,
    version: &StoredObjectVersion<KeyContent>,
) -> Value {
    let mut wire = key_json(clouds, vault, name, version);
    wire["id"] =
        json!(vault.resource_id.child(&format!("keys/{name}/versions/{}", version.id)).as_str());
    wire["name"] = json!(version.id);
    wire["type"] = json!("Microsoft.KeyVault/vaults/keys/versions");
    wire
}

fn key_json(
    clouds: &AzureClouds,
    vault: &EmulatedVault,
    name: &str,
    version: &StoredObjectVersion<KeyContent>,
) -> Value {
    let mut wire = object_json(vault, "keys", name, version.attributes);
    let uri = format!("{}/keys/{name}", clouds.origin(&vault.host));
    let properties = &mut wire["properties"];
    properties["keyUriWithVersion"] = json!(format!("{uri}/{}", version.id));
    properties["keyUri"] = json!(uri);
    properties["keyOps"] = json!(permitted_operations(&version.content).collect::<Vec<_>>());
    match version.content.key.key_type() {
        Ok(AsymmetricKeyType::Rsa(size)) => {
            properties["kty"] = json!("RSA");
            properties["keySize"] = json!(size.bits());
        }
        Ok(AsymmetricKeyType::Ec(curve)) => {
            properties["kty"] = json!("EC");
            properties["curveName"] = json!(curve.name());
        }
        Err(_) => properties["kty"] = json!("RSA"),
    }
    if !version.tags.is_empty() {
        wire["tags"] = json!(version.tags);
    }
    wire
}
