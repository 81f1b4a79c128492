//! Converts PKCS#12 archives (RFC 7292) to PEM.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_credential::bundle::{Pkcs12Archive, Pkcs12Error, leaf_position};
use zeroize::Zeroizing;

use crate::chain::{UnlinkedCertificates, order_chain};
use crate::pem::{CERTIFICATE, PRIVATE_KEY, PemWriter};
use crate::secret_bytes::SharedSecretBytes;

/// Errors of converting a PKCS#12 archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PfxError {
    /// The value is not base64.
    #[error("the value is not base64")]
    NotBase64,
    /// The archive is malformed, has a password, or uses an unsupported cipher.
    #[error("the PKCS#12 archive cannot be opened")]
    UnreadableArchive {
        /// The reason.
        #[source]
        source: Pkcs12Error,
    },
    /// The archive is empty.
    #[error("the PKCS#12 archive holds neither a private key nor a certificate")]
    Empty,
}

/// A PEM text, and the state of its chain.
#[derive(Debug)]
pub(crate) struct ConvertedPfx {
    pub(crate) pem: SharedSecretBytes,
    /// The certificates that do not belong to the chain of the leaf, if there are any.
    pub(crate) unlinked: Option<UnlinkedCertificates>,
}

/// Decodes the archive from a value.
pub(crate) fn decode_archive(value: &[u8]) -> Result<Zeroizing<Vec<u8>>, PfxError> {
    STANDARD.decode(value.trim_ascii()).map(Zeroizing::new).map_err(|_position| PfxError::NotBase64)
}

/// Converts an archive to PEM: private keys as PKCS#8, then certificates, without bag attributes. Supports
/// legacy ciphers (40-bit RC2, triple DES) and modern ones (PBES2 with AES). With `order`, the certificates begin
/// with the one of the private key, then its issuers.
pub(crate) fn convert_pfx(value: &[u8], order: bool) -> Result<ConvertedPfx, PfxError> {
    convert_archive(&decode_archive(value)?, order)
}

/// Like [`convert_pfx`], for an archive that is not base64-encoded.
pub(crate) fn convert_archive(der: &[u8], order: bool) -> Result<ConvertedPfx, PfxError> {
    let archive =
        Pkcs12Archive::open(der, None).map_err(|source| PfxError::UnreadableArchive { source })?;
    if archive.keys.is_empty() && archive.certificates.is_empty() {
        return Err(PfxError::Empty);
    }
    let mut certificates: Vec<_> = archive.certificates.iter().map(Vec::as_slice).collect();
    let mut unlinked = None;
    if order {
        let mut keys = archive.keys.iter();
        let leaf = keys.find_map(|key| leaf_position(key, &certificates));
        let order = order_chain(&certificates, leaf);
        unlinked = order.unlinked();
        certificates = order.positions.into_iter().map(|index| certificates[index]).collect();
    }
    let mut writer = PemWriter::default();
    for key in &archive.keys {
        writer.push(PRIVATE_KEY, key);
    }
    for certificate in certificates {
        writer.push(CERTIFICATE, certificate);
    }
    Ok(ConvertedPfx { pem: writer.finish(), unlinked })
}
