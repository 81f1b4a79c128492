//! Converts a vault object to the bytes of a file.

use std::borrow::Cow;

use lanyard_api::{VaultObjectEntry, VaultObjectFormat};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::ObjectEncoding;

use crate::chain::UnlinkedCertificates;
use crate::encoding::{self, DecodeValueError};
use crate::memory::saturating_u64;
use crate::pem::{CERTIFICATE, PUBLIC_KEY, PemWriter};
use crate::pem_split::{SplitPem, split_certificates};
use crate::pkcs12::{self, PfxError};
use crate::public_key::{self, PublicKeyError};
use crate::secret_bytes::SharedSecretBytes;
use crate::source::{FetchedSecret, FetchedVaultObject};

/// Errors of converting a vault object to a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// The value is not in the encoding that `objectEncoding` names.
    #[error(transparent)]
    Encoding(#[from] DecodeValueError),
    /// The content type of a certificate's secret is unknown.
    #[error("a certificate's secret has {}", describe_content_type(content_type.as_deref()))]
    UnknownContentType {
        /// The value of `contentType`.
        content_type: Option<String>,
    },
    /// The value is not a readable PKCS#12 archive.
    #[error("the value cannot be converted to PEM")]
    UnreadablePfx(#[source] PfxError),
    /// `objectEncoding` names an encoding that the content type of the certificate's secret never has.
    #[error("`objectEncoding: {encoding}` does not match the content type `{content_type}`")]
    EncodingMismatch {
        /// The value of `objectEncoding`.
        encoding: ObjectEncoding,
        content_type: &'static str,
    },
    /// `objectFormat: pfx` asks for PKCS#12, and the certificate was imported as PEM.
    #[error(
        "`objectFormat: pfx` asks for PKCS#12, and the certificate's secret has the content type \
         `{PEM_FILE}`"
    )]
    FormatMismatch,
    /// The public key cannot be written as a file.
    #[error("the key cannot be written as PEM")]
    UnsupportedKey(#[source] PublicKeyError),
    /// The certificate is empty.
    #[error("the vault gave no certificate")]
    NoCertificate,
}

impl ErrorHint for ContentError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Owned(match self {
            Self::Encoding(DecodeValueError { suspected: Some(seems), .. }) => {
                format!("the value looks like {seems}: set objectEncoding to `{seems}`")
            }
            Self::Encoding(error) => {
                format!("store the value as {}, or correct objectEncoding", error.encoding)
            }
            Self::UnknownContentType { .. } => {
                format!("the certificate has to have the content type `{PEM_FILE}` or `{PKCS12}`")
            }
            Self::UnreadablePfx(PfxError::UnreadableArchive { source }) => {
                let hint = source.hint().unwrap_or_default();
                format!("{hint}; then import the certificate again, or set objectFormat to `pfx`")
            }
            Self::UnreadablePfx(_) => {
                "see the certificate in the vault: its secret is not what it says".to_owned()
            }
            Self::EncodingMismatch { .. } => "leave objectEncoding out".to_owned(),
            Self::FormatMismatch => {
                format!(
                    "import the certificate as `{PKCS12}`, or leave objectFormat out to mount PEM"
                )
            }
            Self::UnsupportedKey(_) => {
                "keys of RSA and on P-256, P-384 and P-521 can be mounted".to_owned()
            }
            Self::NoCertificate => "see whether the certificate's creation is finished".to_owned(),
        }))
    }
}

fn describe_content_type(content_type: Option<&str>) -> String {
    content_type.map_or_else(
        || "no content type".to_owned(),
        |found| format!("the unknown content type `{found}`"),
    )
}

/// Options for writing certificates' secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateFileOptions {
    /// Order the chain of a converted PKCS#12 archive: leaf, intermediates, root.
    pub construct_pem_chain: bool,
    /// Write `<file>.crt` and `<file>.key` next to each certificate's secret.
    pub write_separate_files: bool,
}

impl Default for CertificateFileOptions {
    /// The upstream defaults: ordered chains, no separate files.
    fn default() -> Self {
        Self { construct_pem_chain: true, write_separate_files: false }
    }
}

/// The content to mount for one object entry. Clones share the buffers.
#[derive(Debug, Clone)]
pub(crate) struct FileContent {
    pub(crate) bytes: SharedSecretBytes,
    /// The certificates (`<file>.crt`) and the other blocks, such as the key (`<file>.key`); `None` unless
    /// separate files are requested.
    pub(crate) separate_files: Option<SplitPem>,
    /// The certificates that do not belong to the chain of the leaf, if there are any.
    pub(crate) unlinked: Option<UnlinkedCertificates>,
}

impl FileContent {
    /// The memory that the content takes in addition to the object, in bytes.
    pub(crate) fn additional_memory(&self, object: &FetchedVaultObject) -> u64 {
        let is_shared = matches!(object, FetchedVaultObject::Secret(secret)
            if std::ptr::eq(secret.value.expose(), self.bytes.expose()));
        let own = if is_shared { 0 } else { self.bytes.len() };
        let separate_files = self.separate_files.as_ref();
        let separate_bytes =
            separate_files.map_or(0, |it| it.certificates.len() + it.other_blocks.len());
        saturating_u64(own.saturating_add(separate_bytes))
    }
}

impl From<SharedSecretBytes> for FileContent {
    fn from(bytes: SharedSecretBytes) -> Self {
        Self { bytes, separate_files: None, unlinked: None }
    }
}

/// Whether [`decode_content`] opens a PKCS#12 archive.
pub(crate) fn converts_archive(
    entry: &VaultObjectEntry,
    object: &FetchedVaultObject,
    options: CertificateFileOptions,
) -> bool {
    let FetchedVaultObject::Secret(secret) = object else { return false };
    secret.is_certificate_secret
        && known_content_type(secret.content_type.as_deref()) == Some(PKCS12)
        && !mounts_archive_alone(entry, options)
}

/// Whether an archive is mounted as it is, and nothing else from it.
fn mounts_archive_alone(entry: &VaultObjectEntry, options: CertificateFileOptions) -> bool {
    entry.format == Some(VaultObjectFormat::Pfx) && !options.write_separate_files
}

/// Converts `object` to the bytes that `entry` requests.
pub(crate) fn decode_content(
    entry: &VaultObjectEntry,
    object: &FetchedVaultObject,
    options: CertificateFileOptions,
) -> Result<FileContent, ContentError> {
    match object {
        FetchedVaultObject::Secret(secret) if secret.is_certificate_secret => {
            decode_certificate_secret(entry, secret, options)
        }
        FetchedVaultObject::Secret(secret) => Ok(decode_value(&secret.value, entry)?.into()),
        FetchedVaultObject::Key(key) => {
            let der = public_key::subject_public_key_info(&key.key)
                .map_err(ContentError::UnsupportedKey)?;
            Ok(encode_pem(PUBLIC_KEY, &der).into())
        }
        FetchedVaultObject::Certificate(certificate) if certificate.der.is_empty() => {
            Err(ContentError::NoCertificate)
        }
        FetchedVaultObject::Certificate(certificate) => {
            Ok(encode_pem(CERTIFICATE, &certificate.der).into())
        }
    }
}

/// Converts the secret of a certificate, its key and chain, by the content type of the secret.
fn decode_certificate_secret(
    entry: &VaultObjectEntry,
    secret: &FetchedSecret,
    options: CertificateFileOptions,
) -> Result<FileContent, ContentError> {
    match known_content_type(secret.content_type.as_deref()) {
        Some(PEM_FILE) if entry.format == Some(VaultObjectFormat::Pfx) => {
            Err(ContentError::FormatMismatch)
        }
        Some(PEM_FILE) => {
            let bytes = decode_value(&secret.value, entry)?;
            let separate_files =
                options.write_separate_files.then(|| split_certificates_in_bytes(bytes.expose()));
            Ok(FileContent { separate_files, ..bytes.into() })
        }
        Some(PKCS12) => decode_pfx_secret(entry, &secret.value, options),
        _ => Err(ContentError::UnknownContentType { content_type: secret.content_type.clone() }),
    }
}

/// Converts the secret of a certificate with a PKCS#12 archive: to PEM, or to the archive itself if the format
/// is `pfx`. The value is base64 of the archive, so the encoding `base64` is redundant and `hex` is wrong.
/// Upstream decodes the PEM text, and fails.
fn decode_pfx_secret(
    entry: &VaultObjectEntry,
    value: &SharedSecretBytes,
    options: CertificateFileOptions,
) -> Result<FileContent, ContentError> {
    if let Some(encoding @ ObjectEncoding::Hex) = entry.encoding {
        return Err(ContentError::EncodingMismatch { encoding, content_type: PKCS12 });
    }
    let keeps_archive = entry.format == Some(VaultObjectFormat::Pfx);
    let converted = if mounts_archive_alone(entry, options) {
        None
    } else {
        Some(
            pkcs12::convert_pfx(value.expose(), options.construct_pem_chain)
                .map_err(ContentError::UnreadablePfx)?,
        )
    };
    let separate_files = converted
        .as_ref()
        .filter(|_| options.write_separate_files)
        .map(|converted| split_certificates_in_bytes(converted.pem.expose()));
    let unlinked = converted.as_ref().and_then(|converted| converted.unlinked);
    let bytes = match converted {
        Some(converted) if !keeps_archive => converted.pem,
        _ => decode_value(value, entry)?,
    };
    Ok(FileContent { bytes, separate_files, unlinked })
}

/// Decodes a value by the encoding of its entry. Plain text shares the buffer of the value.
fn decode_value(
    value: &SharedSecretBytes,
    entry: &VaultObjectEntry,
) -> Result<SharedSecretBytes, DecodeValueError> {
    match entry.encoding.unwrap_or(ObjectEncoding::Utf8) {
        ObjectEncoding::Utf8 => Ok(value.clone()),
        encoding => encoding::decode(value.expose(), encoding),
    }
}

/// Returns the supported content type that equals this one, ignoring case and spaces around it.
fn known_content_type(content_type: Option<&str>) -> Option<&'static str> {
    let content_type = content_type?.trim();
    [PEM_FILE, PKCS12].into_iter().find(|known| known.eq_ignore_ascii_case(content_type))
}

fn split_certificates_in_bytes(bytes: &[u8]) -> SplitPem {
    split_certificates(std::str::from_utf8(bytes).unwrap_or_default())
}

fn encode_pem(label: &str, der: &[u8]) -> SharedSecretBytes {
    let mut writer = PemWriter::default();
    writer.push(label, der);
    writer.finish()
}

const PEM_FILE: &str = "application/x-pem-file";
const PKCS12: &str = "application/x-pkcs12";

#[cfg(test)]
pub(crate) mod tests;
