//! Writes the credential document that a component reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use serde::Serialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::credential_times::CredentialTimes;

/// The content of a credential document, in the order of its keys.
#[derive(Serialize)]
struct CredentialJson<'a> {
    authentication_endpoint: &'a str,
    cannot_renew_after: Timestamp,
    client_id: EntraClientId,
    client_secret: &'a str,
    not_after: Timestamp,
    not_before: Timestamp,
    object_id: Uuid,
    renew_after: Timestamp,
    tenant_id: &'a EntraTenantId,
}

/// Whose credential a document is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CredentialOwner<'a> {
    pub(crate) client_id: EntraClientId,
    /// The object id of the service principal.
    pub(crate) object_id: Uuid,
    pub(crate) tenant: &'a EntraTenantId,
    /// The URL of the token service.
    pub(crate) authority: &'a str,
}

/// The private key of a certificate with the certificate, as the vault returns it.
pub(crate) struct CertificateSecret {
    pub(crate) value: Zeroizing<String>,
    /// `application/x-pkcs12` for base64 of PKCS#12, `application/x-pem-file` for PEM.
    pub(crate) content_type: Option<String>,
}

impl CertificateSecret {
    /// The value of `client_secret`: base64 of PKCS#12 or PEM.
    pub(crate) fn client_secret(&self) -> Zeroizing<String> {
        if self.content_type.as_deref() == Some("application/x-pem-file") {
            Zeroizing::new(STANDARD.encode(self.value.as_bytes()))
        } else {
            self.value.clone()
        }
    }
}

/// The document.
pub(crate) fn credential_json(
    owner: CredentialOwner<'_>,
    secret: &CertificateSecret,
    times: CredentialTimes,
) -> Zeroizing<String> {
    let document = CredentialJson {
        authentication_endpoint: owner.authority,
        cannot_renew_after: times.not_after,
        client_id: owner.client_id,
        client_secret: &secret.client_secret(),
        not_after: times.not_after,
        not_before: times.not_before,
        object_id: owner.object_id,
        renew_after: times.renew_after,
        tenant_id: owner.tenant,
    };
    // Strings, ids and times always serialize.
    Zeroizing::new(serde_json::to_string(&document).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use lanyard_credential::document::CredentialDocument;

    use super::*;

    fn document(content_type: &str) -> String {
        let tenant = "22222222-2222-2222-2222-222222222222".parse().unwrap();
        let owner = CredentialOwner {
            client_id: "11111111-1111-1111-1111-111111111111".parse().unwrap(),
            object_id: Uuid::from_u128(3),
            tenant: &tenant,
            authority: "https://login.microsoftonline.com/",
        };
        let secret = CertificateSecret {
            value: Zeroizing::new("YWJj".to_owned()),
            content_type: Some(content_type.to_owned()),
        };
        let (begin, end) = ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        let times = CredentialTimes::of_certificate(begin.parse().unwrap(), end.parse().unwrap());
        credential_json(owner, &secret, times).to_string()
    }

    #[test]
    fn document_has_the_keys_of_the_managed_identity_service() {
        let text = document("application/x-pkcs12");
        assert_eq!(
            text,
            "{\"authentication_endpoint\":\"https://login.microsoftonline.com/\",\
             \"cannot_renew_after\":\"2027-01-01T00:00:00Z\",\
             \"client_id\":\"11111111-1111-1111-1111-111111111111\",\"client_secret\":\"YWJj\",\
             \"not_after\":\"2027-01-01T00:00:00Z\",\"not_before\":\"2026-01-01T00:00:00Z\",\
             \"object_id\":\"00000000-0000-0000-0000-000000000003\",\
             \"renew_after\":\"2026-10-03T00:00:00Z\",\
             \"tenant_id\":\"22222222-2222-2222-2222-222222222222\"}"
        );
        assert!(CredentialDocument::parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn pem_is_encoded_as_base64() {
        assert!(document("application/x-pem-file").contains("\"client_secret\":\"WVdKag==\""));
    }
}
