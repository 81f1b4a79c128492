//! The errors of the plugin and of its vault requests.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use lanyard_azure::ThrottleCause;
use lanyard_azure::error_codes::KEY_VAULT;
use lanyard_clock::{ErrorHint, ErrorReply, RetryClass};
use lanyard_credential::TokenError;

use crate::annotations::ForeignCiphertextError;
use crate::identity::credential_file_hint;
use crate::layout::CiphertextLayoutError;

/// A request to the vault failed. No variant contains a value of a request or a response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyOperationError {
    /// The credential returned no token.
    #[error("no token for the vault")]
    Token {
        /// The error of the credential.
        #[source]
        source: azure_core::Error,
    },
    /// The credential returned no token in time.
    #[error("no token for the vault within {} ms", after.as_millis())]
    TokenTimedOut {
        /// The time limit of the token request.
        after: Duration,
    },
    /// The vault rejected the token (401).
    #[error("the vault does not accept the token: {0}")]
    Unauthorized(VaultErrorReply),
    /// The key is disabled, expired or not valid yet (403).
    #[error("the key cannot be used: {0}")]
    KeyUnusable(VaultErrorReply),
    /// The identity has no permission to use the key (403).
    #[error("the vault forbids it: {0}")]
    Forbidden(VaultErrorReply),
    /// The key or its version does not exist (404).
    #[error("the vault has no such key: {0}")]
    NotFound(VaultErrorReply),
    /// The vault throttles (429).
    #[error("the vault throttled the request: {reply}")]
    Throttled {
        /// The vault's reply.
        reply: VaultErrorReply,
        /// The pause that the vault asks for.
        retry_after: Option<Duration>,
    },
    /// The vault failed (408, 5xx).
    #[error("the vault failed: {reply}")]
    Failed {
        /// The vault's reply.
        reply: VaultErrorReply,
        /// The pause that the vault asks for.
        retry_after: Option<Duration>,
    },
    /// The vault rejected the request (any other status).
    #[error("the vault refused: {0}")]
    Refused(VaultErrorReply),
    /// The request was not sent, because the transport throttles requests to the vault.
    #[error("the vault {because} for another {} s", remaining.as_secs())]
    RequestWithheld {
        /// Why the transport throttles.
        because: ThrottleCause,
        /// For how much longer.
        remaining: Duration,
    },
    /// The connection failed.
    #[error("no reply from the vault")]
    Unreachable {
        /// The error of the connection.
        #[source]
        source: azure_core::Error,
    },
    /// The vault did not reply in time.
    #[error("no reply from the vault within {} ms", after.as_millis())]
    TimedOut {
        /// The time limit of the request.
        after: Duration,
    },
    /// The reply does not have the form of a vault's reply.
    #[error("the reply is not what a vault sends: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// The vault's error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultErrorReply {
    /// The HTTP status.
    pub status: u16,
    /// The inner error code, or else the outer one.
    pub code: Option<String>,
    /// The message, truncated and without anything that looks like a token.
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
    /// The value of the metric label `error_message`: one of a few fixed words.
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

    /// Whether the vault request can be repeated within one API server request. Both operations are
    /// idempotent, so a retry is safe whatever failed.
    pub(crate) fn retry_class(&self) -> RetryClass {
        match self {
            Self::Unauthorized(reply)
            | Self::KeyUnusable(reply)
            | Self::Forbidden(reply)
            | Self::NotFound(reply)
            | Self::Refused(reply) => KEY_VAULT.retry_class(reply.to_reply()),
            Self::Throttled { reply, retry_after } | Self::Failed { reply, retry_after } => {
                KEY_VAULT.retry_class(reply.to_reply()).with_requested_delay(*retry_after)
            }
            Self::RequestWithheld { remaining, .. } => {
                RetryClass::Throttled { after: Some(*remaining) }
            }
            Self::Unreachable { .. } | Self::TimedOut { .. } => RetryClass::Transient,
            // The credential repeats its requests itself.
            Self::Token { .. } | Self::TokenTimedOut { .. } | Self::Malformed { .. } => {
                RetryClass::Denied
            }
        }
    }
}

impl VaultErrorReply {
    /// The reply for the table of the vault's error codes.
    fn to_reply(&self) -> ErrorReply<'_> {
        let Self { status, code, message } = self;
        ErrorReply { status: Some(*status), code: code.as_deref(), message }
    }
}

/// The next step if the identity may not use the key.
const GRANT_KEY_OPERATIONS: &str = "give the identity `Key Vault Crypto User` on the key, or the access policy `encrypt` and `decrypt`, and wait up to 10 minutes";

impl ErrorHint for KeyOperationError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let text = match self {
            Self::Token { source } => {
                return credential_file_hint(source).or_else(|| TokenError::of(source)?.hint());
            }
            Self::TokenTimedOut { .. } => {
                "check the connection to Entra, or to the other issuer of the token: HTTPS_PROXY, DNS, the trusted roots and egress rules"
            }
            Self::Unauthorized(reply)
            | Self::KeyUnusable(reply)
            | Self::Forbidden(reply)
            | Self::NotFound(reply)
            | Self::Refused(reply)
            | Self::Throttled { reply, .. }
            | Self::Failed { reply, .. } => {
                return Some(KEY_VAULT.permission_hint(reply.to_reply(), GRANT_KEY_OPERATIONS));
            }
            Self::RequestWithheld { because: ThrottleCause::LocalRateLimit, .. } => {
                "too many requests are queued in this plugin: find the clients that cause them at the API server, and check for `KMSv1`, which makes a request for each Secret"
            }
            Self::RequestWithheld { .. } => {
                "check which other clients use the vault: all clients share one limit"
            }
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                "check HTTPS_PROXY, DNS, the trusted roots and the vault's firewall"
            }
            Self::Malformed { .. } => "check that no proxy or gateway answers in the vault's place",
        };
        Some(text.into())
    }
}

/// An operation of the plugin failed. The texts start like those of kubernetes-kms and its fork.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KmsPluginError {
    /// The ciphertext was not encrypted with this key.
    #[error(transparent)]
    ForeignCiphertext(#[from] ForeignCiphertextError),
    /// The ciphertext has neither known layout; no request was sent to the vault.
    #[error("failed to decrypt, error")]
    Layout(#[source] CiphertextLayoutError),
    /// The encrypt request failed.
    #[error("failed to encrypt, error")]
    Encrypt(#[source] KeyOperationError),
    /// The vault's encrypt reply contains no valid ciphertext.
    #[error("failed to encrypt, error")]
    Ciphertext(#[source] CiphertextLayoutError),
    /// The vault encrypted with another key.
    #[error(
        "key id initialized does not match with the key id from encryption result, expected: {expected}, got: {got}"
    )]
    KeyId {
        /// The id of this plugin's key.
        expected: String,
        /// The `kid` of the vault's reply.
        got: String,
    },
    /// The decrypt request failed.
    #[error("failed to decrypt, error")]
    Decrypt(#[source] KeyOperationError),
    /// The vault's decrypt reply is not encoded as expected.
    #[error("failed to base64 decode result, error")]
    Plaintext(#[source] CiphertextLayoutError),
    /// The proof's decrypt request did not return the encrypted value.
    #[error("the vault decrypted a value other than the one it had encrypted")]
    ProofMismatch,
    /// Another caller's proof was still running at this caller's deadline.
    #[error(
        "no proof of the key within {} ms: one that began {} ms ago has neither token nor reply",
        after.as_millis(),
        under_way.as_millis()
    )]
    ProofTimedOut {
        /// How long this caller waited.
        after: Duration,
        /// How long ago the running proof started.
        under_way: Duration,
    },
}

impl KmsPluginError {
    /// Whether the only cause is an expired time limit.
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

    /// The value of the metric label `error_message`: one of a few fixed words.
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

impl ErrorHint for KmsPluginError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let text = match self {
            Self::Encrypt(error) | Self::Decrypt(error) => return error.hint(),
            Self::ForeignCiphertext(error) => return error.hint(),
            Self::Layout(_) | Self::Plaintext(_) => {
                "compare the object's bytes in etcd with a backup: another program wrote them"
            }
            Self::Ciphertext(_) | Self::ProofMismatch => {
                "check that no proxy or gateway answers in the vault's place"
            }
            Self::ProofTimedOut { .. } => {
                "check the connections to Entra and to the vault: HTTPS_PROXY, DNS, the trusted roots and the vault's firewall"
            }
            Self::KeyId { .. } => {
                "write --keyvault-name and --key-name in the case of the `kid` that came back, or serve the vault under its own name"
            }
        };
        Some(text.into())
    }
}
