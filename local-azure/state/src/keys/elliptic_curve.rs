//! Elliptic curve keys.

use std::fmt;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{Algorithm as DigestAlgorithm, Digest, SHA256, SHA384, SHA512};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING,
    ECDSA_P256K1_SHA256_ASN1_SIGNING, ECDSA_P256K1_SHA256_FIXED, ECDSA_P256K1_SHA256_FIXED_SIGNING,
    ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_ASN1_SIGNING, ECDSA_P521_SHA512_FIXED, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, EcdsaVerificationAlgorithm, KeyPair as _,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::RedactedText;

/// The curves of Key Vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EllipticCurve {
    #[serde(rename = "P-256")]
    P256,
    #[serde(rename = "P-384")]
    P384,
    #[serde(rename = "P-521")]
    P521,
    /// secp256k1.
    #[serde(rename = "P-256K")]
    P256K,
}

impl EllipticCurve {
    /// Every curve.
    pub const ALL: [Self; 4] = [Self::P256, Self::P384, Self::P521, Self::P256K];

    /// The name in a JSON Web Key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
            Self::P256K => "P-256K",
        }
    }

    /// The curve with this name in a JSON Web Key.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|curve| curve.name() == name)
    }

    /// The bytes of a coordinate.
    const fn coordinate_length(self) -> usize {
        match self {
            Self::P256 | Self::P256K => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// The digest of the curve's signature algorithm.
    pub const fn digest_algorithm(self) -> &'static DigestAlgorithm {
        match self {
            Self::P256 | Self::P256K => &SHA256,
            Self::P384 => &SHA384,
            Self::P521 => &SHA512,
        }
    }

    const fn fixed_signing(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
            Self::P384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
            Self::P521 => &ECDSA_P521_SHA512_FIXED_SIGNING,
            Self::P256K => &ECDSA_P256K1_SHA256_FIXED_SIGNING,
        }
    }

    const fn asn1_signing(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
            Self::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
            Self::P521 => &ECDSA_P521_SHA512_ASN1_SIGNING,
            Self::P256K => &ECDSA_P256K1_SHA256_ASN1_SIGNING,
        }
    }

    const fn fixed_verification(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_FIXED,
            Self::P384 => &ECDSA_P384_SHA384_FIXED,
            Self::P521 => &ECDSA_P521_SHA512_FIXED,
            Self::P256K => &ECDSA_P256K1_SHA256_FIXED,
        }
    }
}

/// An elliptic curve key could not be generated, decoded or used to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EcKeyError {
    /// A key could not be generated.
    #[error("an elliptic curve key could not be generated")]
    Generation,
    /// The coordinates and the private number are not those of one key.
    #[error("the numbers are not those of one elliptic curve key")]
    InvalidComponents,
    /// The key could not be decoded.
    #[error("an elliptic curve key is not valid PKCS#8")]
    Encoding,
    /// The key could not sign.
    #[error("an elliptic curve key could not sign")]
    Signing,
}

/// The components of an elliptic curve key in the form of a JSON Web Key (RFC 7518, 6.2): base64url.
#[derive(Debug, Deserialize)]
pub struct EcJwkComponents {
    x: String,
    y: String,
    d: RedactedText,
}

/// An elliptic curve private key. Clones share it; the state file contains it as base64 of PKCS#8 DER.
#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "StoredEcKey", try_from = "StoredEcKey")]
pub struct EcKey(Arc<SharedEcKey>);

struct SharedEcKey {
    curve: EllipticCurve,
    pkcs8: Zeroizing<Vec<u8>>,
    /// Parsed on first use, so that loading a state file does not parse unused keys.
    parsed_key_pair: OnceLock<Option<EcdsaKeyPair>>,
}

/// A key in the state file.
#[derive(Serialize, Deserialize)]
struct StoredEcKey {
    crv: EllipticCurve,
    pkcs8: RedactedText,
}

impl From<EcKey> for StoredEcKey {
    fn from(key: EcKey) -> Self {
        Self { crv: key.curve(), pkcs8: RedactedText::new(STANDARD.encode(key.pkcs8())) }
    }
}

impl TryFrom<StoredEcKey> for EcKey {
    type Error = &'static str;

    fn try_from(stored: StoredEcKey) -> Result<Self, Self::Error> {
        match STANDARD.decode(stored.pkcs8.expose()) {
            Ok(pkcs8) => Ok(Self::from_parts(stored.crv, Zeroizing::new(pkcs8), OnceLock::new())),
            Err(_) => Err("a private key is not base64"),
        }
    }
}

impl EcKey {
    /// Generates a key.
    pub fn generate(curve: EllipticCurve) -> Result<Self, EcKeyError> {
        EcdsaKeyPair::generate(curve.fixed_signing())
            .and_then(|pair| Self::from_key_pair(curve, pair))
            .map_err(|Unspecified| EcKeyError::Generation)
    }

    /// Parses PKCS#8 DER of any of the curves.
    pub fn parse_pkcs8(pkcs8: &[u8]) -> Result<Self, EcKeyError> {
        EllipticCurve::ALL
            .into_iter()
            .find_map(|curve| {
                let pair = EcdsaKeyPair::from_pkcs8(curve.fixed_signing(), pkcs8).ok()?;
                Self::from_key_pair(curve, pair).ok()
            })
            .ok_or(EcKeyError::Encoding)
    }

    /// Creates a key from its components.
    pub fn from_jwk_components(
        curve: EllipticCurve,
        numbers: &EcJwkComponents,
    ) -> Result<Self, EcKeyError> {
        let part = |text: &str| decode_coordinate(text, curve.coordinate_length());
        let (x, y, d) = (part(&numbers.x)?, part(&numbers.y)?, part(numbers.d.expose())?);
        let point = [&[UNCOMPRESSED], x.as_slice(), y.as_slice()].concat();
        let signing = curve.fixed_signing();
        EcdsaKeyPair::from_private_key_and_public_key(signing, &d, &point)
            .ok()
            .and_then(|pair| Self::from_key_pair(curve, pair).ok())
            .ok_or(EcKeyError::InvalidComponents)
    }

    /// Creates a key from the first bytes of `bytes` as its private number, big endian. A number that is not
    /// valid for the curve is an error.
    pub(crate) fn from_private_number(
        curve: EllipticCurve,
        bytes: &[u8],
    ) -> Result<Self, EcKeyError> {
        let number = bytes.get(..curve.coordinate_length()).ok_or(EcKeyError::InvalidComponents)?;
        let mut number = Zeroizing::new(number.to_vec());
        if curve == EllipticCurve::P521 {
            // 66 bytes are 528 bits.
            number[0] &= 1;
        }
        let pkcs8 = pkcs8_without_public_key(curve, &number);
        EcdsaKeyPair::from_pkcs8(curve.fixed_signing(), &pkcs8)
            .ok()
            .and_then(|pair| Self::from_key_pair(curve, pair).ok())
            .ok_or(EcKeyError::InvalidComponents)
    }

    fn from_key_pair(curve: EllipticCurve, pair: EcdsaKeyPair) -> Result<Self, Unspecified> {
        let pkcs8 = Zeroizing::new(pair.to_pkcs8v1()?.as_ref().to_vec());
        Ok(Self::from_parts(curve, pkcs8, OnceLock::from(Some(pair))))
    }

    fn from_parts(
        curve: EllipticCurve,
        pkcs8: Zeroizing<Vec<u8>>,
        parsed_key_pair: OnceLock<Option<EcdsaKeyPair>>,
    ) -> Self {
        Self(Arc::new(SharedEcKey { curve, pkcs8, parsed_key_pair }))
    }

    pub fn curve(&self) -> EllipticCurve {
        self.0.curve
    }

    /// The key as PKCS#8 DER.
    pub fn pkcs8(&self) -> &[u8] {
        &self.0.pkcs8
    }

    fn key_pair(&self) -> Result<&EcdsaKeyPair, EcKeyError> {
        let signing = self.0.curve.fixed_signing();
        let parse = || EcdsaKeyPair::from_pkcs8(signing, &self.0.pkcs8).ok();
        self.0.parsed_key_pair.get_or_init(parse).as_ref().ok_or(EcKeyError::Encoding)
    }

    /// The public key as an uncompressed point (SEC 1, 2.3.3).
    pub(crate) fn public_point(&self) -> Result<&[u8], EcKeyError> {
        Ok(self.key_pair()?.public_key().as_ref())
    }

    /// The coordinates of the public key in the form of a JSON Web Key: base64url.
    pub fn jwk_coordinates(&self) -> Result<(String, String), EcKeyError> {
        let point = self.public_point()?.get(1..).ok_or(EcKeyError::Encoding)?;
        let (x, y) = point.split_at(point.len() / 2);
        Ok((URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y)))
    }

    /// Signs a digest. The signature has the fixed length of JSON Web Algorithms (RFC 7518, 3.4).
    pub fn sign_digest(&self, digest: &Digest) -> Result<Vec<u8>, EcKeyError> {
        let signature = self.key_pair()?.sign_digest(digest);
        signature
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|Unspecified| EcKeyError::Signing)
    }

    /// Whether a signature of fixed length is valid for a digest.
    pub fn verify_digest(&self, digest: &Digest, signature: &[u8]) -> Result<bool, EcKeyError> {
        let key = UnparsedPublicKey::new(self.0.curve.fixed_verification(), self.public_point()?);
        Ok(key.verify_digest(digest, signature).is_ok())
    }

    /// Signs a message with the curve's digest, in the form of certificates (RFC 3279, 2.2.3).
    pub(crate) fn sign_message(&self, message: &[u8]) -> Result<Vec<u8>, EcKeyError> {
        let pair = EcdsaKeyPair::from_pkcs8(self.0.curve.asn1_signing(), &self.0.pkcs8)
            .ok()
            .ok_or(EcKeyError::Encoding)?;
        pair.sign(&SystemRandom::new(), message)
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|Unspecified| EcKeyError::Signing)
    }
}

impl fmt::Debug for EcKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EcKey({:?}, ..)", self.0.curve)
    }
}

/// The first byte of an uncompressed point.
const UNCOMPRESSED: u8 = 4;

/// `PrivateKeyInfo` (RFC 5208) with an `ECPrivateKey` (RFC 5915) whose public key is omitted, in DER.
fn pkcs8_without_public_key(curve: EllipticCurve, number: &[u8]) -> Zeroizing<Vec<u8>> {
    const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    let curve: &[u8] = match curve {
        EllipticCurve::P256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
        EllipticCurve::P384 => &[0x2b, 0x81, 0x04, 0x00, 0x22],
        EllipticCurve::P521 => &[0x2b, 0x81, 0x04, 0x00, 0x23],
        EllipticCurve::P256K => &[0x2b, 0x81, 0x04, 0x00, 0x0a],
    };
    let element = |tag: u8, parts: &[&[u8]]| {
        let content = Zeroizing::new(parts.concat());
        // The longest element has 96 bytes.
        let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
        Zeroizing::new([&[tag, length], content.as_slice()].concat())
    };
    let (integer, octets, object_id, sequence) = (0x02, 0x04, 0x06, 0x30);
    let algorithm =
        element(sequence, &[&element(object_id, &[EC_PUBLIC_KEY]), &element(object_id, &[curve])]);
    let key = element(sequence, &[&element(integer, &[&[1]]), &element(octets, &[number])]);
    element(sequence, &[&element(integer, &[&[0]]), &algorithm, &element(octets, &[&key])])
}

/// Decodes a number and pads it to `length`.
fn decode_coordinate(text: &str, length: usize) -> Result<Zeroizing<Vec<u8>>, EcKeyError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map(Zeroizing::new);
    let bytes = bytes.ok().ok_or(EcKeyError::InvalidComponents)?;
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let number = &bytes[start..];
    let padding = length.checked_sub(number.len()).ok_or(EcKeyError::InvalidComponents)?;
    let mut padded = Zeroizing::new(vec![0; padding]);
    padded.extend_from_slice(number);
    Ok(padded)
}
