//! Errors of parsing a bundle.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;

use super::certificate::CertificateError;
use super::key::KeyError;
use super::pem::PemError;
use crate::detected_format::{DetectedFormat, DetectedInnerFormat};

/// The reason why the value of `client_secret` is not a usable bundle. Never contains any part of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The value is empty.
    #[error("the bundle is empty")]
    Empty,
    /// The text is PEM instead of base64 of PEM.
    #[error("the bundle is PEM text, not base64 of it")]
    PemNotEncoded,
    /// The text is not base64.
    #[error("the bundle is not base64 (character {position}), it looks like {looks_like}")]
    NotBase64 {
        /// The position of the first invalid character, counted from 1.
        position: usize,
        /// The detected format of the text.
        looks_like: DetectedFormat,
    },
    /// The decoded bytes are neither PEM nor PKCS#12.
    #[error("the bundle holds neither PEM nor PKCS#12, it looks like {looks_like}")]
    NotABundle {
        /// The detected format of the decoded bytes.
        looks_like: DetectedFormat,
    },
    /// The PEM text is malformed.
    #[error("the bundle's PEM text cannot be read")]
    Pem(#[source] PemError),
    /// The PKCS#12 archive cannot be opened.
    #[error("the bundle's PKCS#12 archive cannot be opened")]
    Pkcs12(#[source] Pkcs12Error),
    /// The bundle contains no private key.
    #[error("the bundle holds no private key")]
    NoPrivateKey,
    /// The private key in the PEM text is encrypted.
    #[error("the bundle's private key is encrypted")]
    EncryptedPrivateKey,
    /// The bundle contains more than one private key.
    #[error("the bundle holds {count} private keys, not one")]
    SeveralPrivateKeys {
        /// The number of private keys.
        count: usize,
    },
    /// The private key cannot be used.
    #[error("the bundle's private key cannot be used")]
    Key(#[source] KeyError),
    /// The bundle contains no certificate.
    #[error("the bundle holds no certificate")]
    NoCertificate,
    /// A certificate cannot be parsed.
    #[error("certificate {index} of the bundle cannot be read")]
    Certificate {
        /// The position of the certificate, counted from 1.
        index: usize,
        /// The parse error.
        #[source]
        source: CertificateError,
    },
    /// No certificate matches the private key.
    #[error("the private key belongs to none of the bundle's {certificates} certificates")]
    KeyMatchesNoCertificate {
        /// The number of certificates.
        certificates: usize,
    },
}

impl ErrorHint for BundleError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
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
            Self::Pem(source) => return source.hint(),
            Self::Pkcs12(source) => return source.hint(),
            Self::Key(source) => return source.hint(),
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
        }))
    }
}

/// Errors of opening a PKCS#12 archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Pkcs12Error {
    /// The archive does not open with the empty password.
    #[error("the archive is protected by a password")]
    PasswordNeeded,
    /// The archive does not open with the given password.
    #[error("the archive's password is another one")]
    WrongPassword,
    /// The archive exceeds the size limit.
    #[error("the archive has {bytes} bytes, and at most {limit} are read")]
    TooLarge {
        /// The size of the archive.
        bytes: usize,
        /// The size limit.
        limit: usize,
    },
    /// The archive has too many bags.
    #[error("the archive has more than {limit} keys, certificates and other parts")]
    TooManyBags {
        /// The most parts and bags of an archive.
        limit: usize,
    },
    /// The key derivations of the archive take too much time.
    #[error("the key derivations of the archive have more than {limit} iterations together")]
    TooManyIterations {
        /// The most iterations of an archive.
        limit: u32,
    },
    /// The archive derives keys with scrypt, whose cost it chooses itself.
    #[error("the archive derives its keys with scrypt, which is not supported")]
    Scrypt,
    /// The archive uses an unsupported algorithm or content type.
    #[error("the archive uses an unsupported algorithm or kind of content")]
    Unsupported,
    /// The archive's private key is malformed.
    #[error("the archive's private key cannot be read")]
    PrivateKey,
    /// The archive is malformed.
    #[error("the archive is damaged")]
    Malformed,
    /// The crate was built without the `pkcs12` feature.
    #[error("this program was built without PKCS#12 support")]
    NotBuiltIn,
}

impl ErrorHint for Pkcs12Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::PasswordNeeded => {
                "export PKCS#12 with an empty password, as Key Vault does, or write PEM"
            }
            Self::WrongPassword => "give the archive's password, or write PEM",
            Self::Unsupported | Self::PrivateKey | Self::Malformed => {
                "export the archive again, with AES-256 and SHA-256, or write PEM"
            }
            Self::TooLarge { .. } | Self::TooManyBags { .. } => {
                "keep the certificate, its private key and its issuers, and remove the rest"
            }
            Self::TooManyIterations { .. } | Self::Scrypt => {
                "export the archive again with PBKDF2 and fewer iterations, for example with \
                 `openssl pkcs12 -export -iter 2048 -keypbe AES-256-CBC -certpbe AES-256-CBC`"
            }
            Self::NotBuiltIn => "write PEM, or build with the feature `pkcs12`",
        }))
    }
}
