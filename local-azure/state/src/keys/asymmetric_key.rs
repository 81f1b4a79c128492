//! A private key of any type that vaults support.

use std::fmt;

use aws_lc_rs::digest::Digest;
use rcgen::{
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_RSA_SHA256,
    PublicKeyData, SignatureAlgorithm, SigningKey,
};
use serde::{Deserialize, Serialize};

use super::elliptic_curve::{EcKey, EcKeyError, EllipticCurve};
use super::signature_algorithm::JwsAlgorithm;
use super::{RsaKey, RsaKeyError, RsaKeySize};

/// A private key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AsymmetricKey {
    /// An RSA key.
    Rsa(RsaKey),
    /// An elliptic curve key.
    Ec(EcKey),
}

/// The type of a key, with its size or curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AsymmetricKeyType {
    Rsa(RsaKeySize),
    Ec(EllipticCurve),
}

impl AsymmetricKeyType {
    /// The type without size or curve.
    pub const fn jwk_type(self) -> JwkKeyType {
        match self {
            Self::Rsa(_) => JwkKeyType::Rsa,
            Self::Ec(_) => JwkKeyType::Ec,
        }
    }
}

/// The value of `kty` in a JSON Web Key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum JwkKeyType {
    #[serde(rename = "RSA")]
    Rsa,
    #[serde(rename = "EC")]
    Ec,
}

impl fmt::Display for JwkKeyType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Rsa => "RSA",
            Self::Ec => "EC",
        })
    }
}

/// A private key could not be generated, decoded or used.
#[derive(Debug, thiserror::Error)]
pub enum AsymmetricKeyError {
    #[error(transparent)]
    Rsa(#[from] RsaKeyError),
    #[error(transparent)]
    Ec(#[from] EcKeyError),
    /// Certificates with keys of the curve are not implemented.
    #[error("certificates with keys of the curve {0} are not implemented")]
    UnsupportedCertificateCurve(&'static str),
    /// The bytes are no private key of a supported type.
    #[error("the private key is neither RSA nor an elliptic curve key in PKCS#8")]
    UnsupportedType,
}

impl From<RsaKey> for AsymmetricKey {
    fn from(key: RsaKey) -> Self {
        Self::Rsa(key)
    }
}

impl From<EcKey> for AsymmetricKey {
    fn from(key: EcKey) -> Self {
        Self::Ec(key)
    }
}

impl AsymmetricKey {
    /// Parses PKCS#8 DER.
    pub fn parse_pkcs8(pkcs8: &[u8]) -> Result<Self, AsymmetricKeyError> {
        RsaKey::parse_pkcs8(pkcs8)
            .map(Self::Rsa)
            .ok()
            .or_else(|| EcKey::parse_pkcs8(pkcs8).map(Self::Ec).ok())
            .ok_or(AsymmetricKeyError::UnsupportedType)
    }

    /// The key as PKCS#8 DER.
    pub fn pkcs8(&self) -> &[u8] {
        match self {
            Self::Rsa(key) => key.pkcs8(),
            Self::Ec(key) => key.pkcs8(),
        }
    }

    /// The type of the key. An imported RSA key may have a size that vaults do not generate.
    pub fn key_type(&self) -> Result<AsymmetricKeyType, AsymmetricKeyError> {
        Ok(match self {
            Self::Rsa(key) => AsymmetricKeyType::Rsa(RsaKeySize::try_from(key.size_bits()?)?),
            Self::Ec(key) => AsymmetricKeyType::Ec(key.curve()),
        })
    }

    /// The type of the key without size or curve.
    pub const fn jwk_type(&self) -> JwkKeyType {
        match self {
            Self::Rsa(_) => JwkKeyType::Rsa,
            Self::Ec(_) => JwkKeyType::Ec,
        }
    }

    /// The public key as in the `subjectPublicKey` of a certificate.
    pub fn subject_public_key(&self) -> Result<Vec<u8>, AsymmetricKeyError> {
        Ok(match self {
            Self::Rsa(key) => key.public_der()?,
            Self::Ec(key) => key.public_point()?.to_vec(),
        })
    }

    /// Signs a digest. Returns `None` if the algorithm is not one of the key's type.
    pub fn sign_digest(
        &self,
        algorithm: JwsAlgorithm,
        digest: &Digest,
    ) -> Result<Option<Vec<u8>>, AsymmetricKeyError> {
        Ok(match (self, algorithm.rsa_encoding(), algorithm.curve()) {
            (Self::Rsa(key), Some(encoding), _) => Some(key.sign_digest(encoding, digest)?),
            (Self::Ec(key), _, Some(curve)) if curve == key.curve() => {
                Some(key.sign_digest(digest)?)
            }
            _ => None,
        })
    }

    /// Whether a signature of a digest is valid. Returns `None` if the algorithm is not one of the key's type.
    pub fn verify_digest(
        &self,
        algorithm: JwsAlgorithm,
        digest: &Digest,
        signature: &[u8],
    ) -> Result<Option<bool>, AsymmetricKeyError> {
        Ok(match (self, algorithm.rsa_verification(), algorithm.curve()) {
            (Self::Rsa(key), Some(parameters), _) => {
                Some(key.verify_digest(parameters, digest, signature)?)
            }
            (Self::Ec(key), _, Some(curve)) if curve == key.curve() => {
                Some(key.verify_digest(digest, signature)?)
            }
            _ => None,
        })
    }

    fn certificate_algorithm(&self) -> Result<&'static SignatureAlgorithm, AsymmetricKeyError> {
        Ok(match self {
            Self::Rsa(_) => &PKCS_RSA_SHA256,
            Self::Ec(key) => match key.curve() {
                EllipticCurve::P256 => &PKCS_ECDSA_P256_SHA256,
                EllipticCurve::P384 => &PKCS_ECDSA_P384_SHA384,
                EllipticCurve::P521 => &PKCS_ECDSA_P521_SHA512,
                curve @ EllipticCurve::P256K => {
                    return Err(AsymmetricKeyError::UnsupportedCertificateCurve(curve.name()));
                }
            },
        })
    }
}

/// Signs certificates and certificate requests with a key.
#[derive(Debug)]
pub struct CertificateSigner {
    key: AsymmetricKey,
    public_key: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl CertificateSigner {
    pub fn new(key: AsymmetricKey) -> Result<Self, AsymmetricKeyError> {
        let public_key = key.subject_public_key()?;
        let algorithm = key.certificate_algorithm()?;
        Ok(Self { key, public_key, algorithm })
    }
}

impl PublicKeyData for CertificateSigner {
    fn der_bytes(&self) -> &[u8] {
        &self.public_key
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl SigningKey for CertificateSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = match &self.key {
            AsymmetricKey::Rsa(key) => key.sign_rs256(message).ok(),
            AsymmetricKey::Ec(key) => key.sign_message(message).ok(),
        };
        // rcgen's error has no source: it only reports that an external key failed.
        signature.ok_or(rcgen::Error::RemoteKeyError)
    }
}
