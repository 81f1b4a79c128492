//! The content of stored keys.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key_rotation_policy::KeyRotationPolicy;
use super::object_store::{
    StoredObjectAttributes, StoredObjectVersion, StoredVaultObject, VersionContent,
};
use crate::keys::{AsymmetricKey, AsymmetricKeyType, JwkKeyType};

/// The content of a key version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyContent {
    pub key: AsymmetricKey,
    /// Whether the key belongs to a certificate.
    pub managed: bool,
    /// The permitted operations (`key_ops`); all that the key type supports if absent.
    #[serde(default)]
    pub operations: Option<Vec<String>>,
}

/// What the versions of a key share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeyDetails {
    pub rotation: Option<KeyRotationPolicy>,
}

impl VersionContent for KeyContent {
    type Details = KeyDetails;

    fn next_renewal(object: &StoredVaultObject<Self>) -> Option<Timestamp> {
        let latest = object.latest().filter(|version| version.attributes.enabled)?;
        object.details.rotation.as_ref()?.next_rotation(latest.attributes)
    }
}

/// The permitted operations of a key.
pub fn permitted_operations(content: &KeyContent) -> impl Iterator<Item = &str> {
    let chosen = content.operations.as_deref();
    operations_of_type(content.key.jwk_type())
        .iter()
        .copied()
        .filter(move |known| chosen.is_none_or(|chosen| chosen.iter().any(|it| it == known)))
}

/// The operations of keys, in the order of the service's replies.
const fn operations_of_type(key_type: JwkKeyType) -> &'static [&'static str] {
    match key_type {
        JwkKeyType::Rsa => &["encrypt", "decrypt", "sign", "verify", "wrapKey", "unwrapKey"],
        JwkKeyType::Ec => &["sign", "verify"],
    }
}

/// Keys of a type do not support an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{operation}` is no operation of keys of type `{key_type}`")]
pub struct UnsupportedKeyOperationError {
    operation: String,
    key_type: JwkKeyType,
}

/// Rejects operations that keys of a type do not support.
pub fn check_key_operations(
    operations: Option<Vec<String>>,
    key_type: JwkKeyType,
) -> Result<Option<Vec<String>>, UnsupportedKeyOperationError> {
    let supported = operations_of_type(key_type);
    match operations.iter().flatten().find(|it| !supported.contains(&it.as_str())) {
        Some(operation) => {
            Err(UnsupportedKeyOperationError { operation: operation.clone(), key_type })
        }
        None => Ok(operations),
    }
}

/// The type of the next version's key; `None` for an imported key of a size that vaults do not generate.
pub fn rotated_key_type(object: &StoredVaultObject<KeyContent>) -> Option<AsymmetricKeyType> {
    object.latest()?.content.key.key_type().ok()
}

/// Adds a version with a new key, and the operations and tags of the version before.
pub fn push_rotated_version(
    object: &mut StoredVaultObject<KeyContent>,
    id: String,
    key: AsymmetricKey,
    attributes: StoredObjectAttributes,
) {
    let (operations, tags) = object
        .latest()
        .map(|latest| (latest.content.operations.clone(), latest.tags.clone()))
        .unwrap_or_default();
    let content = KeyContent { key, managed: false, operations };
    object.versions.push(StoredObjectVersion { id, attributes, tags, content });
}
