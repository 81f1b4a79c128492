//! The id of a signing key.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The id of a signing key: the `kid` of a token's header and of a key in a key set.
///
/// The Kubernetes API server and ccoctl derive the id in the same way, so tokens carry the `kid`
/// that the key set lists: the unpadded base64url of the SHA-256 of the public key as PKIX DER.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// The id of the key with this `SubjectPublicKeyInfo` (RFC 5280).
    pub(crate) fn of_public_key_der(der: &[u8]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(digest(&SHA256, der)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for KeyId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

lanyard_vocabulary::display_text!(KeyId, 0);
