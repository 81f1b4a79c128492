//! Certificates in the store of a vault, and in replies. Each version has a key and a secret of the same name
//! and version.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_state::certificates::sha1_thumbprint;
use lanyard_emulator_state::keys::AsymmetricKey;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::certificate_policy::CertificatePolicy;
use lanyard_emulator_state::vaults::der_certificate::DerCertificate;
use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::object_kind::{
    CERTIFICATE_PERMISSIONS, KeyVaultObjectKind, ObjectPermissions,
};
use lanyard_emulator_state::vaults::object_store::{
    ObjectStoreError, StoredObjectAttributes, StoredObjectVersion, StoredVaultObject,
    VersionedObjectStore,
};
use lanyard_emulator_state::vaults::vault::{SecretContent, VaultStore};
use serde::Serialize;
use serde_json::{Value, json};

use super::certificate_bundle::encode_bundle;
use super::error::VaultServiceError;
use super::object_errors::object_error_reply;
use super::stored_object::{AttributesJson, StoredObject, object_id, version_id};
use super::vault_view::VaultView;
use crate::policy_body::imported_policy;

/// A new version of a certificate, with its key.
#[derive(Debug)]
pub struct NewCertificateVersion {
    pub id: String,
    pub key: AsymmetricKey,
    pub content: CertificateContent,
    pub attributes: StoredObjectAttributes,
    pub tags: Option<BTreeMap<String, String>>,
}

/// A version of a certificate, with its key and its secret, could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreCertificateError {
    /// The name of the certificate, its key or its secret belongs to another object.
    #[error("the name belongs to another object")]
    Name(KeyVaultObjectKind, ObjectStoreError),
    #[error("the PKCS#12 file could not be written")]
    Bundle(#[from] p12_keystore::error::Error),
}

impl From<ObjectStoreError> for StoreCertificateError {
    fn from(error: ObjectStoreError) -> Self {
        Self::Name(KeyVaultObjectKind::Certificate, error)
    }
}

/// The reply to a request whose version of a certificate could not be stored.
pub(crate) fn store_certificate_error_reply(
    error: &StoreCertificateError,
    name: &str,
) -> ServiceReply {
    match error {
        StoreCertificateError::Name(kind, problem) => {
            object_error_reply(*problem, *kind, name, None)
        }
        StoreCertificateError::Bundle(error) => {
            VaultServiceError::Internal(format!("the certificate file: {error}")).to_reply()
        }
    }
}

impl NewCertificateVersion {
    /// Stores the version with its key and its secret, or nothing. Replaces the version of a
    /// certificate that is still pending.
    pub(crate) fn store(
        self,
        vaults: &mut VaultStore,
        host: &str,
        name: &str,
    ) -> Result<(), StoreCertificateError> {
        require_storable_name(vaults, host, name)?;
        let Self { id, key, content, mut attributes, tags } = self;
        if let Some((from, until)) = content.certificate().and_then(DerCertificate::validity) {
            attributes.not_before = Some(from);
            attributes.expires = Some(until);
        }
        let exported = content.is_exportable.then_some(&key);
        let secret = SecretContent {
            value: encode_bundle(content.form, exported, &content.chain, content.leaf)?,
            content_type: Some(content.form.content_type().to_owned()),
            key_version: Some(id.clone()),
        };
        let key = KeyContent { key, managed: true, operations: None };
        let version =
            StoredObjectVersion { id: id.clone(), attributes, tags: tags.clone(), content: secret };
        vaults.secrets.push_version(host, name, version).map_err(ObjectStoreError::from)?;
        let version =
            StoredObjectVersion { id: id.clone(), attributes, tags: tags.clone(), content: key };
        vaults.keys.push_version(host, name, version).map_err(ObjectStoreError::from)?;
        let version = StoredObjectVersion { id, attributes, tags, content };
        let is_pending =
            vaults.certificates.object(host, name).is_ok_and(CertificateContent::is_pending);
        if is_pending {
            let replace = |object: &mut StoredVaultObject<_>| object.versions = vec![version];
            return Ok(vaults.certificates.change_object(host, name, replace)?);
        }
        let pushed = vaults.certificates.push_version(host, name, version);
        Ok(pushed.map_err(ObjectStoreError::from)?)
    }
}

/// Returns the key of the latest version, if the policy reuses keys and has the same key type.
pub(crate) fn reused_key(
    policy: &CertificatePolicy,
    vaults: &VaultStore,
    host: &str,
    name: &str,
) -> Option<AsymmetricKey> {
    if !policy.key.reuse_key {
        return None;
    }
    vaults.certificates.object(host, name).ok()?;
    let (_, version) = vaults.keys.version(host, name, None).ok()?;
    let key = &version.content.key;
    key.key_type().is_ok_and(|known| known == policy.key.key_type).then(|| key.clone())
}

/// Rejects the name of a deleted secret, key or certificate.
fn require_storable_name(
    vaults: &VaultStore,
    host: &str,
    name: &str,
) -> Result<(), StoreCertificateError> {
    let checks = [
        (KeyVaultObjectKind::Certificate, vaults.certificates.require_not_deleted(host, name)),
        (KeyVaultObjectKind::Key, vaults.keys.require_not_deleted(host, name)),
        (KeyVaultObjectKind::Secret, vaults.secrets.require_not_deleted(host, name)),
    ];
    for (kind, check) in checks {
        check.map_err(|conflict| StoreCertificateError::Name(kind, conflict.into()))?;
    }
    Ok(())
}

/// Stores a version of an imported certificate, with the policy that such certificates have.
pub fn store_imported_certificate(
    version: NewCertificateVersion,
    vaults: &mut VaultStore,
    host: &str,
    name: &str,
) -> Result<(), StoreCertificateError> {
    let (content, created) = (&version.content, version.attributes.created);
    let policy = content.certificate().and_then(|certificate| {
        certificate
            .read(|certificate| imported_policy(certificate, &version.key, content.form, created))
    });
    version.store(vaults, host, name)?;
    let set_policy =
        |object: &mut StoredVaultObject<CertificateContent>| object.details.policy = policy;
    Ok(vaults.certificates.change_object(host, name, set_policy)?)
}

impl StoredObject for CertificateContent {
    const KIND: KeyVaultObjectKind = KeyVaultObjectKind::Certificate;
    const PERMISSIONS: ObjectPermissions = CERTIFICATE_PERMISSIONS;

    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self> {
        &vaults.certificates
    }

    fn object_store_mut(vaults: &mut VaultStore) -> &mut VersionedObjectStore<Self> {
        &mut vaults.certificates
    }

    fn bundle<'a>(
        view: VaultView<'_>,
        object: &'a StoredVaultObject<Self>,
        version: &'a StoredObjectVersion<Self>,
    ) -> impl Serialize {
        let (url, name, id) = (view.base_url(), &object.name, &version.id);
        let mut bundle = item_json(view, version_id(view, name, version), version);
        if let Some(certificate) = version.content.certificate() {
            bundle["kid"] = json!(format!("{url}/keys/{name}/{id}"));
            bundle["sid"] = json!(format!("{url}/secrets/{name}/{id}"));
            bundle["cer"] = json!(STANDARD.encode(certificate.as_bytes()));
            bundle["contentType"] = json!(version.content.form);
        }
        let certificate_id = object_id::<Self>(view, name);
        if let Some(policy) = &object.details.policy {
            bundle["policy"] = policy.to_json(&certificate_id);
        }
        if object.details.operation.is_some() {
            bundle["pending"] = json!({ "id": format!("{certificate_id}/pending") });
        }
        if object.details.preserve_order {
            bundle["preserveCertOrder"] = json!(true);
        }
        bundle
    }

    fn list_item(
        view: VaultView<'_>,
        id: String,
        version: &StoredObjectVersion<Self>,
    ) -> impl Serialize {
        item_json(view, id, version)
    }

    fn is_pending(object: &StoredVaultObject<Self>) -> bool {
        object.latest().is_some_and(|version| version.content.certificate().is_none())
    }

    fn soft_delete(
        vaults: &mut VaultStore,
        host: &str,
        name: &str,
        now: Timestamp,
        retention: SignedDuration,
    ) -> Result<(), ObjectStoreError> {
        let has_secret = has_managed_objects(vaults, host, name);
        vaults.certificates.soft_delete(host, name, now, retention)?;
        if has_secret {
            vaults.secrets.soft_delete(host, name, now, retention)?;
            vaults.keys.soft_delete(host, name, now, retention)?;
        }
        Ok(())
    }

    fn recover(vaults: &mut VaultStore, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        let is_pending = vaults.certificates.deleted_object(host, name).is_ok_and(Self::is_pending);
        vaults.certificates.recover(host, name)?;
        if is_pending {
            return Ok(());
        }
        vaults.secrets.recover(host, name)?;
        vaults.keys.recover(host, name)
    }

    fn purge(vaults: &mut VaultStore, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        let is_pending = vaults.certificates.deleted_object(host, name).is_ok_and(Self::is_pending);
        vaults.certificates.purge(host, name)?;
        if is_pending {
            return Ok(());
        }
        vaults.secrets.purge(host, name)?;
        vaults.keys.purge(host, name)
    }
}

fn item_json(
    view: VaultView<'_>,
    id: String,
    version: &StoredObjectVersion<CertificateContent>,
) -> Value {
    let attributes = AttributesJson::new(version.attributes, view.vault);
    let mut item = json!({ "id": id, "attributes": attributes });
    if let Some(certificate) = version.content.certificate() {
        item["x5t"] = json!(URL_SAFE_NO_PAD.encode(sha1_thumbprint(certificate.as_bytes())));
    }
    if let Some(tags) = &version.tags {
        item["tags"] = json!(tags);
    }
    item
}

/// Whether the certificate has a key and a secret, which it gets when it is issued.
fn has_managed_objects(vaults: &VaultStore, host: &str, name: &str) -> bool {
    vaults.certificates.object(host, name).is_ok_and(|object| {
        object.versions.iter().any(|version| version.content.certificate().is_some())
    })
}
