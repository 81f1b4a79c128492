//! The credential document of a managed identity, as the MSI data plane issues it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lanyard_vocabulary::{EntraTenantId, ObjectEncoding};
use serde::Serialize;
use zeroize::Zeroizing;

use super::SeedError;
use super::certificate::CertificateValidityPeriod;
use super::identity_registry::ComponentIdentity;
use crate::certificates::days_after;

/// `UserAssignedIdentityCredentials` of the MSI data plane, version 2024-01-01: 13 keys, in the order in
/// which Go writes them.
#[derive(Serialize)]
struct MsiCredentialDocument<'a> {
    authentication_endpoint: &'a str,
    cannot_renew_after: String,
    client_id: String,
    client_secret: &'a str,
    client_secret_url: String,
    custom_claims: MsiCustomClaims,
    mtls_authentication_endpoint: String,
    not_after: String,
    not_before: String,
    object_id: String,
    renew_after: String,
    resource_id: &'a str,
    tenant_id: &'a str,
}

#[derive(Serialize)]
struct MsiCustomClaims {
    xms_az_nwperimid: [&'static str; 0],
    xms_az_tm: &'static str,
}

/// The four timestamps of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CredentialDates {
    /// The validity of the certificate according to the document.
    pub(super) validity: CertificateValidityPeriod,
    /// The time from which a renewal is possible.
    pub(super) renew_after: Timestamp,
    /// The time from which no renewal is possible.
    pub(super) cannot_renew_after: Timestamp,
}

impl CredentialDates {
    /// The timestamps of a certificate of the MSI data plane: valid for 90 days, renewable after half of
    /// them.
    pub(super) fn starting_at(not_before: Timestamp) -> Self {
        let after = |days| days_after(not_before, days);
        Self {
            validity: CertificateValidityPeriod { not_before, not_after: after(90) },
            renew_after: after(45),
            cannot_renew_after: after(180),
        }
    }
}

/// Serializes the document as compact JSON, with `padding` extra bytes in the query of `client_secret_url`,
/// which is opaque to all clients.
pub(super) fn write_document(
    identity: &ComponentIdentity,
    tenant: &EntraTenantId,
    bundle: &[u8],
    stamps: CredentialDates,
    padding: usize,
) -> Result<Zeroizing<Vec<u8>>, SeedError> {
    let secret = Zeroizing::new(STANDARD.encode(bundle));
    let mut url = format!(
        "https://control-{}.identity.azure.net{}/credentials?tid={tenant}&oid={}&aid={}",
        identity.location, identity.resource_id, identity.object_id, identity.client_id
    );
    if padding > 0 {
        url.push_str("&p=");
        url.extend(std::iter::repeat_n('0', padding));
    }
    let document = MsiCredentialDocument {
        authentication_endpoint: &identity.authority_url(),
        cannot_renew_after: stamps.cannot_renew_after.to_string(),
        client_id: identity.client_id.to_string(),
        client_secret: &secret,
        client_secret_url: url,
        custom_claims: MsiCustomClaims { xms_az_nwperimid: [], xms_az_tm: "azureinfra" },
        mtls_authentication_endpoint: format!(
            "https://{}.mtlsauth.microsoft.com/",
            identity.location
        ),
        not_after: stamps.validity.not_after.to_string(),
        not_before: stamps.validity.not_before.to_string(),
        object_id: identity.object_id.to_string(),
        renew_after: stamps.renew_after.to_string(),
        resource_id: identity.resource_id.as_str(),
        tenant_id: tenant.as_str(),
    };
    serde_json::to_vec(&document).map(Zeroizing::new).map_err(SeedError::Document)
}

/// Encodes bytes as the text of a vault value.
pub(super) fn encode_secret_value(encoding: ObjectEncoding, bytes: &[u8]) -> String {
    match encoding {
        ObjectEncoding::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
        ObjectEncoding::Hex => hex::encode(bytes),
        ObjectEncoding::Base64 => STANDARD.encode(bytes),
    }
}
