//! Which bytes an object of a vault becomes.

use lanyard_api::{ObjectEntry, ObjectFormat};
use lanyard_vocabulary::ObjectEncoding;

use crate::encoding::{self, DecodeValueError};
use crate::fetch::VaultObject;
use crate::memory::length_of;
use crate::pem::{CERTIFICATE, PUBLIC_KEY, PemWriter};
use crate::pkcs12::{self, PfxError};
use crate::public_key::{self, PublicKeyError};
use crate::secret_bytes::SecretBytes;
use crate::separate::{Separated, separate};
use crate::source::VaultSecret;

/// An object of a vault cannot become the file that its entry asks for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// The value is not in the encoding that `objectEncoding` names.
    #[error(transparent)]
    Encoding(#[from] DecodeValueError),
    /// The content type of a certificate's secret is none that is known.
    #[error("a certificate's secret has {}", described(content_type.as_deref()))]
    ContentType {
        /// `contentType`.
        content_type: Option<String>,
    },
    /// The value is no PKCS#12 archive that can be read.
    #[error("the value cannot be converted to PEM")]
    Pfx(#[source] PfxError),
    /// A certificate's secret is told to be in an encoding that its content type never has.
    #[error("`objectEncoding: {encoding}` does not go with the content type `{content_type}`")]
    EncodingOfCertificate {
        /// `objectEncoding`.
        encoding: ObjectEncoding,
        /// The content type.
        content_type: &'static str,
    },
    /// The key has no public file.
    #[error("the key cannot be written as PEM")]
    Key(#[source] PublicKeyError),
    /// The certificate is empty.
    #[error("the vault gave no certificate")]
    NoCertificate,
}

impl ContentError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Encoding(DecodeValueError { seems: Some(seems), .. }) => {
                format!("the value looks like {seems}: set objectEncoding to `{seems}`")
            }
            Self::Encoding(error) => {
                format!("store the value as {}, or correct objectEncoding", error.encoding)
            }
            Self::ContentType { .. } => {
                format!("the certificate has to have the content type `{PEM_FILE}` or `{PKCS12}`")
            }
            Self::Pfx(PfxError::Archive { .. }) => {
                "the vault exports archives without a password; import the certificate anew, or \
                 ask for objectFormat pfx and convert it elsewhere"
                    .to_owned()
            }
            Self::Pfx(PfxError::Chain(_)) => {
                "correct the certificate's chain, or switch the ordering of chains off".to_owned()
            }
            Self::Pfx(_) => {
                "see the certificate in the vault: its secret is not what it says".to_owned()
            }
            Self::EncodingOfCertificate { .. } => "leave objectEncoding out".to_owned(),
            Self::Key(_) => "keys of RSA and on P-256, P-384 and P-521 can be mounted".to_owned(),
            Self::NoCertificate => "see whether the certificate's creation is finished".to_owned(),
        })
    }
}

fn described(content_type: Option<&str>) -> String {
    content_type.map_or_else(
        || "no content type".to_owned(),
        |found| format!("the unknown content type `{found}`"),
    )
}

/// How certificates' secrets are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateOptions {
    /// Order the chain of a converted PKCS#12 archive: leaf, intermediates, root.
    pub construct_pem_chain: bool,
    /// Write `<file>.crt` and `<file>.key` beside each certificate's secret.
    pub separate: bool,
}

impl Default for CertificateOptions {
    /// As upstream: chains are ordered, and nothing is written beside.
    fn default() -> Self {
        Self { construct_pem_chain: true, separate: false }
    }
}

/// The bytes of one object. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) bytes: SecretBytes,
    pub(crate) separated: Option<Separated>,
    /// How many of how many certificates are linked to the leaf, if not all are.
    pub(crate) incomplete_chain: Option<(usize, usize)>,
}

impl Content {
    /// How many bytes it takes beside the object that it was made from.
    pub(crate) fn taken_beside(&self, object: &VaultObject) -> u64 {
        let is_shared = matches!(object, VaultObject::Secret(secret)
            if std::ptr::eq(secret.value.expose(), self.bytes.expose()));
        let own = if is_shared { 0 } else { self.bytes.len() };
        let separated = self.separated.as_ref();
        let separated = separated.map_or(0, |it| it.certificates.len() + it.others.len());
        length_of(own.saturating_add(separated))
    }
}

impl From<SecretBytes> for Content {
    fn from(bytes: SecretBytes) -> Self {
        Self { bytes, separated: None, incomplete_chain: None }
    }
}

/// The bytes that `object` becomes by `entry`.
pub(crate) fn content_of(
    entry: &ObjectEntry,
    object: &VaultObject,
    options: CertificateOptions,
) -> Result<Content, ContentError> {
    match object {
        VaultObject::Secret(secret) if secret.of_certificate => {
            certificate_secret(entry, secret, options)
        }
        VaultObject::Secret(secret) => Ok(decoded(&secret.value, entry)?.into()),
        VaultObject::Key(key) => {
            let der = public_key::subject_public_key_info(&key.key).map_err(ContentError::Key)?;
            Ok(pem_of(PUBLIC_KEY, &der).into())
        }
        VaultObject::Certificate(certificate) if certificate.der.is_empty() => {
            Err(ContentError::NoCertificate)
        }
        VaultObject::Certificate(certificate) => Ok(pem_of(CERTIFICATE, &certificate.der).into()),
    }
}

/// The secret side of a certificate: key and chain.
fn certificate_secret(
    entry: &ObjectEntry,
    secret: &VaultSecret,
    options: CertificateOptions,
) -> Result<Content, ContentError> {
    match known_content_type(secret.content_type.as_deref()) {
        Some(PEM_FILE) => {
            let bytes = decoded(&secret.value, entry)?;
            let separated = options.separate.then(|| separate_bytes(bytes.expose()));
            Ok(Content { separated, ..bytes.into() })
        }
        Some(PKCS12) => pfx_secret(entry, &secret.value, options),
        _ => Err(ContentError::ContentType { content_type: secret.content_type.clone() }),
    }
}

/// The value is base64 of an archive, so `base64` says nothing new about it and `hex` is wrong.
/// Upstream undoes the encoding of the PEM text, and fails.
fn pfx_secret(
    entry: &ObjectEntry,
    value: &SecretBytes,
    options: CertificateOptions,
) -> Result<Content, ContentError> {
    if let Some(encoding @ ObjectEncoding::Hex) = entry.encoding {
        return Err(ContentError::EncodingOfCertificate { encoding, content_type: PKCS12 });
    }
    let keeps_archive = entry.format == Some(ObjectFormat::Pfx);
    let converted = if keeps_archive && !options.separate {
        None
    } else {
        Some(
            pkcs12::convert_pfx(value.expose(), options.construct_pem_chain)
                .map_err(ContentError::Pfx)?,
        )
    };
    let separated = converted
        .as_ref()
        .filter(|_| options.separate)
        .map(|converted| separate_bytes(converted.pem.expose()));
    match converted {
        Some(converted) if !keeps_archive => {
            Ok(Content { bytes: converted.pem, separated, incomplete_chain: converted.incomplete })
        }
        _ => Ok(Content { separated, ..decoded(value, entry)?.into() }),
    }
}

/// The value without its encoding. Plain text shares the buffer of the value.
fn decoded(value: &SecretBytes, entry: &ObjectEntry) -> Result<SecretBytes, DecodeValueError> {
    match entry.encoding.unwrap_or(ObjectEncoding::Utf8) {
        ObjectEncoding::Utf8 => Ok(value.clone()),
        encoding => encoding::decode(value.expose(), encoding),
    }
}

fn known_content_type(content_type: Option<&str>) -> Option<&'static str> {
    let content_type = content_type?.trim();
    [PEM_FILE, PKCS12].into_iter().find(|known| known.eq_ignore_ascii_case(content_type))
}

fn separate_bytes(bytes: &[u8]) -> Separated {
    separate(std::str::from_utf8(bytes).unwrap_or_default())
}

fn pem_of(label: &str, der: &[u8]) -> SecretBytes {
    let mut writer = PemWriter::default();
    writer.push(label, der);
    writer.finish()
}

const PEM_FILE: &str = "application/x-pem-file";
const PKCS12: &str = "application/x-pkcs12";

#[cfg(test)]
mod tests;
