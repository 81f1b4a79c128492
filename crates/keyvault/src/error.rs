//! Why a vault was not read.

use std::fmt;
use std::time::Duration;

use lanyard_credential::{RetryClass, TokenError};
use lanyard_vocabulary::Hop;

/// A vault was not read. No variant carries a value that came from the vault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultReadError {
    /// There is no such object or version.
    #[error("the vault has no such object: {0}")]
    NotFound(VaultErrorDetails),
    /// The version is disabled.
    #[error("the object is disabled: {0}")]
    Disabled(VaultErrorDetails),
    /// The identity may not read it.
    #[error("the vault forbids it: {0}")]
    Forbidden(VaultErrorDetails),
    /// The vault does not accept the token.
    #[error("the vault does not accept the token: {0}")]
    Unauthorized(VaultErrorDetails),
    /// Too many requests.
    #[error("the vault throttles: {reply}")]
    Throttled {
        /// What came back.
        reply: VaultErrorDetails,
        /// How long the vault asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The vault asked to be left alone a while ago, and the time is not over. It was not asked.
    #[error("{host} asked to be left alone for another {} s", remaining.as_secs())]
    ThrottledCoolDown {
        /// The vault's host.
        host: String,
        /// How long it still lasts.
        remaining: Duration,
    },
    /// As many reads of this node wait for the vault as it may be asked meanwhile. It was not asked
    /// for this one, and has nothing to do with it.
    #[error(
        "this node asks {host} as fast as it may, and this read would wait for {} s",
        wait.as_secs()
    )]
    RequestQueueFull {
        /// The vault's host.
        host: String,
        /// How long those ahead take.
        wait: Duration,
    },
    /// The vault failed again and again, and is left alone for a while. It was not asked.
    #[error("{host} failed again and again and is left alone for another {} s", remaining.as_secs())]
    CircuitOpen {
        /// The vault's host.
        host: String,
        /// How long it still is.
        remaining: Duration,
    },
    /// The read took too long, with everything that was tried again.
    #[error("the vault did not answer within {} s", limit.as_secs())]
    TimedOut {
        /// How long it might take.
        limit: Duration,
    },
    /// The read was given up before it came to an end: the program shuts down.
    #[error("the read was interrupted")]
    Interrupted,
    /// The vault failed on its side.
    #[error("the vault failed: {reply}")]
    Unavailable {
        /// What came back.
        reply: VaultErrorDetails,
        /// How long the vault asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// A status that a read does not have.
    #[error("the vault answered what a read does not have: {0}")]
    Unexpected(VaultErrorDetails),
    /// A success whose body is not what a read gives.
    #[error("the vault's answer is not what a read gives: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is no token for the vault.
    #[error("there is no token for the vault")]
    Token {
        /// The credential's own error.
        #[source]
        source: azure_core::Error,
    },
    /// The request was not answered.
    #[error("the vault was not reached")]
    Unreachable {
        /// The transport's own error.
        #[source]
        source: azure_core::Error,
    },
    /// The vault's URL, or the challenge that came from it, is not one to send a token to.
    #[error("the vault is not one to send a token to")]
    UntrustedVault {
        /// The client's own error.
        #[source]
        source: azure_core::Error,
    },
}

impl VaultReadError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        if let Self::Token { source } = self
            && let Some(hint) = TokenError::of(source).and_then(TokenError::hint)
        {
            return Some(hint);
        }
        Some(self.variant_hint().to_owned())
    }

    fn variant_hint(&self) -> &'static str {
        match self {
            Self::NotFound(_) => {
                "the identity may read the vault, so check objectName, objectType and \
                 objectVersion; a deleted object has to be recovered"
            }
            Self::Disabled(_) => "enable the version, or name another one in objectVersion",
            Self::Forbidden(reply) => forbidden_hint(reply),
            Self::Unauthorized(_) => {
                "compare the tenant of the identity with the tenant of the vault, and the cloud \
                 with the vault's suffix"
            }
            Self::Throttled { .. } | Self::ThrottledCoolDown { .. } => {
                "wait; every client of the vault shares its limit, so read less often or spread \
                 the objects over vaults"
            }
            Self::RequestQueueFull { .. } => {
                "wait; where it does not end, raise --vault-requests-per-second within what the \
                 vault's nodes share, or spread the objects over vaults"
            }
            Self::Interrupted => "try again",
            Self::Unavailable { .. } | Self::CircuitOpen { .. } => {
                "wait, and see the health of Key Vault in the region"
            }
            Self::Unexpected(_) | Self::Malformed { .. } => {
                "check that the host is a Key Vault and that no proxy answers in its place"
            }
            Self::Token { .. } => {
                "see the cause: the identity got no token, and the vault was not asked"
            }
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                "check keyvaultName, DNS, the proxy settings, the trusted roots, and the \
                 vault's firewall"
            }
            Self::UntrustedVault { .. } => {
                "check that the vault's host ends in the suffix of its cloud and that no proxy \
                 answers in its place"
            }
        }
    }

    /// Whether and when the same read may succeed. Where there was no token, the credential's
    /// own error knows; a credential that is not of ours is given the benefit of the doubt.
    pub fn retry(&self) -> RetryClass {
        match self {
            Self::NotFound(_) | Self::Disabled(_) => RetryClass::Invalid,
            Self::Forbidden(_) | Self::Unauthorized(_) | Self::UntrustedVault { .. } => {
                RetryClass::Denied
            }
            Self::Throttled { retry_after, .. } => RetryClass::Throttled { after: *retry_after },
            Self::Unavailable { retry_after: Some(after), .. }
            | Self::ThrottledCoolDown { remaining: after, .. }
            | Self::RequestQueueFull { wait: after, .. }
            | Self::CircuitOpen { remaining: after, .. } => {
                RetryClass::Throttled { after: Some(*after) }
            }
            Self::Token { source } => {
                TokenError::of(source).map_or(RetryClass::Transient, TokenError::retry_class)
            }
            Self::Unavailable { .. }
            | Self::Interrupted
            | Self::TimedOut { .. }
            | Self::Unexpected(_)
            | Self::Malformed { .. }
            | Self::Unreachable { .. } => RetryClass::Transient,
        }
    }

    /// For how long nobody asks the vault, where it was not asked for this read because it failed
    /// others: this read itself came to nothing. After that one is sent to see whether it is back, and
    /// the others learn of its outcome.
    pub fn circuit_open_for(&self) -> Option<Duration> {
        if let Self::CircuitOpen { remaining, .. } = self { Some(*remaining) } else { None }
    }

    /// Whether the vault, or the service that issues tokens for it, is not there: it was not
    /// reached, fails, or throttles. What refuses the identity or the object is there, and so is what
    /// this node itself does not ask.
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

    /// Whether the identity, or the way it proves itself, was refused, or the object is gone: what
    /// was read before may not be read any more.
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

    /// The hop that is broken: the way to the token, or the vault itself.
    pub fn hop(&self) -> Hop {
        if matches!(self, Self::Token { .. }) { Hop::ImdsToken } else { Hop::VaultRead }
    }

    /// The status that came back, where something did.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::NotFound(reply)
            | Self::Disabled(reply)
            | Self::Forbidden(reply)
            | Self::Unauthorized(reply)
            | Self::Unexpected(reply)
            | Self::Throttled { reply, .. }
            | Self::Unavailable { reply, .. } => Some(reply.status),
            _ => None,
        }
    }
}

/// What a vault, or a gateway in its place, answered when it did not give the object.
///
/// The texts are excerpts ([`lanyard_credential::error_reply`]): short, on one line, and without the
/// token of the request, which such answers echo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultErrorDetails {
    /// The HTTP status.
    pub status: u16,
    /// The error code.
    pub code: Option<String>,
    /// The code of the inner error, which says more (`ForbiddenByRbac`).
    pub inner_code: Option<String>,
    /// The message.
    pub message: String,
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

fn forbidden_hint(reply: &VaultErrorDetails) -> &'static str {
    match reply.inner_code.as_deref() {
        Some("ForbiddenByRbac") => {
            "assign `Key Vault Secrets User` to the identity at the secret or the vault (`Key \
             Vault Crypto User` for keys, `Key Vault Certificate User` for certificates); an \
             assignment takes up to 10 minutes to work"
        }
        Some("ForbiddenByPolicy") => {
            "the vault uses access policies: give the identity `get` (and `list` for a version \
             history) for this kind of object"
        }
        Some("ForbiddenByFirewall" | "ForbiddenByConnection") => {
            "the vault's network rules refuse this address: allow it, or go through the private \
             endpoint"
        }
        _ => "give the identity the right to read this object, and see the vault's network rules",
    }
}
