//! Keys: RSA and elliptic curves. Their operations are in `key_operations`.

use std::collections::BTreeMap;
use std::ops::Range;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{authorize_call, authorized_vault_mut, store_error_reply};
use super::object_kind::{
    CREATE_KEY, GET_KEY, IMPORT_KEY, KeyVaultObjectKind, LIST_KEYS, UPDATE_KEY, VaultPermission,
};
use super::object_store::{
    ObjectStoreError, StoredObjectAttributes, StoredObjectVersion, VersionedObjectStore,
};
use super::objects::{StoredObject, attributes_json, requested_name_and_version, version_id};
use super::secrets::{ObjectAttributesBody, bad_parameter_reply, parse_body};
use super::vault::{EllipticCurvePoint, EmulatedVault, KeyContent, StoredVaultKey, VaultStore};
use crate::keys::{RsaJwkComponents, RsaKey, RsaKeyError};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

const KEY_OPERATIONS: [&str; 6] = ["encrypt", "decrypt", "sign", "verify", "wrapKey", "unwrapKey"];

/// The operations of elliptic curve keys.
const SIGNATURE_OPERATIONS: Range<usize> = 2..4;

/// The emulated operations of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VaultCryptoOperation {
    /// `encrypt`.
    Encrypt,
    /// `decrypt`.
    Decrypt,
    /// `wrapKey`.
    WrapKey,
    /// `unwrapKey`.
    UnwrapKey,
}

impl VaultCryptoOperation {
    /// The name in `key_ops`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::WrapKey => "wrapKey",
            Self::UnwrapKey => "unwrapKey",
        }
    }

    /// Whether the operation encrypts, which an expired key must not do.
    pub(super) const fn produces_ciphertext(self) -> bool {
        matches!(self, Self::Encrypt | Self::WrapKey)
    }
}

/// The permitted operations of a key.
pub(super) fn permitted_operations(content: &KeyContent) -> impl Iterator<Item = &str> {
    let of_kind = match content.key {
        StoredVaultKey::Rsa(_) => &KEY_OPERATIONS[..],
        StoredVaultKey::Curve(_) => &KEY_OPERATIONS[SIGNATURE_OPERATIONS],
    };
    let chosen = content.operations.as_deref();
    of_kind
        .iter()
        .copied()
        .filter(move |known| chosen.is_none_or(|chosen| chosen.iter().any(|it| it == known)))
}

/// The source of a new version's key.
pub(crate) enum NewKeyMaterial<'a> {
    /// Generate a key of this size in bits.
    Generate(u32),
    /// Import these numbers.
    Import(&'a RsaJwkComponents),
}

/// A new version of a key.
pub(crate) struct NewKeyVersion<'a> {
    pub(crate) name: &'a str,
    /// The version.
    pub(crate) id: String,
    /// The key.
    pub(crate) material: NewKeyMaterial<'a>,
    /// The permitted operations; all if absent.
    pub(crate) operations: Option<Vec<String>>,
    pub(crate) attributes: StoredObjectAttributes,
    pub(crate) tags: BTreeMap<String, String>,
}

impl NewKeyVersion<'_> {
    /// Creates the version for the object store.
    ///
    /// # Errors
    ///
    /// Returns an error if the key cannot be created.
    pub(crate) fn into_version(self) -> Result<StoredObjectVersion<KeyContent>, RsaKeyError> {
        let key = match self.material {
            NewKeyMaterial::Generate(bits) => RsaKey::generate_sized(bits)?,
            NewKeyMaterial::Import(numbers) => RsaKey::from_jwk_components(numbers)?,
        };
        let (id, attributes, tags) = (self.id, self.attributes, self.tags);
        let content = KeyContent { key: key.into(), managed: false, operations: self.operations };
        Ok(StoredObjectVersion { id, attributes, tags, content })
    }
}

#[derive(Deserialize)]
struct CreateKeyBody {
    kty: Option<String>,
    key_size: Option<u32>,
    key_ops: Option<Vec<String>>,
    #[serde(default)]
    attributes: ObjectAttributesBody,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ImportKeyBody {
    key: Option<ImportedJsonWebKey>,
    #[serde(default)]
    attributes: ObjectAttributesBody,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ImportedJsonWebKey {
    kty: Option<String>,
    key_ops: Option<Vec<String>>,
    #[serde(flatten)]
    numbers: RsaJwkComponents,
}

#[derive(Deserialize)]
struct UpdateKeyBody {
    key_ops: Option<Vec<String>>,
    attributes: Option<ObjectAttributesBody>,
    tags: Option<BTreeMap<String, String>>,
}

/// `POST /keys/{name}/create`: a new version.
pub(super) fn create_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, _) = requested_name_and_version(call);
    authorize_call(call, CREATE_KEY)?;
    let body: CreateKeyBody = parse_body(call)?;
    require_rsa(body.kty.as_deref())?;
    let birth = NewKeyVersion {
        name: &name,
        id: call.ids.next_hex32(),
        material: NewKeyMaterial::Generate(body.key_size.unwrap_or(DEFAULT_BITS)),
        operations: require_known_operations(body.key_ops)?,
        attributes: body.attributes.apply(StoredObjectAttributes::new(call.now), call.now)?,
        tags: body.tags,
    };
    add_key_version(call, birth)
}

/// `PUT /keys/{name}`: a new version with an imported key.
pub(super) fn import_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, _) = requested_name_and_version(call);
    authorize_call(call, IMPORT_KEY)?;
    let body: ImportKeyBody = parse_body(call)?;
    let key = body.key.ok_or_else(|| bad_parameter_reply("`key` is missing".to_owned()))?;
    require_rsa(key.kty.as_deref())?;
    let birth = NewKeyVersion {
        name: &name,
        id: call.ids.next_hex32(),
        material: NewKeyMaterial::Import(&key.numbers),
        operations: require_known_operations(key.key_ops)?,
        attributes: body.attributes.apply(StoredObjectAttributes::new(call.now), call.now)?,
        tags: body.tags,
    };
    add_key_version(call, birth)
}

/// `PATCH /keys/{name}[/{version}]`: attributes, operations, tags.
pub(super) fn update_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    authorize_call(call, UPDATE_KEY)?;
    let body: UpdateKeyBody = parse_body(call)?;
    let operations = require_known_operations(body.key_ops)?;
    let now = call.now;
    let (vaults, vault) = authorized_vault_mut(call)?;
    let changed = match vaults.keys.version_mut(&vault.host, &name, version.as_deref()) {
        Ok(held) => {
            held.attributes = body.attributes.unwrap_or_default().apply(held.attributes, now)?;
            if operations.is_some() {
                held.content.operations = operations;
            }
            if let Some(tags) = body.tags {
                held.tags = tags;
            }
            vaults.keys.version(&vault.host, &name, version.as_deref())
        }
        Err(problem) => Err(problem),
    };
    match changed {
        Ok((object, version)) => Ok(ServiceReply::json(
            StatusCode::OK,
            &KeyContent::bundle_json(&vault, &object.name, version),
        )),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Key, call)),
    }
}

fn add_key_version(
    call: &mut OperationContext<'_>,
    birth: NewKeyVersion<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = birth.name;
    let version = birth.into_version().map_err(|error| bad_parameter_reply(format!("{error}")))?;
    let (vaults, vault) = authorized_vault_mut(call)?;
    let pushed =
        vaults.keys.push_version(&vault.host, name, version).map_err(ObjectStoreError::from);
    match pushed.and_then(|()| vaults.keys.version(&vault.host, name, None)) {
        Ok((object, version)) => Ok(ServiceReply::json(
            StatusCode::OK,
            &KeyContent::bundle_json(&vault, &object.name, version),
        )),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Key, call)),
    }
}

fn require_rsa(kind: Option<&str>) -> Result<(), ServiceReply> {
    match kind {
        Some("RSA") => Ok(()),
        Some(kind) => Err(bad_parameter_reply(format!(
            "`kty` `{kind}`: the emulator creates software RSA keys only"
        ))),
        None => Err(bad_parameter_reply("`kty` is missing".to_owned())),
    }
}

fn require_known_operations(
    body: Option<Vec<String>>,
) -> Result<Option<Vec<String>>, ServiceReply> {
    let unknown = body.iter().flatten().find(|it| !KEY_OPERATIONS.contains(&it.as_str()));
    match unknown {
        Some(unknown) => {
            Err(bad_parameter_reply(format!("`key_ops` `{unknown}` is no operation of an RSA key")))
        }
        None => Ok(body),
    }
}

/// The default size of a key.
const DEFAULT_BITS: u32 = 2048;

impl StoredObject for KeyContent {
    const KIND: KeyVaultObjectKind = KeyVaultObjectKind::Key;
    const GET: VaultPermission = GET_KEY;
    const LIST: VaultPermission = LIST_KEYS;

    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self> {
        &vaults.keys
    }

    fn bundle_json(
        vault: &EmulatedVault,
        name: &str,
        version: &StoredObjectVersion<Self>,
    ) -> Value {
        let kid = version_id(vault, name, version);
        let operations: Vec<_> = permitted_operations(&version.content).collect();
        let key = match &version.content.key {
            StoredVaultKey::Rsa(key) => {
                let mut wire = json!({ "kid": kid, "kty": "RSA", "key_ops": operations });
                if let Ok((modulus, exponent)) = key.jwk_modulus_and_exponent() {
                    wire["n"] = json!(modulus);
                    wire["e"] = json!(exponent);
                }
                wire
            }
            StoredVaultKey::Curve(EllipticCurvePoint { crv, x, y }) => {
                json!({ "kid": kid, "kty": "EC", "key_ops": operations, "crv": crv, "x": x, "y": y })
            }
        };
        let mut bundle =
            json!({ "key": key, "attributes": attributes_json(version.attributes, vault) });
        add_common_fields(&mut bundle, version);
        bundle
    }

    fn item_json(id: String, vault: &EmulatedVault, version: &StoredObjectVersion<Self>) -> Value {
        let mut item =
            json!({ "kid": id, "attributes": attributes_json(version.attributes, vault) });
        add_common_fields(&mut item, version);
        item
    }
}

fn add_common_fields(wire: &mut Value, version: &StoredObjectVersion<KeyContent>) {
    if !version.tags.is_empty() {
        wire["tags"] = json!(version.tags);
    }
    if version.content.managed {
        wire["managed"] = json!(true);
    }
}
