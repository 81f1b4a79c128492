//! Storage accounts, their keys and blob containers as resources.

use azure_core::credentials::Secret;
use lanyard_vocabulary::ArmResourceId;
use serde::{Deserialize, Serialize};

use crate::arm_body::{ArmBody, ResourceTags};
use crate::arm_request::ArmRequest;

/// A storage account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageAccountBody {
    /// The region.
    pub location: String,
    /// `StorageV2`.
    pub kind: String,
    /// The redundancy.
    pub sku: StorageSku,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// The settings.
    #[serde(default)]
    pub properties: StorageAccountProperties,
}

/// The SKU of a storage account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSku {
    /// For example `Standard_LRS`.
    pub name: String,
}

/// The properties of a [`StorageAccountBody`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageAccountProperties {
    /// Whether containers may allow anonymous reads.
    pub allow_blob_public_access: bool,
    /// Whether account keys authorize requests; Azure's default is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_shared_key_access: Option<bool>,
    /// The URLs of the services; Azure sets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_endpoints: Option<StorageEndpoints>,
}

/// The URLs of the services of a storage account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageEndpoints {
    /// The URL of the Blob service, with a trailing slash.
    pub blob: String,
}

impl ArmBody for StorageAccountBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Storage/storageAccounts";
    const API_VERSION: &'static str = STORAGE_API;
}

impl StorageAccountBody {
    /// A locally redundant account whose containers may allow anonymous reads.
    pub fn new(location: impl Into<String>, tags: ResourceTags) -> Self {
        let properties = StorageAccountProperties {
            allow_blob_public_access: true,
            ..StorageAccountProperties::default()
        };
        let sku = StorageSku { name: "Standard_LRS".to_owned() };
        Self { location: location.into(), kind: "StorageV2".to_owned(), sku, tags, properties }
    }
}

/// A blob container: a child of the Blob service of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobContainerBody {
    /// The settings.
    pub properties: BlobContainerProperties,
}

/// The properties of a [`BlobContainerBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobContainerProperties {
    /// What anonymous callers may read.
    #[serde(default)]
    pub public_access: ContainerPublicAccess,
}

/// What anonymous callers may read of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerPublicAccess {
    /// Nothing.
    #[default]
    None,
    /// The blobs.
    Blob,
    /// The blobs and their list.
    Container,
}

impl ArmBody for BlobContainerBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Storage/storageAccounts/blobServices/containers";
    const API_VERSION: &'static str = STORAGE_API;
}

impl BlobContainerBody {
    /// A container.
    pub fn new(public_access: ContainerPublicAccess) -> Self {
        Self { properties: BlobContainerProperties { public_access } }
    }

    /// The id of the container `name` of an account.
    pub fn id(account: &ArmResourceId, name: &str) -> ArmResourceId {
        account.child("blobServices", "default").child("containers", name)
    }
}

/// The keys of a storage account.
#[derive(Debug, Deserialize)]
pub struct StorageAccountKeys {
    /// The keys, two of them.
    pub keys: Vec<StorageAccountKey>,
}

/// A key of a storage account.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageAccountKey {
    /// `key1` or `key2`.
    pub key_name: String,
    /// The key, base64.
    pub value: Secret,
}

impl StorageAccountKeys {
    /// The request that reads the keys of an account. Its reply contains secrets: do not print it.
    pub fn list(account: &ArmResourceId) -> ArmRequest {
        ArmRequest::post(format!("{account}/listKeys"), STORAGE_API, None)
    }
}

const STORAGE_API: &str = "2024-01-01";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn account_and_container_have_this_json() {
        assert_body(
            &StorageAccountBody::new("westeurope", ResourceTags::new()),
            json!({
                "location": "westeurope",
                "kind": "StorageV2",
                "sku": { "name": "Standard_LRS" },
                "tags": {},
                "properties": { "allowBlobPublicAccess": true },
            }),
        );
        assert_body(
            &BlobContainerBody::new(ContainerPublicAccess::Container),
            json!({ "properties": { "publicAccess": "Container" } }),
        );
        let account = resource_id("Microsoft.Storage/storageAccounts/a");
        let id = BlobContainerBody::id(&account, "oidc");
        assert_eq!(id.as_str(), format!("{account}/blobServices/default/containers/oidc"));
        assert_eq!(id.resource_type().as_deref(), Some(BlobContainerBody::RESOURCE_TYPE));
    }

    #[test]
    fn keys_do_not_print() {
        let key = json!({ "keyName": "key1", "value": "cGxhbnRlZA==", "permissions": "FULL" });
        let keys: StorageAccountKeys = serde_json::from_value(json!({ "keys": [key] })).unwrap();
        assert_eq!(keys.keys[0].value.secret(), "cGxhbnRlZA==");
        assert!(!format!("{keys:?}").contains("cGxh"));
    }
}
