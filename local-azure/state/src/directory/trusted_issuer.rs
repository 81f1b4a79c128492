//! Issuers of federated tokens, and certificate authorities of client certificates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::keys::RsaKey;
use crate::published_key::RsaPublicJwk;

/// A certificate authority, for example that of the MSI data plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CertificateAuthority {
    /// The certificate in DER.
    pub certificate: Vec<u8>,
    pub key: RsaKey,
}

/// An issuer of federated tokens, with the keys of its `jwks_uri`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TrustedIssuer {
    /// Key pairs of an emulated issuer, by `kid`.
    pub keys: BTreeMap<String, RsaKey>,
    /// Public keys of an external issuer, by `kid`.
    #[serde(default)]
    pub published: BTreeMap<String, RsaPublicJwk>,
}

impl TrustedIssuer {
    /// The content of the issuer's `jwks_uri`.
    pub fn key_set(&self) -> Value {
        let own = self.keys.iter().filter_map(|(kid, key)| {
            let (modulus, exponent) = key.jwk_modulus_and_exponent().ok()?;
            Some(rsa_signing_jwk(kid, &modulus, &exponent))
        });
        let published = self.published.iter().map(|(kid, key)| {
            let (modulus, exponent) = key.modulus_and_exponent();
            rsa_signing_jwk(kid, modulus, exponent)
        });
        json!({ "keys": own.chain(published).collect::<Vec<_>>() })
    }
}

/// A key in the form of RFC 7517; a key without an id has no `kid`.
fn rsa_signing_jwk(kid: &str, modulus: &str, exponent: &str) -> Value {
    let mut key =
        json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "n": modulus, "e": exponent });
    if !kid.is_empty() {
        key["kid"] = json!(kid);
    }
    key
}
