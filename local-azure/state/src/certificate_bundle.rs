//! Certificates with their key as PEM, and as PKCS#12 in the legacy and the modern profile.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use p12_keystore::error::Error as Pkcs12Error;
use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey,
    PrivateKeyChain,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The iterations of key derivation, as in OpenSSL.
const ITERATIONS: u32 = 2048;

/// The file format of a certificate with its private key. A credential document contains the file
/// in base64 as `client_secret`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialBundleFormat {
    /// PKCS#8 key and certificates as PEM.
    #[default]
    Pem,
    /// PKCS#12 with 3DES and a SHA-1 MAC, empty password: the only profile that Go's `x/crypto/pkcs12`
    /// supports.
    LegacyPkcs12,
    /// PKCS#12 with AES-256 and a SHA-256 MAC, empty password: the default of OpenSSL 3.
    ModernPkcs12,
}

impl CredentialBundleFormat {
    /// Encodes a PKCS#8 key with its certificates in DER, the certificate of the key first.
    pub fn encode(self, key: &[u8], chain: &[&[u8]]) -> Result<Zeroizing<Vec<u8>>, Pkcs12Error> {
        let profile = match self {
            Self::Pem => return Ok(encode_pem(Some(key), chain)),
            Self::LegacyPkcs12 => Pkcs12Profile::Legacy,
            Self::ModernPkcs12 => Pkcs12Profile::Modern,
        };
        encode_pkcs12(Some(key), chain, 0, profile)
    }
}

/// The algorithms of a PKCS#12 file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pkcs12Profile {
    /// 3DES and a SHA-1 MAC: the only profile that Go's `x/crypto/pkcs12` supports, and that of Key Vault.
    Legacy,
    /// AES-256 and a SHA-256 MAC: the default of OpenSSL 3.
    Modern,
}

/// Encodes a PKCS#8 key, if there is one, then certificates in DER.
pub fn encode_pem(key: Option<&[u8]>, chain: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(8 * 1024));
    if let Some(key) = key {
        write_pem_block(&mut text, "PRIVATE KEY", key);
    }
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

/// Encodes a PKCS#12 file with an empty password. The certificates stay in their order, and `chain[leaf]` belongs to
/// the key; without a key, the file has certificates only.
pub fn encode_pkcs12(
    key: Option<&[u8]>,
    chain: &[&[u8]],
    leaf: usize,
    profile: Pkcs12Profile,
) -> Result<Zeroizing<Vec<u8>>, Pkcs12Error> {
    let mut certificates: Vec<_> =
        chain.iter().map(|der| Certificate::from_der(der)).collect::<Result<_, _>>()?;
    let mut store = KeyStore::new();
    if let Some(key) = key {
        let from_leaf = certificates.split_off(leaf.min(certificates.len()));
        let chain = PrivateKeyChain::new(vec![1], PrivateKey::from_der(key)?, from_leaf);
        store.add_entry("credential", KeyStoreEntry::PrivateKeyChain(chain));
    }
    // The writer puts these before the chain of the key, in the order of their names.
    for (at, certificate) in certificates.into_iter().enumerate() {
        store.add_entry(&format!("{at:06}"), KeyStoreEntry::Certificate(certificate));
    }
    let (encryption, mac) = match profile {
        Pkcs12Profile::Legacy => {
            (EncryptionAlgorithm::PbeWithShaAnd3KeyTripleDesCbc, MacAlgorithm::HmacSha1)
        }
        Pkcs12Profile::Modern => {
            (EncryptionAlgorithm::PbeWithHmacSha256AndAes256, MacAlgorithm::HmacSha256)
        }
    };
    store
        .writer("")
        .encryption_algorithm(encryption)
        .encryption_iterations(ITERATIONS)
        .mac_algorithm(mac)
        .mac_iterations(ITERATIONS)
        .write()
        .map(Zeroizing::new)
}
