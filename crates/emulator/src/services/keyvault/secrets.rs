//! Secrets.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{VaultRef, authorize_call, authorized_vault_mut, store_error_reply};
use super::error::VaultServiceError;
use super::object_kind::{
    DELETE_SECRET, GET_DELETED_SECRET, GET_SECRET, KeyVaultObjectKind, LIST_SECRETS, PURGE_SECRET,
    RECOVER_SECRET, SET_SECRET, UPDATE_SECRET, VaultPermission,
};
use super::object_store::{
    ObjectStoreError, StoredObjectAttributes, StoredObjectVersion, StoredVaultObject,
    VersionedObjectStore,
};
use super::objects::{
    StoredObject, VaultPageRequest, attributes_json, object_id, requested_name_and_version,
    version_id,
};
use super::vault::{EmulatedVault, SecretContent, VaultStore};
use crate::keys::RedactedText;
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

/// The maximum size of a value: 25 KB.
pub(crate) const MAX_VALUE_BYTES: usize = 25 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetSecretBody {
    value: Option<RedactedText>,
    content_type: Option<String>,
    attributes: Option<ObjectAttributesBody>,
    tags: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateSecretBody {
    content_type: Option<String>,
    attributes: Option<ObjectAttributesBody>,
    tags: Option<BTreeMap<String, String>>,
}

/// The attributes that clients may set on secrets and keys.
#[derive(Deserialize, Default)]
pub(super) struct ObjectAttributesBody {
    enabled: Option<bool>,
    nbf: Option<i64>,
    exp: Option<i64>,
}

impl StoredObject for SecretContent {
    const KIND: KeyVaultObjectKind = KeyVaultObjectKind::Secret;
    const GET: VaultPermission = GET_SECRET;
    const LIST: VaultPermission = LIST_SECRETS;

    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self> {
        &vaults.secrets
    }

    fn bundle_json(
        vault: &EmulatedVault,
        name: &str,
        version: &StoredObjectVersion<Self>,
    ) -> Value {
        let mut bundle = Self::item_json(version_id(vault, name, version), vault, version);
        bundle["value"] = json!(version.content.value.expose());
        if let Some(key) = &version.content.key_version {
            bundle["kid"] = json!(format!("{}/keys/{name}/{key}", vault.base_url()));
        }
        bundle
    }

    fn item_json(id: String, vault: &EmulatedVault, version: &StoredObjectVersion<Self>) -> Value {
        let mut item =
            json!({ "id": id, "attributes": attributes_json(version.attributes, vault) });
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
pub(super) fn set_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, _) = requested_name_and_version(call);
    require_unmanaged(authorize_call(call, SET_SECRET)?, &name)?;
    let body: SetSecretBody = parse_body(call)?;
    let value = body.value.ok_or_else(|| bad_parameter_reply("`value` is missing".to_owned()))?;
    if value.expose().len() > MAX_VALUE_BYTES {
        let found = value.expose().len();
        return Err(bad_parameter_reply(format!(
            "`value` has {found} bytes; the most is {MAX_VALUE_BYTES}"
        )));
    }
    let version = StoredObjectVersion {
        id: call.ids.next_hex32(),
        attributes: body
            .attributes
            .unwrap_or_default()
            .apply(StoredObjectAttributes::new(call.now), call.now)?,
        tags: body.tags.unwrap_or_default(),
        content: SecretContent { value, content_type: body.content_type, key_version: None },
    };
    let (vaults, vault) = authorized_vault_mut(call)?;
    let pushed =
        vaults.secrets.push_version(&vault.host, &name, version).map_err(ObjectStoreError::from);
    let outcome = pushed.and_then(|()| vaults.secrets.version(&vault.host, &name, None));
    match outcome {
        Ok((object, version)) => Ok(ServiceReply::json(
            StatusCode::OK,
            &SecretContent::bundle_json(&vault, &object.name, version),
        )),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Secret, call)),
    }
}

/// `PATCH /secrets/{name}[/{version}]`: attributes, tags, content type.
pub(super) fn update_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    require_unmanaged(authorize_call(call, UPDATE_SECRET)?, &name)?;
    let body: UpdateSecretBody = parse_body(call)?;
    let now = call.now;
    let (vaults, vault) = authorized_vault_mut(call)?;
    let changed = match vaults.secrets.version_mut(&vault.host, &name, version.as_deref()) {
        Ok(held) => {
            held.attributes = body.attributes.unwrap_or_default().apply(held.attributes, now)?;
            if let Some(content_type) = body.content_type {
                held.content.content_type = Some(content_type);
            }
            if let Some(tags) = body.tags {
                held.tags = tags;
            }
            vaults.secrets.version(&vault.host, &name, version.as_deref())
        }
        Err(problem) => Err(problem),
    };
    match changed {
        Ok((object, version)) => {
            let id = version_id(&vault, &object.name, version);
            Ok(ServiceReply::json(StatusCode::OK, &SecretContent::item_json(id, &vault, version)))
        }
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Secret, call)),
    }
}

/// `DELETE /secrets/{name}`: recoverably.
pub(super) fn delete_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, _) = requested_name_and_version(call);
    require_unmanaged(authorize_call(call, DELETE_SECRET)?, &name)?;
    let now = call.now;
    let (vaults, vault) = authorized_vault_mut(call)?;
    let retention = vault.retention_period();
    let outcome = vaults.secrets.soft_delete(&vault.host, &name, now, retention);
    match outcome.and_then(|()| vaults.secrets.deleted_object(&vault.host, &name)) {
        Ok(object) => Ok(ServiceReply::json(StatusCode::OK, &deleted_secret_json(&vault, object))),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Secret, call)),
    }
}

/// `GET /deletedsecrets/{name}`.
pub(super) fn get_deleted_secret(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (name, _) = requested_name_and_version(call);
    let VaultRef { vault, vaults } = authorize_call(call, GET_DELETED_SECRET)?;
    match vaults
        .secrets
        .deleted_object(&vault.host, &name)
        .map(|object| deleted_secret_json(vault, object))
    {
        Ok(bundle) => Ok(ServiceReply::json(StatusCode::OK, &bundle)),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Secret, call)),
    }
}

/// `GET /deletedsecrets`.
pub(super) fn list_deleted_secrets(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let page = VaultPageRequest::from_request(call);
    let VaultRef { vault, vaults } = authorize_call(call, LIST_SECRETS)?;
    let page = page?;
    let items = vaults
        .secrets
        .objects_after(&vault.host, page.marker.as_deref(), true)
        .map(|object| (object.name.clone(), deleted_secret_json(vault, object)));
    Ok(page.page_reply(items))
}

/// `POST /deletedsecrets/{name}/recover`.
pub(super) fn recover_deleted_secret(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (name, _) = requested_name_and_version(call);
    authorize_call(call, RECOVER_SECRET)?;
    let (vaults, vault) = authorized_vault_mut(call)?;
    let outcome = vaults.secrets.recover(&vault.host, &name);
    match outcome.and_then(|()| vaults.secrets.version(&vault.host, &name, None)) {
        Ok((object, version)) => {
            let id = version_id(&vault, &object.name, version);
            Ok(ServiceReply::json(StatusCode::OK, &SecretContent::item_json(id, &vault, version)))
        }
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Secret, call)),
    }
}

/// `DELETE /deletedsecrets/{name}`: permanently.
pub(super) fn purge_deleted_secret(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (name, _) = requested_name_and_version(call);
    authorize_call(call, PURGE_SECRET)?;
    let (vaults, vault) = authorized_vault_mut(call)?;
    match vaults.secrets.purge(&vault.host, &name) {
        Ok(()) => Ok(ServiceReply::empty(StatusCode::NO_CONTENT)),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Secret, call)),
    }
}

fn deleted_secret_json(vault: &EmulatedVault, object: &StoredVaultObject<SecretContent>) -> Value {
    let name = &object.name;
    let mut bundle = object.latest().map_or_else(
        || json!({ "id": object_id::<SecretContent>(vault, name) }),
        |version| SecretContent::item_json(version_id(vault, name, version), vault, version),
    );
    bundle["recoveryId"] = json!(format!("{}/deletedsecrets/{name}", vault.base_url()));
    if let Some(deletion) = object.deletion {
        bundle["deletedDate"] = json!(deletion.at.as_second());
        bundle["scheduledPurgeDate"] = json!(deletion.purge_at.as_second());
    }
    bundle
}

fn require_unmanaged(
    VaultRef { vault, vaults }: VaultRef<'_>,
    name: &str,
) -> Result<(), ServiceReply> {
    let managed = vaults
        .secrets
        .version(&vault.host, name, None)
        .is_ok_and(|(_, version)| version.content.key_version.is_some());
    if managed { Err(VaultServiceError::ManagedByCertificate { name }.to_reply()) } else { Ok(()) }
}

impl ObjectAttributesBody {
    /// Applies the given attributes at `now`.
    pub(super) fn apply(
        &self,
        mut attributes: StoredObjectAttributes,
        now: Timestamp,
    ) -> Result<StoredObjectAttributes, ServiceReply> {
        attributes.enabled = self.enabled.unwrap_or(attributes.enabled);
        attributes.not_before = parse_unix_time("nbf", self.nbf)?.or(attributes.not_before);
        attributes.expires = parse_unix_time("exp", self.exp)?.or(attributes.expires);
        attributes.updated = now;
        Ok(attributes)
    }
}

fn parse_unix_time(name: &str, seconds: Option<i64>) -> Result<Option<Timestamp>, ServiceReply> {
    seconds.map(Timestamp::from_second).transpose().map_err(|error| {
        bad_parameter_reply(format!("`attributes.{name}` is no time in seconds: {error}"))
    })
}

/// Parses the body; an error repeats none of it.
pub(super) fn parse_body<T: serde::de::DeserializeOwned>(
    call: &OperationContext<'_>,
) -> Result<T, ServiceReply> {
    // The parser's message may quote the body, which may be a secret: report only the position.
    call.request.parse_json_body().map_err(|error| {
        bad_parameter_reply(format!(
            "the body is not the JSON that is expected, at column {}",
            error.column()
        ))
    })
}

/// The error for a malformed request.
pub(super) fn bad_parameter_reply(message: String) -> ServiceReply {
    VaultServiceError::BadParameter(message).to_reply()
}
