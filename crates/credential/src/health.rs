//! How a credential is, for probes, dashboards and people.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::identity::TenantId;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::table::CachedToken;

/// The tokens of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TokenHealth {
    /// Every token that is held, by scope.
    pub scopes: Vec<ScopeHealth>,
    /// Why the last request for each scope failed, the newest first; a scope leaves with its next
    /// token. At most 64.
    pub errors: Vec<LastTokenError>,
    /// Whether a request failed since the newest token for a reason that may concern every scope:
    /// the identity, its key, or the way to the service. That one scope or resource does not exist
    /// does not count, nor what another tenant says.
    pub identity_in_doubt: bool,
    /// The generation whose key asked for the newest token.
    pub last_generation: Option<u64>,
    /// How often what happened.
    pub counts: TokenCounts,
}

impl TokenHealth {
    /// Whether tokens can be had: one is still valid, or nothing puts the identity in doubt.
    pub fn is_ready(&self) -> bool {
        !self.identity_in_doubt || self.scopes.iter().any(|scope| scope.seconds_left > 0)
    }
}

/// One token that is held; never the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScopeHealth {
    /// The scope.
    pub scope: String,
    /// The tenant, where another than the credential's own was asked for.
    pub tenant: Option<TenantId>,
    /// When the service stops taking the token.
    pub expires_on: Timestamp,
    /// For how many seconds it is still valid.
    pub seconds_left: u64,
    /// Whether its renewal is due.
    pub refresh_due: bool,
    /// The generation whose key asked for it; zero where there are no generations.
    pub generation: u64,
}

impl ScopeHealth {
    pub(crate) fn observe(key: &TokenKey, token: &CachedToken, now: Duration) -> Self {
        Self {
            scope: key.scope.to_string(),
            tenant: key.variant.tenant.clone(),
            expires_on: Timestamp::from_second(token.expires_on.unix_timestamp())
                .unwrap_or_default(),
            seconds_left: token.lifetime.expires_at.saturating_sub(now).as_secs(),
            refresh_due: now >= token.lifetime.refresh_at,
            generation: token.generation,
        }
    }
}

/// Why there was no token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LastTokenError {
    /// The scope that was asked for.
    pub scope: String,
    /// The tenant, where another than the credential's own was asked for.
    pub tenant: Option<TenantId>,
    /// [`TokenError::code`].
    pub code: String,
    /// What happened.
    pub text: String,
    /// What to do next.
    pub hint: Option<String>,
    /// When it happened.
    pub at: Timestamp,
}

impl LastTokenError {
    pub(crate) fn observe(key: &TokenKey, error: &TokenError, at: Timestamp) -> Self {
        let (scope, text) = (key.scope.to_string(), error.to_string());
        let (tenant, code) = (key.variant.tenant.clone(), error.code().into_owned());
        Self { scope, tenant, code, text, hint: error.hint(), at }
    }
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TokenCounts {
    /// Tokens that a service issued.
    pub issued: u64,
    /// Those among them that took the place of an older one.
    pub renewed: u64,
    /// Requests for a token that failed after every retry and fallback.
    pub failed: u64,
}
