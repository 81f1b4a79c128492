//! Keys of a vault as ARM resources.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_arm::access::{authorize_call, json_reply};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::request_scopes::{parse_request_scope, path_scope};
use lanyard_emulator_arm::resource_reads::find_resource;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::keys::{
    AsymmetricKeyError, AsymmetricKeyType, EllipticCurve, RsaKeySize,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::key_content::{
    KeyContent, check_key_operations, permitted_operations,
};
use lanyard_emulator_state::vaults::object_store::{
    DeletedNameConflict, StoredObjectAttributes, StoredObjectVersion,
};
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use lanyard_vocabulary::SecretName;
use serde::Deserialize;
use serde_json::{Value, json};

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
    attributes: ArmKeyAttributes,
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

/// `GET keys/{object}` and `GET keys/{object}/versions/{version}`.
pub(super) fn get_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let vault = authorized_vault(call, key_read_action(call))?.clone();
    key_reply(call, &vault)
}

/// `PUT keys/{object}`: creates a key. Does not change an existing key.
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
        return Err(name_conflict_reply(call));
    }
    let attributes = StoredObjectAttributes::new(call.now);
    let attributes = body.properties.attributes.apply(attributes, call.now)?;
    let operations = check_key_operations(body.properties.key_ops, key_type.jwk_type())
        .map_err(|error| bad_request("BadRequest", format!("{error}.")))?;
    let key = call.new_key(key_type, key_generation_error_reply)?;
    let content = KeyContent { key, managed: false, operations };
    let (id, tags) = (call.ids.next_hex32(), body.tags);
    let version = StoredObjectVersion { id, attributes, tags, content };
    let pushed = call.azure_mut().vaults.keys.push_version(&vault.host, name, version);
    pushed.map_err(|DeletedNameConflict| name_conflict_reply(call))?;
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
        Err(_) => Err(object_not_found_reply(call)),
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
    let mut wire = common_json(vault, name, version.attributes);
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
    if let Some(tags) = &version.tags {
        wire["tags"] = json!(tags);
    }
    wire
}

/// The attributes in a body.
#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default)]
struct ArmKeyAttributes {
    enabled: Option<bool>,
    nbf: Option<i64>,
    exp: Option<i64>,
}

impl ArmKeyAttributes {
    /// Returns `attributes` with the given fields replaced, and `now` as the time of the update.
    fn apply(
        self,
        mut attributes: StoredObjectAttributes,
        now: Timestamp,
    ) -> Result<StoredObjectAttributes, ServiceReply> {
        let parse = |name: &str, seconds: Option<i64>| {
            seconds.map(Timestamp::from_second).transpose().map_err(|error| {
                bad_request("BadRequest", format!("`properties.attributes.{name}`: {error}."))
            })
        };
        attributes.enabled = self.enabled.unwrap_or(attributes.enabled);
        attributes.not_before = parse("nbf", self.nbf)?.or(attributes.not_before);
        attributes.expires = parse("exp", self.exp)?.or(attributes.expires);
        attributes.updated = now;
        Ok(attributes)
    }
}

/// Returns the vault, if the caller has the permission for `action` on the requested key.
fn authorized_vault<'c>(
    call: &'c mut OperationContext<'_>,
    action: &str,
) -> Result<&'c EmulatedVault, ServiceReply> {
    let path = path_scope(call)?;
    let vault = vault_scope(call)?;
    let object = call.path_parameter("object");
    authorize_call(call, &format!("Microsoft.KeyVault/vaults/{action}"), &path)?;
    find_resource(call, &vault)?;
    if object.parse::<SecretName>().is_err() {
        let rule = "A name has 1 to 127 letters, digits and `-`.";
        return Err(bad_request("BadRequest", format!("The name '{object}' is invalid. {rule}")));
    }
    let now = call.now;
    call.azure.vaults.purge_expired(now);
    call.azure()
        .vaults
        .vault_of_resource(&vault)
        .ok_or_else(|| ArmServiceError::ResourceNotFound(&vault).to_reply())
}

fn vault_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    let parameter = |name| call.path_parameter(name);
    parse_request_scope(&format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.KeyVault/vaults/{}",
        parameter("subscription"),
        parameter("group"),
        parameter("name")
    ))
}

/// The error for a key that does not exist.
fn object_not_found_reply(call: &OperationContext<'_>) -> ServiceReply {
    let (vault, name) = (call.path_parameter("name"), call.path_parameter("object"));
    let message = format!("The key '{name}' does not exist in the vault '{vault}'.");
    ArmServiceError::Other(StatusCode::NOT_FOUND, "ResourceNotFound", message).to_reply()
}

/// The error for a name that belongs to a deleted object or to a certificate.
fn name_conflict_reply(call: &OperationContext<'_>) -> ServiceReply {
    let name = call.path_parameter("object");
    conflict(
        "Conflict",
        format!(
            "The name '{name}' of the key belongs to a deleted object that can be recovered, or to a \
             certificate."
        ),
    )
}

/// Renders the fields that do not depend on the key type.
fn common_json(vault: &EmulatedVault, name: &str, attributes: StoredObjectAttributes) -> Value {
    let mut wire = json!({
        "id": vault.resource_id.child(&format!("keys/{name}")).as_str(),
        "name": name,
        "type": "Microsoft.KeyVault/vaults/keys",
        "location": vault.location,
        "properties": {
            "attributes": {
                "enabled": attributes.enabled,
                "created": attributes.created.as_second(),
                "updated": attributes.updated.as_second(),
            },
        },
    });
    for (key, value) in [("nbf", attributes.not_before), ("exp", attributes.expires)] {
        if let Some(value) = value {
            wire["properties"]["attributes"][key] = json!(value.as_second());
        }
    }
    wire
}
