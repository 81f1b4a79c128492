//! Parsed views of X.509 certificates.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

/// An X.509 certificate in DER; base64 in the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DerCertificate(Vec<u8>);

/// A text is not a base64-encoded X.509 certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not base64 of an X.509 certificate")]
pub struct ParseDerCertificateError;

impl TryFrom<String> for DerCertificate {
    type Error = ParseDerCertificateError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let der = STANDARD.decode(text).ok().ok_or(ParseDerCertificateError)?;
        Self::parse(&der).ok_or(ParseDerCertificateError)
    }
}

impl From<DerCertificate> for String {
    fn from(certificate: DerCertificate) -> Self {
        STANDARD.encode(certificate.0)
    }
}

impl DerCertificate {
    /// A certificate in DER; `None` if it is malformed or something follows it.
    pub fn parse(der: &[u8]) -> Option<Self> {
        match X509Certificate::from_der(der) {
            Ok(([], _)) => Some(Self(der.to_vec())),
            _ => None,
        }
    }

    /// A certificate from the formats that clients send in `x5c`: base64 of DER, of PEM, or of base64.
    pub fn parse_x5c(text: &str) -> Option<Self> {
        let decode = |text: &[u8]| {
            let compact: Vec<_> =
                text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            STANDARD.decode(compact).ok()
        };
        let bytes = decode(text.as_bytes())?;
        Self::parse(&bytes)
            .or_else(|| Self::parse(&CertificateDer::from_pem_slice(&bytes).ok()?))
            .or_else(|| {
                let text = String::from_utf8(bytes).ok()?;
                let body = text.split("-----").find(|part| part.len() > 64)?;
                Self::parse(&decode(body.as_bytes())?)
            })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The parsed certificate. Parsing succeeded before.
    fn x509(&self) -> Option<X509Certificate<'_>> {
        X509Certificate::from_der(&self.0).ok().map(|(_, certificate)| certificate)
    }

    /// Calls `read` with the parsed certificate.
    pub fn read<T>(&self, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Option<T> {
        self.x509().map(|certificate| read(&certificate))
    }

    /// The `subjectPublicKey`.
    pub fn subject_public_key(&self) -> Option<Vec<u8>> {
        self.read(|certificate| certificate.public_key().subject_public_key.data.to_vec())
    }

    /// The first and the last second of the validity.
    pub fn validity(&self) -> Option<(Timestamp, Timestamp)> {
        let certificate = self.x509()?;
        let validity = certificate.validity();
        let time = |seconds| Timestamp::from_second(seconds).ok();
        Some((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
    }
}
