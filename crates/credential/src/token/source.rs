//! Where a token comes from, and what comes back.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::error::TokenError;
use super::request::TokenKey;
use crate::secret::SecretText;

/// Fetches one token. Retry, cool-down and fallback are the source's business; caching, waiting
/// and timing are the engine's.
#[async_trait]
pub(crate) trait TokenSource: fmt::Debug + Send + Sync + 'static {
    /// Fetches a token for `key`, as often as it takes and at most as often as is decent.
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError>;
}

/// A token as a service issued it.
#[derive(Debug)]
pub(crate) struct IssuedToken {
    pub(crate) text: SecretText,
    /// Monotonic time just before the request left: lifetimes count from here, so that a slow
    /// answer makes a token look older than it is, never younger.
    pub(crate) requested_at: Duration,
    pub(crate) expires_in: Duration,
    pub(crate) refresh_in: Option<Duration>,
    /// The credential generation whose key asked for it; zero where there are no generations.
    pub(crate) generation: u64,
}
