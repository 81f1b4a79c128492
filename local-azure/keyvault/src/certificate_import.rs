//! Certificates that the vault did not create: import of files, and merge of certificates for a waiting
//! request.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::{AsymmetricKey, RedactedText};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::bundle_form::BundleForm;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::certificate_operation::CertificateOperationStatus;
use lanyard_emulator_state::vaults::der_certificate::DerCertificate;
use lanyard_emulator_state::vaults::object_kind::{
    CREATE_CERTIFICATE, IMPORT_CERTIFICATE, KeyVaultObjectKind,
};
use lanyard_emulator_state::vaults::object_store::{ObjectStoreError, StoredObjectAttributes};
use lanyard_emulator_state::vaults::vault::{EmulatedVault, VaultStore};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::access::{authorize_call, authorized_vault_mut};
use super::api_version::VersionedFeature;
use super::certificate_bundle::{ImportBundleError, ImportedBundle, decode_bundle};
use super::certificate_creation::{change_details, require_certificate_name, require_known_issuer};
use super::certificate_versions::store_certificate_error_reply;
use super::error::{VaultServiceError, internal_error_reply};
use super::object_errors::store_error_reply;
use super::request_body::{ObjectAttributesBody, TagsBody, bad_parameter_reply, parse_body};
use super::secrets::MAX_VALUE_BYTES;
use super::stored_object::{StoredObject, version_id};
use super::vault_view::{VaultMut, VaultRef, VaultView};
use crate::certificate_versions::NewCertificateVersion;
use crate::pending_certificates::operation_not_found_reply;
use crate::policy_body::{imported_policy, policy_with_import_settings};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImportCertificateBody {
    value: Option<RedactedText>,
    pwd: Option<RedactedText>,
    policy: Option<Value>,
    attributes: Option<ObjectAttributesBody>,
    #[serde(default)]
    tags: TagsBody,
    preserve_cert_order: Option<bool>,
}

#[derive(Deserialize)]
struct MergeCertificateBody {
    x5c: Option<Vec<String>>,
    attributes: Option<ObjectAttributesBody>,
    #[serde(default)]
    tags: TagsBody,
}

/// `POST /certificates/{name}/import`: a new version from a PKCS#12 or PEM file.
pub(super) fn import_certificate(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let VaultRef { vault, vaults, api, .. } = authorize_call(call, IMPORT_CERTIFICATE)?;
    let host = vault.host.clone();
    require_certificate_name(vaults, &host, name)?;
    let body: ImportCertificateBody = parse_body(call)?;
    let value = body.value.ok_or_else(|| bad_parameter_reply("`value` is missing".to_owned()))?;
    if value.expose().len() > MAX_VALUE_BYTES {
        let found = value.expose().len();
        return Err(bad_parameter_reply(format!(
            "`value` has {found} bytes; the maximum is {MAX_VALUE_BYTES}"
        )));
    }
    let password = body.pwd;
    let imported = call
        .run_unlocked(move || decode_bundle(&value, password.as_ref()))?
        .map_err(|error| bad_parameter_reply(error.to_string()))?;
    require_announced_form(body.policy.as_ref(), imported.form)?;
    let ImportedBundle { form, key, certificates } = imported;
    let order = body.preserve_cert_order.filter(|_| api.has(VersionedFeature::CertificateOrder));
    let preserve_order = order == Some(true);
    let (chain, leaf) = arrange_chain(certificates, &key, order != Some(false))?;
    let now = call.now;
    let policy = chain
        .get(leaf)
        .and_then(|leaf| leaf.read(|leaf| imported_policy(leaf, &key, form, now)))
        .ok_or_else(|| bad_parameter_reply(ImportBundleError::Pkcs12.to_string()))?;
    let policy = match body.policy {
        Some(given) if !given.is_null() => policy_with_import_settings(policy, given)?,
        _ => policy,
    };
    require_known_issuer(&policy, &call.azure().vaults, &host)?;
    let version = NewCertificateVersion {
        id: call.ids.next_hex32(),
        key,
        content: CertificateContent::of_policy(&policy, chain, leaf),
        attributes: StoredObjectAttributes {
            enabled: body.attributes.unwrap_or_default().enabled().unwrap_or(true),
            ..StoredObjectAttributes::new(now)
        },
        tags: body.tags.validate()?,
    };
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    version
        .store(vaults, &host, name)
        .map_err(|error| store_certificate_error_reply(&error, name))?;
    change_details(vaults, &host, name, |object| {
        object.details.policy = Some(policy);
        object.details.preserve_order = preserve_order;
    })?;
    let view = requested.view();
    match latest_bundle(vaults, view, name) {
        Some((bundle, _)) => Ok(ServiceReply::json(StatusCode::OK, &bundle)),
        None => Err(VaultServiceError::Internal("the import is missing".to_owned()).to_reply()),
    }
}

/// `POST /certificates/{name}/pending/merge`: the certificates for the waiting request.
pub(super) fn merge_certificate(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let VaultRef { vault, vaults, .. } = authorize_call(call, CREATE_CERTIFICATE)?;
    let object = vaults.certificates.object(&vault.host, name);
    let details = object
        .map_err(|_absent| operation_not_found_reply(name))
        .map(|object| object.details.clone())?;
    let operation = details.operation.ok_or_else(|| operation_not_found_reply(name))?;
    let (Some(waiting), Some(policy)) = (operation.waiting, details.policy) else {
        let message =
            "The certificate request is not in progress, so no certificate can be merged.";
        return Err(bad_parameter_reply(message.to_owned()));
    };
    let body: MergeCertificateBody = parse_body(call)?;
    let certificates: Vec<_> = body
        .x5c
        .unwrap_or_default()
        .iter()
        .map(|text| DerCertificate::parse_x5c(text))
        .collect::<Option<_>>()
        .filter(|certificates: &Vec<_>| !certificates.is_empty())
        .ok_or_else(|| {
            bad_parameter_reply("`x5c` is not a list of X.509 certificates".to_owned())
        })?;
    let (chain, leaf) = arrange_chain(certificates, &waiting.key, operation.preserve_order)?;
    let enabled = body.attributes.unwrap_or_default().enabled().unwrap_or(waiting.enabled);
    let version = NewCertificateVersion {
        id: waiting.id,
        key: waiting.key,
        content: CertificateContent::of_policy(&policy, chain, leaf),
        attributes: StoredObjectAttributes { enabled, ..StoredObjectAttributes::new(call.now) },
        tags: body.tags.validate()?.or(waiting.tags),
    };
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    version
        .store(vaults, &requested.vault.host, name)
        .map_err(|error| store_certificate_error_reply(&error, name))?;
    change_details(vaults, &requested.vault.host, name, |object| {
        if let Some(operation) = &mut object.details.operation {
            operation.status = CertificateOperationStatus::Completed;
            operation.waiting = None;
        }
    })?;
    let view = requested.view();
    if let Some((bundle, id)) = latest_bundle(vaults, view, name) {
        return Ok(ServiceReply::json(StatusCode::CREATED, &bundle).with_header("location", id));
    }
    let problem = ObjectStoreError::NotFound;
    Err(store_error_reply(problem, KeyVaultObjectKind::Certificate, call))
}

/// Returns the latest version as clients read it, and its id URL; `None` if there is no version.
fn latest_bundle(
    vaults: &VaultStore,
    view: VaultView<'_>,
    name: &str,
) -> Option<(impl Serialize, String)> {
    let EmulatedVault { host, .. } = view.vault;
    let (object, version) = vaults.certificates.version(host, name, None).ok()?;
    let id = version_id(view, &object.name, version);
    Some((CertificateContent::bundle(view, object, version), id))
}

/// Rejects a file that is not in the format of the content type in the policy of the request.
fn require_announced_form(policy: Option<&Value>, form: BundleForm) -> Result<(), ServiceReply> {
    let announced = policy
        .and_then(|policy| policy.pointer("/secret_props/contentType"))
        .and_then(Value::as_str)
        .and_then(BundleForm::from_content_type);
    match announced {
        Some(announced) if announced != form => {
            let error = match announced {
                BundleForm::Pkcs12 => ImportBundleError::Pkcs12,
                BundleForm::Pem => ImportBundleError::Pem,
            };
            Err(bad_parameter_reply(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Returns the certificates in the order of the secret, and the index of the key's certificate: 0, unless the order
/// is kept. An import keeps the order of the file, unless the client sets `preserveCertOrder` to `false`.
fn arrange_chain(
    mut certificates: Vec<DerCertificate>,
    key: &AsymmetricKey,
    keep_order: bool,
) -> Result<(Vec<DerCertificate>, usize), ServiceReply> {
    let public_key = key.subject_public_key().map_err(|error| internal_error_reply(&error))?;
    let leaf = certificates
        .iter()
        .position(|known| known.subject_public_key().as_deref() == Some(&public_key))
        .ok_or_else(|| {
            bad_parameter_reply(
                "The public key of the end-entity certificate in the specified X.509 certificate content \
                 does not match the public part of the specified private key. Please check if certificate \
                 is valid."
                    .to_owned(),
            )
        })?;
    if keep_order {
        return Ok((certificates, leaf));
    }
    let first = certificates.remove(leaf);
    certificates.insert(0, first);
    Ok((certificates, 0))
}

#[cfg(test)]
mod tests;
