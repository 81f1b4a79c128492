//! JSON Web Tokens: parsed as leniently as real clients write them, and verified strictly.
//!
//! Clients send padding, the standard alphabet, line breaks and whole PEM texts where the specifications (RFC
//! 7515, RFC 7519) require base64url and DER. The signature is verified strictly.

use std::time::Duration;

use aws_lc_rs::signature::{
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, VerificationAlgorithm,
};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::keys::{RsaKey, RsaKeyError};

/// The clock skew that Azure's services tolerate, in seconds.
pub const SKEW_SECONDS: i64 = 300;

/// The fields of a token header (RFC 7515, 4.1) that select the key.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct JoseHeader {
    /// The algorithm.
    #[serde(default)]
    pub alg: String,
    /// The id of the key.
    #[serde(default)]
    pub kid: Option<String>,
    /// The SHA-1 thumbprint of the certificate.
    #[serde(default)]
    pub x5t: Option<String>,
    /// The SHA-256 thumbprint of the certificate.
    #[serde(default, rename = "x5t#S256")]
    pub x5t_s256: Option<String>,
    /// The certificate chain, leaf first.
    #[serde(default)]
    pub x5c: Vec<String>,
}

/// A token with an unverified signature.
#[derive(Clone)]
pub struct UnverifiedToken {
    pub header: JoseHeader,
    pub claims: Map<String, Value>,
    signing_input: String,
    signature: Vec<u8>,
}

lanyard_vocabulary::debug_text!(UnverifiedToken, "Token(..)");

/// The signature algorithms that Entra accepts for assertions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssertionAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PSS with SHA-256.
    Ps256,
}

impl AssertionAlgorithm {
    /// Parses the value of `alg`; `None` if Entra does not accept the algorithm.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "PS256" => Some(Self::Ps256),
            _ => None,
        }
    }

    fn verification_algorithm(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
        }
    }
}

impl UnverifiedToken {
    /// Parses the compact form; `None` if the text is not a token.
    pub fn parse(text: &str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        Some(Self {
            header: serde_json::from_slice(&lenient_base64(header)?).ok()?,
            claims: serde_json::from_slice(&lenient_base64(claims)?).ok()?,
            signing_input: signed.to_owned(),
            signature: lenient_base64(signature)?,
        })
    }

    /// The value of a string claim; `None` if it is missing or is no string.
    pub fn text_claim(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.as_str()
    }

    /// A numeric claim, possibly fractional: Python clients write `exp` with a fraction.
    pub fn number_claim(&self, claim: &str) -> Option<f64> {
        self.claims.get(claim)?.as_f64()
    }

    /// Whether a time is between `nbf`, if there is one, and `exp`, with the clock skew that Entra tolerates.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        let Some(ends) = self.number_claim("exp") else { return false };
        let begins = self.number_claim("nbf").unwrap_or(f64::MIN);
        // Milliseconds since 1970 fit the mantissa of a double for the next 280,000 years.
        let second = now.as_duration().as_secs_f64();
        let skew = Duration::from_secs(SKEW_SECONDS.unsigned_abs()).as_secs_f64();
        second - skew <= ends && second + skew >= begins
    }

    /// The audiences: a string, or a list of strings.
    pub fn audiences(&self) -> Vec<&str> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the RSA key (as `RSAPublicKey` or `SubjectPublicKeyInfo` DER) signed this token.
    pub fn is_signed_by(&self, algorithm: AssertionAlgorithm, public_key: &[u8]) -> bool {
        ParsedPublicKey::new(algorithm.verification_algorithm(), public_key)
            .is_ok_and(|key| key.verify_sig(self.signing_input.as_bytes(), &self.signature).is_ok())
    }
}

/// Signs claims with RS256.
pub fn sign_rs256_token(
    header: &Value,
    claims: &Map<String, Value>,
    key: &RsaKey,
) -> Result<String, RsaKeyError> {
    let encode = |json: String| URL_SAFE_NO_PAD.encode(json);
    let claims = serde_json::to_string(claims).map_err(RsaKeyError::Claims)?;
    let mut text = format!("{}.{}", encode(header.to_string()), encode(claims));
    let signature = key.sign_rs256(text.as_bytes())?;
    text.push('.');
    text.push_str(&URL_SAFE_NO_PAD.encode(signature));
    Ok(text)
}

/// Decodes base64 in either alphabet, with or without padding, ignoring white space.
pub fn lenient_base64(text: &str) -> Option<Vec<u8>> {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::RequireNone)
            .with_decode_allow_trailing_bits(true),
    );
    let normal: String = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    ENGINE.decode(normal.trim_end_matches('=')).ok()
}

/// Parses an entry of `x5c`: base64 of DER as in RFC 7515, base64 of a PEM text as `azure_identity` for Rust
/// sends it, or PEM.
pub fn x5c_certificate(entry: &str) -> Option<Vec<u8>> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let inside = |pem: &str| {
        let (_, rest) = pem.split_once(BEGIN)?;
        let (body, _) = rest.split_once(END)?;
        lenient_base64(body)
    };
    if entry.contains(BEGIN) {
        return inside(entry);
    }
    let bytes = lenient_base64(entry)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) if text.contains(BEGIN) => inside(text),
        _ => Some(bytes),
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD as PADDED, STANDARD_NO_PAD, URL_SAFE};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn base64_alphabet_padding_and_line_breaks_decode_alike(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            width in 1_usize..80,
        ) {
            for text in [
                PADDED.encode(&bytes),
                STANDARD_NO_PAD.encode(&bytes),
                URL_SAFE.encode(&bytes),
                URL_SAFE_NO_PAD.encode(&bytes),
            ] {
                let folded: String = text
                    .as_bytes()
                    .chunks(width)
                    .flat_map(|line| [std::str::from_utf8(line).unwrap(), "\r\n"])
                    .collect();
                prop_assert_eq!(lenient_base64(&text), Some(bytes.clone()));
                prop_assert_eq!(lenient_base64(&folded), Some(bytes.clone()));
            }
        }

        #[test]
        fn parsing_arbitrary_text_never_panics(text in ".{0,200}", entry in ".{0,80}") {
            let read = UnverifiedToken::parse(&text);
            prop_assert!(read.is_none_or(|token| token.audiences().len() <= text.len()));
            let unended = format!("-----BEGIN CERTIFICATE-----{entry}");
            prop_assert_eq!(x5c_certificate(&unended), None);
            prop_assert!(x5c_certificate(&entry).is_none_or(|der| der.len() <= entry.len()));
        }
    }

    #[test]
    fn token_needs_three_parts_and_object_claims() {
        let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for text in [
            String::new(),
            "a.b".to_owned(),
            format!("{}.{}.", part("{}"), part("[]")),
            format!("{}.{}.x", part("1"), part("{}")),
            format!("{}.{}", part("{}"), part("{}")),
        ] {
            assert!(UnverifiedToken::parse(&text).is_none(), "{text}");
        }
        let token = UnverifiedToken::parse(&format!("{}.{}.", part("{}"), part("{}"))).unwrap();
        assert_eq!(token.header.alg, "");
        assert!(!token.is_signed_by(AssertionAlgorithm::Rs256, b"no key"));
    }
}
