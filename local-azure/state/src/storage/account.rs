//! Storage accounts as the data plane uses them.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};

use super::blob_service_properties::BlobServiceProperties;
use super::names::StorageAccountName;
use crate::authorization::AccessScope;
use crate::id_generator::IdGenerator;
use crate::keys::RedactedText;

/// A storage account: the data plane of a `Microsoft.Storage/storageAccounts` resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StorageAccount {
    pub name: StorageAccountName,
    /// The host name of the Blob service, in lower case.
    pub host: String,
    /// The ARM resource id: the scope of permissions.
    pub resource_id: AccessScope,
    /// The tenant whose tokens the account accepts.
    pub tenant: EntraTenantId,
    /// The settings from the ARM resource.
    pub settings: StorageAccountSettings,
    pub keys: [AccountKey; 2],
    /// The key that user delegation keys are derived from.
    pub delegation_key: AccountKey,
    /// The properties that the data plane sets.
    #[serde(default)]
    pub properties: BlobServiceProperties,
}

/// The properties of the ARM resource that configure the data plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageAccountSettings {
    /// The region.
    pub location: String,
    /// `kind`, such as `StorageV2`.
    pub kind: String,
    /// `sku.name`, such as `Standard_LRS`.
    pub sku: String,
    /// Whether containers can permit anonymous access.
    pub allow_blob_public_access: bool,
    /// Whether account keys, and signatures with them, are accepted.
    pub allow_shared_key_access: bool,
}

/// A key of an account, in base64 as clients use it.
#[derive(Clone, Serialize, Deserialize)]
pub struct AccountKey {
    pub value: RedactedText,
    pub created: Timestamp,
}

lanyard_vocabulary::debug_text!(AccountKey, "AccountKey(..)");

/// The key of a storage account could not be generated: the random source failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a random account key could not be generated")]
pub struct GenerateAccountKeyError;

impl AccountKey {
    /// Generates a key of 512 bits.
    pub fn generate(
        ids: &mut IdGenerator,
        now: Timestamp,
    ) -> Result<Self, GenerateAccountKeyError> {
        let bytes = ids.next_bytes::<64>().map_err(|Unspecified| GenerateAccountKeyError)?;
        Ok(Self { value: RedactedText::new(STANDARD.encode(*bytes)), created: now })
    }

    /// The HMAC-SHA256 of a text, in base64.
    pub fn sign(&self, text: &str) -> String {
        sign_with_base64_key(self.value.expose(), text)
    }
}

/// The HMAC-SHA256 of a text with a key in base64, in base64.
pub fn sign_with_base64_key(key: &str, text: &str) -> String {
    // Keys are base64 by construction. Other text is used as it is: no client can know such a key.
    let key = STANDARD.decode(key).unwrap_or_else(|_| key.as_bytes().to_vec());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    STANDARD.encode(hmac::sign(&key, text.as_bytes()))
}

impl StorageAccount {
    /// Creates an account with new keys.
    pub fn new(
        name: StorageAccountName,
        host: String,
        resource_id: AccessScope,
        tenant: EntraTenantId,
        settings: StorageAccountSettings,
        (ids, now): (&mut IdGenerator, Timestamp),
    ) -> Result<Self, GenerateAccountKeyError> {
        Ok(Self {
            name,
            host,
            resource_id,
            tenant,
            settings,
            keys: [AccountKey::generate(ids, now)?, AccountKey::generate(ids, now)?],
            delegation_key: AccountKey::generate(ids, now)?,
            properties: BlobServiceProperties::default(),
        })
    }

    /// The scope of a container in role assignments.
    pub fn container_scope(&self, container: &str) -> AccessScope {
        self.resource_id.child(&format!("blobServices/default/containers/{container}"))
    }
}
