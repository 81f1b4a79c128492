//! Credentials of components: a new key and certificate, written as a new version of the secret.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::{Component, EntraClientId, SecretName};
use serde::Serialize;

use super::certificate::{CertificateValidityPeriod, LeafCertificateSpec};
use super::document::CredentialDates;
use super::tenants::MSI_AUTHORITY;
use super::{ComponentIdentity, SeedError, bundle, certificate, document};
use crate::azure_state::AzureState;
use crate::fault_plan::IdentityFault;
use crate::keys::{RedactedText, RsaKey};
use crate::operation_context::IdGenerator;
use crate::services::keyvault::{
    DeletedNameConflict, MAX_VALUE_BYTES, SecretContent, StoredObjectAttributes,
    StoredObjectVersion,
};

/// A credential that was issued: what may be told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedCredential {
    /// The component.
    pub component: Component,
    /// The identity.
    pub client_id: EntraClientId,
    /// The host name of the vault.
    pub vault_host: String,
    /// The secret.
    pub secret_name: SecretName,
    /// The new version of the secret.
    pub version: String,
    /// The stamp by which readers tell the newer credential.
    pub not_before: Timestamp,
    /// The size of the secret's value.
    pub bytes: usize,
}

/// What a credential is made of.
pub(super) struct CredentialMaterial {
    /// The key of the certificate.
    pub(super) key: RsaKey,
    /// The key that is written in its place, if the two shall not match.
    pub(super) mismatched_key: Option<RsaKey>,
    /// Bytes to add to the document.
    pub(super) padding: usize,
}

/// One rotation: a new key, a certificate with a later `not_before`, a new version of the secret
/// whose document has `padding` bytes more than needed. Faults of the value stay.
pub(crate) fn rotate_credential(
    world: &mut AzureState,
    component: Component,
    ids: &mut IdGenerator,
    now: Timestamp,
    padding: usize,
) -> Result<IssuedCredential, SeedError> {
    let holder = world
        .roster
        .component_identity(component)
        .ok_or(SeedError::ComponentIdentityMissing { component })?;
    let decoy = holder.has_wrong_key();
    let generate = || RsaKey::generate().map_err(SeedError::key_generation_error);
    let material = CredentialMaterial {
        key: generate()?,
        mismatched_key: decoy.then(generate).transpose()?,
        padding,
    };
    issue_credential(world, component, ids, now, &material)
}

/// Issues a credential from keys that are there.
pub(super) fn issue_credential(
    world: &mut AzureState,
    component: Component,
    ids: &mut IdGenerator,
    now: Timestamp,
    material: &CredentialMaterial,
) -> Result<IssuedCredential, SeedError> {
    let holder = world
        .roster
        .component_identity(component)
        .cloned()
        .ok_or(SeedError::ComponentIdentityMissing { component })?;
    let stamps = CredentialDates::starting_at(next_not_before(&holder, now));
    let bundle = build_certificate_bundle(world, &holder, ids, stamps, material)?;
    let text =
        document::write_document(&holder, &holder.tenant, &bundle, stamps, material.padding)?;
    let value = document::encode_secret_value(holder.stored_encoding(), &text);
    let bytes = value.len();
    if bytes > MAX_VALUE_BYTES {
        return Err(SeedError::CredentialTooLarge { bytes, most: MAX_VALUE_BYTES });
    }
    let id = ids.next_hex32();
    let version = secret_version(id.clone(), value, stamps, now);
    let vault = world
        .vaults
        .vault_at_host_mut(&holder.vault_host)
        .ok_or(SeedError::SeedObjectMissing { what: "vault" })?;
    vault.secrets.push_version(holder.secret_name.as_str(), version).map_err(
        |DeletedNameConflict| SeedError::SecretDeleted {
            vault: holder.vault_host.clone(),
            secret: holder.secret_name.to_string(),
        },
    )?;
    let not_before = stamps.validity.not_before;
    for held in world.roster.identities_sharing_secret_mut(&holder) {
        held.not_before = Some(not_before);
    }
    Ok(IssuedCredential {
        component,
        client_id: holder.client_id,
        vault_host: holder.vault_host,
        secret_name: holder.secret_name,
        version: id,
        not_before,
        bytes,
    })
}

/// Five minutes ago, as the service backdates against skewed clocks, and later than the last one.
fn next_not_before(holder: &ComponentIdentity, now: Timestamp) -> Timestamp {
    let second = SignedDuration::from_secs(1);
    let backdated = now.checked_sub(SignedDuration::from_mins(5)).unwrap_or(now);
    let whole = Timestamp::from_second(backdated.as_second()).unwrap_or(backdated);
    let after_last = holder.not_before.and_then(|last| last.checked_add(second).ok());
    after_last.map_or(whole, |earliest| whole.max(earliest))
}

fn build_certificate_bundle(
    world: &AzureState,
    holder: &ComponentIdentity,
    ids: &mut IdGenerator,
    stamps: CredentialDates,
    material: &CredentialMaterial,
) -> Result<zeroize::Zeroizing<Vec<u8>>, SeedError> {
    let authority = world
        .directory
        .authorities
        .get(MSI_AUTHORITY)
        .ok_or(SeedError::SeedObjectMissing { what: "authority of managed identities" })?;
    let validity = if holder.faults.contains(&IdentityFault::Expired) {
        expired_validity(stamps.validity)
    } else {
        stamps.validity
    };
    let subject = certificate_subject(holder.client_id);
    let leaf = LeafCertificateSpec {
        subject: &subject,
        serial: ids.next_uuid(),
        validity,
        key: &material.key,
    };
    let leaf = certificate::issue_leaf_certificate(MSI_AUTHORITY, authority, &leaf)?;
    let key = material.mismatched_key.as_ref().unwrap_or(&material.key);
    bundle::encode_bundle(holder.bundle, key, &[&leaf, &authority.certificate])
}

/// A validity of the same length that ended a day before the other began.
fn expired_validity(validity: CertificateValidityPeriod) -> CertificateValidityPeriod {
    let day = SignedDuration::from_hours(24);
    let length = validity.not_before.duration_until(validity.not_after);
    let not_after = validity.not_before.checked_sub(day).unwrap_or(validity.not_before);
    CertificateValidityPeriod {
        not_before: not_after.checked_sub(length).unwrap_or(not_after),
        not_after,
    }
}

/// The common name in the certificates of an identity.
pub(super) fn certificate_subject(client: EntraClientId) -> String {
    client.to_string()
}

fn secret_version(
    id: String,
    value: String,
    stamps: CredentialDates,
    now: Timestamp,
) -> StoredObjectVersion<SecretContent> {
    let mut attributes = StoredObjectAttributes::new(now);
    attributes.not_before = Some(stamps.validity.not_before);
    attributes.expires = Some(stamps.validity.not_after);
    let tags = BTreeMap::from([
        ("renew_after".to_owned(), stamps.renew_after.to_string()),
        ("cannot_renew_after".to_owned(), stamps.cannot_renew_after.to_string()),
    ]);
    let content =
        SecretContent { value: RedactedText::new(value), content_type: None, key_version: None };
    StoredObjectVersion { id, attributes, tags, content }
}
