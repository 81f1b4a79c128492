//! Public keys of external issuers, as in their key sets.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// An RSA public key in the form of a JSON Web Key (RFC 7518, 6.3.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RsaPublicJwk {
    /// The modulus, big endian, base64url.
    n: String,
    /// The exponent, big endian, base64url.
    e: String,
}

/// A key of a key set, unvalidated: other key types have other members.
#[derive(Debug, Deserialize)]
pub struct IssuerJsonWebKey {
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    kty: String,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
}

impl IssuerJsonWebKey {
    /// Converts the key, if Entra would verify federated tokens with it: RSA, for RS256 signatures. Returns
    /// the id, which is empty for a key without one, and the key.
    pub fn into_rsa_signing_key(self) -> Option<(String, RsaPublicJwk)> {
        let signs = self.usage.is_none_or(|usage| usage == "sig")
            && self.alg.is_none_or(|algorithm| algorithm == "RS256");
        let key = RsaPublicJwk { n: self.n?, e: self.e? };
        let is_good = self.kty == "RSA" && signs && key.public_der().is_some();
        is_good.then(|| (self.kid.unwrap_or_default(), key))
    }
}

impl RsaPublicJwk {
    /// Modulus and exponent, big endian, base64url.
    pub(crate) fn modulus_and_exponent(&self) -> (&str, &str) {
        (&self.n, &self.e)
    }

    /// The key as `RSAPublicKey` DER (RFC 8017, A.1.1); `None` if it is malformed.
    pub fn public_der(&self) -> Option<Vec<u8>> {
        let mut content = der_integer(&URL_SAFE_NO_PAD.decode(&self.n).ok()?)?;
        content.extend(der_integer(&URL_SAFE_NO_PAD.decode(&self.e).ok()?)?);
        Some(der_element(SEQUENCE, &content))
    }
}

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;

/// Encodes a positive integer, without leading zeros except one that keeps it positive.
fn der_integer(number: &[u8]) -> Option<Vec<u8>> {
    let start = number.iter().position(|byte| *byte != 0)?;
    let mut digits = Vec::with_capacity(number.len() + 1);
    if number[start] & 0x80 != 0 {
        digits.push(0);
    }
    digits.extend(&number[start..]);
    Some(der_element(INTEGER, &digits))
}

fn der_element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut element = vec![tag];
    match (u8::try_from(content.len()), u8::try_from(length.len())) {
        (Ok(short), _) if short < 0x80 => element.push(short),
        (_, Ok(digits)) => {
            element.push(0x80 | digits);
            element.extend(length);
        }
        // A length has at most eight bytes.
        (_, Err(_)) => {}
    }
    element.extend(content);
    element
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::issuer_key;

    fn web_key(patch: &[(&str, &str)]) -> IssuerJsonWebKey {
        let (n, e) = issuer_key().jwk_modulus_and_exponent().unwrap();
        let mut key = serde_json::json!({ "kty": "RSA", "kid": "k", "n": n, "e": e });
        for (member, text) in patch {
            key[*member] = serde_json::json!(text);
        }
        serde_json::from_value(key).unwrap()
    }

    #[test]
    fn published_key_converts_to_the_same_public_key_der() {
        let (kid, key) =
            web_key(&[("use", "sig"), ("alg", "RS256")]).into_rsa_signing_key().unwrap();
        assert_eq!(kid, "k");
        assert_eq!(key.public_der().unwrap(), issuer_key().public_der().unwrap());
    }

    #[test]
    fn keys_unusable_for_federated_tokens_are_skipped() {
        for patch in [
            [("kty", "EC")],
            [("use", "enc")],
            [("alg", "PS256")],
            [("n", "")],
            [("e", "not base64")],
        ] {
            assert!(web_key(&patch).into_rsa_signing_key().is_none(), "{patch:?}");
        }
    }
}
