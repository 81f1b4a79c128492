//! Extracts the certificates or the private key of a mounted file for a Secret of type `kubernetes.io/tls`.
//!
//! The rules are those of the Secrets Store CSI driver (v1.6.0): `tls.crt` has every certificate in file
//! order; `tls.key` has the last block that is not a certificate, re-encoded in the traditional form; a file
//! without PEM is read as PKCS#12 without a password.

use std::borrow::Cow;

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P256K1_SHA256_FIXED_SIGNING,
    ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_clock::ErrorHint;
use x509_parser::der_parser::asn1_rs::{FromDer, Integer, OctetString, Sequence};
use x509_parser::x509::AlgorithmIdentifier;
use zeroize::Zeroizing;

use crate::pem::{self, CERTIFICATE, PemBlock, PemWriter};
use crate::pkcs12::{PfxError, convert_archive, convert_pfx};
use crate::secret_bytes::SharedSecretBytes;

/// Errors of extracting certificates or a key. Never contains content of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsSecretError {
    /// The file is neither PEM nor PKCS#12.
    #[error("it is neither PEM nor PKCS#12 without a password")]
    NeitherPemNorPkcs12 {
        /// The error of reading the file as PKCS#12.
        #[source]
        source: PfxError,
    },
    /// A block is truncated or modified.
    #[error("the block `{label}` is not base64")]
    InvalidBlock {
        /// The label of the block.
        label: String,
    },
    /// The file contains no certificate.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// The file contains only certificates.
    #[error("there is no private key in it")]
    NoPrivateKey,
    /// The private key is encrypted.
    #[error("the private key is encrypted")]
    EncryptedKey,
    /// The key type has no traditional form.
    #[error("the last block that is no certificate (`{label}`) is no RSA and no EC private key")]
    UnsupportedKey {
        /// The label of the block.
        label: String,
    },
}

impl ErrorHint for TlsSecretError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NeitherPemNorPkcs12 { .. } | Self::InvalidBlock { .. } => {
                "see objectFormat and objectEncoding of the object: the file must be PEM, or \
                 PKCS#12 without a password"
            }
            Self::NoCertificate => {
                "let `tls.crt` name the file of a certificate's secret (objectType secret)"
            }
            Self::NoPrivateKey => {
                "let `tls.key` name the file of a certificate's secret (objectType secret) whose \
                 key is exportable"
            }
            Self::EncryptedKey => "store the private key without a password of its own",
            Self::UnsupportedKey { .. } => "use an RSA or EC key, or a Secret of type Opaque",
        }))
    }
}

/// Extracts every certificate of a file as PEM, in file order: the value of `tls.crt`.
///
/// # Errors
///
/// Returns an error if the file contains no certificate.
pub fn parse_tls_certificates(content: &[u8]) -> Result<SharedSecretBytes, TlsSecretError> {
    let text = to_pem(content)?;
    let mut writer = PemWriter::default();
    let mut any = false;
    for block in parse_pem_blocks(&text) {
        if block.label == CERTIFICATE {
            writer.push(CERTIFICATE, &decode_block(&block)?);
            any = true;
        }
    }
    if any { Ok(writer.finish()) } else { Err(TlsSecretError::NoCertificate) }
}

/// Extracts the private key of a file as PEM in the traditional form, PKCS#1 (RFC 8017) or SEC1 (RFC 5915):
/// the value of `tls.key`.
///
/// # Errors
///
/// Returns an error if the last block that is not a certificate is not such a key.
pub fn parse_tls_private_key(content: &[u8]) -> Result<SharedSecretBytes, TlsSecretError> {
    let text = to_pem(content)?;
    let blocks = parse_pem_blocks(&text);
    let block = blocks.iter().rev().find(|block| block.label != CERTIFICATE);
    let block = block.ok_or(TlsSecretError::NoPrivateKey)?;
    if block.label == "ENCRYPTED PRIVATE KEY" || block.text.contains("\nDEK-Info:") {
        return Err(TlsSecretError::EncryptedKey);
    }
    let der = decode_block(block)?;
    let unsupported = || TlsSecretError::UnsupportedKey { label: block.label.to_owned() };
    let (label, der) = to_traditional_key(&der).ok_or_else(unsupported)?;
    let mut writer = PemWriter::default();
    writer.push(label, &der);
    Ok(writer.finish())
}

/// Converts a file to PEM. A PKCS#12 file is the archive or its base64: the Key Vault provider writes either,
/// depending on `objectEncoding`.
fn to_pem(content: &[u8]) -> Result<SharedSecretBytes, TlsSecretError> {
    if pem::looks_like_pem(content) {
        // Blocks are ASCII; other bytes are dropped.
        let mut text = Vec::with_capacity(content.len());
        text.extend(content.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' }));
        return Ok(text.into());
    }
    // TLS requires the leaf first (RFC 8446, 4.4.2), and archives are unordered.
    let converted = convert_archive(content, true).or_else(|_| convert_pfx(content, true));
    converted.map(|it| it.pem).map_err(|source| TlsSecretError::NeitherPemNorPkcs12 { source })
}

fn parse_pem_blocks(text: &SharedSecretBytes) -> Vec<PemBlock<'_>> {
    std::str::from_utf8(text.expose()).map(pem::parse_blocks).unwrap_or_default()
}

/// The decoded body of a block. Headers (RFC 1421) end with an empty line.
fn decode_block(block: &PemBlock<'_>) -> Result<Zeroizing<Vec<u8>>, TlsSecretError> {
    let broken = || TlsSecretError::InvalidBlock { label: block.label.to_owned() };
    let is_body = |line: &&str| !line.starts_with("-----") && !line.contains(':');
    let mut body = Zeroizing::new(Vec::with_capacity(block.text.len()));
    for line in block.text.lines().map(str::trim).filter(is_body) {
        body.extend_from_slice(line.as_bytes());
    }
    STANDARD.decode(&*body).map(Zeroizing::new).map_err(|_position| broken())
}

/// Converts a key to its traditional form, with the matching label.
fn to_traditional_key(der: &[u8]) -> Option<(&'static str, Zeroizing<Vec<u8>>)> {
    let (_, key) = Sequence::from_der(der).ok()?;
    let (rest, version) = Integer::from_der(&key.content).ok()?;
    match (version.as_u32().ok()?, rest.first()?) {
        // RSAPrivateKey: two-prime version, then integers.
        (0, 0x02) => Some((RSA, Zeroizing::new(der.to_vec()))),
        // ECPrivateKey: version, then the key.
        (1, 0x04) => Some((EC, to_sec1(der)?)),
        // PrivateKeyInfo and OneAsymmetricKey (RFC 5958): version, then the algorithm.
        (0 | 1, 0x30) => {
            let (rest, algorithm) = AlgorithmIdentifier::from_der(rest).ok()?;
            match algorithm.algorithm.to_id_string().as_str() {
                "1.2.840.113549.1.1.1" => {
                    let (_, inner) = OctetString::from_der(rest).ok()?;
                    Some((RSA, Zeroizing::new(inner.as_ref().to_vec())))
                }
                "1.2.840.10045.2.1" => Some((EC, to_sec1(der)?)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Encodes an EC key as SEC1 with its curve and public key. Accepts SEC1 and PKCS#8.
fn to_sec1(der: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let parse = |curve: &&'static EcdsaSigningAlgorithm| {
        EcdsaKeyPair::from_private_key_der(curve, der).ok()
    };
    let key = CURVES.iter().find_map(parse)?;
    let written: EcPrivateKeyRfc5915Der<'static> = key.private_key().as_der().ok()?;
    Some(Zeroizing::new(written.as_ref().to_vec()))
}

static CURVES: [&EcdsaSigningAlgorithm; 4] = [
    &ECDSA_P256_SHA256_FIXED_SIGNING,
    &ECDSA_P384_SHA384_FIXED_SIGNING,
    &ECDSA_P521_SHA512_FIXED_SIGNING,
    &ECDSA_P256K1_SHA256_FIXED_SIGNING,
];
const RSA: &str = "RSA PRIVATE KEY";
const EC: &str = "EC PRIVATE KEY";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn fixture(name: &str) -> String {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../credential/tests/fixtures");
        std::fs::read_to_string(fixtures.join(name)).unwrap()
    }

    fn pem_text(bytes: &SharedSecretBytes) -> &str {
        std::str::from_utf8(bytes.expose()).unwrap()
    }

    fn private_key_text(content: &str) -> Result<String, TlsSecretError> {
        parse_tls_private_key(content.as_bytes()).map(|key| pem_text(&key).to_owned())
    }

    #[test]
    fn only_certificates_are_returned_in_file_order() {
        let (leaf, root) = (fixture("leaf.pem"), fixture("root.pem"));
        let content = format!("{}Bag Attributes\n{root}{leaf}", fixture("leaf.pkcs8.key"));
        let certificates = parse_tls_certificates(content.as_bytes()).unwrap();
        assert_eq!(pem_text(&certificates), format!("{root}{leaf}"));
    }

    #[test]
    fn rsa_key_is_returned_as_pkcs1() {
        let expected = fixture("leaf.pkcs1.key");
        assert_eq!(private_key_text(&fixture("leaf.pkcs8.key")).unwrap(), expected);
        assert_eq!(private_key_text(&expected).unwrap(), expected);
    }

    #[test]
    fn ec_key_is_returned_as_sec1_with_curve_and_public_key() {
        let expected = fixture("ec.sec1.key");
        assert_eq!(private_key_text(&fixture("ec.pkcs8.key")).unwrap(), expected);
        assert_eq!(private_key_text(&expected).unwrap(), expected);
    }

    #[test]
    fn last_non_certificate_block_is_the_private_key() {
        let keys = [fixture("other.pkcs8.key"), fixture("leaf.pkcs8.key"), fixture("leaf.pem")];
        assert_eq!(private_key_text(&keys.concat()).unwrap(), fixture("leaf.pkcs1.key"));
    }

    #[test]
    fn an_archive_is_read_as_it_is_and_as_base64_with_the_leaf_first() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../credential/tests/fixtures");
        let archive = std::fs::read(fixtures.join("aes-sha256.pfx")).unwrap();
        let base64 = STANDARD.encode(&archive);
        for content in [base64.as_bytes(), &archive] {
            let certificates = parse_tls_certificates(content).unwrap();
            assert!(pem_text(&certificates).starts_with(&fixture("leaf.pem")));
            let key = parse_tls_private_key(content).unwrap();
            assert_eq!(pem_text(&key), fixture("leaf.pkcs1.key"));
        }
    }

    #[test]
    fn missing_or_unsupported_parts_are_reported() {
        let case = |content: &str| private_key_text(content).unwrap_err();
        assert!(matches!(case(&fixture("leaf.pem")), TlsSecretError::NoPrivateKey));
        assert!(matches!(case(&fixture("leaf.encrypted.key")), TlsSecretError::EncryptedKey));
        assert!(matches!(case(&fixture("leaf.proc-type.key")), TlsSecretError::EncryptedKey));
        let ed25519 = case(&fixture("ed25519.pkcs8.key"));
        assert!(matches!(ed25519, TlsSecretError::UnsupportedKey { .. }), "{ed25519}");
        assert!(matches!(case("planted-secret"), TlsSecretError::NeitherPemNorPkcs12 { .. }));
        let certificates = parse_tls_certificates(fixture("leaf.pkcs8.key").as_bytes());
        assert!(matches!(certificates, Err(TlsSecretError::NoCertificate)));
        let broken = "-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n";
        assert!(matches!(case(broken), TlsSecretError::InvalidBlock { .. }));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_errors_do_not_quote_the_content(
            content in prop::collection::vec(any::<u8>(), 0..200),
            der in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut writer = PemWriter::default();
            writer.push("PRIVATE KEY", &der);
            for content in [content, writer.finish().expose().to_vec()] {
                drop(parse_tls_certificates(&content));
                if let Err(error) = parse_tls_private_key(&content) {
                    prop_assert!(error.to_string().len() < 120);
                }
            }
        }
    }
}
