//! Credentials of managed identities, as the MSI data plane issues them: a certificate of the platform with its
//! key, in a JSON document with the times of its renewal.
//!
//! Reference: `UserAssignedIdentityCredentials` of `github.com/Azure/msi-dataplane` v0.4.3, api-version
//! 2024-01-01.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::certificates::days_after;
use crate::client_certificate::CertificateValidityPeriod;
use crate::keys::RedactedText;

/// The certificate authority that issues the certificates of managed identities: its name in the
/// directory, which is also its common name.
pub const MSI_AUTHORITY: &str = "Lanyard Emulator MSI Issuing CA";

/// The credential document of a managed identity, with its keys in the order in which Go writes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ManagedIdentityCredential {
    /// The URL of the token service.
    authentication_endpoint: String,
    cannot_renew_after: Timestamp,
    client_id: EntraClientId,
    /// Key and certificates: base64 of PKCS#12 or PEM.
    client_secret: RedactedText,
    /// The URL that returns a newer credential. It is secret, because that of a system-assigned identity has a
    /// signature.
    client_secret_url: RedactedText,
    custom_claims: CustomClaims,
    mtls_authentication_endpoint: String,
    not_after: Timestamp,
    not_before: Timestamp,
    object_id: Uuid,
    renew_after: Timestamp,
    /// The user-assigned identity; absent for a system-assigned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_id: Option<ArmResourceId>,
    tenant_id: EntraTenantId,
}

/// The claims that a resource provider asserts about its resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CustomClaims {
    /// The ids of network security perimeters, at most five.
    pub xms_az_nwperimid: Vec<Uuid>,
    /// The trust mode of the resource.
    pub xms_az_tm: TrustMode,
}

/// Who controls the resource that uses an identity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustMode {
    /// The platform.
    #[default]
    AzureInfra,
    /// The user.
    User,
}

/// The times of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialDates {
    /// The validity of the certificate according to the document.
    pub validity: CertificateValidityPeriod,
    /// The time from which `client_secret_url` returns a new credential.
    pub renew_after: Timestamp,
    /// The time from which `client_secret_url` returns none.
    pub cannot_renew_after: Timestamp,
}

impl CredentialDates {
    /// The times of the next credential after one with `last_not_before`: valid for 90 days, and renewable
    /// after half of them.
    ///
    /// It begins five minutes ago, because the service backdates to tolerate clock skew, and later than the
    /// last one.
    #[must_use]
    pub fn following(last_not_before: Option<Timestamp>, now: Timestamp) -> Self {
        let second = SignedDuration::from_secs(1);
        let backdated = now.checked_sub(SignedDuration::from_mins(5)).unwrap_or(now);
        let whole = Timestamp::from_second(backdated.as_second()).unwrap_or(backdated);
        let after_last = last_not_before.and_then(|last| last.checked_add(second).ok());
        let not_before = after_last.map_or(whole, |earliest| whole.max(earliest));
        let after = |days| days_after(not_before, days);
        Self {
            validity: CertificateValidityPeriod { not_before, not_after: after(90) },
            renew_after: after(45),
            cannot_renew_after: after(180),
        }
    }
}

/// The URLs of a credential document, which are those of a cloud.
#[derive(Debug)]
pub struct CredentialUrls {
    /// The URL of the token service.
    pub authentication_endpoint: String,
    pub client_secret_url: RedactedText,
}

/// The parts of a new credential document.
#[derive(Debug)]
pub struct NewCredential<'a> {
    pub client_id: EntraClientId,
    pub object_id: Uuid,
    pub tenant: &'a EntraTenantId,
    /// The user-assigned identity; `None` for a system-assigned one.
    pub resource_id: Option<&'a ArmResourceId>,
    /// The region of the identity.
    pub location: &'a str,
    pub urls: CredentialUrls,
    pub custom_claims: CustomClaims,
    pub dates: CredentialDates,
    /// Key and certificates.
    pub bundle: &'a [u8],
}

impl NewCredential<'_> {
    pub fn into_document(self) -> ManagedIdentityCredential {
        let CredentialDates { validity, renew_after, cannot_renew_after } = self.dates;
        ManagedIdentityCredential {
            authentication_endpoint: self.urls.authentication_endpoint,
            cannot_renew_after,
            client_id: self.client_id,
            client_secret: RedactedText::new(STANDARD.encode(self.bundle)),
            client_secret_url: self.urls.client_secret_url,
            custom_claims: self.custom_claims,
            mtls_authentication_endpoint: format!(
                "https://{}.mtlsauth.microsoft.com/",
                self.location
            ),
            not_after: validity.not_after,
            not_before: validity.not_before,
            object_id: self.object_id,
            renew_after,
            resource_id: self.resource_id.cloned(),
            tenant_id: self.tenant.clone(),
        }
    }
}

impl ManagedIdentityCredential {
    pub const fn dates(&self) -> CredentialDates {
        CredentialDates {
            validity: CertificateValidityPeriod {
                not_before: self.not_before,
                not_after: self.not_after,
            },
            renew_after: self.renew_after,
            cannot_renew_after: self.cannot_renew_after,
        }
    }

    /// The document with the URLs of another cloud.
    #[must_use]
    pub fn with_urls(self, urls: CredentialUrls) -> Self {
        let CredentialUrls { authentication_endpoint, client_secret_url } = urls;
        Self { authentication_endpoint, client_secret_url, ..self }
    }

    pub const fn is_user_assigned(&self) -> bool {
        self.resource_id.is_some()
    }

    pub const fn custom_claims(&self) -> &CustomClaims {
        &self.custom_claims
    }

    /// The document as compact JSON.
    pub fn to_json(&self) -> Result<Zeroizing<Vec<u8>>, serde_json::Error> {
        serde_json::to_vec(self).map(Zeroizing::new)
    }
}

/// The URL that returns the current credential of a user-assigned identity. `data_plane` is the URL of the
/// service in its region.
pub fn user_assigned_secret_url(
    data_plane: &str,
    resource_id: &ArmResourceId,
    principal: (&EntraTenantId, Uuid, EntraClientId),
) -> String {
    let (tenant, object_id, client_id) = principal;
    format!(
        "{data_plane}{resource_id}/credentials?tid={tenant}\
         &oid={object_id}&aid={client_id}"
    )
}

/// The common name in the certificates of an identity.
pub fn certificate_subject(client: EntraClientId) -> String {
    client.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start_time;

    #[test]
    fn next_credential_begins_five_minutes_ago_and_after_the_last_one() {
        let now = start_time();
        let first = CredentialDates::following(None, now);
        assert_eq!(first.validity.not_before.to_string(), "2026-11-21T11:55:00Z");
        assert_eq!(first.renew_after, days_after(first.validity.not_before, 45));
        assert_eq!(first.validity.not_after, days_after(first.validity.not_before, 90));
        assert_eq!(first.cannot_renew_after, days_after(first.validity.not_before, 180));
        let second = CredentialDates::following(Some(first.validity.not_before), now);
        assert_eq!(second.validity.not_before.to_string(), "2026-11-21T11:55:01Z");
        let later = CredentialDates::following(Some(first.validity.not_before), first.renew_after);
        assert_eq!(later.validity.not_before.to_string(), "2027-01-05T11:50:00Z");
    }
}
