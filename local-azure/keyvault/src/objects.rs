//! Operations that the three kinds of objects share: reading one version, listing objects and versions.
//! Deletion and backup are in `deleted_objects` and `backups`.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::object_store::{
    StoredObjectVersion, StoredVaultObject, VersionContent,
};

use super::access::authorize_call;
use super::error::VaultServiceError;
use super::object_errors::{object_error_reply, store_error_reply};
use super::pages::{VaultPageRequest, includes_pending};
use super::stored_object::{StoredObject, object_id, requested_name_and_version, version_id};
use super::vault_view::VaultRef;

/// `GET /{kind}/{name}[/{version}]`.
pub(super) fn get_version<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let reference = authorize_call(call, K::PERMISSIONS.get)?;
    version_reply::<K>(reference, name, version)
}

/// Returns the reply with a version of an object: the latest one if `version` is `None`.
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

/// Finds an object and its `version`, or its latest version if `version` is `None`.
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

/// Returns the versions after the one with the id `marker` (`None`: all), ordered by id. Ids are
/// unrelated to age: clients sort.
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
