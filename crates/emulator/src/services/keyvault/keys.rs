//! Keys: RSA and elliptic curves. What they are used for is in `key_operations`.

use std::collections::BTreeMap;
use std::ops::Range;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::gate::{enter, entered_mut, refuse};
use super::kind::{CREATE_KEY, GET_KEY, IMPORT_KEY, LIST_KEYS, ObjectKind, Right, UPDATE_KEY};
use super::objects::{Kept, attributes, requested, version_id};
use super::secrets::{AttributesBody, bad, body};
use super::shelf::{Attributes, Shelf, ShelfProblem, Version};
use super::vault::{CurvePoint, KeyContent, Vault, VaultKey};
use crate::call::Call;
use crate::keys::{KeyError, RsaKey, RsaNumbers};
use crate::request::Reply;

const OPERATIONS: [&str; 6] = ["encrypt", "decrypt", "sign", "verify", "wrapKey", "unwrapKey"];

/// Which of them a key of a curve has.
const SIGNATURES: Range<usize> = 2..4;

/// What a key can be used for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOperation {
    /// `encrypt`.
    Encrypt,
    /// `decrypt`.
    Decrypt,
    /// `wrapKey`.
    WrapKey,
    /// `unwrapKey`.
    UnwrapKey,
}

impl KeyOperation {
    /// The name in `key_ops`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::WrapKey => "wrapKey",
            Self::UnwrapKey => "unwrapKey",
        }
    }

    /// Whether it makes something unreadable: an expired key does that no more.
    pub(super) const fn protects(self) -> bool {
        matches!(self, Self::Encrypt | Self::WrapKey)
    }
}

/// The operations that a key may be used for.
pub(super) fn permitted(content: &KeyContent) -> impl Iterator<Item = &str> {
    let of_kind = match content.key {
        VaultKey::Rsa(_) => &OPERATIONS[..],
        VaultKey::Curve(_) => &OPERATIONS[SIGNATURES],
    };
    let chosen = content.operations.as_deref();
    of_kind
        .iter()
        .copied()
        .filter(move |known| chosen.is_none_or(|chosen| chosen.iter().any(|it| it == known)))
}

/// Where the key of a new version comes from.
pub(crate) enum KeyMaterial<'a> {
    /// It is made, with so many bits.
    Made(u32),
    /// It is given.
    Given(&'a RsaNumbers),
}

/// A new version of a key.
pub(crate) struct KeyBirth<'a> {
    /// The name.
    pub(crate) name: &'a str,
    /// The version.
    pub(crate) id: String,
    /// The key.
    pub(crate) material: KeyMaterial<'a>,
    /// What it may be used for.
    pub(crate) operations: Option<Vec<String>>,
    /// Attributes.
    pub(crate) attributes: Attributes,
    /// Tags.
    pub(crate) tags: BTreeMap<String, String>,
}

impl KeyBirth<'_> {
    /// The version as it will lie on the shelf.
    ///
    /// # Errors
    /// If there can be no such key.
    pub(crate) fn version(self) -> Result<Version<KeyContent>, KeyError> {
        let key = match self.material {
            KeyMaterial::Made(bits) => RsaKey::generate_sized(bits)?,
            KeyMaterial::Given(numbers) => RsaKey::from_numbers(numbers)?,
        };
        let (id, attributes, tags) = (self.id, self.attributes, self.tags);
        let content = KeyContent { key: key.into(), managed: false, operations: self.operations };
        Ok(Version { id, attributes, tags, content })
    }
}

#[derive(Deserialize)]
struct CreateBody {
    kty: Option<String>,
    key_size: Option<u32>,
    key_ops: Option<Vec<String>>,
    #[serde(default)]
    attributes: AttributesBody,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ImportBody {
    key: Option<ImportedKey>,
    #[serde(default)]
    attributes: AttributesBody,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ImportedKey {
    kty: Option<String>,
    key_ops: Option<Vec<String>>,
    #[serde(flatten)]
    numbers: RsaNumbers,
}

#[derive(Deserialize)]
struct UpdateBody {
    key_ops: Option<Vec<String>>,
    attributes: Option<AttributesBody>,
    tags: Option<BTreeMap<String, String>>,
}

/// `POST /keys/{name}/create`: a new version.
pub(super) fn create(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, _) = requested(call);
    enter(call, CREATE_KEY)?;
    let asked: CreateBody = body(call)?;
    require_rsa(asked.kty.as_deref())?;
    let birth = KeyBirth {
        name: &name,
        id: call.ids.hex32(),
        material: KeyMaterial::Made(asked.key_size.unwrap_or(DEFAULT_BITS)),
        operations: known_operations(asked.key_ops)?,
        attributes: asked.attributes.apply(Attributes::new(call.now), call.now)?,
        tags: asked.tags,
    };
    add(call, birth)
}

/// `PUT /keys/{name}`: a new version with a key from elsewhere.
pub(super) fn import(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, _) = requested(call);
    enter(call, IMPORT_KEY)?;
    let asked: ImportBody = body(call)?;
    let key = asked.key.ok_or_else(|| bad("`key` is missing".to_owned()))?;
    require_rsa(key.kty.as_deref())?;
    let birth = KeyBirth {
        name: &name,
        id: call.ids.hex32(),
        material: KeyMaterial::Given(&key.numbers),
        operations: known_operations(key.key_ops)?,
        attributes: asked.attributes.apply(Attributes::new(call.now), call.now)?,
        tags: asked.tags,
    };
    add(call, birth)
}

/// `PATCH /keys/{name}[/{version}]`: attributes, operations, tags.
pub(super) fn update(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, version) = requested(call);
    enter(call, UPDATE_KEY)?;
    let asked: UpdateBody = body(call)?;
    let operations = known_operations(asked.key_ops)?;
    let now = call.now;
    let vault = entered_mut(call)?;
    let changed = match vault.keys.version_mut(&name, version.as_deref()) {
        Ok(held) => {
            held.attributes = asked.attributes.unwrap_or_default().apply(held.attributes, now)?;
            if operations.is_some() {
                held.content.operations = operations;
            }
            if let Some(tags) = asked.tags {
                held.tags = tags;
            }
            vault.keys.version(&name, version.as_deref())
        }
        Err(problem) => Err(problem),
    };
    match changed {
        Ok((object, version)) => {
            Ok(Reply::json(StatusCode::OK, &KeyContent::bundle(vault, &object.name, version)))
        }
        Err(problem) => Err(refuse(problem, ObjectKind::Key, call)),
    }
}

fn add(call: &mut Call<'_>, birth: KeyBirth<'_>) -> Result<Reply, Reply> {
    let name = birth.name;
    let version = birth.version().map_err(|error| bad(format!("{error}")))?;
    let vault = entered_mut(call)?;
    let pushed = vault.keys.push(name, version).map_err(ShelfProblem::from);
    match pushed.and_then(|()| vault.keys.version(name, None)) {
        Ok((object, version)) => {
            Ok(Reply::json(StatusCode::OK, &KeyContent::bundle(vault, &object.name, version)))
        }
        Err(problem) => Err(refuse(problem, ObjectKind::Key, call)),
    }
}

fn require_rsa(kind: Option<&str>) -> Result<(), Reply> {
    match kind {
        Some("RSA") => Ok(()),
        Some(kind) => Err(bad(format!("`kty` `{kind}`: this world makes software RSA keys only"))),
        None => Err(bad("`kty` is missing".to_owned())),
    }
}

fn known_operations(asked: Option<Vec<String>>) -> Result<Option<Vec<String>>, Reply> {
    let unknown = asked.iter().flatten().find(|it| !OPERATIONS.contains(&it.as_str()));
    match unknown {
        Some(unknown) => Err(bad(format!("`key_ops` `{unknown}` is no operation of an RSA key"))),
        None => Ok(asked),
    }
}

/// The size of a key whose maker names none.
const DEFAULT_BITS: u32 = 2048;

impl Kept for KeyContent {
    const KIND: ObjectKind = ObjectKind::Key;
    const GET: Right = GET_KEY;
    const LIST: Right = LIST_KEYS;

    fn shelf(vault: &Vault) -> &Shelf<Self> {
        &vault.keys
    }

    fn bundle(vault: &Vault, name: &str, version: &Version<Self>) -> Value {
        let kid = version_id(vault, name, version);
        let operations: Vec<_> = permitted(&version.content).collect();
        let key = match &version.content.key {
            VaultKey::Rsa(key) => {
                let mut wire = json!({ "kid": kid, "kty": "RSA", "key_ops": operations });
                if let Ok((modulus, exponent)) = key.jwk_parts() {
                    wire["n"] = json!(modulus);
                    wire["e"] = json!(exponent);
                }
                wire
            }
            VaultKey::Curve(CurvePoint { crv, x, y }) => {
                json!({ "kid": kid, "kty": "EC", "key_ops": operations, "crv": crv, "x": x, "y": y })
            }
        };
        let mut bundle = json!({ "key": key, "attributes": attributes(version.attributes, vault) });
        finish(&mut bundle, version);
        bundle
    }

    fn item(id: String, vault: &Vault, version: &Version<Self>) -> Value {
        let mut item = json!({ "kid": id, "attributes": attributes(version.attributes, vault) });
        finish(&mut item, version);
        item
    }
}

fn finish(wire: &mut Value, version: &Version<KeyContent>) {
    if !version.tags.is_empty() {
        wire["tags"] = json!(version.tags);
    }
    if version.content.managed {
        wire["managed"] = json!(true);
    }
}
