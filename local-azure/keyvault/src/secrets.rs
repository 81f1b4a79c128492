//! Secrets.

use std::collections::BTreeMap;

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::bundle_form::BundleForm;
use lanyard_emulator_state::vaults::object_kind::{
    KeyVaultObjectKind, ObjectPermissions, SECRET_PERMISSIONS, SET_SECRET, UPDATE_SECRET,
};
use lanyard_emulator_state::vaults::object_store::{
    StoredObjectAttributes, StoredObjectVersion, StoredVaultObject, VersionedObjectStore,
};
use lanyard_emulator_state::vaults::vault::{SecretContent, VaultStore};
use serde::{Deserialize, Serialize};

use super::access::{authorize_call, authorized_vault_mut};
use super::api_version::VersionedFeature;
use super::certificate_bundle::encode_bundle;
use super::error::{VaultServiceError, internal_error_reply};
use super::object_errors::object_error_reply;
use super::objects::{
    changed_version_reply, find_version, reject_managed, require_unmanaged, version_reply,
};
use super::request_body::{ObjectAttributesBody, TagsBody, bad_parameter_reply, parse_body};
use super::stored_object::{AttributesJson, StoredObject, requested_name_and_version, version_id};
use super::vault_view::{VaultMut, VaultRef, VaultView};

/// The maximum size of a value: 25 KiB.
pub const MAX_VALUE_BYTES: usize = 25 * 1024;
/// The maximum length of a content type, in characters.
const MAX_CONTENT_TYPE_LENGTH: usize = 255;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetSecretBody {
    value: Option<RedactedText>,
    content_type: Option<String>,
    attributes: Option<ObjectAttributesBody>,
    #[serde(default)]
    tags: TagsBody,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateSecretBody {
    content_type: Option<String>,
    attributes: Option<ObjectAttributesBody>,
    #[serde(default)]
    tags: TagsBody,
}

/// A version of a secret in replies.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SecretBundle<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    id: String,
    /// The id of the key of a certificate's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    managed: bool,
    attributes: AttributesJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_version: Option<&'a str>,
}

impl<'a> SecretBundle<'a> {
    /// The version as in the reply to a read.
    fn with_value(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<SecretContent>,
        version: &'a StoredObjectVersion<SecretContent>,
    ) -> Self {
        let value = Some(version.content.value.expose());
        Self { value, ..Self::without_value(view, object, version) }
    }

    /// The version as in the replies to deletions and other changes.
    fn without_value(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<SecretContent>,
        version: &'a StoredObjectVersion<SecretContent>,
    ) -> Self {
        let key = version.content.key_version.as_ref();
        let shows_previous = view.api.has(VersionedFeature::SecretConversion);
        Self {
            kid: key.map(|key| format!("{}/keys/{}/{key}", view.base_url(), object.name)),
            previous_version: shows_previous.then(|| previous_version(object, version)).flatten(),
            ..Self::list_item(view, version_id(view, &object.name, version), version)
        }
    }

    /// The version as in lists: without its value.
    fn list_item(
        view: VaultView<'_>,
        id: String,
        version: &'a StoredObjectVersion<SecretContent>,
    ) -> Self {
        Self {
            value: None,
            content_type: version.content.content_type.as_deref(),
            id,
            kid: None,
            managed: version.content.key_version.is_some(),
            attributes: AttributesJson::new(version.attributes, view.vault),
            tags: version.tags.as_ref(),
            previous_version: None,
        }
    }
}

impl StoredObject for SecretContent {
    const KIND: KeyVaultObjectKind = KeyVaultObjectKind::Secret;
    const PERMISSIONS: ObjectPermissions = SECRET_PERMISSIONS;

    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self> {
        &vaults.secrets
    }

    fn object_store_mut(vaults: &mut VaultStore) -> &mut VersionedObjectStore<Self> {
        &mut vaults.secrets
    }

    fn bundle<'a>(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<Self>,
        version: &'a StoredObjectVersion<Self>,
    ) -> impl Serialize {
        SecretBundle::with_value(view, object, version)
    }

    fn list_item(
        view: VaultView<'_>,
        id: String,
        version: &StoredObjectVersion<Self>,
    ) -> impl Serialize {
        SecretBundle::list_item(view, id, version)
    }

    fn bundle_without_value<'a>(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<Self>,
        version: &'a StoredObjectVersion<Self>,
    ) -> impl Serialize {
        SecretBundle::without_value(view, object, version)
    }

    fn is_managed(object: &StoredVaultObject<Self>) -> bool {
        object.latest().is_some_and(|version| version.content.key_version.is_some())
    }

    fn check_readable(version: &StoredObjectVersion<Self>) -> Result<(), VaultServiceError<'_>> {
        if version.attributes.enabled { Ok(()) } else { Err(VaultServiceError::SecretDisabled) }
    }
}

/// Returns the id of the version before `version`; `None` if that is the oldest one.
fn previous_version<'o>(
    object: &'o StoredVaultObject<SecretContent>,
    version: &StoredObjectVersion<SecretContent>,
) -> Option<&'o str> {
    let at = object.versions.iter().position(|known| known.id == version.id)?;
    object.versions.get(at.checked_sub(1)?).map(|previous| previous.id.as_str())
}

/// `GET /secrets/{name}[/{version}]`. With `outContentType`, the vault converts the PKCS#12 file of a
/// certificate to PEM.
pub(super) fn get_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let out_content_type = call.request.query("outContentType").unwrap_or_default();
    let (name, version) = requested_name_and_version(call);
    let reference = authorize_call(call, SECRET_PERMISSIONS.get)?;
    if out_content_type.is_empty() || !reference.api.has(VersionedFeature::SecretConversion) {
        return version_reply::<SecretContent>(reference, name, version);
    }
    let Some(form) = BundleForm::from_content_type(out_content_type) else {
        return Err(bad_parameter_reply(format!(
            "`outContentType` `{out_content_type}` is not supported"
        )));
    };
    let (object, stored) = find_version::<SecretContent>(reference, name, version)?;
    SecretContent::check_readable(stored).map_err(|error| error.to_reply())?;
    converted_secret_reply(reference, object, stored, form)
}

fn converted_secret_reply(
    reference: VaultRef<'_>,
    object: &StoredVaultObject<SecretContent>,
    version: &StoredObjectVersion<SecretContent>,
    form: BundleForm,
) -> Result<ServiceReply, ServiceReply> {
    let VaultRef { vault, vaults, .. } = reference;
    let stored_form =
        version.content.content_type.as_deref().and_then(BundleForm::from_content_type);
    if stored_form == Some(form) {
        let bundle = SecretBundle::with_value(reference.view(), object, version);
        return Ok(ServiceReply::json(StatusCode::OK, &bundle));
    }
    let certificate = vaults.certificates.version(&vault.host, &object.name, Some(&version.id));
    let key = vaults.keys.version(&vault.host, &object.name, Some(&version.id));
    let (Ok((_, certificate)), Ok((_, key)), BundleForm::Pem) = (certificate, key, form) else {
        let message = "only the PKCS#12 file of a certificate can be converted, and only to PEM";
        return Err(bad_parameter_reply(message.to_owned()));
    };
    let key = certificate.content.is_exportable.then_some(&key.content.key);
    let (chain, leaf) = (&certificate.content.chain, certificate.content.leaf);
    let value =
        encode_bundle(form, key, chain, leaf).map_err(|error| internal_error_reply(&error))?;
    let bundle = SecretBundle {
        value: Some(value.expose()),
        content_type: Some(form.content_type()),
        ..SecretBundle::without_value(reference.view(), object, version)
    };
    Ok(ServiceReply::json(StatusCode::OK, &bundle))
}

/// `PUT /secrets/{name}`: a new version.
pub(super) fn set_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    require_unmanaged::<SecretContent>(authorize_call(call, SET_SECRET)?, name)?;
    let body: SetSecretBody = parse_body(call)?;
    let value = body.value.ok_or_else(|| bad_parameter_reply("`value` is missing".to_owned()))?;
    if value.expose().len() > MAX_VALUE_BYTES {
        let found = value.expose().len();
        return Err(bad_parameter_reply(format!(
            "`value` has {found} bytes; the maximum is {MAX_VALUE_BYTES}"
        )));
    }
    let version = StoredObjectVersion {
        id: call.ids.next_hex32(),
        attributes: body
            .attributes
            .unwrap_or_default()
            .apply(StoredObjectAttributes::new(call.now), call.now)?,
        tags: body.tags.validate()?,
        content: SecretContent {
            value,
            content_type: validate_content_type(body.content_type)?,
            key_version: None,
        },
    };
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let pushed = vaults.secrets.push_version(&requested.vault.host, name, version);
    pushed
        .map_err(|conflict| object_error_reply(conflict.into(), SecretContent::KIND, name, None))?;
    let reference = requested.with_store(vaults);
    let (object, stored) = find_version::<SecretContent>(reference, name, None)?;
    let bundle = SecretBundle::with_value(reference.view(), object, stored);
    Ok(ServiceReply::json(StatusCode::OK, &bundle))
}

/// `PATCH /secrets/{name}[/{version}]`: attributes, tags, content type.
pub(super) fn update_secret(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let reference = authorize_call(call, UPDATE_SECRET)?;
    let (object, stored) = find_version::<SecretContent>(reference, name, version)?;
    reject_managed::<SecretContent>(SecretContent::is_managed(object), name)?;
    let attributes = stored.attributes;
    let body: UpdateSecretBody = parse_body(call)?;
    let attributes = body.attributes.unwrap_or_default().apply(attributes, call.now)?;
    let (content_type, tags) = (validate_content_type(body.content_type)?, body.tags.validate()?);
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let changed = vaults.secrets.change_version(&requested.vault.host, name, version, |stored| {
        stored.attributes = attributes;
        stored.content.content_type = content_type.or(stored.content.content_type.take());
        stored.tags = tags.or(stored.tags.take());
    });
    changed.map_err(|problem| object_error_reply(problem, SecretContent::KIND, name, version))?;
    let reference = requested.with_store(vaults);
    changed_version_reply::<SecretContent>(reference, name, version)
}

fn validate_content_type(text: Option<String>) -> Result<Option<String>, ServiceReply> {
    match text {
        Some(text) if text.chars().count() > MAX_CONTENT_TYPE_LENGTH => Err(bad_parameter_reply(
            format!("`contentType` has more than {MAX_CONTENT_TYPE_LENGTH} characters"),
        )),
        text => Ok(text),
    }
}
