//! Changes of certificates: attributes, tags and policy.

use std::collections::BTreeMap;

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::certificate_policy::CertificatePolicy;
use lanyard_emulator_state::vaults::object_kind::{
    CERTIFICATE_PERMISSIONS, KeyVaultObjectKind, UPDATE_CERTIFICATE,
};
use lanyard_emulator_state::vaults::object_store::{StoredObjectAttributes, StoredVaultObject};
use serde::Deserialize;
use serde_json::Value;

use super::access::{authorize_call, authorized_vault_mut};
use super::certificate_creation::{change_details, parse_policy, require_known_issuer};
use super::error::VaultServiceError;
use super::object_errors::{object_error_reply, store_error_reply};
use super::objects::{changed_version_reply, find_version};
use super::request_body::{ObjectAttributesBody, TagsBody, parse_body};
use super::stored_object::{object_id, requested_name_and_version};
use super::vault_view::{VaultMut, VaultRef};

const KIND: KeyVaultObjectKind = KeyVaultObjectKind::Certificate;

#[derive(Deserialize)]
struct UpdateCertificateBody {
    policy: Option<Value>,
    attributes: Option<ObjectAttributesBody>,
    #[serde(default)]
    tags: TagsBody,
}

/// `PATCH /certificates/{name}[/{version}]`: the enabled state and the tags of a version, with those of its key
/// and its secret; and the policy. The certificate itself determines the validity.
pub(super) fn update_certificate(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let reference = authorize_call(call, UPDATE_CERTIFICATE)?;
    let (host, api) = (reference.vault.host.clone(), reference.api);
    let (object, stored) = find_version::<CertificateContent>(reference, name, version)?;
    let (id, stored_policy) = (stored.id.clone(), object.details.policy.clone());
    let body: UpdateCertificateBody = parse_body(call)?;
    let policy = match body.policy {
        Some(given) if !given.is_null() => {
            Some(parse_policy(api, given, stored_policy.as_ref(), call.now)?)
        }
        _ => None,
    };
    if let Some(policy) = &policy {
        require_known_issuer(policy, &call.azure().vaults, &host)?;
    }
    let enabled = body.attributes.and_then(|attributes| attributes.enabled());
    let tags = body.tags.validate()?;
    let now = call.now;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let change = |attributes: &mut StoredObjectAttributes, stored: &mut Option<BTreeMap<_, _>>| {
        attributes.enabled = enabled.unwrap_or(attributes.enabled);
        attributes.updated = now;
        if tags.is_some() {
            stored.clone_from(&tags);
        }
    };
    let version = Some(&*id);
    let changed = vaults.certificates.change_version(&host, name, version, |stored| {
        change(&mut stored.attributes, &mut stored.tags);
    });
    // A version that waits for its certificate has neither a key nor a secret.
    let _ = vaults.keys.change_version(&host, name, version, |stored| {
        change(&mut stored.attributes, &mut stored.tags);
    });
    let _ = vaults.secrets.change_version(&host, name, version, |stored| {
        change(&mut stored.attributes, &mut stored.tags);
    });
    if let Some(policy) = policy {
        change_details(vaults, &host, name, |object| object.details.policy = Some(policy))?;
    }
    changed.map_err(|problem| object_error_reply(problem, KIND, name, version))?;
    let reference = requested.with_store(vaults);
    changed_version_reply::<CertificateContent>(reference, name, version)
}

/// `GET /certificates/{name}/policy`.
pub(super) fn get_certificate_policy(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference @ VaultRef { vault, vaults, .. } =
        authorize_call(call, CERTIFICATE_PERMISSIONS.get)?;
    let found = vaults.certificates.object(&vault.host, name).map(|object| {
        let id = object_id::<CertificateContent>(reference.view(), &object.name);
        require_policy(object).map(|policy| policy.to_json(&id))
    });
    let policy = found.map_err(|problem| store_error_reply(problem, KIND, call))??;
    Ok(ServiceReply::json(StatusCode::OK, &policy))
}

/// `PATCH /certificates/{name}/policy`: replaces the given fields.
pub(super) fn update_certificate_policy(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference @ VaultRef { vault, vaults, api, .. } = authorize_call(call, UPDATE_CERTIFICATE)?;
    let id = object_id::<CertificateContent>(reference.view(), name);
    let host = vault.host.clone();
    let found = vaults.certificates.object(&host, name).map(|it| require_policy(it).cloned());
    let stored = found.map_err(|problem| store_error_reply(problem, KIND, call))??;
    let policy = parse_policy(api, parse_body(call)?, Some(&stored), call.now)?;
    require_known_issuer(&policy, &call.azure().vaults, &host)?;
    let wire = policy.to_json(&id);
    let VaultMut { vaults, .. } = authorized_vault_mut(call)?;
    change_details(vaults, &host, name, |object| object.details.policy = Some(policy))?;
    Ok(ServiceReply::json(StatusCode::OK, &wire))
}

fn require_policy(
    object: &StoredVaultObject<CertificateContent>,
) -> Result<&CertificatePolicy, ServiceReply> {
    object.details.policy.as_ref().ok_or_else(|| {
        VaultServiceError::OtherNotFound {
            code: "CertificatePolicyNotFound",
            message: format!("Certificate policy not found: {}", object.name),
        }
        .to_reply()
    })
}

#[cfg(test)]
mod tests;
