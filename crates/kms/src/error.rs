//! Why something was not encrypted or decrypted.

use std::fmt;
use std::time::Duration;

use lanyard_azure::{AzureErrorDetails, ThrottleCause};
use lanyard_credential::TokenError;

use crate::annotations::ForeignCiphertextError;
use crate::identity::credential_file_hint;
use crate::layout::CiphertextLayoutError;

/// The vault did not do what was asked. No variant holds a value that went to it or came from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyOperationError {
    /// There is no token to ask with.
    #[error("no token for the vault")]
    Token {
        /// Why.
        #[source]
        source: azure_core::Error,
    },
    /// There was no token in time.
    #[error("no token for the vault within {} ms", after.as_millis())]
    TokenTimedOut {
        /// How long was waited.
        after: Duration,
    },
    /// The vault does not accept the token (401).
    #[error("the vault does not accept the token: {0}")]
    Unauthorized(VaultErrorReply),
    /// The key is disabled, expired or not valid yet (403).
    #[error("the key cannot be used: {0}")]
    KeyUnusable(VaultErrorReply),
    /// The identity may not use the key (403).
    #[error("the vault forbids it: {0}")]
    Forbidden(VaultErrorReply),
    /// There is no such key or version (404).
    #[error("the vault has no such key: {0}")]
    NotFound(VaultErrorReply),
    /// The vault throttles (429).
    #[error("the vault throttles: {reply}")]
    Throttled {
        /// What came back.
        reply: VaultErrorReply,
        /// For how long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The vault failed (408, 5xx).
    #[error("the vault failed: {reply}")]
    Failed {
        /// What came back.
        reply: VaultErrorReply,
        /// For how long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The vault refused the request (any other status).
    #[error("the vault refused: {0}")]
    Refused(VaultErrorReply),
    /// The vault was not asked, because it is left alone.
    #[error("the vault {because} for another {} s", remaining.as_secs())]
    RequestWithheld {
        /// Why.
        because: ThrottleCause,
        /// For how long.
        remaining: Duration,
    },
    /// No reply came.
    #[error("no reply from the vault")]
    Unreachable {
        /// What broke.
        #[source]
        source: azure_core::Error,
    },
    /// No reply came in time.
    #[error("no reply from the vault within {} ms", after.as_millis())]
    TimedOut {
        /// How long was waited.
        after: Duration,
    },
    /// The reply is not what a vault sends.
    #[error("the reply is not what a vault sends: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// What the vault said when it refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultErrorReply {
    /// The HTTP status.
    pub status: u16,
    /// The inner code, or the outer one, or nothing.
    pub code: Option<String>,
    /// The words, cut and without what looks like a token.
    pub message: String,
}

impl fmt::Display for VaultErrorReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, code, message } = self;
        match code {
            Some(code) => write!(formatter, "{status} {code}: {message}"),
            None => write!(formatter, "{status}: {message}"),
        }
    }
}

impl KeyOperationError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Token { source } => {
                return credential_file_hint(source).or_else(|| TokenError::of(source)?.hint());
            }
            Self::TokenTimedOut { .. } => {
                "check the way to Entra, or to whoever else issues the token: HTTPS_PROXY, DNS, the trusted roots and the rules of egress"
            }
            Self::Unauthorized(_) => {
                "compare the tenant of the identity with the vault's, and the cloud in the configuration file"
            }
            Self::KeyUnusable(_) => {
                "enable this version of the key, or give it another date, until nothing is encrypted with it"
            }
            Self::Forbidden(reply) => {
                let beside_roles = reply.code.as_deref().and_then(AzureErrorDetails::non_role_hint);
                beside_roles.unwrap_or(
                    "give the identity `Key Vault Crypto User` on the key, or the access policy `encrypt` and `decrypt`, and wait up to 10 minutes",
                )
            }
            Self::NotFound(_) => {
                "check --keyvault-name, --key-name and --key-version; a deleted key can be recovered"
            }
            Self::Refused(_) => {
                "see the code of the vault; the key has to be an RSA key with `encrypt` and `decrypt`"
            }
            Self::RequestWithheld { because: ThrottleCause::LocalRateLimit, .. } => {
                "too many requests wait in this plugin: see who asks the API server for so much at once, and `KMSv1`, which asks for each Secret"
            }
            Self::Throttled { .. } | Self::RequestWithheld { .. } => {
                "see who else uses the vault: all its clients share one limit"
            }
            Self::Failed { .. } => "see the state of Key Vault in the region",
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                "check HTTPS_PROXY, DNS, the trusted roots and the vault's firewall"
            }
            Self::Malformed { .. } => "check that no gateway answers in the vault's place",
        };
        Some(text.to_owned())
    }

    /// A word for it, as a label: there are few.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Token { .. } | Self::TokenTimedOut { .. } => "token",
            Self::Unauthorized(_) => "unauthorized",
            Self::KeyUnusable(_) => "key-restricted",
            Self::Forbidden(_) => "forbidden",
            Self::NotFound(_) => "not-found",
            Self::Throttled { .. } | Self::RequestWithheld { .. } => "throttled",
            Self::Failed { .. } => "vault-failed",
            Self::Refused(_) => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::TimedOut { .. } => "timed-out",
            Self::Malformed { .. } => "malformed",
        }
    }

    /// Whether it may pass by itself within a request, and what the vault wants to be waited
    /// for. Encrypting and decrypting change nothing, so both may be asked again whatever broke.
    pub const fn retry_delay(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after: wait, .. } | Self::Failed { retry_after: wait, .. } => {
                match wait {
                    Some(wait) => Some(*wait),
                    None => Some(Duration::ZERO),
                }
            }
            Self::RequestWithheld { remaining, .. } => Some(*remaining),
            Self::Unreachable { .. } | Self::TimedOut { .. } => Some(Duration::ZERO),
            _ => None,
        }
    }
}

/// The plugin did not do what the API server asked. The beginnings of the texts are those of the
/// other plugins.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KmsPluginError {
    /// The ciphertext is not one of this key's.
    #[error(transparent)]
    ForeignCiphertext(#[from] ForeignCiphertextError),
    /// The ciphertext has no layout that is known; the vault was not asked.
    #[error("failed to decrypt, error")]
    Layout(#[source] CiphertextLayoutError),
    /// The vault did not encrypt.
    #[error("failed to encrypt, error")]
    Encrypt(#[source] KeyOperationError),
    /// What the vault encrypted is no ciphertext.
    #[error("failed to encrypt, error")]
    Ciphertext(#[source] CiphertextLayoutError),
    /// The vault encrypted with a key of another name.
    #[error(
        "key id initialized does not match with the key id from encryption result, expected: {expected}, got: {got}"
    )]
    KeyId {
        /// The id of this plugin's key.
        expected: String,
        /// The `kid` of the vault's reply.
        got: String,
    },
    /// The vault did not decrypt.
    #[error("failed to decrypt, error")]
    Decrypt(#[source] KeyOperationError),
    /// What the vault decrypted is not encoded as it was.
    #[error("failed to base64 decode result, error")]
    Plaintext(#[source] CiphertextLayoutError),
    /// The vault decrypted something else than it had encrypted.
    #[error("the vault decrypted something else than it had encrypted")]
    ProofMismatch,
    /// Somebody else's proof that the key works was waited for, and had no outcome in time.
    #[error(
        "no proof of the key within {} ms: one that began {} ms ago has neither token nor reply",
        after.as_millis(),
        under_way.as_millis()
    )]
    ProofTimedOut {
        /// How long was waited.
        after: Duration,
        /// How long ago that proof began.
        under_way: Duration,
    },
}

impl KmsPluginError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Encrypt(error) | Self::Decrypt(error) => return error.hint(),
            Self::ForeignCiphertext(error) => error.hint(),
            Self::Layout(_) | Self::Plaintext(_) => {
                "compare the object's bytes in etcd with a backup: another program wrote them"
            }
            Self::Ciphertext(_) | Self::ProofMismatch => {
                "check that no gateway answers in the vault's place"
            }
            Self::ProofTimedOut { .. } => {
                "check the ways to Entra and to the vault: HTTPS_PROXY, DNS, the trusted roots and the vault's firewall"
            }
            Self::KeyId { .. } => {
                "write --keyvault-name and --key-name in the case of the `kid` that came back, or serve the vault under its own name"
            }
        };
        Some(text.to_owned())
    }

    /// Whether it says no more than that there was too little time.
    pub(crate) const fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::ProofTimedOut { .. }
                | Self::Encrypt(
                    KeyOperationError::TimedOut { .. } | KeyOperationError::TokenTimedOut { .. }
                )
                | Self::Decrypt(
                    KeyOperationError::TimedOut { .. } | KeyOperationError::TokenTimedOut { .. }
                )
        )
    }

    /// A word for it, as a label: there are few.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::ForeignCiphertext(ForeignCiphertextError::Key { .. }) => "other-key",
            Self::ForeignCiphertext(_) => "annotations",
            Self::Layout(_) => "layout",
            Self::Encrypt(error) | Self::Decrypt(error) => error.label(),
            Self::Ciphertext(_) | Self::Plaintext(_) => "malformed",
            Self::KeyId { .. } => "key-id",
            Self::ProofMismatch => "mismatch",
            Self::ProofTimedOut { .. } => "timed-out",
        }
    }
}
