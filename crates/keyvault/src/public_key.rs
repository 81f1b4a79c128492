//! Writes the public part of a vault key as a PEM file (RFC 5280 and RFC 5480).

use crate::der;

/// The public part of a vault key (RFC 7517), with decoded numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublicJwk {
    /// `RSA` and `RSA-HSM`.
    Rsa {
        /// The modulus, big endian.
        modulus: Vec<u8>,
        /// The exponent, big endian.
        exponent: Vec<u8>,
    },
    /// `EC` and `EC-HSM` on a supported curve.
    Ec {
        /// The elliptic curve.
        curve: EcCurve,
        /// The x coordinate, big endian.
        x: Vec<u8>,
        /// The y coordinate, big endian.
        y: Vec<u8>,
    },
    /// Any other key type or curve.
    Unsupported {
        /// The value of `kty`.
        key_type: String,
        /// The value of `crv`.
        curve: Option<String>,
    },
}

/// The supported NIST curves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EcCurve {
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
    /// NIST P-521.
    P521,
}

impl EcCurve {
    /// The length of a coordinate in bytes.
    const fn coordinate_length(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// The object identifier in DER.
    const fn oid(self) -> &'static [u8] {
        match self {
            Self::P256 => &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
            Self::P384 => &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
            Self::P521 => &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23],
        }
    }
}

/// Errors of writing a public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublicKeyError {
    /// The key type or curve is not supported.
    #[error("keys of type {key_type}{} have no public file", curve_suffix(curve.as_deref()))]
    Unsupported {
        /// The value of `kty`.
        key_type: String,
        /// The value of `crv`.
        curve: Option<String>,
    },
    /// A number is missing or has the wrong length.
    #[error("the key's `{member}` is absent or has the wrong length")]
    InvalidNumber {
        /// The name of the JWK member.
        member: &'static str,
    },
}

fn curve_suffix(curve: Option<&str>) -> String {
    curve.map(|curve| format!(" on {curve}")).unwrap_or_default()
}

/// Encodes the key as a `SubjectPublicKeyInfo` in DER.
pub(crate) fn subject_public_key_info(key: &PublicJwk) -> Result<Vec<u8>, PublicKeyError> {
    let (algorithm, bits) = match key {
        PublicJwk::Rsa { modulus, exponent } => {
            let modulus = strip_leading_zeros(modulus, "n")?;
            let exponent = strip_leading_zeros(exponent, "e")?;
            let algorithm = [RSA_ENCRYPTION, der::NULL].concat();
            (algorithm, der::sequence(&[der::integer(modulus), der::integer(exponent)].concat()))
        }
        PublicJwk::Ec { curve, x, y } => {
            let mut point = vec![UNCOMPRESSED];
            point.extend(pad_coordinate(x, curve.coordinate_length(), "x")?);
            point.extend(pad_coordinate(y, curve.coordinate_length(), "y")?);
            ([EC_PUBLIC_KEY, curve.oid()].concat(), point)
        }
        PublicJwk::Unsupported { key_type, curve } => {
            let (key_type, curve) = (key_type.clone(), curve.clone());
            return Err(PublicKeyError::Unsupported { key_type, curve });
        }
    };
    Ok(der::sequence(&[der::sequence(&algorithm), der::bit_string(&bits)].concat()))
}

fn strip_leading_zeros<'a>(
    number: &'a [u8],
    member: &'static str,
) -> Result<&'a [u8], PublicKeyError> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = &number[zeros..];
    if digits.is_empty() { Err(PublicKeyError::InvalidNumber { member }) } else { Ok(digits) }
}

/// Pads a coordinate to its full length: some issuers omit leading zeros.
fn pad_coordinate(
    number: &[u8],
    length: usize,
    member: &'static str,
) -> Result<Vec<u8>, PublicKeyError> {
    let digits = strip_leading_zeros(number, member)?;
    let missing =
        length.checked_sub(digits.len()).ok_or(PublicKeyError::InvalidNumber { member })?;
    Ok([&vec![0; missing], digits].concat())
}

const RSA_ENCRYPTION: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_PUBLIC_KEY: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::KeyPair;
    use rcgen::PublicKeyData;
    use x509_parser::prelude::FromDer;
    use x509_parser::public_key::PublicKey;
    use x509_parser::x509::SubjectPublicKeyInfo;

    use super::*;

    #[test]
    fn rsa_public_key_matches_aws_lc_encoding() {
        let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
        let expected = pair.public_key().as_der().unwrap();
        let (_, parsed) = SubjectPublicKeyInfo::from_der(expected.as_ref()).unwrap();
        let Ok(PublicKey::RSA(parts)) = parsed.parsed() else { panic!("no RSA key") };
        let (modulus, exponent) = (parts.modulus.to_vec(), parts.exponent.to_vec());
        let spki = subject_public_key_info(&PublicJwk::Rsa { modulus, exponent }).unwrap();
        assert_eq!(spki, expected.as_ref());
    }

    #[test]
    fn ec_public_keys_match_rcgen_encoding_on_every_curve() {
        let algorithms = [
            (EcCurve::P256, &rcgen::PKCS_ECDSA_P256_SHA256),
            (EcCurve::P384, &rcgen::PKCS_ECDSA_P384_SHA384),
            (EcCurve::P521, &rcgen::PKCS_ECDSA_P521_SHA512),
        ];
        for (curve, algorithm) in algorithms {
            let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let point = &pair.der_bytes()[1..];
            let (x, y) = point.split_at(curve.coordinate_length());
            // Leading zeros may be omitted.
            let short = |number: &[u8]| number.iter().copied().skip_while(|b| *b == 0).collect();
            let key = PublicJwk::Ec { curve, x: short(x), y: y.to_vec() };
            let spki = subject_public_key_info(&key).unwrap();
            assert_eq!(spki, pair.subject_public_key_info(), "{curve:?}");
        }
    }

    #[test]
    fn unsupported_key_types_and_invalid_numbers_are_reported_by_name() {
        let curve = Some("P-256K".to_owned());
        let key = PublicJwk::Unsupported { key_type: "EC".to_owned(), curve };
        let text = subject_public_key_info(&key).unwrap_err().to_string();
        assert_eq!(text, "keys of type EC on P-256K have no public file");
        let key = PublicJwk::Ec { curve: EcCurve::P256, x: vec![1; 33], y: vec![1; 32] };
        let refused = Err(PublicKeyError::InvalidNumber { member: "x" });
        assert_eq!(subject_public_key_info(&key), refused);
        let key = PublicJwk::Rsa { modulus: vec![0, 0], exponent: vec![1, 0, 1] };
        assert_eq!(
            subject_public_key_info(&key),
            Err(PublicKeyError::InvalidNumber { member: "n" })
        );
    }
}
