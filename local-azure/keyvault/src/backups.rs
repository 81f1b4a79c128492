//! Backup and restore of objects with all their versions.
//!
//! A backup is opaque to clients. It can be restored into a vault of the same subscription and
//! geography. The blob is encrypted and authenticated with a key that is derived from both, so that
//! the blob of another subscription or geography and a changed blob are rejected. The derivation
//! has no secret input: any emulator can restore a backup, and a reader of this code can decrypt
//! it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::object_kind::KeyVaultObjectKind;
use lanyard_emulator_state::vaults::object_store::{ObjectStoreError, StoredVaultObject};
use lanyard_emulator_state::vaults::vault::{EmulatedVault, SecretContent, VaultStore};
use serde::{Deserialize, Serialize};
use serde_json::json;
use zeroize::Zeroizing;

use super::access::{authorize_call, authorized_vault_mut};
use super::api_version::VersionedFeature;
use super::error::VaultServiceError;
use super::geography::geography_of_region;
use super::object_errors::store_error_reply;
use super::objects::{changed_version_reply, reject_managed};
use super::request_body::{bad_parameter_reply, parse_body};
use super::stored_object::StoredObject;
use super::vault_view::{VaultMut, VaultRef};

/// The HKDF salt of backup keys, so that no key for another purpose equals one.
const KEY_LABEL: &[u8] = b"lanyard vault object backup 1";

/// The content of a backup: an object, and for a certificate also its key and its secret.
#[derive(Serialize, Deserialize)]
struct BackedUpObject {
    secret: Option<StoredVaultObject<SecretContent>>,
    key: Option<StoredVaultObject<KeyContent>>,
    certificate: Option<StoredVaultObject<CertificateContent>>,
}

#[derive(Deserialize)]
struct RestoreBody {
    value: Option<RedactedText>,
}

/// `POST /{kind}/{name}/backup`.
pub(super) fn back_up_object<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference = authorize_call(call, K::PERMISSIONS.backup)?;
    require_backup::<K>(reference)?;
    let (host, vaults) = (&reference.vault.host, reference.vaults);
    let found = K::object_store(vaults).object(host, name).map(|object| {
        let is_managed = K::is_managed(object);
        (is_managed, collect_objects(K::KIND, host, name, vaults), reference.vault.clone())
    });
    let (is_managed, content, vault) =
        found.map_err(|problem| store_error_reply(problem, K::KIND, call))?;
    reject_managed::<K>(is_managed, name)?;
    let internal = |message: String| VaultServiceError::Internal(message).to_reply();
    let content = serde_json::to_vec(&content)
        .map(Zeroizing::new)
        .map_err(|error| internal(error.to_string()))?;
    let nonce = *call.ids.next_uuid().as_bytes();
    let blob = seal(&vault, K::KIND, &nonce, &content)
        .map_err(|Unspecified| internal("the backup could not be encrypted".to_owned()))?;
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "value": URL_SAFE_NO_PAD.encode(blob) })))
}

/// `POST /{kind}/restore`.
pub(super) fn restore_object<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let reference = authorize_call(call, K::PERMISSIONS.restore)?;
    require_backup::<K>(reference)?;
    let vault = reference.vault.clone();
    let body: RestoreBody = parse_body(call)?;
    let value = body.value.ok_or_else(|| bad_parameter_reply("`value` is missing".to_owned()))?;
    let content = URL_SAFE_NO_PAD
        .decode(value.expose().trim_end_matches('='))
        .ok()
        .and_then(|blob| open(&vault, K::KIND, blob))
        .and_then(|content| serde_json::from_slice::<BackedUpObject>(&content).ok())
        .ok_or_else(|| {
            bad_parameter_reply(format!(
                "Backup blob is corrupt, is not of a {}, or is from another subscription or geography",
                K::KIND.noun()
            ))
        })?;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let name = insert_objects(vaults, &requested.vault.host, content)?;
    changed_version_reply::<K>(requested.with_store(vaults), &name, None)
}

/// Returns an error reply if the API version of the request cannot back up this kind of object.
fn require_backup<K: StoredObject>(reference: VaultRef<'_>) -> Result<(), ServiceReply> {
    match K::KIND {
        KeyVaultObjectKind::Certificate => {
            reference.api.require(VersionedFeature::CertificateBackup)
        }
        KeyVaultObjectKind::Secret | KeyVaultObjectKind::Key => Ok(()),
    }
}

fn collect_objects(
    kind: KeyVaultObjectKind,
    host: &str,
    name: &str,
    vaults: &VaultStore,
) -> BackedUpObject {
    let has = |other| kind == other || kind == KeyVaultObjectKind::Certificate;
    BackedUpObject {
        secret: vaults
            .secrets
            .object(host, name)
            .ok()
            .filter(|_| has(KeyVaultObjectKind::Secret))
            .cloned(),
        key: vaults.keys.object(host, name).ok().filter(|_| has(KeyVaultObjectKind::Key)).cloned(),
        certificate: vaults
            .certificates
            .object(host, name)
            .ok()
            .filter(|_| kind == KeyVaultObjectKind::Certificate)
            .cloned(),
    }
}

/// Inserts all objects of a backup, or none, and returns their name.
fn insert_objects(
    vaults: &mut VaultStore,
    host: &str,
    content: BackedUpObject,
) -> Result<String, ServiceReply> {
    let BackedUpObject { secret, key, certificate } = content;
    let names = [
        secret.as_ref().map(|object| (KeyVaultObjectKind::Secret, object.name.clone())),
        key.as_ref().map(|object| (KeyVaultObjectKind::Key, object.name.clone())),
        certificate.as_ref().map(|object| (KeyVaultObjectKind::Certificate, object.name.clone())),
    ];
    let mut restored = None;
    for (kind, name) in names.into_iter().flatten() {
        let is_free = match kind {
            KeyVaultObjectKind::Secret => vaults.secrets.require_free_name(host, &name),
            KeyVaultObjectKind::Key => vaults.keys.require_free_name(host, &name),
            KeyVaultObjectKind::Certificate => vaults.certificates.require_free_name(host, &name),
        };
        is_free.map_err(|problem| conflict_reply(problem, kind, &name))?;
        // The names of the key and of the secret of a certificate that waits for its issuance are reserved.
        let kind = KeyVaultObjectKind::Certificate;
        let is_free = vaults.certificates.require_free_name(host, &name);
        is_free.map_err(|problem| conflict_reply(problem, kind, &name))?;
        restored = Some(name);
    }
    // The names are free, so the insertions succeed.
    let inserted = [
        secret.map(|object| vaults.secrets.insert_object(host, object)),
        key.map(|object| vaults.keys.insert_object(host, object)),
        certificate.map(|object| vaults.certificates.insert_object(host, object)),
    ];
    match (inserted.into_iter().flatten().collect::<Result<Vec<_>, _>>(), restored) {
        (Ok(_), Some(name)) => Ok(name),
        _ => Err(bad_parameter_reply("Backup blob is empty".to_owned())),
    }
}

fn conflict_reply(problem: ObjectStoreError, kind: KeyVaultObjectKind, name: &str) -> ServiceReply {
    match problem {
        ObjectStoreError::NameTaken => {
            VaultServiceError::DeletedButRecoverable { kind, name }.to_reply()
        }
        ObjectStoreError::AlreadyExists | ObjectStoreError::NotFound => {
            let noun = kind.noun();
            VaultServiceError::Conflict(format!(
                "There was a conflict restoring the {noun} '{name}': a {noun} with this name exists in \
                 the key vault."
            ))
            .to_reply()
        }
    }
}

/// Derives the key that encrypts the backups of the vault's subscription and geography.
fn backup_key(vault: &EmulatedVault) -> Result<LessSafeKey, Unspecified> {
    let subscription = vault.resource_id.as_str().split('/').nth(2).unwrap_or_default();
    let geography = geography_of_region(&vault.location);
    let salt = Salt::new(HKDF_SHA256, KEY_LABEL);
    let place = format!("{}\n{geography}", subscription.to_ascii_lowercase());
    let derived = salt.extract(place.as_bytes());
    let mut key = Zeroizing::new([0; 32]);
    derived.expand(&[b"aes-256-gcm"], HKDF_SHA256)?.fill(&mut *key)?;
    Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key)?))
}

/// Encrypts a backup. The nonce is the start of `unique`, which no other backup has.
fn seal(
    vault: &EmulatedVault,
    kind: KeyVaultObjectKind,
    unique: &[u8],
    content: &[u8],
) -> Result<Vec<u8>, Unspecified> {
    let nonce = unique.first_chunk::<NONCE_LEN>().ok_or(Unspecified)?;
    let mut sealed = content.to_vec();
    backup_key(vault)?.seal_in_place_append_tag(
        Nonce::assume_unique_for_key(*nonce),
        Aad::from(kind.collection()),
        &mut sealed,
    )?;
    Ok([nonce.as_slice(), &sealed].concat())
}

/// Decrypts a backup. Returns `None` if the blob was changed, or made for another subscription,
/// geography or kind of object.
fn open(
    vault: &EmulatedVault,
    kind: KeyVaultObjectKind,
    mut blob: Vec<u8>,
) -> Option<Zeroizing<Vec<u8>>> {
    let nonce = Nonce::assume_unique_for_key(*blob.first_chunk::<NONCE_LEN>()?);
    let sealed = blob.get_mut(NONCE_LEN..)?;
    let aad = Aad::from(kind.collection());
    let content = backup_key(vault).ok()?.open_in_place(nonce, aad, sealed).ok()?;
    Some(Zeroizing::new(content.to_vec()))
}

#[cfg(test)]
mod tests;
