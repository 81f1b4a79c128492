//! The certificate bundles of credential documents.

use zeroize::Zeroizing;

use super::{CredentialBundleFormat, SeedError};
use crate::certificate_bundle::{Pkcs12Profile, encode_pem, encode_pkcs12};
use crate::keys::RsaKey;

/// Encodes a bundle; `chain` is DER, leaf first.
pub(super) fn encode_bundle(
    form: CredentialBundleFormat,
    key: &RsaKey,
    chain: &[&[u8]],
) -> Result<Zeroizing<Vec<u8>>, SeedError> {
    let profile = match form {
        CredentialBundleFormat::Pem => return Ok(encode_pem(Some(key.pkcs8()), chain)),
        CredentialBundleFormat::LegacyPkcs12 => Pkcs12Profile::Legacy,
        CredentialBundleFormat::ModernPkcs12 => Pkcs12Profile::Modern,
    };
    encode_pkcs12(Some(key.pkcs8()), chain, profile).map_err(SeedError::Pkcs12)
}
