//! The credentials of components: a new key and certificate, stored as a new version of the secret.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_keyvault::secrets::MAX_VALUE_BYTES;
use lanyard_emulator_state::azure_clouds::{MANAGED_IDENTITY_DOMAIN, managed_identity_host};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::client_certificate::{CertificateValidityPeriod, LeafCertificateSpec};
use lanyard_emulator_state::directory::{BundleContent, issue_certificate_bundle};
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::identity_fault::IdentityFault;
use lanyard_emulator_state::identity_registry::ComponentIdentity;
use lanyard_emulator_state::keys::{RedactedText, RsaKey};
use lanyard_emulator_state::managed_identity_credential::{
    CredentialDates, CredentialUrls, CustomClaims, ManagedIdentityCredential, NewCredential,
    certificate_subject, user_assigned_secret_url,
};
use lanyard_emulator_state::vaults::object_store::{
    DeletedNameConflict, StoredObjectAttributes, StoredObjectVersion,
};
use lanyard_emulator_state::vaults::vault::SecretContent;
use lanyard_vocabulary::{Component, EntraClientId, ObjectEncoding, SecretName};
use serde::Serialize;
use zeroize::Zeroizing;

use super::SeedError;

/// An issued credential, without its secret parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedCredential {
    pub component: Component,
    /// The client id of the identity.
    pub client_id: EntraClientId,
    /// The host name of the vault.
    pub vault_host: String,
    pub secret_name: SecretName,
    /// The new version of the secret.
    pub version: String,
    /// `not_before` of the credential document, by which readers recognise the newer credential.
    pub not_before: Timestamp,
    /// The size of the secret's value, in bytes.
    pub bytes: usize,
}

/// The parts of a new credential.
pub(super) struct CredentialMaterial {
    /// The key of the certificate.
    pub(super) key: RsaKey,
    /// The key to write instead of `key`, if key and certificate must not match.
    pub(super) mismatched_key: Option<RsaKey>,
    /// The number of extra bytes in the credential document.
    pub(super) padding: usize,
}

/// Rotates a credential: creates a key, a certificate with a later `not_before`, and a new version
/// of the secret with `padding` extra bytes in the document. Keeps injected faults of the value.
pub(crate) fn rotate_credential(
    azure: &mut AzureState,
    component: Component,
    ids: &mut IdGenerator,
    now: Timestamp,
    padding: usize,
) -> Result<IssuedCredential, SeedError> {
    let identity = azure
        .registry
        .component_identity(component)
        .ok_or(SeedError::ComponentIdentityMissing { component })?;
    let decoy = identity.has_wrong_key();
    let mut generate = || ids.generate_rsa_key().map_err(SeedError::key_generation_error);
    let material = CredentialMaterial {
        key: generate()?,
        mismatched_key: decoy.then(generate).transpose()?,
        padding,
    };
    issue_credential(azure, component, ids, now, &material)
}

/// Rotates a credential as an administrator would: the new certificate is valid even if the
/// previous one had expired. Keeps other injected faults of the value.
pub(crate) fn renew_credential(
    azure: &mut AzureState,
    component: Component,
    ids: &mut IdGenerator,
    now: Timestamp,
    padding: usize,
) -> Result<IssuedCredential, SeedError> {
    if let Some(identity) = azure.registry.component_identity_mut(component) {
        identity.faults.remove(&IdentityFault::Expired);
    }
    rotate_credential(azure, component, ids, now, padding)
}

/// Issues a credential from existing keys.
pub(super) fn issue_credential(
    azure: &mut AzureState,
    component: Component,
    ids: &mut IdGenerator,
    now: Timestamp,
    material: &CredentialMaterial,
) -> Result<IssuedCredential, SeedError> {
    let identity = azure
        .registry
        .component_identity(component)
        .cloned()
        .ok_or(SeedError::ComponentIdentityMissing { component })?;
    let last = azure.directory.managed_identity_credential(identity.object_id);
    let last = last.map(|last| last.dates().validity.not_before).max(identity.not_before);
    let stamps = CredentialDates::following(last, now);
    let bundle = build_certificate_bundle(azure, &identity, ids, stamps, material)?;
    let document = credential_document(&identity, stamps, &bundle, material.padding);
    let text = document.to_json().map_err(SeedError::Document)?;
    let value = encode_secret_value(identity.stored_encoding(), &text);
    let bytes = value.len();
    if bytes > MAX_VALUE_BYTES {
        return Err(SeedError::CredentialTooLarge { bytes, most: MAX_VALUE_BYTES });
    }
    let id = ids.next_hex32();
    let version = secret_version(id.clone(), value, stamps, now);
    if azure.vaults.vault_at_host(&identity.vault_host).is_none() {
        return Err(SeedError::SeedObjectMissing { what: "vault" });
    }
    let secrets = &mut azure.vaults.secrets;
    secrets.push_version(&identity.vault_host, identity.secret_name.as_str(), version).map_err(
        |DeletedNameConflict| SeedError::SecretDeleted {
            vault: identity.vault_host.clone(),
            secret: identity.secret_name.to_string(),
        },
    )?;
    azure.directory.insert_managed_identity_credential(identity.object_id, document);
    let not_before = stamps.validity.not_before;
    for held in azure.registry.identities_sharing_secret_mut(&identity) {
        held.not_before = Some(not_before);
    }
    Ok(IssuedCredential {
        component,
        client_id: identity.client_id,
        vault_host: identity.vault_host,
        secret_name: identity.secret_name,
        version: id,
        not_before,
        bytes,
    })
}

fn build_certificate_bundle(
    azure: &AzureState,
    identity: &ComponentIdentity,
    ids: &mut IdGenerator,
    stamps: CredentialDates,
    material: &CredentialMaterial,
) -> Result<Zeroizing<Vec<u8>>, SeedError> {
    let validity = if identity.faults.contains(&IdentityFault::Expired) {
        expired_validity(stamps.validity)
    } else {
        stamps.validity
    };
    let subject = certificate_subject(identity.client_id);
    let leaf = LeafCertificateSpec {
        subject: &subject,
        serial: ids.next_uuid(),
        validity,
        key: &material.key,
    };
    let bundle = BundleContent {
        format: identity.bundle,
        key: material.mismatched_key.as_ref().unwrap_or(&material.key),
        has_leaf: !identity.faults.contains(&IdentityFault::MissingLeaf),
    };
    Ok(issue_certificate_bundle(&azure.directory, &leaf, bundle)?)
}

/// The document of a component's credential, with `padding` extra bytes in the query of `client_secret_url`,
/// which is opaque to all clients.
fn credential_document(
    identity: &ComponentIdentity,
    dates: CredentialDates,
    bundle: &[u8],
    padding: usize,
) -> ManagedIdentityCredential {
    let principal = (&identity.tenant, identity.object_id, identity.client_id);
    let data_plane =
        format!("https://{}", managed_identity_host(&identity.location, MANAGED_IDENTITY_DOMAIN));
    let mut client_secret_url =
        user_assigned_secret_url(&data_plane, &identity.resource_id, principal);
    if padding > 0 {
        client_secret_url.push_str("&p=");
        client_secret_url.extend(std::iter::repeat_n('0', padding));
    }
    let credential = NewCredential {
        client_id: identity.client_id,
        object_id: identity.object_id,
        tenant: &identity.tenant,
        resource_id: Some(&identity.resource_id),
        location: &identity.location,
        urls: CredentialUrls {
            authentication_endpoint: identity.authority_url(),
            client_secret_url: RedactedText::new(client_secret_url),
        },
        custom_claims: CustomClaims::default(),
        dates,
        bundle,
    };
    credential.into_document()
}

/// Encodes bytes as the text of a vault value.
fn encode_secret_value(encoding: ObjectEncoding, bytes: &[u8]) -> String {
    match encoding {
        ObjectEncoding::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
        ObjectEncoding::Hex => hex::encode(bytes),
        ObjectEncoding::Base64 => STANDARD.encode(bytes),
    }
}

/// A validity period of the same length that ended a day before the other one began.
fn expired_validity(validity: CertificateValidityPeriod) -> CertificateValidityPeriod {
    let day = SignedDuration::from_hours(24);
    let length = validity.not_before.duration_until(validity.not_after);
    let not_after = validity.not_before.checked_sub(day).unwrap_or(validity.not_before);
    CertificateValidityPeriod {
        not_before: not_after.checked_sub(length).unwrap_or(not_after),
        not_after,
    }
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
    let tags = Some(BTreeMap::from([
        ("renew_after".to_owned(), stamps.renew_after.to_string()),
        ("cannot_renew_after".to_owned(), stamps.cannot_renew_after.to_string()),
    ]));
    let content =
        SecretContent { value: RedactedText::new(value), content_type: None, key_version: None };
    StoredObjectVersion { id, attributes, tags, content }
}
