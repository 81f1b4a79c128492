//! The two algorithms of the plugin.

use std::fmt;

/// How the vault pads a text before RSA (RFC 7518, 4.2 and 4.3). The version of the API decides,
/// not the ciphertext: two ciphertexts of one key look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// `RSA-OAEP-256`, for version 2 of the KMS API.
    RsaOaep256,
    /// `RSA1_5`, for version 1.
    Rsa15,
}

impl KeyAlgorithm {
    /// The name in requests to the vault and in annotations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RsaOaep256 => "RSA-OAEP-256",
            Self::Rsa15 => "RSA1_5",
        }
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
