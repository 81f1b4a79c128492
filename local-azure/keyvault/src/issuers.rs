//! The certificate authorities that clients register, and the contacts of a vault. The emulator calls no
//! authority: certificates of such an issuer wait for a merge.

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_issuer::{
    CertificateContact, CertificateIssuer, IssuerOrganization,
};
use lanyard_emulator_state::vaults::object_kind::{
    DELETE_ISSUER, GET_ISSUER, LIST_ISSUERS, MANAGE_CONTACTS, SET_ISSUER, VaultPermission,
};
use lanyard_emulator_state::vaults::vault_object_key::VaultObjectKey;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{authorize_call, authorize_call_at, authorized_vault_mut};
use super::error::VaultServiceError;
use super::object_errors::invalid_name_reply;
use super::pages::VaultPageRequest;
use super::request_body::{bad_parameter_reply, parse_body};
use super::vault_view::{VaultMut, VaultRef, VaultView};

#[derive(Deserialize, Default)]
#[serde(default)]
struct IssuerBody {
    provider: Option<String>,
    credentials: Option<IssuerCredentialsBody>,
    org_details: Option<IssuerOrganization>,
    attributes: Option<IssuerAttributesBody>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IssuerCredentialsBody {
    account_id: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IssuerAttributesBody {
    enabled: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContactsBody {
    contacts: Option<Vec<CertificateContact>>,
}

impl IssuerBody {
    /// Replaces the fields of an issuer that the body has.
    fn apply_to(self, issuer: &mut CertificateIssuer, now: Timestamp) {
        issuer.provider = self.provider.unwrap_or_else(|| issuer.provider.clone());
        if let Some(credentials) = self.credentials {
            issuer.account_id = credentials.account_id.or(issuer.account_id.take());
        }
        issuer.organization = self.org_details.or(issuer.organization.take());
        if let Some(enabled) = self.attributes.and_then(|attributes| attributes.enabled) {
            issuer.enabled = enabled;
        }
        issuer.updated = now;
    }
}

fn issuer_id(issuer: &CertificateIssuer, view: VaultView<'_>) -> String {
    format!("{}/certificates/issuers/{}", view.base_url(), issuer.name)
}

/// The issuer as in replies.
fn issuer_json(issuer: &CertificateIssuer, view: VaultView<'_>) -> Value {
    let mut wire = json!({
        "id": issuer_id(issuer, view),
        "provider": issuer.provider,
        "attributes": {
            "enabled": issuer.enabled,
            "created": issuer.created.as_second(),
            "updated": issuer.updated.as_second(),
        },
    });
    if let Some(account) = &issuer.account_id {
        wire["credentials"] = json!({ "account_id": account });
    }
    if let Some(organization) = &issuer.organization {
        wire["org_details"] = json!(organization);
        wire["org_details"]["zip"] = json!(0);
    }
    wire
}

/// `GET /certificates/issuers`.
pub(super) fn list_issuers(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let page = VaultPageRequest::from_request(call);
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, LIST_ISSUERS)?;
    let page = page?;
    let items = vaults.issuers_after(&vault.host, page.marker.as_deref()).map(|(_, issuer)| {
        let item =
            json!({ "id": issuer_id(issuer, reference.view()), "provider": issuer.provider });
        (issuer.name.as_str(), item)
    });
    Ok(page.page_reply(items))
}

/// `GET /certificates/issuers/{issuer}`.
pub(super) fn get_issuer(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (reference, key) = authorize_issuer_call(call, GET_ISSUER)?;
    match reference.vaults.issuers.get(&key) {
        Some(issuer) => {
            Ok(ServiceReply::json(StatusCode::OK, &issuer_json(issuer, reference.view())))
        }
        None => Err(issuer_not_found_reply()),
    }
}

/// `PUT /certificates/issuers/{issuer}`: creates or replaces an issuer.
pub(super) fn set_issuer(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("issuer");
    let (reference, key) = authorize_issuer_call(call, SET_ISSUER)?;
    let known = reference.vaults.issuers.get(&key).cloned();
    let body: IssuerBody = parse_body(call)?;
    if body.provider.as_deref().unwrap_or_default().is_empty() {
        return Err(bad_parameter_reply("`provider` is missing".to_owned()));
    }
    let now = call.now;
    let (name, created) =
        known.map_or_else(|| (name.to_owned(), now), |known| (known.name, known.created));
    let mut issuer = CertificateIssuer {
        name,
        provider: String::new(),
        account_id: None,
        organization: None,
        enabled: true,
        created,
        updated: now,
    };
    body.apply_to(&mut issuer, now);
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let view = requested.view();
    let wire = issuer_json(&issuer, view);
    vaults.issuers.insert(key, issuer);
    Ok(ServiceReply::json(StatusCode::OK, &wire))
}

/// `PATCH /certificates/issuers/{issuer}`.
pub(super) fn update_issuer(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (reference, key) = authorize_issuer_call(call, SET_ISSUER)?;
    if reference.vaults.issuers.get(&key).is_none() {
        return Err(issuer_not_found_reply());
    }
    let body: IssuerBody = parse_body(call)?;
    let now = call.now;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let Some(issuer) = vaults.issuers.get_mut(&key) else { return Err(issuer_not_found_reply()) };
    body.apply_to(issuer, now);
    let view = requested.view();
    Ok(ServiceReply::json(StatusCode::OK, &issuer_json(issuer, view)))
}

/// `DELETE /certificates/issuers/{issuer}`: deletes the issuer permanently.
pub(super) fn delete_issuer(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (reference, key) = authorize_issuer_call(call, DELETE_ISSUER)?;
    if reference.vaults.issuers.get(&key).is_none() {
        return Err(issuer_not_found_reply());
    }
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let view = requested.view();
    match vaults.issuers.remove(&key) {
        Some(issuer) => Ok(ServiceReply::json(StatusCode::OK, &issuer_json(&issuer, view))),
        None => Err(issuer_not_found_reply()),
    }
}

/// `GET /certificates/contacts`.
pub(super) fn get_contacts(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, MANAGE_CONTACTS)?;
    match vaults.contacts.get(&vault.host) {
        Some(contacts) => Ok(contacts_reply(reference.view(), contacts)),
        None => Err(contacts_not_found_reply()),
    }
}

/// `PUT /certificates/contacts`: replaces all contacts.
pub(super) fn set_contacts(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authorize_call(call, MANAGE_CONTACTS)?;
    let body: ContactsBody = parse_body(call)?;
    let contacts = body.contacts.unwrap_or_default();
    if contacts.iter().any(|contact| contact.email.as_deref().unwrap_or_default().is_empty()) {
        return Err(bad_parameter_reply("a contact in `contacts` has no `email`".to_owned()));
    }
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let view = requested.view();
    let reply = contacts_reply(view, &contacts);
    vaults.contacts.insert(requested.vault.host, contacts);
    Ok(reply)
}

/// `DELETE /certificates/contacts`.
pub(super) fn delete_contacts(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let VaultRef { vault, vaults, .. } = authorize_call(call, MANAGE_CONTACTS)?;
    if vaults.contacts.get(&vault.host).is_none() {
        return Err(contacts_not_found_reply());
    }
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let view = requested.view();
    match vaults.contacts.remove(&requested.vault.host) {
        Some(contacts) => Ok(contacts_reply(view, &contacts)),
        None => Err(contacts_not_found_reply()),
    }
}

/// Checks the permission on the issuer in the path, and that its name is valid. Returns the vault,
/// and the issuer's key in the store.
fn authorize_issuer_call<'c>(
    call: &'c mut OperationContext<'_>,
    right: VaultPermission,
) -> Result<(VaultRef<'c>, VaultObjectKey), ServiceReply> {
    let name = call.path_parameter("issuer");
    let reference = authorize_call_at(call, right, Some(&format!("certificatecas/{name}")))?;
    let is_valid = (1..=127).contains(&name.len())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '-');
    if !is_valid {
        return Err(invalid_name_reply(name));
    }
    let key = VaultObjectKey::new(&reference.vault.host, name);
    Ok((reference, key))
}

fn contacts_reply(view: VaultView<'_>, contacts: &[CertificateContact]) -> ServiceReply {
    let id = format!("{}/certificates/contacts", view.base_url());
    ServiceReply::json(StatusCode::OK, &json!({ "id": id, "contacts": contacts }))
}

fn issuer_not_found_reply() -> ServiceReply {
    VaultServiceError::OtherNotFound {
        code: "CertificateIssuerNotFound",
        message: "Issuer not found".to_owned(),
    }
    .to_reply()
}

fn contacts_not_found_reply() -> ServiceReply {
    VaultServiceError::OtherNotFound {
        code: "ContactsNotFound",
        message: "Contacts not found".to_owned(),
    }
    .to_reply()
}

#[cfg(test)]
mod tests;
