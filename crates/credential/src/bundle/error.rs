//! Why a bundle was refused.

use super::certificate::CertificateError;
use super::key::KeyError;
use super::pem::PemError;
use crate::detected_format::{DetectedFormat, DetectedInnerFormat};

/// Why the value of `client_secret` is not a usable bundle. It never holds any of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// There is nothing.
    #[error("the bundle is empty")]
    Empty,
    /// The text is PEM itself, not base64 of it.
    #[error("the bundle is PEM text, not base64 of it")]
    PemNotEncoded,
    /// The text is not base64.
    #[error("the bundle is not base64 (character {position}), it looks like {looks_like}")]
    NotBase64 {
        /// The first character in question, counted from 1.
        position: usize,
        /// What the text looks like.
        looks_like: DetectedFormat,
    },
    /// The base64 text holds neither PEM nor PKCS#12.
    #[error("the bundle holds neither PEM nor PKCS#12, it looks like {looks_like}")]
    NotABundle {
        /// What the decoded bytes look like.
        looks_like: DetectedFormat,
    },
    /// The PEM text is damaged.
    #[error("the bundle's PEM text cannot be read")]
    Pem(#[source] PemError),
    /// The PKCS#12 archive cannot be opened.
    #[error("the bundle's PKCS#12 archive cannot be opened")]
    Pkcs12(#[source] Pkcs12Error),
    /// There is no private key.
    #[error("the bundle holds no private key")]
    NoPrivateKey,
    /// The private key in the PEM text is encrypted.
    #[error("the bundle's private key is encrypted")]
    EncryptedPrivateKey,
    /// There is more than one private key.
    #[error("the bundle holds {count} private keys, not one")]
    SeveralPrivateKeys {
        /// How many.
        count: usize,
    },
    /// The private key cannot be used.
    #[error("the bundle's private key cannot be used")]
    Key(#[source] KeyError),
    /// There is no certificate.
    #[error("the bundle holds no certificate")]
    NoCertificate,
    /// A certificate cannot be read.
    #[error("certificate {index} of the bundle cannot be read")]
    Certificate {
        /// Which one, counted from 1.
        index: usize,
        /// Why.
        #[source]
        source: CertificateError,
    },
    /// No certificate has the private key's public half.
    #[error("the private key belongs to none of the bundle's {certificates} certificates")]
    KeyMatchesNoCertificate {
        /// How many certificates there are.
        certificates: usize,
    },
}

impl BundleError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::PemNotEncoded => {
                "base64-encode the whole PEM text once more before writing it to client_secret"
            }
            Self::NotABundle { looks_like: DetectedFormat::Base64(_) } => {
                "the value was base64-encoded twice; encode the PEM or PKCS#12 file once"
            }
            Self::NotABundle { looks_like: DetectedFormat::Der } => {
                "DER alone has no place for a key: encode PEM or PKCS#12 with certificate and key"
            }
            Self::NotBase64 {
                looks_like:
                    DetectedFormat::Hex(DetectedInnerFormat::Pem | DetectedInnerFormat::Pkcs12),
                ..
            } => "the value is hexadecimal; write it as base64",
            Self::Empty | Self::NotBase64 { .. } | Self::NotABundle { .. } => {
                "write base64 of a PEM or PKCS#12 file with certificate and private key"
            }
            Self::Pem(source) => source.hint(),
            Self::Pkcs12(source) => source.hint(),
            Self::Key(source) => source.hint(),
            Self::NoPrivateKey => "export the certificate together with its private key",
            Self::EncryptedPrivateKey => {
                "write the private key without a passphrase: no reader of this file can ask for one"
            }
            Self::SeveralPrivateKeys { .. } => {
                "keep the private key of the leaf certificate and remove the others"
            }
            Self::NoCertificate => "add the certificate chain, leaf included, to the private key",
            Self::Certificate { .. } => "export the certificate again; it was cut or changed",
            Self::KeyMatchesNoCertificate { .. } => {
                "put the certificate that was issued for this private key into the bundle"
            }
        }
    }
}

/// Why a PKCS#12 archive cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Pkcs12Error {
    /// The archive does not open with the empty password.
    #[error("the archive is protected by a password")]
    PasswordNeeded,
    /// The archive does not open with the password given.
    #[error("the archive's password is another one")]
    WrongPassword,
    /// The archive uses an algorithm or a kind of content that is not known.
    #[error("the archive uses an unsupported algorithm or kind of content")]
    Unsupported,
    /// The archive's private key is damaged.
    #[error("the archive's private key cannot be read")]
    PrivateKey,
    /// The archive is damaged.
    #[error("the archive is damaged")]
    Malformed,
    /// The program was built without PKCS#12.
    #[error("this program was built without PKCS#12 support")]
    NotBuiltIn,
}

impl Pkcs12Error {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::PasswordNeeded => {
                "export PKCS#12 with an empty password, as Key Vault does, or write PEM"
            }
            Self::WrongPassword => "give the archive's password, or write PEM",
            Self::Unsupported | Self::PrivateKey | Self::Malformed => {
                "export the archive again, with AES-256 and SHA-256, or write PEM"
            }
            Self::NotBuiltIn => "write PEM, or build with the feature `pkcs12`",
        }
    }
}
