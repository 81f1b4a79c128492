//! The signature algorithms of JSON Web Signatures (RFC 7518, 3.1; RFC 8812, 3.2).

use aws_lc_rs::digest::{Algorithm as DigestAlgorithm, SHA256, SHA384, SHA512};
use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaParameters, RsaSignatureEncoding,
};

use super::elliptic_curve::EllipticCurve;

/// An algorithm that signs digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwsAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    Es256K,
}

impl JwsAlgorithm {
    /// Every algorithm.
    pub const ALL: [Self; 10] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Es256K,
    ];

    /// The value of `alg`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Es256K => "ES256K",
        }
    }

    /// The algorithm with this value of `alg`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The digest that the algorithm signs.
    pub const fn digest_algorithm(self) -> &'static DigestAlgorithm {
        match self {
            Self::Rs256 | Self::Ps256 => &SHA256,
            Self::Rs384 | Self::Ps384 => &SHA384,
            Self::Rs512 | Self::Ps512 => &SHA512,
            Self::Es256 | Self::Es384 | Self::Es512 | Self::Es256K => match self.curve() {
                Some(curve) => curve.digest_algorithm(),
                None => &SHA256,
            },
        }
    }

    /// The curve of the algorithm; `None` for RSA.
    pub const fn curve(self) -> Option<EllipticCurve> {
        match self {
            Self::Es256 => Some(EllipticCurve::P256),
            Self::Es384 => Some(EllipticCurve::P384),
            Self::Es512 => Some(EllipticCurve::P521),
            Self::Es256K => Some(EllipticCurve::P256K),
            _ => None,
        }
    }

    /// The padding of RSA signatures; `None` for elliptic curves.
    pub(crate) const fn rsa_encoding(self) -> Option<&'static RsaSignatureEncoding> {
        match self {
            Self::Rs256 => Some(&RSA_PKCS1_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_SHA512),
            Self::Ps256 => Some(&RSA_PSS_SHA256),
            Self::Ps384 => Some(&RSA_PSS_SHA384),
            Self::Ps512 => Some(&RSA_PSS_SHA512),
            _ => None,
        }
    }

    /// The parameters that verify RSA signatures; `None` for elliptic curves.
    pub(crate) const fn rsa_verification(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }
}
