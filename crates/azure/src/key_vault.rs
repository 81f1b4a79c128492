//! Vaults as resources, and deleted vaults.

use lanyard_vocabulary::{ArmResourceId, EntraTenantId, SecretName, SubscriptionId, VaultName};
use serde::{Deserialize, Serialize};

use crate::arm_body::{ArmBody, ResourceTags};
use crate::arm_request::ArmRequest;

/// A vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultBody {
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// The settings.
    pub properties: VaultProperties,
}

/// The properties of a [`VaultBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VaultProperties {
    /// The tenant whose principals get access.
    pub tenant_id: EntraTenantId,
    /// The SKU.
    pub sku: VaultSkuName,
    /// Whether roles decide about access, not access policies. The default depends on the API version, so it is
    /// always sent.
    #[serde(default)]
    pub enable_rbac_authorization: bool,
    /// Whether virtual machines may read certificates.
    #[serde(default)]
    pub enabled_for_deployment: bool,
    /// Whether disk encryption may read secrets.
    #[serde(default)]
    pub enabled_for_disk_encryption: bool,
    /// Whether deployments may read secrets.
    #[serde(default)]
    pub enabled_for_template_deployment: bool,
    /// Always true: Azure rejects vaults without it.
    #[serde(default)]
    pub enable_soft_delete: bool,
    /// Whether deleted objects cannot be purged. It cannot be switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_purge_protection: Option<bool>,
    /// `Enabled` or `Disabled`.
    #[serde(default = "enabled")]
    pub public_network_access: String,
    /// `recover` for a deleted vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_mode: Option<String>,
    /// The URL of the vault; Azure sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault_uri: Option<String>,
}

fn enabled() -> String {
    "Enabled".to_owned()
}

/// The SKU of a vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultSkuName {
    /// `A`.
    pub family: String,
    /// `standard` or `premium`.
    pub name: String,
}

impl ArmBody for VaultBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.KeyVault/vaults";
    const API_VERSION: &'static str = "2023-07-01";
}

impl VaultBody {
    /// A standard vault with role-based access that the internet can reach.
    pub fn new(location: impl Into<String>, tags: ResourceTags, tenant_id: EntraTenantId) -> Self {
        let properties = VaultProperties {
            tenant_id,
            sku: VaultSkuName { family: "A".to_owned(), name: "standard".to_owned() },
            enable_rbac_authorization: true,
            enabled_for_deployment: false,
            enabled_for_disk_encryption: false,
            enabled_for_template_deployment: false,
            enable_soft_delete: true,
            enable_purge_protection: None,
            public_network_access: enabled(),
            create_mode: None,
            vault_uri: None,
        };
        Self { location: location.into(), tags, properties }
    }

    /// The body that recovers the deleted vault of the same name, group and region. The vault gets its former
    /// properties.
    #[must_use]
    pub fn recovering(mut self) -> Self {
        self.properties.create_mode = Some("recover".to_owned());
        self
    }
}

/// A key of a vault. Azure creates its first version, and leaves an existing key as it is. Keys cannot be deleted as
/// resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultKeyBody {
    /// The settings.
    pub properties: VaultKeyProperties,
}

/// The properties of a [`VaultKeyBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VaultKeyProperties {
    /// The type, such as `RSA`.
    pub kty: String,
    /// The size of an RSA key in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_size: Option<u32>,
    /// The URL of the current version; Azure sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_uri_with_version: Option<String>,
}

impl ArmBody for VaultKeyBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.KeyVault/vaults/keys";
    const API_VERSION: &'static str = "2023-07-01";
}

impl VaultKeyBody {
    /// An RSA key of 2048 bits that software protects, as `az keyvault key create` creates it.
    pub fn rsa() -> Self {
        let (kty, key_size) = ("RSA".to_owned(), Some(2048));
        Self { properties: VaultKeyProperties { kty, key_size, key_uri_with_version: None } }
    }

    /// The id of the key `name` of a vault.
    pub fn id(vault: &ArmResourceId, name: &SecretName) -> ArmResourceId {
        vault.child("keys", name.as_str())
    }
}

/// A deleted vault, which can be recovered or purged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftDeletedVault {
    /// The id of the deleted vault.
    pub id: ArmResourceId,
    /// The name of the vault.
    pub name: String,
    /// The vault before its deletion, and the end of its retention.
    pub properties: SoftDeletedVaultProperties,
}

/// The properties of a [`SoftDeletedVault`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftDeletedVaultProperties {
    /// The id of the vault before its deletion.
    pub vault_id: ArmResourceId,
    /// The region.
    pub location: String,
    /// The time of the deletion.
    pub deletion_date: jiff::Timestamp,
    /// The time at which Azure purges the vault.
    pub scheduled_purge_date: jiff::Timestamp,
    /// Whether the vault cannot be purged before that time.
    #[serde(default)]
    pub purge_protection_enabled: bool,
    /// The tags of the vault before its deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<ResourceTags>,
}

impl SoftDeletedVault {
    /// The id of the deleted vault `name` of a region.
    pub fn id(subscription: &SubscriptionId, location: &str, name: &VaultName) -> ArmResourceId {
        ArmResourceId::subscription_scope(subscription)
            .provider_resource("Microsoft.KeyVault/locations", location)
            .child("deletedVaults", name.as_str())
    }

    /// The path of the list of deleted vaults of a subscription, in all regions.
    pub fn list_path(subscription: &SubscriptionId) -> String {
        let scope = ArmResourceId::subscription_scope(subscription);
        format!("{scope}/providers/Microsoft.KeyVault/deletedVaults")
    }

    /// The request that reads the deleted vault `id`.
    pub fn get(id: &ArmResourceId) -> ArmRequest {
        ArmRequest::get(id.as_str(), VaultBody::API_VERSION)
    }

    /// The request that deletes the deleted vault `id` permanently: a long-running operation.
    pub fn purge(id: &ArmResourceId) -> ArmRequest {
        ArmRequest::post(format!("{id}/purge"), VaultBody::API_VERSION, None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn vault_has_this_json() {
        let vault = VaultBody::new("westeurope", ResourceTags::new(), "t".parse().unwrap());
        let mut expected = json!({
            "location": "westeurope",
            "tags": {},
            "properties": {
                "tenantId": "t",
                "sku": { "family": "A", "name": "standard" },
                "enableRbacAuthorization": true,
                "enabledForDeployment": false,
                "enabledForDiskEncryption": false,
                "enabledForTemplateDeployment": false,
                "enableSoftDelete": true,
                "publicNetworkAccess": "Enabled",
            },
        });
        assert_body(&vault, expected.clone());
        expected["properties"]["createMode"] = json!("recover");
        assert_body(&vault.recovering(), expected);
    }

    #[test]
    fn key_has_this_json_and_id() {
        assert_body(
            &VaultKeyBody::rsa(),
            json!({ "properties": { "kty": "RSA", "keySize": 2048 } }),
        );
        let vault = resource_id("Microsoft.KeyVault/vaults/kv1");
        let id = VaultKeyBody::id(&vault, &"etcd".parse().unwrap());
        assert_eq!(id.as_str(), format!("{vault}/keys/etcd"));
    }

    #[test]
    fn deleted_vault_can_be_read_and_purged() {
        let id = SoftDeletedVault::id(&"s".parse().unwrap(), "westeurope", &"kv1".parse().unwrap());
        let path =
            "/subscriptions/s/providers/Microsoft.KeyVault/locations/westeurope/deletedVaults/kv1";
        assert_eq!(id.as_str(), path);
        assert_eq!(SoftDeletedVault::purge(&id).path, format!("{path}/purge"));
        assert_eq!(
            SoftDeletedVault::list_path(&"s".parse().unwrap()),
            "/subscriptions/s/providers/Microsoft.KeyVault/deletedVaults"
        );
        let mut body = json!({
            "id": id,
            "name": "kv1",
            "type": "Microsoft.KeyVault/deletedVaults",
            "properties": {
                "vaultId": resource_id("Microsoft.KeyVault/vaults/kv1"),
                "location": "westeurope",
                "deletionDate": "2026-11-24T00:00:00Z",
                "scheduledPurgeDate": "2027-02-22T00:00:00Z",
                "purgeProtectionEnabled": true,
            },
        });
        let properties = |body: &serde_json::Value| {
            serde_json::from_value::<SoftDeletedVault>(body.clone()).unwrap().properties
        };
        assert!(properties(&body).purge_protection_enabled);
        assert_eq!(properties(&body).tags, None);
        body["properties"]["tags"] = json!({ "team": "harbour" });
        let tags = ResourceTags::from([("team".to_owned(), "harbour".to_owned())]);
        assert_eq!(properties(&body).tags, Some(tags));
    }
}
