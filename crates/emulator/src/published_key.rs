//! Keys of issuers outside this world: public ones, as their key sets publish them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// An RSA public key as a JSON Web Key has it (RFC 7518, 6.3.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedKey {
    /// The modulus, big endian, base64url.
    n: String,
    /// The exponent, the same.
    e: String,
}

/// One key of a key set, as it comes: other kinds of keys have other members.
#[derive(Debug, Deserialize)]
pub(crate) struct WebKey {
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

impl WebKey {
    /// The key with its id, if Entra would verify federated tokens with it: RSA, for signatures
    /// with RS256. The id of a key without one is empty.
    pub(crate) fn into_published(self) -> Option<(String, PublishedKey)> {
        let signs = self.usage.is_none_or(|usage| usage == "sig")
            && self.alg.is_none_or(|algorithm| algorithm == "RS256");
        let key = PublishedKey { n: self.n?, e: self.e? };
        let is_good = self.kty == "RSA" && signs && key.public_der().is_some();
        is_good.then(|| (self.kid.unwrap_or_default(), key))
    }
}

impl PublishedKey {
    /// The key as `RSAPublicKey` DER (RFC 8017, A.1.1); nothing if it is no key.
    pub(crate) fn public_der(&self) -> Option<Vec<u8>> {
        let mut content = integer(&URL_SAFE_NO_PAD.decode(&self.n).ok()?)?;
        content.extend(integer(&URL_SAFE_NO_PAD.decode(&self.e).ok()?)?);
        Some(element(SEQUENCE, &content))
    }
}

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;

/// A positive integer: without leading zeros, but for the one that keeps it positive.
fn integer(number: &[u8]) -> Option<Vec<u8>> {
    let start = number.iter().position(|byte| *byte != 0)?;
    let mut digits = Vec::with_capacity(number.len() + 1);
    if number[start] & 0x80 != 0 {
        digits.push(0);
    }
    digits.extend(&number[start..]);
    Some(element(INTEGER, &digits))
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut element = vec![tag];
    match (u8::try_from(content.len()), u8::try_from(length.len())) {
        (Ok(short), _) if short < 0x80 => element.push(short),
        (_, Ok(digits)) => {
            element.push(0x80 | digits);
            element.extend(length);
        }
        // A length has at most eight digits.
        (_, Err(_)) => {}
    }
    element.extend(content);
    element
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::issuer_key;

    fn web_key(patch: &[(&str, &str)]) -> WebKey {
        let (n, e) = issuer_key().jwk_parts().unwrap();
        let mut key = serde_json::json!({ "kty": "RSA", "kid": "k", "n": n, "e": e });
        for (member, text) in patch {
            key[*member] = serde_json::json!(text);
        }
        serde_json::from_value(key).unwrap()
    }

    #[test]
    fn a_published_key_is_the_key_that_was_published() {
        let (kid, key) = web_key(&[("use", "sig"), ("alg", "RS256")]).into_published().unwrap();
        assert_eq!(kid, "k");
        assert_eq!(key.public_der().unwrap(), issuer_key().public_der().unwrap());
    }

    #[test]
    fn keys_that_sign_no_federated_token_are_left_out() {
        for patch in [
            [("kty", "EC")],
            [("use", "enc")],
            [("alg", "PS256")],
            [("n", "")],
            [("e", "not base64")],
        ] {
            assert!(web_key(&patch).into_published().is_none(), "{patch:?}");
        }
    }
}
