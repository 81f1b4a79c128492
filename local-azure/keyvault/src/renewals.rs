//! Versions that the vault creates by itself: rotated keys and renewed certificates.
//!
//! No timer runs. A request to a vault first creates the versions that are due at the emulated time, as if they
//! had been created when they became due. If several versions of an object became due since the last request,
//! only the newest one is created.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::{AsymmetricKey, AsymmetricKeyType};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::certificate_policy::CertificatePolicy;
use lanyard_emulator_state::vaults::key_content::{push_rotated_version, rotated_key_type};
use lanyard_emulator_state::vaults::object_store::StoredObjectAttributes;
use lanyard_emulator_state::vaults::vault::VaultStore;

use super::certificate_issuance::{issue_self_signed, validity_from};
use super::certificate_versions::{reused_key, store_certificate_error_reply};
use super::error::internal_error_reply;
use crate::certificate_versions::NewCertificateVersion;

/// A key whose next version is due.
#[derive(Debug)]
struct DueKey {
    name: String,
    key_type: AsymmetricKeyType,
    attributes: StoredObjectAttributes,
}

/// A certificate whose next version is due.
#[derive(Debug)]
struct DueCertificate {
    name: String,
    policy: CertificatePolicy,
    reused_key: Option<AsymmetricKey>,
    /// When the vault creates the version.
    time: Timestamp,
    tags: Option<BTreeMap<String, String>>,
}

/// Creates the due versions of the objects in the vault at `host`, or only those of the objects
/// with the `name`.
pub(super) fn renew_due_objects(
    call: &mut OperationContext<'_>,
    host: &str,
    name: Option<&str>,
) -> Result<(), ServiceReply> {
    let vaults = &call.azure().vaults;
    let due_keys = due_keys(vaults, host, name, call.now);
    let due_certificates = due_certificates(vaults, host, name, call.now);
    if due_keys.is_empty() && due_certificates.is_empty() {
        return Ok(());
    }
    let without_key = due_certificates.iter().filter(|due| due.reused_key.is_none());
    let types: Vec<_> = due_keys
        .iter()
        .map(|due| due.key_type)
        .chain(without_key.map(|due| due.policy.key.key_type))
        .collect();
    let mut keys = call.new_keys(&types, internal_error_reply)?.into_iter();
    for (due, key) in due_keys.into_iter().zip(keys.by_ref()) {
        let id = call.ids.next_hex32();
        // The object exists: it was found above.
        let _ = call.azure_mut().vaults.keys.change_object(host, &due.name, |object| {
            push_rotated_version(object, id, key, due.attributes);
        });
    }
    for due in due_certificates {
        let Some(key) = due.reused_key.clone().or_else(|| keys.next()) else { continue };
        due.renew(call, host, key)?;
    }
    Ok(())
}

fn due_keys(vaults: &VaultStore, host: &str, name: Option<&str>, now: Timestamp) -> Vec<DueKey> {
    due_names(vaults.keys.due_renewals(host, now), name)
        .filter_map(|name| {
            let object = vaults.keys.object(host, name).ok()?;
            let policy = object.details.rotation.as_ref()?;
            let first = policy.next_rotation(object.latest()?.attributes)?;
            Some(DueKey {
                name: name.to_owned(),
                key_type: rotated_key_type(object)?,
                attributes: policy.attributes_at(first, now),
            })
        })
        .collect()
}

fn due_certificates(
    vaults: &VaultStore,
    host: &str,
    name: Option<&str>,
    now: Timestamp,
) -> Vec<DueCertificate> {
    due_names(vaults.certificates.due_renewals(host, now), name)
        .filter_map(|name| {
            let object = vaults.certificates.object(host, name).ok()?;
            let (policy, latest) = (object.details.policy.clone()?, object.latest()?);
            let (from, until) = (latest.attributes.not_before?, latest.attributes.expires?);
            let time = newest_renewal(&policy, policy.renewal_time(from, until)?, now);
            Some(DueCertificate {
                name: name.to_owned(),
                reused_key: reused_key(&policy, vaults, host, name),
                policy,
                time,
                tags: latest.tags.clone(),
            })
        })
        .collect()
}

fn due_names<'a>(
    due: impl Iterator<Item = &'a str>,
    name: Option<&str>,
) -> impl Iterator<Item = &'a str> {
    due.filter(move |due| name.is_none_or(|name| name.eq_ignore_ascii_case(due)))
}

/// The time of the newest version that is due at `now`, if the first one is due at `first`.
fn newest_renewal(policy: &CertificatePolicy, first: Timestamp, now: Timestamp) -> Timestamp {
    let mut time = first;
    loop {
        let (from, until) = validity_from(policy, time);
        match policy.renewal_time(from, until) {
            Some(next) if next > time && next <= now => time = next,
            _ => return time,
        }
    }
}

impl DueCertificate {
    fn renew(
        self,
        call: &mut OperationContext<'_>,
        host: &str,
        key: AsymmetricKey,
    ) -> Result<(), ServiceReply> {
        let certificate = issue_self_signed(&self.policy, &key, call.ids.next_uuid(), self.time)
            .map_err(|error| internal_error_reply(&error))?;
        let version = NewCertificateVersion {
            id: call.ids.next_hex32(),
            key,
            content: CertificateContent::of_policy(&self.policy, vec![certificate], 0),
            attributes: StoredObjectAttributes::new(self.time),
            tags: self.tags,
        };
        version
            .store(&mut call.azure_mut().vaults, host, &self.name)
            .map_err(|error| store_certificate_error_reply(&error, &self.name))
    }
}

#[cfg(test)]
mod tests;
