//! The vaults and their content.

use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::{EntraTenantId, VaultName};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::object_store::VersionedObjectStore;
use crate::authorization::AccessScope;
use crate::keys::{RedactedText, RsaKey};
use crate::services::arm::ArmResource;
use crate::table::{StoredTable, Table};

/// The vaults by host name, with their objects.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct VaultStore {
    by_host: Table<String, EmulatedVault>,
    /// Deleted vaults that can be recovered: their names stay taken, and their objects stay stored.
    deleted: Table<String, DeletedVault>,
    pub(crate) secrets: VersionedObjectStore<SecretContent>,
    pub(crate) keys: VersionedObjectStore<KeyContent>,
    pub(crate) certificates: VersionedObjectStore<CertificateContent>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DeletedVault {
    /// The vault before its deletion.
    pub(crate) vault: EmulatedVault,
    /// Its ARM resource before the deletion.
    pub(crate) resource: ArmResource,
    /// When it was deleted.
    pub(crate) at: Timestamp,
}

/// A vault: the data plane of a `Microsoft.KeyVault/vaults` resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EmulatedVault {
    pub(crate) name: VaultName,
    /// The host name, in lower case.
    pub(crate) host: String,
    /// The ARM resource id: the scope of permissions.
    pub(crate) resource_id: AccessScope,
    /// The region.
    pub(crate) location: String,
    /// The settings from the ARM resource.
    pub(crate) settings: VaultSettings,
}

/// The properties of the ARM resource that configure the data plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VaultSettings {
    /// The tenant whose tokens the vault accepts.
    pub(crate) tenant: EntraTenantId,
    /// `enableRbacAuthorization`: roles decide; otherwise only access policies do.
    pub(crate) rbac: bool,
    pub(crate) access_policies: Vec<AccessPolicy>,
    /// `softDeleteRetentionInDays`: 7 to 90.
    pub(crate) retention_days: u16,
}

/// The permissions of a principal by an access policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccessPolicy {
    /// The tenant of the principal.
    pub(crate) tenant_id: EntraTenantId,
    /// The object id of the principal.
    pub(crate) object_id: Uuid,
    #[serde(default)]
    pub(crate) permissions: AccessPolicyPermissions,
}

/// The permissions of an access policy, such as `get` and `list`, in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AccessPolicyPermissions {
    /// On secrets.
    pub(crate) secrets: Vec<String>,
    /// On keys.
    pub(crate) keys: Vec<String>,
    /// On certificates.
    pub(crate) certificates: Vec<String>,
}

/// The content of a secret version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SecretContent {
    pub(crate) value: RedactedText,
    /// The content type, free text.
    pub(crate) content_type: Option<String>,
    /// The version of the certificate's key, if the secret belongs to a certificate.
    pub(crate) key_version: Option<String>,
}

/// The content of a key version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeyContent {
    pub(crate) key: StoredVaultKey,
    /// Whether the key belongs to a certificate.
    pub(crate) managed: bool,
    /// The permitted operations (`key_ops`); all that the key type supports if absent.
    #[serde(default)]
    pub(crate) operations: Option<Vec<String>>,
}

/// A vault key. RSA keys encrypt and decrypt; the private part of elliptic curve keys is not stored, because
/// the emulator does not implement signing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum StoredVaultKey {
    /// An RSA key.
    Rsa(RsaKey),
    /// The public part of an elliptic-curve key.
    Curve(EllipticCurvePoint),
}

/// A point on a curve in the form of a JSON Web Key (RFC 7518, 6.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EllipticCurvePoint {
    /// `P-256`, `P-384`, `P-521`.
    pub(crate) crv: String,
    /// The x coordinate, base64url.
    pub(crate) x: String,
    /// The y coordinate, base64url.
    pub(crate) y: String,
}

impl From<RsaKey> for StoredVaultKey {
    fn from(key: RsaKey) -> Self {
        Self::Rsa(key)
    }
}

/// The content of a certificate version; its secret and its key have the same name and version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CertificateContent {
    /// The certificate, DER.
    pub(crate) der: Vec<u8>,
    pub(crate) subject: String,
    /// The content type of the certificate's secret.
    pub(crate) secret_type: String,
}

impl VaultStore {
    /// Calls `visit` with the name and the content of every stored table.
    pub(crate) fn for_each_table(
        &mut self,
        visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable),
    ) {
        let Self { by_host, deleted, secrets, keys, certificates } = self;
        visit("vaults", by_host);
        visit("vaults.deleted", deleted);
        visit("vaults.secrets", secrets.stored_table());
        visit("vaults.keys", keys.stored_table());
        visit("vaults.certificates", certificates.stored_table());
    }

    /// Rebuilds the indexes after the tables were loaded.
    pub(crate) fn rebuild_index(&mut self) {
        self.secrets.rebuild_index();
        self.keys.rebuild_index();
        self.certificates.rebuild_index();
    }

    /// The vault with a lower-case host name.
    pub(crate) fn vault_at_host(&self, host: &str) -> Option<&EmulatedVault> {
        self.by_host.get(&host.to_owned())
    }

    /// The vault of an ARM resource.
    pub(crate) fn vault_of_resource(&self, resource: &AccessScope) -> Option<&EmulatedVault> {
        self.by_host.values().find(|vault| vault.resource_id == *resource)
    }

    /// Like [`Self::vault_of_resource`], mutable.
    pub(crate) fn vault_of_resource_mut(
        &mut self,
        resource: &AccessScope,
    ) -> Option<&mut EmulatedVault> {
        let host = self.vault_of_resource(resource)?.host.clone();
        self.by_host.get_mut(&host)
    }

    /// Adds a vault, or replaces one of the same host name.
    pub(crate) fn insert(&mut self, vault: EmulatedVault) {
        self.by_host.insert(vault.host.clone(), vault);
    }

    /// Removes a vault recoverably; its objects stay stored.
    pub(crate) fn soft_delete(&mut self, host: &str, resource: ArmResource, now: Timestamp) {
        if let Some(vault) = self.by_host.remove(&host.to_owned()) {
            self.deleted.insert(host.to_owned(), DeletedVault { vault, resource, at: now });
        }
    }

    /// The deleted vault of a host name, unless its purge time has passed.
    pub(crate) fn deleted_vault(&self, host: &str, now: Timestamp) -> Option<&DeletedVault> {
        self.deleted.get(&host.to_owned()).filter(|deleted| now < deleted.purge_at())
    }

    /// The deleted vaults whose purge time has not passed.
    pub(crate) fn deleted_vaults(&self, now: Timestamp) -> impl Iterator<Item = &DeletedVault> {
        self.deleted.values().filter(move |deleted| now < deleted.purge_at())
    }

    /// Recovers a deleted vault with its objects, and returns its ARM resource.
    pub(crate) fn recover(&mut self, host: &str) -> Option<ArmResource> {
        let deleted = self.deleted.remove(&host.to_owned())?;
        self.insert(deleted.vault);
        Some(deleted.resource)
    }

    /// Purges a deleted vault with its objects.
    pub(crate) fn purge(&mut self, host: &str) {
        self.deleted.remove(&host.to_owned());
        self.secrets.remove_vault(host);
        self.keys.remove_vault(host);
        self.certificates.remove_vault(host);
    }

    /// Purges vaults and objects whose purge time has passed at `now`.
    pub(crate) fn purge_expired(&mut self, now: Timestamp) {
        let is_due = |deleted: &DeletedVault| deleted.purge_at() <= now;
        let due: Vec<_> = self.deleted.values().filter(|deleted| is_due(deleted)).collect();
        let due: Vec<_> = due.into_iter().map(|deleted| deleted.vault.host.clone()).collect();
        for host in due {
            self.purge(&host);
        }
        self.secrets.purge_expired(now);
        self.keys.purge_expired(now);
        self.certificates.purge_expired(now);
    }

    /// Every vault, by host name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &EmulatedVault> {
        self.by_host.values()
    }
}

impl DeletedVault {
    /// When the vault will be purged.
    pub(crate) fn purge_at(&self) -> Timestamp {
        self.at.checked_add(self.vault.retention_period()).unwrap_or(Timestamp::MAX)
    }
}

impl EmulatedVault {
    /// Creates an empty vault.
    pub(crate) fn new(
        name: VaultName,
        host: String,
        resource_id: AccessScope,
        location: String,
        settings: VaultSettings,
    ) -> Self {
        Self { name, host, resource_id, location, settings }
    }

    /// The base URL of its object ids, without a trailing slash.
    pub(crate) fn base_url(&self) -> String {
        format!("https://{}", self.host)
    }

    /// How long deleted objects can be recovered.
    pub(crate) fn retention_period(&self) -> SignedDuration {
        SignedDuration::from_hours(24 * i64::from(self.settings.retention_days))
    }
}
