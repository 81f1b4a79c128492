//! PKCS#12 (RFC 7292) to PEM.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use p12_keystore::Pkcs12Archive;
use zeroize::Zeroizing;

use crate::chain::{ChainOrder, ChainOrderError, order_chain};
use crate::pem::{CERTIFICATE, PRIVATE_KEY, PemWriter};
use crate::secret_bytes::SharedSecretBytes;

/// A value is no PKCS#12 archive that can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PfxError {
    /// The value is not base64.
    #[error("the value is not base64")]
    NotBase64,
    /// The archive is broken, has a password, or uses a cipher that nobody knows.
    #[error("the PKCS#12 archive cannot be opened with an empty password")]
    UnreadableArchive {
        /// The reader's own error.
        #[source]
        source: p12_keystore::error::Error,
    },
    /// There is nothing in it.
    #[error("the PKCS#12 archive holds neither a private key nor a certificate")]
    Empty,
    /// Its certificates do not form a chain.
    #[error("the certificates of the PKCS#12 archive cannot be ordered")]
    Chain(#[from] ChainOrderError),
}

/// A PEM text, and what is odd about its chain.
#[derive(Debug)]
pub(crate) struct ConvertedPfx {
    pub(crate) pem: SharedSecretBytes,
    /// How many of how many certificates are linked to the leaf, if not all are.
    pub(crate) incomplete_chain: Option<(usize, usize)>,
}

/// The archive in a value.
pub(crate) fn decode_archive(value: &[u8]) -> Result<Zeroizing<Vec<u8>>, PfxError> {
    STANDARD.decode(value.trim_ascii()).map(Zeroizing::new).map_err(|_position| PfxError::NotBase64)
}

/// Private keys as PKCS#8, then certificates, without the attributes of their bags. Old ciphers
/// (40-bit RC2, triple DES) and new ones (PBES2 with AES) are read.
pub(crate) fn convert_pfx(value: &[u8], order: bool) -> Result<ConvertedPfx, PfxError> {
    convert_archive(&decode_archive(value)?, order)
}

/// The same of an archive that is not encoded.
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
