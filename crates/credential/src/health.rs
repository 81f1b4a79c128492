//! The health of a credential, for probes, dashboards and operators.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::ErrorHint as _;
use serde::Serialize;

use crate::identity::TenantId;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::table::CachedToken;

/// The state of a credential's tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TokenHealth {
    /// The cached tokens, by scope.
    pub scopes: Vec<ScopeHealth>,
    /// The error of the last request for each scope, the newest first. The next token for the scope removes
    /// its entry. At most 64 entries.
    pub errors: Vec<LastTokenError>,
    /// Whether a request failed since the newest token for a reason that may affect every scope: the
    /// identity, its key, or the connection to the service. Errors about a single scope or resource do not
    /// count, and neither do errors of other tenants.
    pub identity_in_doubt: bool,
    /// The generation whose key requested the newest token.
    pub last_generation: Option<u64>,
    /// Counters of token requests.
    pub counts: TokenCounts,
}

impl TokenHealth {
    /// Whether the credential can supply tokens: one is still valid, or no error affects the identity.
    pub fn is_ready(&self) -> bool {
        !self.identity_in_doubt || self.scopes.iter().any(|scope| scope.seconds_left > 0)
    }
}

/// The state of one cached token. Never contains the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScopeHealth {
    /// The scope.
    pub scope: String,
    /// The tenant, if the request named another one than the credential's own.
    pub tenant: Option<TenantId>,
    /// When the token expires.
    pub expires_on: Timestamp,
    /// The remaining validity in seconds.
    pub seconds_left: u64,
    /// Whether the token is due for renewal.
    pub refresh_due: bool,
    /// The generation whose key requested the token; zero for credentials without generations.
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

/// The error of the last token request for a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LastTokenError {
    /// The requested scope.
    pub scope: String,
    /// The tenant, if the request named another one than the credential's own.
    pub tenant: Option<TenantId>,
    /// [`TokenError::code`].
    pub code: String,
    /// The error message.
    pub text: String,
    /// Advises what to do next.
    pub hint: Option<String>,
    /// When the request failed.
    pub at: Timestamp,
}

impl LastTokenError {
    pub(crate) fn observe(key: &TokenKey, error: &TokenError, at: Timestamp) -> Self {
        let (scope, text) = (key.scope.to_string(), error.to_string());
        let (tenant, code) = (key.variant.tenant.clone(), error.code().into_owned());
        Self { scope, tenant, code, text, hint: error.hint().map(Cow::into_owned), at }
    }
}

/// Counters of token requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TokenCounts {
    /// Issued tokens.
    pub issued: u64,
    /// Issued tokens that replaced a cached one.
    pub renewed: u64,
    /// Requests that failed after all retries and fallbacks.
    pub failed: u64,
}
