//! The metrics hook of the credentials.

use std::fmt;
use std::time::Duration;

use crate::token::error::TokenError;

/// Receives events of the credentials, for metrics. The default methods do nothing, so that methods can be
/// added.
///
/// The tasks that fetch tokens call the hook, never the path that returns a cached token. Implementations
/// must not block.
pub trait MetricsHook: fmt::Debug + Send + Sync + 'static {
    /// A generation of the credential file was published.
    fn generation_loaded(&self, generation: u64) {
        let _ = generation;
    }

    /// Content of the credential file was rejected, and the current generation kept. `reason` is
    /// [`KeepReason::metric_label`](crate::KeepReason::metric_label).
    fn generation_refused(&self, reason: &'static str) {
        let _ = reason;
    }

    /// An HTTP request to a token endpoint finished.
    fn token_requested(&self, request: &TokenRequestEvent<'_>) {
        let _ = request;
    }

    /// A request failed and will be retried after `delay`.
    fn request_retried(&self, endpoint_host: &str, delay: Duration) {
        let _ = (endpoint_host, delay);
    }

    /// A token could not be fetched, after all retries and fallbacks.
    fn token_failed(&self, error: &TokenError) {
        let _ = error;
    }
}

/// A finished HTTP request to a token endpoint.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TokenRequestEvent<'a> {
    /// The host of the endpoint.
    pub endpoint_host: &'a str,
    /// The HTTP status; `None` without a response.
    pub status: Option<u16>,
    /// The time from sending the request to the end of the response.
    pub elapsed: Duration,
}

/// A hook that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoMetrics;

impl MetricsHook for NoMetrics {}
