//! Keys: RSA and elliptic curves. Their operations are in `key_operations`, their rotation in `key_rotation`.

use std::collections::BTreeMap;

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::{
    AsymmetricKey, AsymmetricKeyType, EcJwkComponents, EcKey, JwkKeyType, RsaJwkComponents, RsaKey,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::object_kind::{
    CREATE_KEY, IMPORT_KEY, KEY_PERMISSIONS, KeyVaultObjectKind, ObjectPermissions, UPDATE_KEY,
};
use lanyard_emulator_state::vaults::object_store::{
    StoredObjectAttributes, StoredObjectVersion, StoredVaultObject, VersionedObjectStore,
};
use lanyard_emulator_state::vaults::vault::VaultStore;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access::{authorize_call, authorized_vault_mut};
use super::api_version::VersionedFeature;
use super::error::internal_error_reply;
use super::object_errors::object_error_reply;
use super::objects::{changed_version_reply, find_version, reject_managed, require_unmanaged};
use super::request_body::{
    ObjectAttributesBody, TagsBody, bad_parameter_reply, hsm_key_reply, parse_body, parse_key_type,
};
use super::stored_object::{AttributesJson, StoredObject, requested_name_and_version, version_id};
use super::vault_view::{VaultMut, VaultView};
pub(crate) use lanyard_emulator_state::vaults::key_content::{
    KeyContent, check_key_operations, permitted_operations,
};

#[derive(Deserialize)]
struct CreateKeyBody {
    kty: Option<String>,
    key_size: Option<u32>,
    crv: Option<String>,
    key_ops: Option<Vec<String>>,
    release_policy: Option<Value>,
    #[serde(default)]
    attributes: ObjectAttributesBody,
    #[serde(default)]
    tags: TagsBody,
}

#[derive(Deserialize)]
struct ImportKeyBody {
    key: Option<Value>,
    #[serde(rename = "Hsm", alias = "hsm")]
    hsm: Option<bool>,
    release_policy: Option<Value>,
    #[serde(default)]
    attributes: ObjectAttributesBody,
    #[serde(default)]
    tags: TagsBody,
}

#[derive(Deserialize)]
struct UpdateKeyBody {
    key_ops: Option<Vec<String>>,
    attributes: Option<ObjectAttributesBody>,
    #[serde(default)]
    tags: TagsBody,
}

/// `POST /keys/{name}/create`: a new version. `public_exponent` is ignored, as in vaults of Azure: only Managed
/// HSMs read it, and the Azure SDK for Java always sends it.
pub(super) fn create_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    require_unmanaged::<KeyContent>(authorize_call(call, CREATE_KEY)?, name)?;
    let body: CreateKeyBody = parse_body(call)?;
    let key_type = parse_key_type(body.kty.as_deref(), body.key_size, body.crv.as_deref())?;
    reject_release(body.release_policy.as_ref(), &body.attributes)?;
    let attributes = body.attributes.apply(StoredObjectAttributes::new(call.now), call.now)?;
    let tags = body.tags.validate()?;
    let operations = require_operations(body.key_ops, key_type.jwk_type())?;
    let key = call.new_key(key_type, internal_error_reply)?;
    add_key_version(call, name, key, operations, attributes, tags)
}

/// `PUT /keys/{name}`: a new version with an imported key.
pub(super) fn import_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    require_unmanaged::<KeyContent>(authorize_call(call, IMPORT_KEY)?, name)?;
    let body: ImportKeyBody = parse_body(call)?;
    if body.hsm == Some(true) {
        return Err(hsm_key_reply("`Hsm`"));
    }
    reject_release(body.release_policy.as_ref(), &body.attributes)?;
    let jwk = body.key.ok_or_else(|| bad_parameter_reply("`key` is missing".to_owned()))?;
    let (key, operations) = parse_imported_key(jwk)?;
    let attributes = body.attributes.apply(StoredObjectAttributes::new(call.now), call.now)?;
    let tags = body.tags.validate()?;
    add_key_version(call, name, key, operations, attributes, tags)
}

/// `PATCH /keys/{name}[/{version}]`: attributes, operations, tags.
pub(super) fn update_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let reference = authorize_call(call, UPDATE_KEY)?;
    let (object, stored) = find_version::<KeyContent>(reference, name, version)?;
    reject_managed::<KeyContent>(KeyContent::is_managed(object), name)?;
    let (attributes, key_type) = (stored.attributes, stored.content.key.jwk_type());
    let body: UpdateKeyBody = parse_body(call)?;
    let operations = require_operations(body.key_ops, key_type)?;
    let attributes = body.attributes.unwrap_or_default().apply(attributes, call.now)?;
    let tags = body.tags.validate()?;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let changed = vaults.keys.change_version(&requested.vault.host, name, version, |stored| {
        stored.attributes = attributes;
        stored.content.operations = operations.or(stored.content.operations.take());
        stored.tags = tags.or(stored.tags.take());
    });
    changed.map_err(|problem| object_error_reply(problem, KeyContent::KIND, name, version))?;
    let reference = requested.with_store(vaults);
    changed_version_reply::<KeyContent>(reference, name, version)
}

fn add_key_version(
    call: &mut OperationContext<'_>,
    name: &str,
    key: AsymmetricKey,
    operations: Option<Vec<String>>,
    mut attributes: StoredObjectAttributes,
    tags: Option<BTreeMap<String, String>>,
) -> Result<ServiceReply, ServiceReply> {
    let id = call.ids.next_hex32();
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    // The rotation policy sets the expiry of every new version.
    if let Ok(object) = vaults.keys.object(&requested.vault.host, name)
        && let Some(policy) = &object.details.rotation
        && attributes.expires.is_none()
    {
        attributes.expires = policy.expiry_after(attributes.created);
    }
    let content = KeyContent { key, managed: false, operations };
    let version = StoredObjectVersion { id, attributes, tags, content };
    let pushed = vaults.keys.push_version(&requested.vault.host, name, version);
    pushed.map_err(|conflict| object_error_reply(conflict.into(), KeyContent::KIND, name, None))?;
    let reference = requested.with_store(vaults);
    changed_version_reply::<KeyContent>(reference, name, None)
}

/// Rejects keys that can be released: they need a hardware security module.
fn reject_release(
    policy: Option<&Value>,
    attributes: &ObjectAttributesBody,
) -> Result<(), ServiceReply> {
    if policy.is_some_and(|policy| !policy.is_null()) || attributes.is_exportable() {
        let message = "`release_policy` and `attributes.exportable` need a key of a hardware security \
                       module, which a vault of software keys lacks";
        return Err(bad_parameter_reply(message.to_owned()));
    }
    Ok(())
}

/// Parses a JSON Web Key: the private key, and its permitted operations (`key_ops`) if it has any.
fn parse_imported_key(jwk: Value) -> Result<(AsymmetricKey, Option<Vec<String>>), ServiceReply> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str).map(str::to_owned);
    let (kty, curve) = (text("kty"), text("crv"));
    let operations = jwk.get("key_ops").filter(|value| !value.is_null()).cloned();
    // The error omits the parser's message, which may quote the key.
    let malformed = || bad_parameter_reply("`key` is not a complete private key".to_owned());
    let operations: Option<Vec<String>> =
        operations.map(serde_json::from_value).transpose().ok().ok_or_else(|| {
            bad_parameter_reply("`key.key_ops` is not a list of texts".to_owned())
        })?;
    let key = match parse_key_type(kty.as_deref(), None, curve.as_deref())? {
        AsymmetricKeyType::Rsa(_) => {
            let numbers: RsaJwkComponents =
                serde_json::from_value(jwk).ok().ok_or_else(malformed)?;
            RsaKey::from_jwk_components(&numbers).map(AsymmetricKey::from).ok()
        }
        AsymmetricKeyType::Ec(curve) => {
            let numbers: EcJwkComponents =
                serde_json::from_value(jwk).ok().ok_or_else(malformed)?;
            EcKey::from_jwk_components(curve, &numbers).map(AsymmetricKey::from).ok()
        }
    };
    let key = key.ok_or_else(|| {
        bad_parameter_reply("the numbers of `key` are not those of one private key".to_owned())
    })?;
    let operations = require_operations(operations, key.jwk_type())?;
    Ok((key, operations))
}

fn require_operations(
    operations: Option<Vec<String>>,
    key_type: JwkKeyType,
) -> Result<Option<Vec<String>>, ServiceReply> {
    check_key_operations(operations, key_type)
        .map_err(|error| bad_parameter_reply(format!("`key_ops`: {error}")))
}

impl StoredObject for KeyContent {
    const KIND: KeyVaultObjectKind = KeyVaultObjectKind::Key;
    const PERMISSIONS: ObjectPermissions = KEY_PERMISSIONS;

    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self> {
        &vaults.keys
    }

    fn object_store_mut(vaults: &mut VaultStore) -> &mut VersionedObjectStore<Self> {
        &mut vaults.keys
    }

    fn bundle<'a>(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<Self>,
        version: &'a StoredObjectVersion<Self>,
    ) -> impl Serialize {
        let mut key = public_jwk(&version.content.key);
        key["kid"] = json!(version_id(view, &object.name, version));
        key["key_ops"] = json!(permitted_operations(&version.content).collect::<Vec<_>>());
        let mut bundle = json!({ "key": key, "attributes": key_attributes_json(view, version) });
        add_common_fields(&mut bundle, version);
        bundle
    }

    fn list_item(
        view: VaultView<'_>,
        id: String,
        version: &StoredObjectVersion<Self>,
    ) -> impl Serialize {
        let mut item = json!({ "kid": id, "attributes": key_attributes_json(view, version) });
        add_common_fields(&mut item, version);
        item
    }

    fn is_managed(object: &StoredVaultObject<Self>) -> bool {
        object.latest().is_some_and(|version| version.content.managed)
    }
}

/// The public key as a JSON Web Key.
fn public_jwk(key: &AsymmetricKey) -> Value {
    match key {
        AsymmetricKey::Rsa(key) => {
            let mut jwk = json!({ "kty": "RSA" });
            if let Ok((modulus, exponent)) = key.jwk_modulus_and_exponent() {
                jwk["n"] = json!(modulus);
                jwk["e"] = json!(exponent);
            }
            jwk
        }
        AsymmetricKey::Ec(key) => {
            let mut jwk = json!({ "kty": "EC", "crv": key.curve().name() });
            if let Ok((x, y)) = key.jwk_coordinates() {
                jwk["x"] = json!(x);
                jwk["y"] = json!(y);
            }
            jwk
        }
    }
}

fn key_attributes_json(view: VaultView<'_>, version: &StoredObjectVersion<KeyContent>) -> Value {
    let mut attributes = json!(AttributesJson::new(version.attributes, view.vault));
    if view.api.has(VersionedFeature::KeyExportability) {
        attributes["exportable"] = json!(false);
    }
    if view.api.has(VersionedFeature::HsmPlatform) {
        attributes["hsmPlatform"] = json!("0");
    }
    attributes
}

fn add_common_fields(wire: &mut Value, version: &StoredObjectVersion<KeyContent>) {
    if let Some(tags) = &version.tags {
        wire["tags"] = json!(tags);
    }
    if version.content.managed {
        wire["managed"] = json!(true);
    }
}

#[cfg(test)]
mod tests;
