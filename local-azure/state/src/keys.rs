//! Private keys and other secrets: they can be serialized, and cannot be printed.

pub mod asymmetric_key;
mod elliptic_curve;
mod encryption;
mod signature_algorithm;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::Digest;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair, RsaParameters, RsaSignatureEncoding,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;
use zeroize::Zeroizing;

pub use self::asymmetric_key::{
    AsymmetricKey, AsymmetricKeyError, AsymmetricKeyType, CertificateSigner, JwkKeyType,
};
pub use self::elliptic_curve::{EcJwkComponents, EcKey, EcKeyError, EllipticCurve};
pub use self::encryption::{RsaJwkComponents, RsaPadding};
pub use self::signature_algorithm::JwsAlgorithm;

/// A text that is never printed, for example a client secret or the value of a vault secret.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedText(Zeroizing<String>);

impl RedactedText {
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text. Only code that verifies or returns it may call this.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

lanyard_vocabulary::debug_text!(RedactedText, "RedactedText(..)");

impl Serialize for RedactedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}

impl<'de> Deserialize<'de> for RedactedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// An RSA key could not be generated, decoded or used to sign a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RsaKeyError {
    /// A key could not be generated.
    #[error("an RSA key could not be generated")]
    Generation,
    /// The key size is not supported.
    #[error("an RSA key has 2048, 3072 or 4096 bits, not {bits}")]
    UnsupportedSize {
        /// The requested size in bits.
        bits: u32,
    },
    /// The numbers are not those of one key.
    #[error("the numbers are not those of one RSA key")]
    InvalidComponents,
    /// The key could not be encoded or decoded.
    #[error("an RSA key is not valid PKCS#8")]
    Encoding,
    /// The key could not sign.
    #[error("an RSA key could not sign")]
    Signing,
    /// The claims of a token could not be serialized.
    #[error("the claims of a token could not be written")]
    Claims(#[source] serde_json::Error),
}

/// The sizes of the RSA keys that Key Vault generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub enum RsaKeySize {
    Bits2048,
    Bits3072,
    Bits4096,
}

impl RsaKeySize {
    /// The size in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits2048 => 2048,
            Self::Bits3072 => 3072,
            Self::Bits4096 => 4096,
        }
    }

    const fn key_size(self) -> KeySize {
        match self {
            Self::Bits2048 => KeySize::Rsa2048,
            Self::Bits3072 => KeySize::Rsa3072,
            Self::Bits4096 => KeySize::Rsa4096,
        }
    }
}

impl From<RsaKeySize> for u32 {
    fn from(size: RsaKeySize) -> Self {
        size.bits()
    }
}

impl TryFrom<u32> for RsaKeySize {
    type Error = RsaKeyError;

    fn try_from(bits: u32) -> Result<Self, Self::Error> {
        [Self::Bits2048, Self::Bits3072, Self::Bits4096]
            .into_iter()
            .find(|size| size.bits() == bits)
            .ok_or(RsaKeyError::UnsupportedSize { bits })
    }
}

/// An RSA private key. Clones share it; the state file contains it as base64 of PKCS#8 DER.
#[derive(Clone)]
pub struct RsaKey(Arc<SharedRsaKey>);

struct SharedRsaKey {
    pkcs8: Zeroizing<Vec<u8>>,
    /// Parsed on first use, so that loading a state file does not parse unused keys.
    parsed_key_pair: OnceLock<Option<RsaKeyPair>>,
}

impl RsaKey {
    /// Generates a key of 2048 bits.
    ///
    /// # Errors
    ///
    /// Returns an error if the random source fails.
    pub fn generate() -> Result<Self, RsaKeyError> {
        Self::generate_sized(RsaKeySize::Bits2048)
    }

    /// Generates a key of the given size.
    ///
    /// # Errors
    ///
    /// Returns an error if the random source fails.
    pub(crate) fn generate_sized(size: RsaKeySize) -> Result<Self, RsaKeyError> {
        let pair =
            RsaKeyPair::generate(size.key_size()).map_err(|Unspecified| RsaKeyError::Generation)?;
        Self::from_key_pair(pair)
    }

    /// Generates `count` keys of 2048 bits, like [`RsaKey::generate_all`].
    ///
    /// # Errors
    ///
    /// Returns an error, like [`RsaKey::generate`].
    pub fn generate_many(count: usize) -> Result<Vec<Self>, RsaKeyError> {
        Self::generate_all(&vec![RsaKeySize::Bits2048; count])
    }

    /// Generates keys of the given sizes in parallel on all cores: key generation is the slowest part of a
    /// start.
    ///
    /// # Errors
    ///
    /// Returns an error, like [`RsaKey::generate`].
    pub fn generate_all(sizes: &[RsaKeySize]) -> Result<Vec<Self>, RsaKeyError> {
        let threads = std::thread::available_parallelism()
            .map_or(2, usize::from)
            .clamp(1, sizes.len().max(1));
        std::thread::scope(|scope| {
            let workers: Vec<_> = sizes
                .chunks(sizes.len().div_ceil(threads).max(1))
                .map(|share| {
                    let generate = |size: &RsaKeySize| Self::generate_sized(*size);
                    scope.spawn(move || share.iter().map(generate).collect::<Vec<_>>())
                })
                .collect();
            workers
                .into_iter()
                .flat_map(|worker| {
                    worker.join().unwrap_or_else(|_| vec![Err(RsaKeyError::Generation)])
                })
                .collect()
        })
    }

    fn from_key_pair(pair: RsaKeyPair) -> Result<Self, RsaKeyError> {
        let der = pair.as_der().map_err(|Unspecified| RsaKeyError::Encoding)?;
        let pkcs8 = Zeroizing::new(der.as_ref().to_vec());
        Ok(Self(Arc::new(SharedRsaKey { pkcs8, parsed_key_pair: OnceLock::from(Some(pair)) })))
    }

    /// Creates a key from PKCS#8 DER.
    pub fn from_pkcs8(pkcs8: Vec<u8>) -> Self {
        Self(Arc::new(SharedRsaKey {
            pkcs8: Zeroizing::new(pkcs8),
            parsed_key_pair: OnceLock::new(),
        }))
    }

    /// The key as PKCS#8 DER.
    pub fn pkcs8(&self) -> &[u8] {
        &self.0.pkcs8
    }

    fn key_pair(&self) -> Result<&RsaKeyPair, RsaKeyError> {
        let parse = || RsaKeyPair::from_pkcs8(&self.0.pkcs8).ok();
        self.0.parsed_key_pair.get_or_init(parse).as_ref().ok_or(RsaKeyError::Encoding)
    }

    /// Parses a key in PKCS#8 DER.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no RSA key of 2048 to 8192 bits.
    pub fn parse_pkcs8(pkcs8: &[u8]) -> Result<Self, RsaKeyError> {
        let pair = RsaKeyPair::from_pkcs8(pkcs8).map_err(|_rejected| RsaKeyError::Encoding)?;
        Self::from_key_pair(pair)
    }

    /// The size of the modulus in bits.
    ///
    /// # Errors
    ///
    /// Returns an error if the stored key cannot be parsed.
    pub(crate) fn size_bits(&self) -> Result<u32, RsaKeyError> {
        let bytes = self.key_pair()?.public_modulus_len();
        Ok(u32::try_from(bytes * 8).unwrap_or(u32::MAX))
    }

    /// Signs a digest.
    fn sign_digest(
        &self,
        encoding: &'static RsaSignatureEncoding,
        digest: &Digest,
    ) -> Result<Vec<u8>, RsaKeyError> {
        let pair = self.key_pair()?;
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign_digest(encoding, digest, &mut signature)
            .map_err(|Unspecified| RsaKeyError::Signing)?;
        Ok(signature)
    }

    /// Whether a signature is valid for a digest.
    fn verify_digest(
        &self,
        parameters: &'static RsaParameters,
        digest: &Digest,
        signature: &[u8],
    ) -> Result<bool, RsaKeyError> {
        let key = UnparsedPublicKey::new(parameters, self.public_der()?);
        Ok(key.verify_digest(digest, signature).is_ok())
    }

    /// Signs a message with RS256 (RSASSA-PKCS1-v1_5 with SHA-256).
    ///
    /// # Errors
    ///
    /// Returns an error if the stored key cannot be parsed or the random source fails.
    pub fn sign_rs256(&self, message: &[u8]) -> Result<Vec<u8>, RsaKeyError> {
        let pair = self.key_pair()?;
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
            .map_err(|Unspecified| RsaKeyError::Signing)?;
        Ok(signature)
    }

    /// The public key as `RSAPublicKey` DER (RFC 8017).
    ///
    /// # Errors
    ///
    /// Returns an error if the stored key cannot be parsed.
    pub fn public_der(&self) -> Result<Vec<u8>, RsaKeyError> {
        Ok(self.key_pair()?.public_key().as_ref().to_vec())
    }

    /// Modulus and exponent in the form of a JSON Web Key (RFC 7518, 6.3.1): base64url, big endian, without
    /// leading zeros.
    ///
    /// # Errors
    ///
    /// Returns an error if the stored key cannot be parsed.
    pub fn jwk_modulus_and_exponent(&self) -> Result<(String, String), RsaKeyError> {
        let der = self.public_der()?;
        let (_, public) =
            RSAPublicKey::from_der(&der).map_err(|_malformed| RsaKeyError::Encoding)?;
        let part = |number: &[u8]| {
            let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
            URL_SAFE_NO_PAD.encode(&number[start..])
        };
        Ok((part(public.modulus), part(public.exponent)))
    }
}

lanyard_vocabulary::debug_text!(RsaKey, "RsaKey(..)");

impl Serialize for RsaKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(self.pkcs8())))
    }
}

impl<'de> Deserialize<'de> for RsaKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        STANDARD
            .decode(text.as_bytes())
            .map(Self::from_pkcs8)
            .map_err(|_malformed| de::Error::custom("a private key is not base64"))
    }
}
