//! Bundles of certificate and key: PEM, and PKCS#12 in the legacy and the modern profile.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey,
    PrivateKeyChain,
};
use zeroize::Zeroizing;

use super::{CredentialBundleFormat, SeedError};
use crate::keys::RsaKey;

/// The iterations of key derivation, as in OpenSSL.
const ITERATIONS: u32 = 2048;

/// Encodes a bundle; `chain` is DER, leaf first.
pub(super) fn encode_bundle(
    form: CredentialBundleFormat,
    key: &RsaKey,
    chain: &[&[u8]],
) -> Result<Zeroizing<Vec<u8>>, SeedError> {
    match form {
        CredentialBundleFormat::Pem => Ok(encode_pem(key, chain)),
        CredentialBundleFormat::LegacyPkcs12 => encode_pkcs12(
            key,
            chain,
            EncryptionAlgorithm::PbeWithShaAnd3KeyTripleDesCbc,
            MacAlgorithm::HmacSha1,
        ),
        CredentialBundleFormat::ModernPkcs12 => encode_pkcs12(
            key,
            chain,
            EncryptionAlgorithm::PbeWithHmacSha256AndAes256,
            MacAlgorithm::HmacSha256,
        ),
    }
}

/// PKCS#8 key, then the certificates.
fn encode_pem(key: &RsaKey, chain: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(8 * 1024));
    write_pem_block(&mut text, "PRIVATE KEY", key.pkcs8());
    for certificate in chain {
        write_pem_block(&mut text, "CERTIFICATE", certificate);
    }
    text
}

/// One PEM block (RFC 7468): base64 in lines of 64.
fn write_pem_block(text: &mut Vec<u8>, label: &str, der: &[u8]) {
    let encoded = Zeroizing::new(STANDARD.encode(der));
    text.extend_from_slice(format!("-----BEGIN {label}-----\n").as_bytes());
    for line in encoded.as_bytes().chunks(64) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
}

fn encode_pkcs12(
    key: &RsaKey,
    chain: &[&[u8]],
    encryption: EncryptionAlgorithm,
    mac: MacAlgorithm,
) -> Result<Zeroizing<Vec<u8>>, SeedError> {
    let key = PrivateKey::from_der(key.pkcs8()).map_err(SeedError::Pkcs12)?;
    let certificates: Vec<_> = chain
        .iter()
        .map(|der| Certificate::from_der(der))
        .collect::<Result<_, _>>()
        .map_err(SeedError::Pkcs12)?;
    let mut store = KeyStore::new();
    let entry = KeyStoreEntry::PrivateKeyChain(PrivateKeyChain::new(vec![1], key, certificates));
    store.add_entry("credential", entry);
    store
        .writer("")
        .encryption_algorithm(encryption)
        .encryption_iterations(ITERATIONS)
        .mac_algorithm(mac)
        .mac_iterations(ITERATIONS)
        .write()
        .map(Zeroizing::new)
        .map_err(SeedError::Pkcs12)
}
