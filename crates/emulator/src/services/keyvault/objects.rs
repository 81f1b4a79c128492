//! What the three kinds of objects do alike: reading one version, listing, listing versions.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use super::gate::{enter, refuse};
use super::kind::{ObjectKind, Right};
use super::refusal::Refusal;
use super::shelf::{Attributes, Shelf, VaultObject, Version};
use super::vault::Vault;
use crate::call::Call;
use crate::request::Reply;

/// A kind of object with its shelf and its wire form.
pub(super) trait Kept: Sized {
    /// The kind.
    const KIND: ObjectKind;
    /// The right to read one.
    const GET: Right;
    /// The right to list.
    const LIST: Right;

    /// Where the vault keeps them.
    fn shelf(vault: &Vault) -> &Shelf<Self>;

    /// The version as a read returns it.
    fn bundle(vault: &Vault, name: &str, version: &Version<Self>) -> Value;

    /// The version as a list shows it, under `id`: no value, no key material.
    fn item(id: String, vault: &Vault, version: &Version<Self>) -> Value;
}

/// `GET /{kind}/{name}[/{version}]`.
pub(super) fn read<K: Kept>(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, version) = requested(call);
    let found = enter(call, K::GET).map(|vault| {
        K::shelf(vault).version(&name, version.as_deref()).map(|(object, version)| {
            (version.attributes.enabled, K::bundle(vault, &object.name, version))
        })
    })?;
    match found {
        Err(problem) => Err(refuse(problem, K::KIND, call)),
        Ok((false, _)) => Err(Refusal::Disabled { kind: K::KIND, name: &name }.reply()),
        Ok((true, bundle)) => Ok(Reply::json(StatusCode::OK, &bundle)),
    }
}

/// `GET /{kind}`: the current version of every object.
pub(super) fn list<K: Kept>(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let page = PageRequest::of(call);
    let vault = enter(call, K::LIST)?;
    let page = page?;
    let items = K::shelf(vault).after(page.marker.as_deref(), false).filter_map(|object| {
        let version = object.latest()?;
        Some((object.name.clone(), K::item(object_id::<K>(vault, &object.name), vault, version)))
    });
    Ok(page.reply(items))
}

/// `GET /{kind}/{name}/versions`.
pub(super) fn versions<K: Kept>(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let page = PageRequest::of(call);
    let name = call.parameter("name").to_owned();
    let object = enter(call, K::LIST).map(|vault| {
        K::shelf(vault).object(&name).map(|object| {
            sorted(object)
                .map(|version| {
                    let id = version_id::<K>(vault, &object.name, version);
                    (version.id.clone(), K::item(id, vault, version))
                })
                .collect::<Vec<_>>()
        })
    })?;
    let items = object.map_err(|problem| refuse(problem, K::KIND, call))?;
    let page = page?;
    let rest = items.into_iter().skip_while({
        let marker = page.marker.clone();
        move |(id, _)| marker.as_ref().is_some_and(|marker| id <= marker)
    });
    Ok(page.reply(rest))
}

/// Versions come in the order of their ids, which says nothing of their age: clients sort.
fn sorted<T>(object: &VaultObject<T>) -> impl Iterator<Item = &Version<T>> {
    let mut versions: Vec<_> = object.versions.iter().collect();
    versions.sort_by(|one, other| one.id.cmp(&other.id));
    versions.into_iter()
}

/// The name and the version that the path asks for.
pub(super) fn requested(call: &Call<'_>) -> (String, Option<String>) {
    let version = call.parameter("version");
    let version = (!version.is_empty()).then(|| version.to_owned());
    (call.parameter("name").to_owned(), version)
}

/// The id of an object without a version.
pub(super) fn object_id<K: Kept>(vault: &Vault, name: &str) -> String {
    format!("{}/{}/{name}", vault.url(), K::KIND.collection())
}

/// The id of a version.
pub(super) fn version_id<K: Kept>(vault: &Vault, name: &str, version: &Version<K>) -> String {
    format!("{}/{}", object_id::<K>(vault, name), version.id)
}

/// The wire form of attributes: times in whole seconds since 1970.
pub(super) fn attributes(attributes: Attributes, vault: &Vault) -> Value {
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

/// What a list asks for, and where its next page is.
pub(super) struct PageRequest {
    base: String,
    size: usize,
    /// The last item of the page before.
    pub(super) marker: Option<String>,
}

impl PageRequest {
    /// Reads `maxresults` (1 to 25) and `$skiptoken`.
    pub(super) fn of(call: &Call<'_>) -> Result<Self, Reply> {
        let request = call.request;
        let refuse = |text: String| Refusal::BadParameter(text).reply();
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

    /// One page of `items`, which begin after the marker, each with its own marker.
    pub(super) fn reply(&self, items: impl Iterator<Item = (String, Value)>) -> Reply {
        let mut items: Vec<_> = items.take(self.size + 1).collect();
        let more = items.len() > self.size;
        items.truncate(self.size);
        let next = items.last().filter(|_| more).map(|(marker, _)| {
            format!("{}&$skiptoken={}", self.base, URL_SAFE_NO_PAD.encode(marker))
        });
        let value: Vec<_> = items.into_iter().map(|(_, item)| item).collect();
        Reply::json(StatusCode::OK, &json!({ "value": value, "nextLink": next }))
    }
}

/// Page size of the service, and the most that a client may ask for.
const MAX_RESULTS: usize = 25;
