//! A kind of object: its store, its ids, and its wire format.

use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::vaults::object_kind::{KeyVaultObjectKind, ObjectPermissions};
use lanyard_emulator_state::vaults::object_store::{
    ObjectStoreError, StoredObjectAttributes, StoredObjectVersion, StoredVaultObject,
    VersionContent, VersionedObjectStore,
};
use lanyard_emulator_state::vaults::vault::{EmulatedVault, VaultStore};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::VaultServiceError;
use super::vault_view::VaultView;

/// A kind of object, with its store and its wire format.
pub(super) trait StoredObject: VersionContent + Serialize + DeserializeOwned {
    const KIND: KeyVaultObjectKind;
    const PERMISSIONS: ObjectPermissions;

    /// The objects of this kind.
    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self>;

    /// Like [`Self::object_store`], for changes.
    fn object_store_mut(vaults: &mut VaultStore) -> &mut VersionedObjectStore<Self>;

    /// The version as in the reply to a read.
    fn bundle<'a>(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<Self>,
        version: &'a StoredObjectVersion<Self>,
    ) -> impl Serialize;

    /// The version as in lists, with the given id: no value, no key material.
    fn list_item(
        view: VaultView<'_>,
        id: String,
        version: &StoredObjectVersion<Self>,
    ) -> impl Serialize;

    /// The version as in the reply to a deletion or another change: like a read, but never with a secret value.
    fn bundle_without_value<'a>(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<Self>,
        version: &'a StoredObjectVersion<Self>,
    ) -> impl Serialize {
        Self::bundle(view, object, version)
    }

    /// Whether the object belongs to a certificate.
    fn is_managed(_object: &StoredVaultObject<Self>) -> bool {
        false
    }

    /// Whether the object is pending: lists omit it unless the client asks for pending ones.
    fn is_pending(_object: &StoredVaultObject<Self>) -> bool {
        false
    }

    /// Rejects reading a version that clients must not read, such as a disabled one.
    fn check_readable(_version: &StoredObjectVersion<Self>) -> Result<(), VaultServiceError<'_>> {
        Ok(())
    }

    /// Soft-deletes an object with everything that belongs to it.
    fn soft_delete(
        vaults: &mut VaultStore,
        host: &str,
        name: &str,
        now: Timestamp,
        retention: SignedDuration,
    ) -> Result<(), ObjectStoreError> {
        Self::object_store_mut(vaults).soft_delete(host, name, now, retention)
    }

    /// Recovers a deleted object with everything that belongs to it.
    fn recover(vaults: &mut VaultStore, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        Self::object_store_mut(vaults).recover(host, name)
    }

    /// Purges a deleted object with everything that belongs to it.
    fn purge(vaults: &mut VaultStore, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        Self::object_store_mut(vaults).purge(host, name)
    }
}

/// The attributes of a version in replies: times in whole seconds since 1970.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AttributesJson {
    enabled: bool,
    created: i64,
    updated: i64,
    #[serde(rename = "nbf", skip_serializing_if = "Option::is_none")]
    not_before: Option<i64>,
    #[serde(rename = "exp", skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    recovery_level: &'static str,
    recoverable_days: u16,
}

impl AttributesJson {
    pub(super) fn new(attributes: StoredObjectAttributes, vault: &EmulatedVault) -> Self {
        Self {
            enabled: attributes.enabled,
            created: attributes.created.as_second(),
            updated: attributes.updated.as_second(),
            not_before: attributes.not_before.map(Timestamp::as_second),
            expires: attributes.expires.map(Timestamp::as_second),
            recovery_level: vault.recovery_level(),
            recoverable_days: vault.settings.retention_days,
        }
    }
}

/// Returns the name and the version in the path; `None` without a version.
pub(super) fn requested_name_and_version<'a>(
    call: &OperationContext<'a>,
) -> (&'a str, Option<&'a str>) {
    let version = Some(call.path_parameter("version")).filter(|version| !version.is_empty());
    (call.path_parameter("name"), version)
}

/// Returns the id URL of an object, without a version.
pub(super) fn object_id<K: StoredObject>(view: VaultView<'_>, name: &str) -> String {
    format!("{}/{}/{name}", view.base_url(), K::KIND.collection())
}

/// Returns the id URL of a version of an object.
pub(super) fn version_id<K: StoredObject>(
    view: VaultView<'_>,
    name: &str,
    version: &StoredObjectVersion<K>,
) -> String {
    format!("{}/{}/{name}/{}", view.base_url(), K::KIND.collection(), version.id)
}
