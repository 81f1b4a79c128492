//! The source of tokens for the engine.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::error::TokenError;
use super::request::TokenKey;
use crate::secret::SecretText;

/// Fetches one token. The source implements retry, cool-down and fallback; the engine implements caching,
/// coalescing and timing.
#[async_trait]
pub(crate) trait TokenSource: fmt::Debug + Send + Sync + 'static {
    /// Fetches a token for `key`, with as many retries as its policy allows.
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError>;
}

/// A token as a service issued it.
#[derive(Debug)]
pub(crate) struct IssuedToken {
    pub(crate) text: SecretText,
    /// Monotonic time just before the request was sent: the lifetime counts from here, so that a slow
    /// response makes a token appear older, never younger.
    pub(crate) requested_at: Duration,
    pub(crate) expires_in: Duration,
    pub(crate) refresh_in: Option<Duration>,
    /// The credential generation whose key requested the token; zero for credentials without generations.
    pub(crate) generation: u64,
}
