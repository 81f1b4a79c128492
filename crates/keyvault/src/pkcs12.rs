//! Converts PKCS#12 archives (RFC 7292) to PEM.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use p12_keystore::Pkcs12Archive;
use zeroize::Zeroizing;

use crate::chain::{ChainOrder, ChainOrderError, order_chain};
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
    #[error("the PKCS#12 archive cannot be opened with an empty password")]
    UnreadableArchive {
        /// The parser's error.
        #[source]
        source: p12_keystore::error::Error,
    },
    /// The archive is empty.
    #[error("the PKCS#12 archive holds neither a private key nor a certificate")]
    Empty,
    /// The certificates do not form a chain.
    #[error("the certificates of the PKCS#12 archive cannot be ordered")]
    Chain(#[from] ChainOrderError),
}

/// A PEM text, and the state of its chain.
#[derive(Debug)]
pub(crate) struct ConvertedPfx {
    pub(crate) pem: SharedSecretBytes,
    /// The number of certificates that are linked to the leaf, and the total, if they differ.
    pub(crate) incomplete_chain: Option<(usize, usize)>,
}

/// Decodes the archive from a value.
pub(crate) fn decode_archive(value: &[u8]) -> Result<Zeroizing<Vec<u8>>, PfxError> {
    STANDARD.decode(value.trim_ascii()).map(Zeroizing::new).map_err(|_position| PfxError::NotBase64)
}

/// Converts an archive to PEM: private keys as PKCS#8, then certificates, without bag attributes. Supports
/// legacy ciphers (40-bit RC2, triple DES) and modern ones (PBES2 with AES).
pub(crate) fn convert_pfx(value: &[u8], order: bool) -> Result<ConvertedPfx, PfxError> {
    convert_archive(&decode_archive(value)?, order)
}

/// Like [`convert_pfx`], for an archive that is not base64-encoded.
pub(crate) fn convert_archive(der: &[u8], order: bool) -> Result<ConvertedPfx, PfxError> {
    let archive = Pkcs12Archive::from_pkcs12(der, "")
        .map_err(|source| PfxError::UnreadableArchive { source })?;
    if archive.keys.is_empty() && archive.certs.is_empty() {
        return Err(PfxError::Empty);
    }
    let mut certificates: Vec<_> = archive.certs.iter().map(|bag| bag.cert.as_der()).collect();
    let mut incomplete = None;
    if order {
        match order_chain(certificates.iter().copied())? {
            ChainOrder::Complete(order) => {
                certificates = order.into_iter().map(|index| certificates[index]).collect();
            }
            ChainOrder::Incomplete { linked } => incomplete = Some((linked, certificates.len())),
        }
    }
    let mut writer = PemWriter::default();
    for bag in &archive.keys {
        writer.push(PRIVATE_KEY, bag.key.as_der());
    }
    for certificate in certificates {
        writer.push(CERTIFICATE, certificate);
    }
    Ok(ConvertedPfx { pem: writer.finish(), incomplete_chain: incomplete })
}
