//! The client assertion: a JWT that proves possession of the certificate's key.
//!
//! RFC 7523 section 3 with Entra's rules: `PS256`, the leaf's SHA-256 thumbprint, and the whole
//! chain in `x5c` (RFC 7515, 4.1.6: base64 of DER, leaf first). The chain is sent unless it is
//! switched off, because a managed identity has no registered key that a thumbprint could find.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use lanyard_clock::ErrorHint;
use serde::Serialize;
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::bundle::{CertificateBundle, KeyKind, PrivateKey};
use crate::identity::ClientId;
use crate::secret::SecretText;

/// Signature algorithms for client assertions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum SigningAlgorithm {
    /// RSASSA-PSS with SHA-256, the algorithm that Entra recommends.
    #[default]
    #[serde(rename = "PS256")]
    Ps256,
    /// RSASSA-PKCS1-v1_5 with SHA-256, for authorities that do not support `PS256`.
    #[serde(rename = "RS256")]
    Rs256,
}

/// Options for building client assertions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssertionOptions {
    /// The signature algorithm.
    pub algorithm: SigningAlgorithm,
    /// Whether the header carries the certificate chain; on by default.
    pub send_chain: bool,
}

impl Default for AssertionOptions {
    fn default() -> Self {
        Self { algorithm: SigningAlgorithm::default(), send_chain: true }
    }
}

/// Errors of building a client assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssertionError {
    /// The key is not an RSA key.
    #[error("the private key is {kind}, and entra takes client assertions signed with rsa only")]
    RsaOnly {
        /// The kind of the bundle's key.
        kind: KeyKind,
    },
    /// The crypto library failed to sign.
    #[error("the assertion could not be signed")]
    Signing,
    /// The header or the claims could not be encoded as JSON.
    #[error("the assertion could not be encoded")]
    Encoding,
}

impl ErrorHint for AssertionError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::RsaOnly { .. } => "reissue the certificate with an RSA key of 2048 bits or more",
            Self::Signing | Self::Encoding => {
                "this is a defect of this program or its machine: please report it"
            }
        }))
    }
}

/// A signed client assertion. It is a bearer secret: its holder can request tokens until it expires.
pub(crate) struct ClientAssertion(SecretText);

impl ClientAssertion {
    /// Returns the compact JWT for the request form.
    pub(crate) fn as_str(&self) -> &str {
        self.0.expose()
    }
}

impl fmt::Debug for ClientAssertion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientAssertion(***)")
    }
}

/// Signs client assertions with one certificate bundle and caches the encoded header.
#[derive(Debug)]
pub(crate) struct AssertionSigner {
    bundle: CertificateBundle,
    algorithm: SigningAlgorithm,
    /// The encoded header, followed by a dot.
    encoded_header: String,
}

#[derive(Serialize)]
struct AssertionHeader {
    alg: SigningAlgorithm,
    typ: &'static str,
    #[serde(rename = "x5t#S256")]
    thumbprint: String,
    #[serde(rename = "x5c", skip_serializing_if = "Vec::is_empty")]
    chain: Vec<String>,
}

#[derive(Serialize)]
struct AssertionClaims<'a> {
    aud: &'a str,
    iss: &'a str,
    sub: &'a str,
    jti: Uuid,
    nbf: i64,
    exp: i64,
}

impl AssertionSigner {
    /// Creates a signer for `bundle`. Only RSA keys are accepted, as in Entra.
    pub(crate) fn new(
        bundle: CertificateBundle,
        options: AssertionOptions,
    ) -> Result<Self, AssertionError> {
        let PrivateKey::Rsa(_) = bundle.key() else {
            return Err(AssertionError::RsaOnly { kind: bundle.key_kind() });
        };
        let sent = if options.send_chain { bundle.chain() } else { &[] };
        let header = AssertionHeader {
            alg: options.algorithm,
            typ: "JWT",
            thumbprint: URL_SAFE_NO_PAD.encode(bundle.leaf().sha256().as_bytes()),
            chain: sent.iter().map(|certificate| STANDARD.encode(certificate.der())).collect(),
        };
        let Ok(header) = serde_json::to_vec(&header) else { return Err(AssertionError::Encoding) };
        let mut prefix = URL_SAFE_NO_PAD.encode(header);
        prefix.push('.');
        Ok(Self { bundle, algorithm: options.algorithm, encoded_header: prefix })
    }

    pub(crate) fn bundle(&self) -> &CertificateBundle {
        &self.bundle
    }

    /// Signs an assertion for the token endpoint `endpoint` on behalf of `client`.
    pub(crate) fn sign(
        &self,
        client: &ClientId,
        endpoint: &Url,
        now: Timestamp,
        jti: Uuid,
    ) -> Result<ClientAssertion, AssertionError> {
        let PrivateKey::Rsa(key) = self.bundle.key() else {
            return Err(AssertionError::RsaOnly { kind: self.bundle.key_kind() });
        };
        let claims = AssertionClaims {
            aud: endpoint.as_str(),
            iss: client.as_str(),
            sub: client.as_str(),
            jti,
            nbf: now.as_second().saturating_sub(CLOCK_SKEW_SECONDS),
            exp: now.as_second().saturating_add(LIFETIME_SECONDS),
        };
        let Ok(claims) = serde_json::to_vec(&claims) else { return Err(AssertionError::Encoding) };
        // Allocate the full capacity once: a buffer that grows leaves unwiped copies behind.
        let room =
            self.encoded_header.len() + (claims.len() + key.public_modulus_len()) * 4 / 3 + 8;
        let mut text = String::with_capacity(room);
        text.push_str(&self.encoded_header);
        URL_SAFE_NO_PAD.encode_string(claims, &mut text);
        let signature = self.compute_signature(key, text.as_bytes())?;
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_slice(), &mut text);
        Ok(ClientAssertion(SecretText::from(text)))
    }

    fn compute_signature(
        &self,
        key: &RsaKeyPair,
        message: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, AssertionError> {
        let mut signature = Zeroizing::new(vec![0; key.public_modulus_len()]);
        let random = SystemRandom::new();
        let signed = match self.algorithm {
            SigningAlgorithm::Ps256 => key.sign(&RSA_PSS_SHA256, &random, message, &mut signature),
            SigningAlgorithm::Rs256 => {
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
            }
        };
        if signed.is_ok() { Ok(signature) } else { Err(AssertionError::Signing) }
    }
}

/// `nbf` lies this many seconds in the past, to tolerate clock skew.
const CLOCK_SKEW_SECONDS: i64 = 60;
/// The lifetime of an assertion, in seconds.
const LIFETIME_SECONDS: i64 = 600;
