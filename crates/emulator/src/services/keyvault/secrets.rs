//! Secrets.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::gate::{enter, entered_mut, refuse};
use super::kind::{
    DELETE_SECRET, GET_DELETED_SECRET, GET_SECRET, LIST_SECRETS, ObjectKind, PURGE_SECRET,
    RECOVER_SECRET, Right, SET_SECRET, UPDATE_SECRET,
};
use super::objects::{Kept, PageRequest, attributes, object_id, requested, version_id};
use super::refusal::Refusal;
use super::shelf::{Attributes, Shelf, ShelfProblem, VaultObject, Version};
use super::vault::{SecretContent, Vault};
use crate::call::Call;
use crate::keys::SecretText;
use crate::request::Reply;

/// The most that a value may have: 25 KB.
pub(crate) const MAX_VALUE_BYTES: usize = 25 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetBody {
    value: Option<SecretText>,
    content_type: Option<String>,
    attributes: Option<AttributesBody>,
    tags: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateBody {
    content_type: Option<String>,
    attributes: Option<AttributesBody>,
    tags: Option<BTreeMap<String, String>>,
}

/// The attributes that a client may set, of secrets and of keys.
#[derive(Deserialize, Default)]
pub(super) struct AttributesBody {
    enabled: Option<bool>,
    nbf: Option<i64>,
    exp: Option<i64>,
}

impl Kept for SecretContent {
    const KIND: ObjectKind = ObjectKind::Secret;
    const GET: Right = GET_SECRET;
    const LIST: Right = LIST_SECRETS;

    fn shelf(vault: &Vault) -> &Shelf<Self> {
        &vault.secrets
    }

    fn bundle(vault: &Vault, name: &str, version: &Version<Self>) -> Value {
        let mut bundle = Self::item(version_id(vault, name, version), vault, version);
        bundle["value"] = json!(version.content.value.expose());
        if let Some(key) = &version.content.key_version {
            bundle["kid"] = json!(format!("{}/keys/{name}/{key}", vault.url()));
        }
        bundle
    }

    fn item(id: String, vault: &Vault, version: &Version<Self>) -> Value {
        let mut item = json!({ "id": id, "attributes": attributes(version.attributes, vault) });
        if let Some(content_type) = &version.content.content_type {
            item["contentType"] = json!(content_type);
        }
        if !version.tags.is_empty() {
            item["tags"] = json!(version.tags);
        }
        if version.content.key_version.is_some() {
            item["managed"] = json!(true);
        }
        item
    }
}

/// `PUT /secrets/{name}`: a new version.
pub(super) fn set(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, _) = requested(call);
    refuse_managed(enter(call, SET_SECRET)?, &name)?;
    let body: SetBody = body(call)?;
    let value = body.value.ok_or_else(|| bad("`value` is missing".to_owned()))?;
    if value.expose().len() > MAX_VALUE_BYTES {
        let found = value.expose().len();
        return Err(bad(format!("`value` has {found} bytes; the most is {MAX_VALUE_BYTES}")));
    }
    let version = Version {
        id: call.ids.hex32(),
        attributes: body
            .attributes
            .unwrap_or_default()
            .apply(Attributes::new(call.now), call.now)?,
        tags: body.tags.unwrap_or_default(),
        content: SecretContent { value, content_type: body.content_type, key_version: None },
    };
    let vault = entered_mut(call)?;
    let pushed = vault.secrets.push(&name, version).map_err(ShelfProblem::from);
    let outcome = pushed.and_then(|()| vault.secrets.version(&name, None));
    match outcome {
        Ok((object, version)) => {
            Ok(Reply::json(StatusCode::OK, &SecretContent::bundle(vault, &object.name, version)))
        }
        Err(problem) => Err(refuse(problem, ObjectKind::Secret, call)),
    }
}

/// `PATCH /secrets/{name}[/{version}]`: attributes, tags, content type.
pub(super) fn update(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, version) = requested(call);
    refuse_managed(enter(call, UPDATE_SECRET)?, &name)?;
    let body: UpdateBody = body(call)?;
    let now = call.now;
    let vault = entered_mut(call)?;
    let changed = match vault.secrets.version_mut(&name, version.as_deref()) {
        Ok(held) => {
            held.attributes = body.attributes.unwrap_or_default().apply(held.attributes, now)?;
            if let Some(content_type) = body.content_type {
                held.content.content_type = Some(content_type);
            }
            if let Some(tags) = body.tags {
                held.tags = tags;
            }
            vault.secrets.version(&name, version.as_deref())
        }
        Err(problem) => Err(problem),
    };
    match changed {
        Ok((object, version)) => {
            let id = version_id(vault, &object.name, version);
            Ok(Reply::json(StatusCode::OK, &SecretContent::item(id, vault, version)))
        }
        Err(problem) => Err(refuse(problem, ObjectKind::Secret, call)),
    }
}

/// `DELETE /secrets/{name}`: recoverable.
pub(super) fn delete(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, _) = requested(call);
    refuse_managed(enter(call, DELETE_SECRET)?, &name)?;
    let now = call.now;
    let vault = entered_mut(call)?;
    let retention = vault.retention();
    let outcome = vault.secrets.delete(&name, now, retention);
    match outcome.and_then(|()| vault.secrets.deleted(&name)) {
        Ok(object) => Ok(Reply::json(StatusCode::OK, &deleted_bundle(vault, object))),
        Err(problem) => Err(refuse(problem, ObjectKind::Secret, call)),
    }
}

/// `GET /deletedsecrets/{name}`.
pub(super) fn read_deleted(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, _) = requested(call);
    let vault = enter(call, GET_DELETED_SECRET)?;
    match vault.secrets.deleted(&name).map(|object| deleted_bundle(vault, object)) {
        Ok(bundle) => Ok(Reply::json(StatusCode::OK, &bundle)),
        Err(problem) => Err(refuse(problem, ObjectKind::Secret, call)),
    }
}

/// `GET /deletedsecrets`.
pub(super) fn list_deleted(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let page = PageRequest::of(call);
    let vault = enter(call, LIST_SECRETS)?;
    let page = page?;
    let items = vault
        .secrets
        .after(page.marker.as_deref(), true)
        .map(|object| (object.name.clone(), deleted_bundle(vault, object)));
    Ok(page.reply(items))
}

/// `POST /deletedsecrets/{name}/recover`.
pub(super) fn recover(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, _) = requested(call);
    enter(call, RECOVER_SECRET)?;
    let vault = entered_mut(call)?;
    let outcome = vault.secrets.recover(&name);
    match outcome.and_then(|()| vault.secrets.version(&name, None)) {
        Ok((object, version)) => {
            let id = version_id(vault, &object.name, version);
            Ok(Reply::json(StatusCode::OK, &SecretContent::item(id, vault, version)))
        }
        Err(problem) => Err(refuse(problem, ObjectKind::Secret, call)),
    }
}

/// `DELETE /deletedsecrets/{name}`: for good.
pub(super) fn purge(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (name, _) = requested(call);
    enter(call, PURGE_SECRET)?;
    match entered_mut(call)?.secrets.purge(&name) {
        Ok(()) => Ok(Reply::empty(StatusCode::NO_CONTENT)),
        Err(problem) => Err(refuse(problem, ObjectKind::Secret, call)),
    }
}

fn deleted_bundle(vault: &Vault, object: &VaultObject<SecretContent>) -> Value {
    let name = &object.name;
    let mut bundle = object.latest().map_or_else(
        || json!({ "id": object_id::<SecretContent>(vault, name) }),
        |version| SecretContent::item(version_id(vault, name, version), vault, version),
    );
    bundle["recoveryId"] = json!(format!("{}/deletedsecrets/{name}", vault.url()));
    if let Some(deletion) = object.deletion {
        bundle["deletedDate"] = json!(deletion.at.as_second());
        bundle["scheduledPurgeDate"] = json!(deletion.purge_at.as_second());
    }
    bundle
}

fn refuse_managed(vault: &Vault, name: &str) -> Result<(), Reply> {
    let managed = vault
        .secrets
        .version(name, None)
        .is_ok_and(|(_, version)| version.content.key_version.is_some());
    if managed { Err(Refusal::Managed { name }.reply()) } else { Ok(()) }
}

impl AttributesBody {
    /// The attributes with what was sent, changed at `now`.
    pub(super) fn apply(
        &self,
        mut attributes: Attributes,
        now: Timestamp,
    ) -> Result<Attributes, Reply> {
        attributes.enabled = self.enabled.unwrap_or(attributes.enabled);
        attributes.not_before = stamp("nbf", self.nbf)?.or(attributes.not_before);
        attributes.expires = stamp("exp", self.exp)?.or(attributes.expires);
        attributes.updated = now;
        Ok(attributes)
    }
}

fn stamp(name: &str, seconds: Option<i64>) -> Result<Option<Timestamp>, Reply> {
    seconds
        .map(Timestamp::from_second)
        .transpose()
        .map_err(|error| bad(format!("`attributes.{name}` is no time in seconds: {error}")))
}

/// The body of a call; the refusal repeats nothing of it.
pub(super) fn body<T: serde::de::DeserializeOwned>(call: &Call<'_>) -> Result<T, Reply> {
    // The parser's message may quote what it read, which may be a value: say where, not what.
    call.request.json().map_err(|error| {
        bad(format!("the body is not the JSON that is expected, at column {}", error.column()))
    })
}

/// The refusal of a request that is not well-formed.
pub(super) fn bad(message: String) -> Reply {
    Refusal::BadParameter(message).reply()
}
