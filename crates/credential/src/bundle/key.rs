//! The private key of a bundle.

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P256K1_SHA256_FIXED_SIGNING,
    ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair as _,
};
use lanyard_clock::ErrorHint;
use serde::Serialize;
use x509_parser::der_parser::asn1_rs::{FromDer, Integer, Sequence};
use x509_parser::x509::AlgorithmIdentifier;

/// The algorithm of a bundle's private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KeyKind {
    /// RSA, the only kind that Entra accepts for client assertions.
    Rsa {
        /// The length of the modulus in bits.
        bits: usize,
    },
    /// An elliptic curve key. The parser reads it only to name it in the error message.
    Ec {
        /// The elliptic curve.
        curve: Curve,
    },
}

/// The elliptic curves that the parser recognises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Curve {
    /// NIST P-256, also `prime256v1`.
    #[serde(rename = "P-256")]
    P256,
    /// NIST P-384.
    #[serde(rename = "P-384")]
    P384,
    /// NIST P-521.
    #[serde(rename = "P-521")]
    P521,
    /// secp256k1, which Key Vault calls `P-256K`.
    #[serde(rename = "P-256K")]
    P256K,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { bits } => write!(formatter, "RSA {bits} bits"),
            Self::Ec { curve } => write!(formatter, "EC {curve}"),
        }
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
            Self::P256K => "P-256K",
        })
    }
}

/// Errors of parsing a private key. Never contains key bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The bytes are not in the form that the PEM label names.
    #[error("the private key is not valid {form}")]
    Malformed {
        /// The expected form.
        form: &'static str,
    },
    /// The crypto library rejected the RSA key: it is too short, too long or inconsistent.
    #[error("the RSA key was rejected: {reason}")]
    RsaRefused {
        /// The crypto library's reason.
        reason: &'static str,
    },
    /// The elliptic curve is not supported.
    #[error("the private key uses an unknown elliptic curve")]
    UnknownCurve,
    /// The key's algorithm is not supported.
    #[error("the private key is {algorithm}, not rsa")]
    UnsupportedAlgorithm {
        /// The algorithm's name, or the family of its object identifier.
        algorithm: &'static str,
    },
}

impl ErrorHint for KeyError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Malformed { .. } => {
                "export certificate and key again; the key was cut or changed"
            }
            Self::RsaRefused { .. } => {
                "reissue the certificate with an RSA key of 2048 to 8192 bits"
            }
            Self::UnknownCurve | Self::UnsupportedAlgorithm { .. } => {
                "reissue the certificate with an RSA key: Entra accepts no other for client assertions"
            }
        }))
    }
}

/// The encoding of a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEncoding {
    /// RFC 5958, any algorithm.
    Pkcs8,
    /// RFC 8017, RSA.
    Pkcs1,
    /// RFC 5915, elliptic curves.
    Sec1,
}

/// A private key. The crypto library wipes it on drop.
pub(crate) enum PrivateKey {
    Rsa(RsaKeyPair),
    Ec { key: EcdsaKeyPair, curve: Curve },
}

impl PrivateKey {
    pub(crate) fn parse(form: KeyEncoding, der: &[u8]) -> Result<Self, KeyError> {
        match form {
            KeyEncoding::Pkcs1 => rsa_private_key(RsaKeyPair::from_der(der)),
            KeyEncoding::Sec1 if !has_sec1_form(der) => Err(KeyError::Malformed { form: "SEC1" }),
            KeyEncoding::Sec1 => {
                ec_private_key(|algorithm| EcdsaKeyPair::from_private_key_der(algorithm, der).ok())
                    .ok_or(KeyError::UnknownCurve)
            }
            KeyEncoding::Pkcs8 => parse_pkcs8(der),
        }
    }

    pub(crate) fn kind(&self) -> KeyKind {
        match self {
            Self::Rsa(key) => KeyKind::Rsa { bits: key.public_modulus_len() * 8 },
            Self::Ec { curve, .. } => KeyKind::Ec { curve: *curve },
        }
    }

    /// The public key in the form that certificates contain.
    pub(crate) fn public_key(&self) -> &[u8] {
        match self {
            Self::Rsa(key) => key.public_key().as_ref(),
            Self::Ec { key, .. } => key.public_key().as_ref(),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PrivateKey(***)")
    }
}

fn parse_pkcs8(der: &[u8]) -> Result<PrivateKey, KeyError> {
    let oid = pkcs8_algorithm(der).ok_or(KeyError::Malformed { form: "PKCS#8" })?;
    match oid.as_str() {
        "1.2.840.113549.1.1.1" => rsa_private_key(RsaKeyPair::from_pkcs8(der)),
        "1.2.840.10045.2.1" => {
            ec_private_key(|algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der).ok())
                .ok_or(KeyError::UnknownCurve)
        }
        "1.2.840.113549.1.1.10" => unsupported_algorithm("RSASSA-PSS restricted"),
        "1.3.101.112" => unsupported_algorithm("Ed25519"),
        "1.3.101.113" => unsupported_algorithm("Ed448"),
        "1.3.101.110" | "1.3.101.111" => unsupported_algorithm("a key agreement key"),
        "1.2.840.10040.4.1" => unsupported_algorithm("DSA"),
        _ => unsupported_algorithm("of an unknown algorithm"),
    }
}

fn unsupported_algorithm(algorithm: &'static str) -> Result<PrivateKey, KeyError> {
    Err(KeyError::UnsupportedAlgorithm { algorithm })
}

/// The object identifier of a PKCS#8 key's algorithm (RFC 5958, section 2).
pub(super) fn pkcs8_algorithm(der: &[u8]) -> Option<String> {
    let (_, info) = Sequence::from_der(der).ok()?;
    let (rest, _version) = Integer::from_der(&info.content).ok()?;
    let (_, algorithm) = AlgorithmIdentifier::from_der(rest).ok()?;
    Some(algorithm.algorithm.to_id_string())
}

/// Whether DER starts like an `ECPrivateKey`: the integer 1 and an octet string (RFC 5915, section 3).
fn has_sec1_form(der: &[u8]) -> bool {
    let Ok((_, key)) = Sequence::from_der(der) else { return false };
    let Ok((rest, version)) = Integer::from_der(&key.content) else { return false };
    version.as_u32() == Ok(1) && rest.first() == Some(&0x04)
}

fn rsa_private_key(
    parsed: Result<RsaKeyPair, aws_lc_rs::error::KeyRejected>,
) -> Result<PrivateKey, KeyError> {
    match parsed {
        Ok(key) => Ok(PrivateKey::Rsa(key)),
        Err(rejected) => Err(KeyError::RsaRefused { reason: rejection_reason(&rejected) }),
    }
}

fn rejection_reason(rejected: &aws_lc_rs::error::KeyRejected) -> &'static str {
    match rejected.to_string().as_str() {
        "TooSmall" => "shorter than 2048 bits",
        "TooLarge" => "longer than 8192 bits",
        "InconsistentComponents" => "its numbers are inconsistent",
        _ => "not a valid rsa key",
    }
}

fn ec_private_key(
    parse: impl Fn(&'static EcdsaSigningAlgorithm) -> Option<EcdsaKeyPair>,
) -> Option<PrivateKey> {
    CURVES.iter().find_map(|(curve, algorithm)| {
        parse(algorithm).map(|key| PrivateKey::Ec { key, curve: *curve })
    })
}

static CURVES: [(Curve, &EcdsaSigningAlgorithm); 4] = [
    (Curve::P256, &ECDSA_P256_SHA256_FIXED_SIGNING),
    (Curve::P384, &ECDSA_P384_SHA384_FIXED_SIGNING),
    (Curve::P521, &ECDSA_P521_SHA512_FIXED_SIGNING),
    (Curve::P256K, &ECDSA_P256K1_SHA256_FIXED_SIGNING),
];
