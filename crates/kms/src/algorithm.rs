//! The encryption algorithms of the plugin.

/// The RSA padding that the vault uses (RFC 7518, 4.2 and 4.3). The version of the KMS API
/// determines it, because ciphertexts of both algorithms look alike.
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

lanyard_vocabulary::display_text!(KeyAlgorithm, name());
