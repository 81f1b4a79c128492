//! An X.509 certificate: its DER bytes and the fields that this crate uses.

use std::fmt;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use jiff::Timestamp;
use serde::Serialize;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate of a bundle. It is public and may be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Box<[u8]>,
    subject: Box<str>,
    issuer: Box<str>,
    validity: CertificateValidity,
    public_key: Box<[u8]>,
}

/// The validity period of a certificate. Both ends are inclusive (RFC 5280, 4.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateValidity {
    /// The first valid second.
    pub not_before: Timestamp,
    /// The last valid second.
    pub not_after: Timestamp,
}

impl CertificateValidity {
    /// Whether the certificate is valid at `now`.
    pub fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// Errors of parsing a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The bytes are not a DER certificate.
    #[error("not a DER encoded x509 certificate")]
    NotDer,
    /// More bytes follow the certificate.
    #[error("{count} bytes follow the certificate")]
    TrailingBytes {
        /// The number of extra bytes.
        count: usize,
    },
    /// A validity date is outside the range that [`Timestamp`] represents.
    #[error("the validity dates are out of range")]
    Validity,
}

impl Certificate {
    /// Parses a DER-encoded certificate.
    pub(crate) fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        let Ok((rest, certificate)) = X509Certificate::from_der(der) else {
            return Err(CertificateError::NotDer);
        };
        if !rest.is_empty() {
            return Err(CertificateError::TrailingBytes { count: rest.len() });
        }
        let seconds = certificate.validity();
        let not_before = Timestamp::from_second(seconds.not_before.timestamp());
        let not_after = Timestamp::from_second(seconds.not_after.timestamp());
        let (Ok(not_before), Ok(not_after)) = (not_before, not_after) else {
            return Err(CertificateError::Validity);
        };
        Ok(Self {
            der: der.into(),
            subject: certificate.subject().to_string().into(),
            issuer: certificate.issuer().to_string().into(),
            validity: CertificateValidity { not_before, not_after },
            public_key: certificate.public_key().subject_public_key.data.as_ref().into(),
        })
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The subject's distinguished name.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The issuer's distinguished name.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The validity period.
    pub fn validity(&self) -> CertificateValidity {
        self.validity
    }

    /// The SHA-256 digest of the DER form, which `x5t#S256` carries (RFC 7515, 4.1.8).
    pub fn sha256(&self) -> Thumbprint {
        Thumbprint(digest(&SHA256, &self.der).as_ref().into())
    }

    /// The SHA-1 digest of the DER form, which the Azure portal and CLI call the thumbprint.
    pub fn sha1(&self) -> Thumbprint {
        Thumbprint::sha1_of(&self.der)
    }

    /// The public key, as in the certificate's bit string.
    pub(crate) fn public_key(&self) -> &[u8] {
        &self.public_key
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Certificate")
            .field("subject", &self.subject)
            .field("issuer", &self.issuer)
            .field("validity", &self.validity)
            .field("sha256", &format_args!("{}", self.sha256()))
            .finish_non_exhaustive()
    }
}

/// The digest of a certificate. Displays as upper-case hexadecimal, as in Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thumbprint(Box<[u8]>);

impl Thumbprint {
    /// The SHA-1 digest of a certificate in DER.
    pub fn sha1_of(der: &[u8]) -> Self {
        Self(digest(&SHA1_FOR_LEGACY_USE_ONLY, der).as_ref().into())
    }

    /// The digest's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02X}"))
    }
}
