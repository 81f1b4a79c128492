//! Issues and renews the credentials of managed identities.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::certificate_bundle::CredentialBundleFormat;
use lanyard_emulator_state::client_certificate::LeafCertificateSpec;
use lanyard_emulator_state::directory::{
    BundleContent, ServicePrincipal, SubjectNameIssuer, issue_certificate_bundle,
};
use lanyard_emulator_state::identity_url::IdentityUrl;
use lanyard_emulator_state::keys::{
    AsymmetricKey, AsymmetricKeyType, RedactedText, RsaKey, RsaKeySize,
};
use lanyard_emulator_state::managed_identity_credential::{
    CredentialDates, CredentialUrls, CustomClaims, MSI_AUTHORITY, ManagedIdentityCredential,
    NewCredential, certificate_subject, user_assigned_secret_url,
};
use lanyard_emulator_state::request::ServiceReply;

use super::error::IdentityServiceError;

/// A request for the current credential of an identity.
#[derive(Debug, Clone)]
pub(super) struct CredentialRequest<'a> {
    pub(super) principal: ServicePrincipal,
    /// The region of the resource that uses the identity.
    pub(super) location: &'a str,
    /// The identity URL of the resource, for a system-assigned identity: it is its `client_secret_url`.
    pub(super) own_url: Option<&'a IdentityUrl>,
    /// The claims of the certificate; `None` for those of the last credential.
    pub(super) custom_claims: Option<CustomClaims>,
}

/// The current credential of each identity, in order. A credential stays the same until `renew_after`, unless
/// the claims differ. Its URLs are those of the cloud and the region of the request.
pub(super) fn current_credentials(
    call: &mut OperationContext<'_>,
    requests: &[CredentialRequest<'_>],
) -> Result<Vec<ManagedIdentityCredential>, ServiceReply> {
    let needs_new: Vec<_> = requests.iter().map(|request| !is_current(call, request)).collect();
    let count = needs_new.iter().filter(|needs_new| **needs_new).count();
    let mut keys = new_rsa_keys(call, count)?.into_iter();
    let mut credentials = Vec::new();
    for (request, needs_new) in requests.iter().zip(needs_new) {
        let object_id = request.principal.object_id;
        let stored = call.azure().directory.managed_identity_credential(object_id).cloned();
        let urls = CredentialUrls {
            authentication_endpoint: format!("{}/", call.endpoint.cloud.authority_url()),
            client_secret_url: client_secret_url(call, request)?,
        };
        credentials.push(match (stored, needs_new) {
            (Some(current), false) => current.with_urls(urls),
            (last, _) => {
                let key = keys.next().ok_or_else(|| internal_error("no key was generated"))?;
                issue(call, request, urls, last.as_ref(), &key)?
            }
        });
    }
    Ok(credentials)
}

fn is_current(call: &OperationContext<'_>, request: &CredentialRequest<'_>) -> bool {
    let object_id = request.principal.object_id;
    let current = call.azure().directory.managed_identity_credential(object_id);
    current.is_some_and(|current| {
        let claims = request.custom_claims.as_ref();
        call.now < current.dates().renew_after
            && claims.is_none_or(|claims| claims == current.custom_claims())
    })
}

/// Whether the `client_secret_url` of an identity still returns a newer credential.
pub(super) fn is_renewable(call: &OperationContext<'_>, principal: &ServicePrincipal) -> bool {
    let current = call.azure().directory.managed_identity_credential(principal.object_id);
    current.is_some_and(|current| call.now < current.dates().cannot_renew_after)
}

fn issue(
    call: &mut OperationContext<'_>,
    request: &CredentialRequest<'_>,
    urls: CredentialUrls,
    last: Option<&ManagedIdentityCredential>,
    key: &RsaKey,
) -> Result<ManagedIdentityCredential, ServiceReply> {
    let principal = &request.principal;
    let dates =
        CredentialDates::following(last.map(|last| last.dates().validity.not_before), call.now);
    let subject = certificate_subject(principal.client_id);
    let leaf = LeafCertificateSpec {
        subject: &subject,
        serial: call.ids.next_uuid(),
        validity: dates.validity,
        key,
    };
    let content =
        BundleContent { format: CredentialBundleFormat::LegacyPkcs12, key, has_leaf: true };
    let bundle = issue_certificate_bundle(&call.azure().directory, &leaf, content)
        .map_err(|error| internal_error(&error.to_string()))?;
    let last_claims = || last.map(|last| last.custom_claims().clone()).unwrap_or_default();
    let credential = NewCredential {
        client_id: principal.client_id,
        object_id: principal.object_id,
        tenant: &principal.tenant,
        resource_id: principal.user_assigned_identity(),
        location: request.location,
        urls,
        custom_claims: request.custom_claims.clone().unwrap_or_else(last_claims),
        dates,
        bundle: &bundle,
    };
    let credential = credential.into_document();
    let directory = &mut call.azure_mut().directory;
    if !trusts_platform(principal.subject_name_issuer.as_ref(), &subject) {
        directory.trust_platform_certificates(principal.object_id);
    }
    directory.insert_managed_identity_credential(principal.object_id, credential.clone());
    Ok(credential)
}

/// The URL that returns the next credential, in the cloud of the request.
fn client_secret_url(
    call: &OperationContext<'_>,
    request: &CredentialRequest<'_>,
) -> Result<RedactedText, ServiceReply> {
    let (principal, cloud) = (&request.principal, &call.endpoint.cloud);
    let ids = (&principal.tenant, principal.object_id, principal.client_id);
    let url = match (request.own_url, principal.user_assigned_identity()) {
        (Some(own_url), _) => own_url.url(cloud),
        (None, Some(id)) => {
            user_assigned_secret_url(&cloud.managed_identity_url(request.location), id, ids)
        }
        (None, None) => return Err(internal_error("the identity has no URL")),
    };
    Ok(RedactedText::new(url))
}

fn trusts_platform(trust: Option<&SubjectNameIssuer>, subject: &str) -> bool {
    trust.is_some_and(|trust| trust.authority == MSI_AUTHORITY && trust.subject == subject)
}

fn new_rsa_keys(
    call: &mut OperationContext<'_>,
    count: usize,
) -> Result<Vec<RsaKey>, ServiceReply> {
    let kinds = vec![AsymmetricKeyType::Rsa(RsaKeySize::Bits2048); count];
    let keys = call.new_keys(&kinds, |error| internal_error(&error.to_string()))?;
    let rsa = keys.into_iter().filter_map(|key| match key {
        AsymmetricKey::Rsa(key) => Some(key),
        AsymmetricKey::Ec(_) => None,
    });
    Ok(rsa.collect())
}

fn internal_error(message: &str) -> ServiceReply {
    IdentityServiceError::Internal(format!("The credential was not issued: {message}.")).to_reply()
}
