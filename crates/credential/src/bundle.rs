//! The certificate bundle in `client_secret`: one private key and its certificates.
//!
//! Public documentation describes the field as base64 of PEM in one place and as base64 of PKCS#12 in
//! another, and both occur: Key Vault exports PKCS#12, and the CSI provider converts it to PEM. This parser
//! accepts both, and everything that msi-dataplane v0.4.3 accepts.

mod certificate;
pub(crate) mod encoding;
mod error;
mod key;
mod pem;
#[cfg(feature = "pkcs12")]
mod pkcs12;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;
use zeroize::Zeroizing;

pub use certificate::{Certificate, CertificateError, CertificateValidity, Thumbprint};
pub use error::{BundleError, Pkcs12Error};
pub use key::{Curve, KeyError, KeyKind};
pub use pem::PemError;
#[cfg(feature = "pkcs12")]
pub use pkcs12::Pkcs12Archive;

pub(crate) use key::PrivateKey;

use crate::detected_format::{self, DetectedFormat};
use crate::secret::SecretText;
use key::KeyEncoding;

/// A private key and its certificate chain, leaf first.
///
/// A bundle cannot be cloned, serialized or printed; `Debug` shows only the leaf's thumbprint. This crate
/// wipes its copies of the key, and the crypto library wipes the parsed key.
pub struct CertificateBundle {
    key: PrivateKey,
    chain: Vec<Certificate>,
    format: BundleFormat,
    warnings: Vec<BundleWarning>,
}

/// The encoding of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum BundleFormat {
    /// PEM sections.
    #[serde(rename = "PEM")]
    Pem,
    /// PKCS#12, also called PFX.
    #[serde(rename = "PKCS#12")]
    Pkcs12,
}

impl fmt::Display for BundleFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Pem => "PEM",
            Self::Pkcs12 => "PKCS#12",
        })
    }
}

/// An irregularity that the parser tolerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BundleWarning {
    /// The base64 text contains white space.
    Base64LineBreaks,
    /// The base64 text has no padding. Go readers reject it.
    Base64Unpadded,
    /// The base64 text uses the URL alphabet. Go readers reject it.
    Base64UrlAlphabet,
    /// The leaf certificate was not first; the parser moved it to the front.
    LeafNotFirst,
    /// Several certificates match the key; the parser uses the first one as the leaf.
    SeveralLeaves,
    /// A certificate occurs more than once; the credential sends it once.
    RepeatedCertificate,
    /// The parser ignored PEM sections that are neither keys nor certificates.
    SectionsPassedOver,
    /// The PKCS#12 archive uses AES or SHA-256, which msi-dataplane v0.4.3 cannot open.
    ModernPkcs12,
}

impl fmt::Display for BundleWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Base64LineBreaks => "the base64 text holds line breaks",
            Self::Base64Unpadded => "the base64 text has no padding; Go readers refuse it",
            Self::Base64UrlAlphabet => {
                "the base64 text uses the url alphabet; Go readers refuse it"
            }
            Self::LeafNotFirst => "the leaf certificate is not first",
            Self::SeveralLeaves => "several certificates belong to the private key",
            Self::RepeatedCertificate => "a certificate occurs more than once",
            Self::ModernPkcs12 => {
                "the PKCS#12 archive uses AES or SHA-256; msi-dataplane v0.4.3 cannot open it"
            }
            Self::SectionsPassedOver => {
                "PEM sections other than keys and certificates were ignored"
            }
        })
    }
}

impl CertificateBundle {
    /// Parses the value of `client_secret`: base64 of PEM or of PKCS#12 with an empty password.
    ///
    /// # Errors
    ///
    /// Returns a [`BundleError`] with the reason; its hint advises how to fix the bundle.
    pub fn parse(client_secret: &SecretText) -> Result<Self, BundleError> {
        Self::parse_with_password(client_secret, None)
    }

    /// Like [`CertificateBundle::parse`], for a PKCS#12 archive that is protected by a password.
    ///
    /// # Errors
    ///
    /// Returns a [`BundleError`], like [`CertificateBundle::parse`].
    pub fn parse_with_password(
        client_secret: &SecretText,
        password: Option<&SecretText>,
    ) -> Result<Self, BundleError> {
        let (parts, warnings) = Self::decode_parts(client_secret, password)?;
        Self::assemble(parts, warnings)
    }

    /// Returns the certificates of a bundle in file order, even if the rest of the bundle is unusable.
    pub(crate) fn certificates_of(
        client_secret: &SecretText,
        password: Option<&SecretText>,
    ) -> Vec<Certificate> {
        let Ok((parts, _)) = Self::decode_parts(client_secret, password) else { return Vec::new() };
        parts.certificates.iter().filter_map(|der| Certificate::parse(der).ok()).collect()
    }

    fn decode_parts(
        client_secret: &SecretText,
        password: Option<&SecretText>,
    ) -> Result<(BundleParts, Vec<BundleWarning>), BundleError> {
        let text = client_secret.expose().as_bytes();
        // Every PEM character is also a base64 character, so the decoder cannot detect this case.
        if DetectedFormat::of(text) == DetectedFormat::Pem {
            return Err(BundleError::PemNotEncoded);
        }
        let decoded = match encoding::decode(text) {
            Ok(decoded) if decoded.bytes.is_empty() => return Err(BundleError::Empty),
            Ok(decoded) => decoded,
            Err(fault) => {
                let looks_like = DetectedFormat::of(text);
                return Err(BundleError::NotBase64 { position: fault.position + 1, looks_like });
            }
        };
        Ok((BundleParts::parse(&decoded.bytes, password)?, decoded.warnings))
    }

    fn assemble(parts: BundleParts, mut warnings: Vec<BundleWarning>) -> Result<Self, BundleError> {
        let key = match parts.keys.as_slice() {
            [(form, der)] => PrivateKey::parse(*form, der).map_err(BundleError::Key)?,
            [] if parts.encrypted_key => return Err(BundleError::EncryptedPrivateKey),
            [] => return Err(BundleError::NoPrivateKey),
            keys => return Err(BundleError::SeveralPrivateKeys { count: keys.len() }),
        };
        warnings.extend(parts.warnings);
        let mut chain: Vec<Certificate> = Vec::with_capacity(parts.certificates.len());
        for (index, der) in parts.certificates.iter().enumerate() {
            let certificate = Certificate::parse(der)
                .map_err(|source| BundleError::Certificate { index: index + 1, source })?;
            if chain.contains(&certificate) {
                warnings.push(BundleWarning::RepeatedCertificate);
            } else {
                chain.push(certificate);
            }
        }
        warnings.extend(move_leaf_first(&mut chain, key.public_key())?);
        warnings.dedup();
        Ok(Self { key, chain, format: parts.format, warnings })
    }

    /// The certificate chain: the leaf first, the others in file order. Never empty.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// The certificate that belongs to the private key.
    pub fn leaf(&self) -> &Certificate {
        &self.chain[0]
    }

    /// The kind of the private key.
    pub fn key_kind(&self) -> KeyKind {
        self.key.kind()
    }

    /// The encoding of the bundle.
    pub fn format(&self) -> BundleFormat {
        self.format
    }

    /// The irregularities that the parser tolerated.
    pub fn warnings(&self) -> &[BundleWarning] {
        &self.warnings
    }

    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }
}

impl fmt::Debug for CertificateBundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CertificateBundle(*** {})", self.leaf().sha256())
    }
}

/// Moves the certificate that holds `public_key` to the front; the others keep their order.
fn move_leaf_first(
    chain: &mut [Certificate],
    public_key: &[u8],
) -> Result<Vec<BundleWarning>, BundleError> {
    if chain.is_empty() {
        return Err(BundleError::NoCertificate);
    }
    let is_leaf = |certificate: &Certificate| certificate.public_key() == public_key;
    let Some(position) = chain.iter().position(is_leaf) else {
        return Err(BundleError::KeyMatchesNoCertificate { certificates: chain.len() });
    };
    let mut warnings = Vec::new();
    if chain.iter().filter(|certificate| is_leaf(certificate)).count() > 1 {
        warnings.push(BundleWarning::SeveralLeaves);
    }
    if position > 0 {
        warnings.push(BundleWarning::LeafNotFirst);
        chain[..=position].rotate_right(1);
    }
    Ok(warnings)
}

/// The position of the first of these certificates (DER) that belongs to the private key (PKCS#8), if the key
/// can be parsed and one does.
pub fn leaf_position(key: &[u8], certificates: &[&[u8]]) -> Option<usize> {
    let key = PrivateKey::parse(KeyEncoding::Pkcs8, key).ok()?;
    certificates.iter().position(|der| {
        Certificate::parse(der).is_ok_and(|parsed| parsed.public_key() == key.public_key())
    })
}

/// The members of a bundle before they are checked.
struct BundleParts {
    format: BundleFormat,
    keys: Vec<(KeyEncoding, Zeroizing<Vec<u8>>)>,
    encrypted_key: bool,
    certificates: Vec<Vec<u8>>,
    warnings: Vec<BundleWarning>,
}

impl BundleParts {
    fn parse(bytes: &[u8], password: Option<&SecretText>) -> Result<Self, BundleError> {
        if detected_format::is_pkcs12(bytes) {
            return Self::read_pkcs12(bytes, password);
        }
        let looks_like = DetectedFormat::of(bytes);
        match looks_like {
            DetectedFormat::Pem => Self::parse_pem(bytes),
            _ => Err(BundleError::NotABundle { looks_like }),
        }
    }

    fn parse_pem(text: &[u8]) -> Result<Self, BundleError> {
        let mut parts = Self::empty(BundleFormat::Pem);
        for section in pem::parse_sections(text).map_err(BundleError::Pem)? {
            let form = match section.label {
                b"CERTIFICATE" | b"X509 CERTIFICATE" => {
                    parts.certificates.push(section.der.to_vec());
                    continue;
                }
                b"PRIVATE KEY" => KeyEncoding::Pkcs8,
                b"RSA PRIVATE KEY" => KeyEncoding::Pkcs1,
                b"EC PRIVATE KEY" => KeyEncoding::Sec1,
                b"ENCRYPTED PRIVATE KEY" => {
                    parts.encrypted_key = true;
                    continue;
                }
                // OpenSSL writes the curve's name before an EC key.
                b"EC PARAMETERS" => continue,
                _ => {
                    parts.warnings.push(BundleWarning::SectionsPassedOver);
                    continue;
                }
            };
            if section.encrypted {
                parts.encrypted_key = true;
            } else {
                parts.keys.push((form, section.der));
            }
        }
        Ok(parts)
    }

    #[cfg(feature = "pkcs12")]
    fn read_pkcs12(bytes: &[u8], password: Option<&SecretText>) -> Result<Self, BundleError> {
        let archive = Pkcs12Archive::open(bytes, password).map_err(BundleError::Pkcs12)?;
        let mut parts = Self::empty(BundleFormat::Pkcs12);
        parts.keys = archive.keys.into_iter().map(|der| (KeyEncoding::Pkcs8, der)).collect();
        parts.certificates = archive.certificates;
        if pkcs12::is_modern(bytes) {
            parts.warnings.push(BundleWarning::ModernPkcs12);
        }
        Ok(parts)
    }

    #[cfg(not(feature = "pkcs12"))]
    fn read_pkcs12(_bytes: &[u8], _password: Option<&SecretText>) -> Result<Self, BundleError> {
        Err(BundleError::Pkcs12(Pkcs12Error::NotBuiltIn))
    }

    fn empty(format: BundleFormat) -> Self {
        Self {
            format,
            keys: Vec::new(),
            encrypted_key: false,
            certificates: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
