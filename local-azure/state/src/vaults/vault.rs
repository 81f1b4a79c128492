//! The vaults and their content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::{EntraTenantId, VaultName};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::certificate_content::CertificateContent;
use super::certificate_issuer::{CertificateContact, CertificateIssuer};
use super::key_content::KeyContent;
use super::network_rules::VaultNetworkRules;
use super::object_store::{VersionContent, VersionedObjectStore};
use super::vault_object_key::VaultObjectKey;
use crate::authorization::AccessScope;
use crate::keys::RedactedText;
use crate::resources::resource_store::ArmResource;
use crate::table::{StoredTable, Table};

/// The vaults by host name, with their objects.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VaultStore {
    by_host: Table<String, EmulatedVault>,
    /// Deleted vaults that can be recovered: their names stay taken, and their objects stay stored.
    deleted: Table<String, DeletedVault>,
    pub secrets: VersionedObjectStore<SecretContent>,
    pub keys: VersionedObjectStore<KeyContent>,
    pub certificates: VersionedObjectStore<CertificateContent>,
    /// The certificate authorities that clients registered.
    pub issuers: Table<VaultObjectKey, CertificateIssuer>,
    /// The certificate contacts, by the host of the vault.
    pub contacts: Table<String, Vec<CertificateContact>>,
    /// Rebuilt when the state is loaded.
    #[serde(skip)]
    index: VaultIndex,
}

/// The vaults by resource, and the deleted vaults by the time of their purge.
#[derive(Debug, Clone, Default)]
struct VaultIndex {
    /// The host by the resource id in lower case.
    hosts: BTreeMap<String, String>,
    purges: BTreeSet<(Timestamp, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeletedVault {
    /// The vault before its deletion.
    pub vault: EmulatedVault,
    /// Its ARM resource before the deletion.
    pub resource: ArmResource,
    /// When it was deleted.
    pub at: Timestamp,
}

/// A vault: the data plane of a `Microsoft.KeyVault/vaults` resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmulatedVault {
    pub name: VaultName,
    /// The host name, in lower case.
    pub host: String,
    /// The ARM resource id: the scope of permissions.
    pub resource_id: AccessScope,
    /// The region.
    pub location: String,
    /// The settings from the ARM resource.
    pub settings: VaultSettings,
}

/// The properties of the ARM resource that configure the data plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultSettings {
    /// The tenant whose tokens the vault accepts.
    pub tenant: EntraTenantId,
    /// `enableRbacAuthorization`: roles decide; otherwise only access policies do.
    pub rbac: bool,
    pub access_policies: Vec<AccessPolicy>,
    /// `softDeleteRetentionInDays`: 7 to 90.
    pub retention_days: u16,
    /// `enablePurgeProtection`: deleted objects cannot be purged before the retention ends.
    #[serde(default)]
    pub purge_protection: bool,
    #[serde(default)]
    pub network: VaultNetworkRules,
}

impl VaultSettings {
    /// A vault of a tenant with roles, open to all networks, that keeps deleted objects for 90 days.
    pub fn new(tenant: EntraTenantId) -> Self {
        Self {
            tenant,
            rbac: true,
            access_policies: Vec::new(),
            retention_days: 90,
            purge_protection: false,
            network: VaultNetworkRules::default(),
        }
    }
}

/// The permissions of a principal by an access policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicy {
    /// The tenant of the principal.
    pub tenant_id: EntraTenantId,
    /// The object id of the principal or of a group.
    pub object_id: Uuid,
    /// The application through which the principal must make its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_id: Option<Uuid>,
    #[serde(default)]
    pub permissions: AccessPolicyPermissions,
}

/// The permissions of an access policy, such as `get` and `list`, in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessPolicyPermissions {
    #[serde(deserialize_with = "null_as_default")]
    pub keys: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub secrets: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub certificates: Vec<String>,
    /// On storage accounts, an operation that Azure retired.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<String>,
}

impl AccessPolicyPermissions {
    /// The lists, each with the list of the same kind of `other`.
    pub fn pair_with(&mut self, other: Self) -> [(&mut Vec<String>, Vec<String>); 4] {
        [
            (&mut self.keys, other.keys),
            (&mut self.secrets, other.secrets),
            (&mut self.certificates, other.certificates),
            (&mut self.storage, other.storage),
        ]
    }
}

fn null_as_default<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    Option::<Vec<String>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The content of a secret version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretContent {
    pub value: RedactedText,
    /// The content type, free text.
    pub content_type: Option<String>,
    /// The version of the certificate's key, if the secret belongs to a certificate.
    pub key_version: Option<String>,
}

impl VersionContent for SecretContent {
    type Details = ();
}

impl VaultStore {
    /// Calls `visit` with the name and the content of every stored table.
    pub fn for_each_table(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable)) {
        let Self { by_host, deleted, secrets, keys, certificates, issuers, contacts, index: _ } =
            self;
        visit("vaults", by_host);
        visit("vaults.deleted", deleted);
        visit("vaults.secrets", secrets.stored_table());
        visit("vaults.keys", keys.stored_table());
        visit("vaults.certificates", certificates.stored_table());
        visit("vaults.issuers", issuers);
        visit("vaults.contacts", contacts);
    }

    /// Rebuilds the indexes after the tables were loaded.
    pub(crate) fn rebuild_index(&mut self) {
        self.secrets.rebuild_index();
        self.keys.rebuild_index();
        self.certificates.rebuild_index();
        self.index.hosts =
            self.by_host.values().map(|vault| (vault.resource_key(), vault.host.clone())).collect();
        self.index.purges =
            self.deleted.iter().map(|(host, deleted)| (deleted.purge_at(), host.clone())).collect();
    }

    /// The vault with a lower-case host name.
    pub fn vault_at_host(&self, host: &str) -> Option<&EmulatedVault> {
        self.by_host.get(host)
    }

    /// The vault of an ARM resource.
    pub fn vault_of_resource(&self, resource: &AccessScope) -> Option<&EmulatedVault> {
        self.by_host.get(self.index.hosts.get(&resource.as_str().to_ascii_lowercase())?)
    }

    /// Like [`Self::vault_of_resource`], mutable.
    pub fn vault_of_resource_mut(&mut self, resource: &AccessScope) -> Option<&mut EmulatedVault> {
        self.by_host.get_mut(self.index.hosts.get(&resource.as_str().to_ascii_lowercase())?)
    }

    /// Adds a vault, or replaces one of the same host name.
    pub fn insert(&mut self, vault: EmulatedVault) {
        self.index.hosts.insert(vault.resource_key(), vault.host.clone());
        self.by_host.insert(vault.host.clone(), vault);
    }

    /// Soft-deletes a vault: it can be recovered, and its objects stay stored.
    pub fn soft_delete(&mut self, host: &str, resource: ArmResource, now: Timestamp) {
        if let Some(vault) = self.by_host.remove(host) {
            self.index.hosts.remove(&vault.resource_key());
            let deleted = DeletedVault { vault, resource, at: now };
            self.index.purges.insert((deleted.purge_at(), host.to_owned()));
            self.deleted.insert(host.to_owned(), deleted);
        }
    }

    /// The deleted vault of a host name, unless its purge time has passed.
    pub fn deleted_vault(&self, host: &str, now: Timestamp) -> Option<&DeletedVault> {
        self.deleted.get(host).filter(|deleted| now < deleted.purge_at())
    }

    /// The deleted vaults whose purge time has not passed.
    pub fn deleted_vaults(&self, now: Timestamp) -> impl Iterator<Item = &DeletedVault> {
        self.deleted.values().filter(move |deleted| now < deleted.purge_at())
    }

    /// Recovers a deleted vault with its objects, and returns its ARM resource.
    pub fn recover(&mut self, host: &str) -> Option<ArmResource> {
        let deleted = self.remove_deleted(host)?;
        self.insert(deleted.vault);
        Some(deleted.resource)
    }

    /// Purges a deleted vault with its objects.
    pub fn purge(&mut self, host: &str) {
        self.remove_deleted(host);
        self.secrets.remove_vault(host);
        self.keys.remove_vault(host);
        self.certificates.remove_vault(host);
        self.contacts.remove(host);
        let issuers: Vec<_> = self.issuers_after(host, None).map(|(key, _)| key.clone()).collect();
        for key in issuers {
            self.issuers.remove(&key);
        }
    }

    fn remove_deleted(&mut self, host: &str) -> Option<DeletedVault> {
        let deleted = self.deleted.remove(host)?;
        self.index.purges.remove(&(deleted.purge_at(), host.to_owned()));
        Some(deleted)
    }

    /// The certificate issuers of a vault, ordered by name, after the name `marker`.
    pub fn issuers_after(
        &self,
        host: &str,
        marker: Option<&str>,
    ) -> impl Iterator<Item = (&VaultObjectKey, &CertificateIssuer)> {
        let host = host.to_ascii_lowercase();
        self.issuers
            .range((VaultObjectKey::first_after(&host, marker), Bound::Unbounded))
            .take_while(move |(key, _)| key.host() == host)
    }

    /// Purges vaults and objects whose purge time has passed at `now`.
    pub fn purge_expired(&mut self, now: Timestamp) {
        while let Some((purge_at, host)) = self.index.purges.first().cloned() {
            if purge_at > now {
                break;
            }
            self.purge(&host);
        }
        self.secrets.purge_expired(now);
        self.keys.purge_expired(now);
        self.certificates.purge_expired(now);
    }

    /// Every vault, by host name.
    pub fn iter(&self) -> impl Iterator<Item = &EmulatedVault> {
        self.by_host.values()
    }
}

impl DeletedVault {
    /// When the vault will be purged.
    pub fn purge_at(&self) -> Timestamp {
        self.at.checked_add(self.vault.retention_period()).unwrap_or(Timestamp::MAX)
    }
}

impl EmulatedVault {
    /// Creates an empty vault.
    pub fn new(
        name: VaultName,
        host: String,
        resource_id: AccessScope,
        location: String,
        settings: VaultSettings,
    ) -> Self {
        Self { name, host, resource_id, location, settings }
    }

    fn resource_key(&self) -> String {
        self.resource_id.as_str().to_ascii_lowercase()
    }

    /// The deletion recovery level of the vault's objects.
    pub fn recovery_level(&self) -> &'static str {
        match (self.settings.retention_days < 90, self.settings.purge_protection) {
            (false, false) => "Recoverable+Purgeable",
            (false, true) => "Recoverable",
            (true, false) => "CustomizedRecoverable+Purgeable",
            (true, true) => "CustomizedRecoverable",
        }
    }

    /// How long deleted objects can be recovered.
    pub fn retention_period(&self) -> SignedDuration {
        SignedDuration::from_hours(24 * i64::from(self.settings.retention_days))
    }
}
