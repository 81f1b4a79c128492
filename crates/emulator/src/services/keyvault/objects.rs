//! Operations that the three kinds of objects share: reading one version, listing objects and versions.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use super::access::{VaultRef, authorize_call, store_error_reply};
use super::error::VaultServiceError;
use super::object_kind::{KeyVaultObjectKind, VaultPermission};
use super::object_store::{
    StoredObjectAttributes, StoredObjectVersion, StoredVaultObject, VersionedObjectStore,
};
use super::vault::{EmulatedVault, VaultStore};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

/// A kind of object, with its store and its wire format.
pub(super) trait StoredObject: Sized {
    const KIND: KeyVaultObjectKind;
    /// The permission to read an object.
    const GET: VaultPermission;
    /// The permission to list objects.
    const LIST: VaultPermission;

    /// The vault's store of this kind.
    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self>;

    /// The version as in the reply to a read.
    fn bundle_json(vault: &EmulatedVault, name: &str, version: &StoredObjectVersion<Self>)
    -> Value;

    /// The version as in lists, with the given `id`: no value, no key material.
    fn item_json(id: String, vault: &EmulatedVault, version: &StoredObjectVersion<Self>) -> Value;
}

/// `GET /{kind}/{name}[/{version}]`.
pub(super) fn get_version<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let found = authorize_call(call, K::GET).map(|VaultRef { vault, vaults }| {
        K::object_store(vaults).version(&vault.host, &name, version.as_deref()).map(
            |(object, version)| {
                (version.attributes.enabled, K::bundle_json(vault, &object.name, version))
            },
        )
    })?;
    match found {
        Err(problem) => Err(store_error_reply(problem, K::KIND, call)),
        Ok((false, _)) => {
            Err(VaultServiceError::ObjectDisabled { kind: K::KIND, name: &name }.to_reply())
        }
        Ok((true, bundle)) => Ok(ServiceReply::json(StatusCode::OK, &bundle)),
    }
}

/// `GET /{kind}`: the current version of every object.
pub(super) fn list_objects<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let page = VaultPageRequest::from_request(call);
    let VaultRef { vault, vaults } = authorize_call(call, K::LIST)?;
    let page = page?;
    let items = K::object_store(vaults)
        .objects_after(&vault.host, page.marker.as_deref(), false)
        .filter_map(|object| {
            let version = object.latest()?;
            Some((
                object.name.clone(),
                K::item_json(object_id::<K>(vault, &object.name), vault, version),
            ))
        });
    Ok(page.page_reply(items))
}

/// `GET /{kind}/{name}/versions`.
pub(super) fn list_versions<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let page = VaultPageRequest::from_request(call);
    let name = call.path_parameter("name").to_owned();
    let object = authorize_call(call, K::LIST).map(|VaultRef { vault, vaults }| {
        K::object_store(vaults).object(&vault.host, &name).map(|object| {
            versions_sorted_by_id(object)
                .map(|version| {
                    let id = version_id::<K>(vault, &object.name, version);
                    (version.id.clone(), K::item_json(id, vault, version))
                })
                .collect::<Vec<_>>()
        })
    })?;
    let items = object.map_err(|problem| store_error_reply(problem, K::KIND, call))?;
    let page = page?;
    let rest = items.into_iter().skip_while({
        let marker = page.marker.clone();
        move |(id, _)| marker.as_ref().is_some_and(|marker| id <= marker)
    });
    Ok(page.page_reply(rest))
}

/// Versions are ordered by id, which is unrelated to their age: clients sort.
fn versions_sorted_by_id<T>(
    object: &StoredVaultObject<T>,
) -> impl Iterator<Item = &StoredObjectVersion<T>> {
    let mut versions: Vec<_> = object.versions.iter().collect();
    versions.sort_by(|one, other| one.id.cmp(&other.id));
    versions.into_iter()
}

/// The name and the version in the path.
pub(super) fn requested_name_and_version(call: &OperationContext<'_>) -> (String, Option<String>) {
    let version = call.path_parameter("version");
    let version = (!version.is_empty()).then(|| version.to_owned());
    (call.path_parameter("name").to_owned(), version)
}

/// The id of an object without a version.
pub(super) fn object_id<K: StoredObject>(vault: &EmulatedVault, name: &str) -> String {
    format!("{}/{}/{name}", vault.base_url(), K::KIND.collection())
}

pub(super) fn version_id<K: StoredObject>(
    vault: &EmulatedVault,
    name: &str,
    version: &StoredObjectVersion<K>,
) -> String {
    format!("{}/{}", object_id::<K>(vault, name), version.id)
}

/// The wire format of attributes: times in whole seconds since 1970.
pub(super) fn attributes_json(attributes: StoredObjectAttributes, vault: &EmulatedVault) -> Value {
    let mut wire = json!({
        "enabled": attributes.enabled,
        "created": attributes.created.as_second(),
        "updated": attributes.updated.as_second(),
        "recoveryLevel": "Recoverable+Purgeable",
        "recoverableDays": vault.settings.retention_days,
    });
    for (key, value) in [("nbf", attributes.not_before), ("exp", attributes.expires)] {
        if let Some(value) = value {
            wire[key] = json!(value.as_second());
        }
    }
    wire
}

/// The parameters of a list request, and the URL of its next page.
pub(super) struct VaultPageRequest {
    base: String,
    size: usize,
    /// The last item of the previous page.
    pub(super) marker: Option<String>,
}

impl VaultPageRequest {
    /// Parses `maxresults` (1 to 25) and `$skiptoken`.
    pub(super) fn from_request(call: &OperationContext<'_>) -> Result<Self, ServiceReply> {
        let request = call.request;
        let refuse = |text: String| VaultServiceError::BadParameter(text).to_reply();
        let size = match request.query("maxresults") {
            None => MAX_RESULTS,
            Some(text) => {
                text.parse().ok().filter(|size| (1..=MAX_RESULTS).contains(size)).ok_or_else(
                    || refuse(format!("`maxresults={text}` is not 1 to {MAX_RESULTS}")),
                )?
            }
        };
        let marker = match request.query("$skiptoken") {
            None => None,
            Some(token) => {
                let marker =
                    URL_SAFE_NO_PAD.decode(token).ok().and_then(|m| String::from_utf8(m).ok());
                Some(
                    marker
                        .ok_or_else(|| refuse("`$skiptoken` is not from this list".to_owned()))?,
                )
            }
        };
        let version = request.query("api-version").unwrap_or_default();
        let (host, path) = (&request.host, &request.path);
        let base = format!("https://{host}{path}?api-version={version}&maxresults={size}");
        Ok(Self { base, size, marker })
    }

    /// One page of `items`, which start after the marker, each with its own marker.
    pub(super) fn page_reply(&self, items: impl Iterator<Item = (String, Value)>) -> ServiceReply {
        let mut items: Vec<_> = items.take(self.size + 1).collect();
        let more = items.len() > self.size;
        items.truncate(self.size);
        let next = items.last().filter(|_| more).map(|(marker, _)| {
            format!("{}&$skiptoken={}", self.base, URL_SAFE_NO_PAD.encode(marker))
        });
        let value: Vec<_> = items.into_iter().map(|(_, item)| item).collect();
        ServiceReply::json(StatusCode::OK, &json!({ "value": value, "nextLink": next }))
    }
}

/// The page size of the service, and the maximum for clients.
const MAX_RESULTS: usize = 25;
