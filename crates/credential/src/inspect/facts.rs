//! The content of a file, in a form for tables, JSON and YAML.

use jiff::Timestamp;
use serde::Serialize;

use crate::bundle::{BundleFormat, Certificate, CertificateBundle, CertificateValidity, KeyKind};
use crate::document::{CredentialTimestamps, CustomClaims, DocumentFields};
use crate::identity::{Authority, ClientId, TenantId};

/// The fields of the JSON document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DocumentFacts {
    /// The known keys that are present and not `null`, in document order.
    pub keys: Vec<&'static str>,
    /// The unknown keys.
    pub unknown_keys: Vec<String>,
    /// The application (client) id of the identity.
    pub client_id: Option<ClientId>,
    /// The tenant of the identity.
    pub tenant_id: Option<TenantId>,
    /// The base URL of the token service.
    pub authentication_endpoint: Option<Authority>,
    /// The cloud of the token service, if it is a known one.
    pub cloud: Option<&'static str>,
    /// The token endpoint.
    pub token_endpoint: Option<String>,
    /// The object id of the service principal.
    pub object_id: Option<String>,
    /// The ARM resource id of the identity.
    pub resource_id: Option<String>,
    /// The host of the mutual TLS endpoint.
    pub mtls_authentication_endpoint: Option<String>,
    /// The claims that Entra adds to the identity's tokens.
    pub custom_claims: Option<CustomClaims>,
}

impl DocumentFacts {
    pub(super) fn of(fields: &DocumentFields) -> Self {
        let authority = fields.authentication_endpoint.clone();
        let endpoint = authority
            .as_ref()
            .zip(fields.tenant_id.as_ref())
            .map(|(authority, tenant)| authority.token_endpoint(tenant).to_string());
        Self {
            keys: fields.keys.clone(),
            unknown_keys: fields.unknown_keys.clone(),
            client_id: fields.client_id.clone(),
            tenant_id: fields.tenant_id.clone(),
            cloud: authority.as_ref().and_then(cloud_name),
            authentication_endpoint: authority,
            token_endpoint: endpoint,
            object_id: fields.object_id.clone(),
            resource_id: fields.resource_id.clone(),
            mtls_authentication_endpoint: fields.mtls_authentication_endpoint.clone(),
            custom_claims: fields.custom_claims.clone(),
        }
    }
}

/// The cloud of a token service, by its host or a regional form of it.
pub(super) fn cloud_name(authority: &Authority) -> Option<&'static str> {
    let host = authority.as_url().host_str()?;
    let serves = |known: &str| {
        host.strip_suffix(known).is_some_and(|region| region.is_empty() || region.ends_with('.'))
    };
    CLOUDS.iter().find(|(known, _)| serves(known)).map(|(_, cloud)| *cloud)
}

/// The hosts that MSAL knows (microsoft-authentication-library-for-go 1.7).
const CLOUDS: [(&str, &str); 14] = [
    ("login.microsoftonline.com", "AzurePublicCloud"),
    ("login.windows.net", "AzurePublicCloud"),
    ("login.microsoft.com", "AzurePublicCloud"),
    ("sts.windows.net", "AzurePublicCloud"),
    ("login.partner.microsoftonline.cn", "AzureChinaCloud"),
    ("login.chinacloudapi.cn", "AzureChinaCloud"),
    ("login.microsoftonline.us", "AzureUSGovernmentCloud"),
    ("login.usgovcloudapi.net", "AzureUSGovernmentCloud"),
    ("login-us.microsoftonline.com", "AzureUSGovernmentCloud"),
    ("login.sovcloud-identity.fr", "AzureBleuCloud"),
    ("login.sovcloud-identity.de", "AzureDelosCloud"),
    ("login.sovcloud-identity.sg", "AzureGovSGCloud"),
    ("login.microsoftonline.de", "AzureGermanCloud"),
    ("login.cloudapi.de", "AzureGermanCloud"),
];

/// The content of `client_secret`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BundleFacts {
    /// The encoding of the bundle, if it is usable.
    pub format: Option<BundleFormat>,
    /// The private key, if it is usable. The first certificate matches it then.
    pub key: Option<KeyFacts>,
    /// The certificates: the leaf first if the bundle is usable, else in file order.
    pub certificates: Vec<CertificateFacts>,
}

/// The kind of a bundle's private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KeyFacts {
    /// `RSA` or `EC`.
    pub kind: &'static str,
    /// The length of an RSA key's modulus in bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<usize>,
    /// The curve of an EC key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<String>,
}

/// One certificate of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CertificateFacts {
    /// The subject's distinguished name.
    pub subject: String,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// The validity period.
    #[serde(flatten)]
    pub validity: CertificateValidity,
    /// The SHA-256 digest of the DER form, in upper-case hexadecimal.
    pub sha256: String,
    /// The SHA-1 digest of the DER form, in upper-case hexadecimal: the thumbprint in the Azure portal.
    pub sha1: String,
}

impl BundleFacts {
    pub(super) fn of(bundle: &CertificateBundle) -> Self {
        let key = match bundle.key_kind() {
            KeyKind::Rsa { bits } => KeyFacts { kind: "RSA", bits: Some(bits), curve: None },
            KeyKind::Ec { curve } => {
                KeyFacts { kind: "EC", bits: None, curve: Some(curve.to_string()) }
            }
        };
        Self {
            format: Some(bundle.format()),
            key: Some(key),
            certificates: bundle.chain().iter().map(CertificateFacts::of).collect(),
        }
    }

    pub(super) fn from_certificates_only(certificates: Vec<Certificate>) -> Self {
        let certificates = certificates.iter().map(CertificateFacts::of).collect();
        Self { format: None, key: None, certificates }
    }

    /// The validity of the leaf, if the leaf is known.
    pub(super) fn leaf_validity(&self) -> Option<CertificateValidity> {
        self.key.as_ref()?;
        self.certificates.first().map(|leaf| leaf.validity)
    }
}

impl CertificateFacts {
    fn of(certificate: &Certificate) -> Self {
        Self {
            subject: certificate.subject().to_owned(),
            issuer: certificate.issuer().to_owned(),
            validity: certificate.validity(),
            sha256: certificate.sha256().to_string(),
            sha1: certificate.sha1().to_string(),
        }
    }
}

/// The timestamps of a credential and the seconds until each; negative if it has passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TimeFacts {
    /// The four timestamps of the document.
    #[serde(flatten)]
    pub timestamps: CredentialTimestamps,
    /// The end of the document's or of the leaf's validity, whichever is known and earlier.
    pub expires_at: Option<Timestamp>,
    /// Seconds until `expires_at`.
    pub seconds_to_expiry: Option<i64>,
    /// Seconds until `renew_after`.
    pub seconds_to_renew_after: Option<i64>,
    /// Seconds until `cannot_renew_after`.
    pub seconds_to_cannot_renew_after: Option<i64>,
}

impl TimeFacts {
    pub(super) fn of(
        stamps: &CredentialTimestamps,
        leaf: Option<CertificateValidity>,
        now: Timestamp,
    ) -> Self {
        let until = |stamp: Timestamp| stamp.as_second().saturating_sub(now.as_second());
        let ends = [stamps.not_after, leaf.map(|validity| validity.not_after)];
        let expires_at = ends.into_iter().flatten().min();
        Self {
            timestamps: *stamps,
            expires_at,
            seconds_to_expiry: expires_at.map(until),
            seconds_to_renew_after: stamps.renew_after.map(until),
            seconds_to_cannot_renew_after: stamps.cannot_renew_after.map(until),
        }
    }
}
