//! Creation of certificates by policy: self-signed at once, otherwise as a request that waits for its
//! certificate.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::AsymmetricKey;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::certificate_operation::{
    CertificateOperation, CertificateOperationStatus, WaitingVersion,
};
use lanyard_emulator_state::vaults::certificate_policy::CertificatePolicy;
use lanyard_emulator_state::vaults::object_kind::{CREATE_CERTIFICATE, KeyVaultObjectKind};
use lanyard_emulator_state::vaults::object_store::{
    ObjectStoreError, StoredObjectAttributes, StoredObjectVersion, StoredVaultObject,
};
use lanyard_emulator_state::vaults::vault::VaultStore;
use lanyard_emulator_state::vaults::vault_object_key::VaultObjectKey;
use serde::Deserialize;
use serde_json::Value;

use super::access::{authorize_call, authorized_vault_mut};
use super::api_version::{VaultApiVersion, VersionedFeature};
use super::certificate_issuance::{issue_self_signed, request_certificate, validity_from};
use super::error::{VaultServiceError, internal_error_reply};
use super::object_errors::{object_error_reply, store_error_reply};
use super::request_body::{ObjectAttributesBody, TagsBody, bad_parameter_reply, parse_body};
use super::stored_object::object_id;
use super::vault_view::{VaultMut, VaultRef, VaultView};
use crate::certificate_versions::{
    NewCertificateVersion, reused_key, store_certificate_error_reply,
};
use crate::pending_certificates::encode_csr;
use crate::policy_body::{complete_policy, require_creatable};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateCertificateBody {
    policy: Option<Value>,
    attributes: Option<ObjectAttributesBody>,
    #[serde(default)]
    tags: TagsBody,
    preserve_cert_order: Option<bool>,
}

/// A certificate version to create, with its key and its certificate signing request (DER in
/// base64).
struct PreparedCreation {
    policy: CertificatePolicy,
    key: AsymmetricKey,
    csr: String,
    enabled: bool,
    tags: Option<BTreeMap<String, String>>,
    preserve_order: bool,
}

/// `POST /certificates/{name}/create`.
pub(super) fn create_certificate(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let VaultRef { vault, vaults, api, .. } = authorize_call(call, CREATE_CERTIFICATE)?;
    let host = vault.host.clone();
    require_certificate_name(vaults, &host, name)?;
    let stored_policy = vaults
        .certificates
        .object(&host, name)
        .ok()
        .and_then(|object| object.details.policy.clone());
    let body: CreateCertificateBody = parse_body(call)?;
    let policy = match (body.policy, stored_policy) {
        (Some(given), _) if !given.is_null() => parse_policy(api, given, None, call.now)?,
        (_, Some(stored)) => stored,
        _ => return Err(bad_parameter_reply("`policy` is missing".to_owned())),
    };
    require_creatable(&policy)?;
    require_known_issuer(&policy, &call.azure().vaults, &host)?;
    let tags = body.tags.validate()?;
    let key = match reused_key(&policy, &call.azure().vaults, &host, name) {
        Some(key) => key,
        None => call.new_key(policy.key.key_type, internal_error_reply)?,
    };
    let csr = request_certificate(&policy, &key).map_err(|error| internal_error_reply(&error))?;
    let creation = PreparedCreation {
        csr: encode_csr(&csr),
        enabled: body.attributes.unwrap_or_default().enabled().unwrap_or(true),
        preserve_order: body.preserve_cert_order == Some(true)
            && api.has(VersionedFeature::CertificateOrder),
        policy,
        key,
        tags,
    };
    if creation.policy.issuer.is_self() {
        creation.complete(call, name)?;
    } else {
        creation.wait_for_certificate(call, name)?;
    }
    created_reply(call, &host, name)
}

impl PreparedCreation {
    /// Stores the version with its self-signed certificate.
    fn complete(self, call: &mut OperationContext<'_>, name: &str) -> Result<(), ServiceReply> {
        let Self { policy, key, csr, enabled, tags, preserve_order } = self;
        let certificate = issue_self_signed(&policy, &key, call.ids.next_uuid(), call.now)
            .map_err(|error| internal_error_reply(&error))?;
        let operation = CertificateOperation {
            request_id: call.ids.next_hex32(),
            issuer: policy.issuer.clone(),
            csr,
            status: CertificateOperationStatus::Completed,
            is_cancellation_requested: false,
            preserve_order,
            waiting: None,
        };
        let version = NewCertificateVersion {
            id: call.ids.next_hex32(),
            key,
            content: CertificateContent::of_policy(&policy, vec![certificate], 0),
            attributes: StoredObjectAttributes { enabled, ..StoredObjectAttributes::new(call.now) },
            tags,
        };
        let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
        version
            .store(vaults, &requested.vault.host, name)
            .map_err(|error| store_certificate_error_reply(&error, name))?;
        change_details(vaults, &requested.vault.host, name, |object| {
            object.details.policy = Some(policy);
            object.details.operation = Some(operation);
            object.details.preserve_order = preserve_order;
        })
    }

    /// Stores a certificate operation that waits for a certificate to be merged. The first
    /// operation also creates the certificate, with a version that is disabled until the merge.
    fn wait_for_certificate(
        self,
        call: &mut OperationContext<'_>,
        name: &str,
    ) -> Result<(), ServiceReply> {
        let Self { policy, key, csr, enabled, tags, preserve_order } = self;
        let id = call.ids.next_hex32();
        let waiting = WaitingVersion { id: id.clone(), key, enabled, tags: tags.clone() };
        let operation = CertificateOperation {
            request_id: call.ids.next_hex32(),
            issuer: policy.issuer.clone(),
            csr,
            status: CertificateOperationStatus::InProgress,
            is_cancellation_requested: false,
            preserve_order,
            waiting: Some(waiting),
        };
        let (from, until) = validity_from(&policy, call.now);
        let empty = StoredObjectVersion {
            id,
            attributes: StoredObjectAttributes {
                enabled: false,
                not_before: Some(from),
                expires: Some(until),
                ..StoredObjectAttributes::new(call.now)
            },
            tags,
            content: CertificateContent::of_policy(&policy, Vec::new(), 0),
        };
        let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
        if vaults.certificates.object(&requested.vault.host, name).is_err() {
            let pushed = vaults.certificates.push_version(&requested.vault.host, name, empty);
            pushed.map_err(|conflict| certificate_name_error_reply(conflict.into(), name))?;
        }
        change_details(vaults, &requested.vault.host, name, |object| {
            object.details.policy = Some(policy);
            object.details.operation = Some(operation);
            object.details.preserve_order = preserve_order;
        })
    }
}

/// The 202 reply to a creation: the certificate operation, with the status `inProgress` even if it
/// is complete, as in Azure.
fn created_reply(
    call: &OperationContext<'_>,
    host: &str,
    name: &str,
) -> Result<ServiceReply, ServiceReply> {
    let vaults = &call.azure().vaults;
    let vault = vaults.vault_at_host(host);
    let object = vaults
        .certificates
        .object(host, name)
        .map_err(|problem| store_error_reply(problem, KeyVaultObjectKind::Certificate, call))?;
    let (Some(vault), Some(operation)) = (vault, &object.details.operation) else {
        let message = "the record of the creation is missing";
        return Err(VaultServiceError::Internal(message.to_owned()).to_reply());
    };
    let api = VaultApiVersion::from_request(call)?;
    let view = VaultView { vault, api, cloud: &call.endpoint.cloud };
    let id = object_id::<CertificateContent>(view, &object.name);
    let version = call.request.query("api-version").unwrap_or_default();
    let request_id = &operation.request_id;
    let location = format!("{id}/pending?api-version={version}&request_id={request_id}");
    let body = operation.to_json(&id, CertificateOperationStatus::InProgress);
    Ok(ServiceReply::json(StatusCode::ACCEPTED, &body).with_header("location", location))
}

/// Parses the policy of a request, and ignores fields that the API version lacks. Absent fields
/// keep their value in `previous`, or get their default.
pub(super) fn parse_policy(
    api: VaultApiVersion,
    mut given: Value,
    previous: Option<&CertificatePolicy>,
    now: Timestamp,
) -> Result<CertificatePolicy, ServiceReply> {
    if !api.has(VersionedFeature::UriAndAddressNames)
        && let Some(Value::Object(names)) = given.pointer_mut("/x509_props/sans")
    {
        names.remove("uris");
        names.remove("ipAddresses");
    }
    complete_policy(&given, previous, now)
}

/// Rejects an issuer that is neither built in nor registered in the vault.
pub(super) fn require_known_issuer(
    policy: &CertificatePolicy,
    vaults: &VaultStore,
    host: &str,
) -> Result<(), ServiceReply> {
    let issuer = &policy.issuer;
    let is_known = issuer.is_self()
        || issuer.is_unknown()
        || vaults.issuers.get(&VaultObjectKey::new(host, &issuer.name)).is_some();
    if is_known {
        return Ok(());
    }
    let name = &issuer.name;
    Err(bad_parameter_reply(format!(
        "The issuer `{name}` of the policy does not exist in the vault."
    )))
}

/// Rejects a name that another object has, and a certificate with a certificate operation in
/// progress.
pub(super) fn require_certificate_name(
    vaults: &VaultStore,
    host: &str,
    name: &str,
) -> Result<(), ServiceReply> {
    let Ok(object) = vaults.certificates.object(host, name) else {
        let checks = [
            (KeyVaultObjectKind::Certificate, vaults.certificates.require_free_name(host, name)),
            (KeyVaultObjectKind::Key, vaults.keys.require_free_name(host, name)),
            (KeyVaultObjectKind::Secret, vaults.secrets.require_free_name(host, name)),
        ];
        for (kind, check) in checks {
            check.map_err(|problem| object_error_reply(problem, kind, name, None))?;
        }
        return Ok(());
    };
    if object.details.operation.as_ref().is_some_and(CertificateOperation::is_in_progress) {
        let message = "A new key vault certificate can not be created or imported while a pending key \
                       vault certificate's status is inProgress.";
        return Err(VaultServiceError::Conflict(message.to_owned()).to_reply());
    }
    Ok(())
}

/// Changes the details that all versions of a stored certificate share, such as its policy.
pub(super) fn change_details(
    vaults: &mut VaultStore,
    host: &str,
    name: &str,
    change: impl FnOnce(&mut StoredVaultObject<CertificateContent>),
) -> Result<(), ServiceReply> {
    let changed = vaults.certificates.change_object(host, name, change);
    changed.map_err(|problem| certificate_name_error_reply(problem, name))
}

fn certificate_name_error_reply(problem: ObjectStoreError, name: &str) -> ServiceReply {
    object_error_reply(problem, KeyVaultObjectKind::Certificate, name, None)
}

#[cfg(test)]
mod tests;
