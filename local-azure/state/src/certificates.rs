//! Helpers for certificates: validity on the emulator's clock, and self-signed signing certificates.

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{Span, Timestamp};
use lanyard_vocabulary::EntraTenantId;
use rcgen::{CertificateParams, DistinguishedName, DnType, PKCS_RSA_SHA256, date_time_ymd};
use rustls_pki_types::PrivatePkcs8KeyDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::directory::{Tenant, TenantSigningKey, TenantSigningKeys};
use crate::keys::RsaKey;

/// The certificate of a signing key could not be created.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of `{name}` could not be made")]
pub struct TenantCertificateError {
    /// The common name of the certificate.
    pub name: String,
    /// The cause.
    #[source]
    pub source: rcgen::Error,
}

/// Sets the validity of a certificate to whole seconds.
pub fn set_validity(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let moment = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or(0);
        date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = moment(from);
    params.not_after = moment(until);
}

/// `time` moved by whole days; unchanged beyond the range of [`Timestamp`].
pub fn days_after(time: Timestamp, days: i64) -> Timestamp {
    time.checked_add(Span::new().hours(days * 24)).unwrap_or(time)
}

/// A subject with a common name only.
pub fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// Converts a key to a key pair of rcgen.
pub(crate) fn rcgen_key_pair(key: &RsaKey) -> Result<rcgen::KeyPair, rcgen::Error> {
    let der = PrivatePkcs8KeyDer::from(key.pkcs8());
    rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_RSA_SHA256)
}

/// Parses a certificate in DER; `None` if it is malformed or bytes follow it.
pub fn parse_certificate(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().and_then(|(rest, parsed)| rest.is_empty().then_some(parsed))
}

/// The SHA-1 thumbprint of a certificate: `x5t`, and the `kid` of Entra's keys.
pub fn sha1_thumbprint(certificate: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate).as_ref().to_vec()
}

/// The SHA-256 thumbprint of a certificate: `x5t#S256`.
pub fn sha256_thumbprint(certificate: &[u8]) -> Vec<u8> {
    digest(&SHA256, certificate).as_ref().to_vec()
}

impl TenantSigningKey {
    /// Creates the self-signed certificate of a key.
    pub fn new(key: RsaKey, now: Timestamp) -> Result<Self, TenantCertificateError> {
        // The name in the certificates of Entra's own keys.
        const NAME: &str = "accounts.accesscontrol.windows.net";
        let failed = |source| TenantCertificateError { name: NAME.to_owned(), source };
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(NAME);
        set_validity(&mut params, days_after(now, -1), days_after(now, 5 * 365));
        let pair = rcgen_key_pair(&key).map_err(failed)?;
        let certificate = params.self_signed(&pair).map_err(failed)?.der().to_vec();
        let key_id = URL_SAFE_NO_PAD.encode(sha1_thumbprint(&certificate));
        Ok(Self { key_id, key, certificate })
    }
}

impl Tenant {
    /// Creates a tenant that signs tokens with `key`.
    pub fn new(
        id: EntraTenantId,
        domains: Vec<String>,
        key: RsaKey,
        now: Timestamp,
    ) -> Result<Self, TenantCertificateError> {
        let signing_keys = TenantSigningKeys::new(TenantSigningKey::new(key, now)?);
        Ok(Self { id, domains, signing_keys })
    }
}
