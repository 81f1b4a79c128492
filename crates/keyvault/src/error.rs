//! Errors of vault reads.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use lanyard_azure::error_codes::KEY_VAULT;
use lanyard_clock::{ErrorHint, ErrorReply, RetryClass};
use lanyard_credential::TokenError;
use lanyard_vocabulary::Hop;

/// The reason why a vault read failed. No variant contains a value of the vault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultReadError {
    /// The object or version does not exist.
    #[error("the vault has no such object: {0}")]
    NotFound(VaultErrorDetails),
    /// The version is disabled.
    #[error("the object is disabled: {0}")]
    Disabled(VaultErrorDetails),
    /// The identity lacks the permission to read the object.
    #[error("the vault forbids it: {0}")]
    Forbidden(VaultErrorDetails),
    /// The vault rejected the token.
    #[error("the vault does not accept the token: {0}")]
    Unauthorized(VaultErrorDetails),
    /// The vault throttled the request.
    #[error("the vault throttled the request: {reply}")]
    Throttled {
        /// The vault's error response.
        reply: VaultErrorDetails,
        /// The delay of the `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// The vault requested a cool-down that has not passed; no request was sent.
    #[error("{host} requested a cool-down, which lasts another {} s", remaining.as_secs())]
    ThrottledCoolDown {
        /// The vault's host.
        host: String,
        /// The remaining cool-down.
        remaining: Duration,
    },
    /// The queue of this node's reads of the vault exceeds the node's rate limit. No request was sent; the
    /// vault is not the cause.
    #[error(
        "the rate limit of this node for {host} is reached, and this read would wait for {} s",
        wait.as_secs()
    )]
    RequestQueueFull {
        /// The vault's host.
        host: String,
        /// The time that the queued reads take.
        wait: Duration,
    },
    /// The circuit breaker is open after repeated failures of the vault; no request was sent.
    #[error("{host} failed repeatedly; the circuit breaker stays open for another {} s", remaining.as_secs())]
    CircuitOpen {
        /// The vault's host.
        host: String,
        /// The time until the next attempt.
        remaining: Duration,
    },
    /// The read, with all its retries, exceeded its timeout.
    #[error("the vault did not answer within {} s", limit.as_secs())]
    TimedOut {
        /// The timeout.
        limit: Duration,
    },
    /// The read was cancelled because the program is shutting down.
    #[error("the read was interrupted")]
    Interrupted,
    /// The vault failed with a server error.
    #[error("the vault failed: {reply}")]
    Unavailable {
        /// The vault's error response.
        reply: VaultErrorDetails,
        /// The delay of the `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// The response has a status that reads do not return.
    #[error("the vault responded with an unexpected status: {0}")]
    Unexpected(VaultErrorDetails),
    /// The response is successful, but its body is malformed.
    #[error("the vault's response is malformed: {problem}")]
    Malformed {
        /// The problem of the body.
        problem: &'static str,
    },
    /// No token for the vault is available.
    #[error("there is no token for the vault")]
    Token {
        /// The credential's error.
        #[source]
        source: azure_core::Error,
    },
    /// The vault did not respond.
    #[error("the vault was not reached")]
    Unreachable {
        /// The transport's error.
        #[source]
        source: azure_core::Error,
    },
    /// The client does not trust the vault's URL or authentication challenge with a token.
    #[error("the vault is not trusted with a token")]
    UntrustedVault {
        /// The client's error.
        #[source]
        source: azure_core::Error,
    },
}

impl VaultReadError {
    /// The vault's error reply, if there is one.
    const fn reply(&self) -> Option<&VaultErrorDetails> {
        match self {
            Self::NotFound(reply)
            | Self::Disabled(reply)
            | Self::Forbidden(reply)
            | Self::Unauthorized(reply)
            | Self::Unexpected(reply)
            | Self::Throttled { reply, .. }
            | Self::Unavailable { reply, .. } => Some(reply),
            _ => None,
        }
    }

    /// Whether and when the read may succeed. For token errors the credential's own error decides; errors of
    /// other credential types count as transient.
    pub fn retry(&self) -> RetryClass {
        match self {
            Self::NotFound(reply)
            | Self::Disabled(reply)
            | Self::Forbidden(reply)
            | Self::Unauthorized(reply)
            | Self::Unexpected(reply) => KEY_VAULT.retry_class(reply.to_reply()),
            Self::Throttled { reply, retry_after } | Self::Unavailable { reply, retry_after } => {
                KEY_VAULT.retry_class(reply.to_reply()).with_requested_delay(*retry_after)
            }
            Self::UntrustedVault { .. } => RetryClass::Denied,
            Self::ThrottledCoolDown { remaining: after, .. }
            | Self::RequestQueueFull { wait: after, .. }
            | Self::CircuitOpen { remaining: after, .. } => {
                RetryClass::Throttled { after: Some(*after) }
            }
            Self::Token { source } => {
                TokenError::of(source).map_or(RetryClass::Transient, TokenError::retry_class)
            }
            Self::Interrupted
            | Self::TimedOut { .. }
            | Self::Malformed { .. }
            | Self::Unreachable { .. } => RetryClass::Transient,
        }
    }

    /// How long the circuit breaker stays open, if it rejected this read without a request. After that time
    /// one read is sent as a probe, and the other readers share its outcome.
    pub fn circuit_open_for(&self) -> Option<Duration> {
        if let Self::CircuitOpen { remaining, .. } = self { Some(*remaining) } else { None }
    }

    /// Whether the vault or its token service is unavailable: unreachable, failing or throttling. Rejections
    /// of the identity or the object do not count, and neither do the node's own rate limits.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Throttled { .. }
            | Self::ThrottledCoolDown { .. }
            | Self::CircuitOpen { .. }
            | Self::Unavailable { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. } => true,
            Self::Token { source } => TokenError::of(source).is_some_and(TokenError::is_outage),
            _ => false,
        }
    }

    /// Whether the identity or its credential was rejected, or the object is gone: earlier results must no
    /// longer be served.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::NotFound(_)
            | Self::Disabled(_)
            | Self::Forbidden(_)
            | Self::Unauthorized(_)
            | Self::UntrustedVault { .. } => true,
            Self::Token { source } => TokenError::of(source).is_some_and(TokenError::is_refusal),
            _ => false,
        }
    }

    /// The hop that failed: the token request, or the vault read.
    pub fn hop(&self) -> Hop {
        if matches!(self, Self::Token { .. }) { Hop::ImdsToken } else { Hop::VaultRead }
    }

    /// The HTTP status of the response, if there is one.
    pub fn status(&self) -> Option<u16> {
        self.reply().map(|reply| reply.status)
    }
}

impl ErrorHint for VaultReadError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        if let Some(reply) = self.reply() {
            return Some(KEY_VAULT.hint(reply.to_reply()));
        }
        let text = match self {
            Self::Token { source } => {
                return TokenError::of(source).and_then(TokenError::hint).or_else(|| {
                    Some(
                        "see the cause: the identity got no token, and the vault was not asked"
                            .into(),
                    )
                });
            }
            Self::ThrottledCoolDown { .. } => {
                "wait; every client of the vault shares its limit, so read less often or spread \
                 the objects over vaults"
            }
            Self::RequestQueueFull { .. } => {
                "wait; where it does not end, raise --vault-requests-per-second within what the \
                 vault's nodes share, or spread the objects over vaults"
            }
            Self::Interrupted => "try again",
            Self::CircuitOpen { .. } => "wait, and see the health of Key Vault in the region",
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                "check keyvaultName, DNS, the proxy settings, the trusted roots, and the \
                 vault's firewall"
            }
            Self::UntrustedVault { .. } => {
                "check that the vault's host ends in the suffix of its cloud and that no proxy \
                 answers in its place"
            }
            _ => "check that the host is a Key Vault and that no proxy answers in its place",
        };
        Some(text.into())
    }
}

/// The error response of a vault, or of a gateway in front of it.
///
/// The texts are excerpts ([`lanyard_credential::reply`]): short, on one line, and without the token of the
/// request, which such responses may echo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultErrorDetails {
    /// The HTTP status.
    pub status: u16,
    /// The error code.
    pub code: Option<String>,
    /// The code of the inner error, which is more specific (`ForbiddenByRbac`).
    pub inner_code: Option<String>,
    pub message: String,
}

impl VaultErrorDetails {
    /// The reply for the table of the vault's error codes.
    fn to_reply(&self) -> ErrorReply<'_> {
        let code = self.inner_code.as_deref().or(self.code.as_deref());
        ErrorReply { status: Some(self.status), code, message: &self.message }
    }
}

impl fmt::Display for VaultErrorDetails {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.status)?;
        for code in [&self.code, &self.inner_code].into_iter().flatten() {
            write!(formatter, " {code}")?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(formatter, " ({})", self.message) }
    }
}
