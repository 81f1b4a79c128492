//! Operations that the three kinds of objects share: reading one version, listing objects and versions.
//! Deletion and backup are in `deleted_objects` and `backups`.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::object_kind::{KeyVaultObjectKind, ObjectPermissions};
use lanyard_emulator_state::vaults::object_store::{
    ObjectStoreError, StoredObjectAttributes, StoredObjectVersion, StoredVaultObject,
    VersionContent, VersionedObjectStore,
};
use lanyard_emulator_state::vaults::vault::{EmulatedVault, VaultStore};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::{VaultRef, VaultView, authorize_call, object_error_reply, store_error_reply};
use super::error::VaultServiceError;
use super::pages::VaultPageRequest;

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

    /// Rejects reading a version.
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

/// `GET /{kind}/{name}[/{version}]`.
pub(super) fn get_version<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let reference = authorize_call(call, K::PERMISSIONS.get)?;
    version_reply::<K>(reference, name, version)
}

/// The reply with a version of an object; the current one by default.
pub(super) fn version_reply<K: StoredObject>(
    reference: VaultRef<'_>,
    name: &str,
    version: Option<&str>,
) -> Result<ServiceReply, ServiceReply> {
    let (object, stored) = find_version::<K>(reference, name, version)?;
    K::check_readable(stored).map_err(|error| error.to_reply())?;
    let bundle = K::bundle(reference.view(), object, stored);
    Ok(ServiceReply::json(StatusCode::OK, &bundle))
}

/// The reply to a change: the version in its new state, even if the change disabled it, and never with a secret
/// value.
pub(super) fn changed_version_reply<K: StoredObject>(
    reference: VaultRef<'_>,
    name: &str,
    version: Option<&str>,
) -> Result<ServiceReply, ServiceReply> {
    let (object, stored) = find_version::<K>(reference, name, version)?;
    let bundle = K::bundle_without_value(reference.view(), object, stored);
    Ok(ServiceReply::json(StatusCode::OK, &bundle))
}

/// A version of an object; the current one by default.
pub(super) fn find_version<'v, K: StoredObject>(
    reference: VaultRef<'v>,
    name: &str,
    version: Option<&str>,
) -> Result<(&'v StoredVaultObject<K>, &'v StoredObjectVersion<K>), ServiceReply> {
    K::object_store(reference.vaults)
        .version(&reference.vault.host, name, version)
        .map_err(|problem| object_error_reply(problem, K::KIND, name, version))
}

/// `GET /{kind}`: the current version of every object.
pub(super) fn list_objects<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let page = VaultPageRequest::from_request(call);
    let with_pending = includes_pending(call);
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, K::PERMISSIONS.list)?;
    let page = page?;
    let items = K::object_store(vaults)
        .objects_after(&vault.host, page.marker.as_deref())
        .filter(|object| with_pending || !K::is_pending(object))
        .filter_map(|object| {
            let (id, version) = (object_id::<K>(reference.view(), &object.name), object.latest()?);
            Some((object.name.as_str(), K::list_item(reference.view(), id, version)))
        });
    Ok(page.page_reply(items))
}

/// `GET /{kind}/{name}/versions`.
pub(super) fn list_versions<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let page = VaultPageRequest::from_request(call);
    let name = call.path_parameter("name");
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, K::PERMISSIONS.list)?;
    let page = page?;
    let found = K::object_store(vaults).object(&vault.host, name).map(|object| {
        let items = versions_after(object, page.marker.as_deref()).into_iter().map(|version| {
            let id = version_id(reference.view(), &object.name, version);
            (version.id.as_str(), K::list_item(reference.view(), id, version))
        });
        page.page_reply(items)
    });
    found.map_err(|problem| store_error_reply(problem, K::KIND, call))
}

/// The versions after the one with the id `marker`, ordered by id, which is unrelated to their age: clients
/// sort.
fn versions_after<'o, K: VersionContent>(
    object: &'o StoredVaultObject<K>,
    marker: Option<&str>,
) -> Vec<&'o StoredObjectVersion<K>> {
    let is_next = |version: &&StoredObjectVersion<K>| {
        marker.is_none_or(|marker| version.id.as_str() > marker)
    };
    let mut versions: Vec<_> = object.versions.iter().filter(is_next).collect();
    versions.sort_by(|one, other| one.id.cmp(&other.id));
    versions
}

/// Whether a list of certificates includes pending ones, which are not issued yet.
pub(super) fn includes_pending(call: &OperationContext<'_>) -> bool {
    call.request.query("includePending").is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// The name and the version in the path.
pub(super) fn requested_name_and_version<'a>(
    call: &OperationContext<'a>,
) -> (&'a str, Option<&'a str>) {
    let version = Some(call.path_parameter("version")).filter(|version| !version.is_empty());
    (call.path_parameter("name"), version)
}

/// The id of an object without a version.
pub(super) fn object_id<K: StoredObject>(view: VaultView<'_>, name: &str) -> String {
    format!("{}/{}/{name}", view.base_url(), K::KIND.collection())
}

pub(super) fn version_id<K: StoredObject>(
    view: VaultView<'_>,
    name: &str,
    version: &StoredObjectVersion<K>,
) -> String {
    format!("{}/{}/{name}/{}", view.base_url(), K::KIND.collection(), version.id)
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

/// Rejects a write to an object that belongs to a certificate, or to a name that a certificate has.
pub(super) fn require_unmanaged<K: StoredObject>(
    VaultRef { vault, vaults, .. }: VaultRef<'_>,
    name: &str,
) -> Result<(), ServiceReply> {
    let host = &vault.host;
    let belongs_to_certificate =
        K::object_store(vaults).object(host, name).is_ok_and(K::is_managed)
            || vaults.certificates.object(host, name).is_ok();
    reject_managed::<K>(belongs_to_certificate, name)
}

/// Rejects a request to an object that belongs to a certificate.
pub(super) fn reject_managed<K: StoredObject>(
    is_managed: bool,
    name: &str,
) -> Result<(), ServiceReply> {
    if is_managed {
        return Err(VaultServiceError::ManagedByCertificate { kind: K::KIND, name }.to_reply());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
