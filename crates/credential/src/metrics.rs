//! What happens, for whoever counts it.

use std::fmt;
use std::time::Duration;

use crate::token::error::TokenError;

/// Receives what happens inside the credentials. Every method does nothing unless implemented,
/// so that new ones can be added.
///
/// They are called from the tasks that fetch tokens, never when a cached token is handed out;
/// an implementation must not block.
pub trait MetricsHook: fmt::Debug + Send + Sync + 'static {
    /// A generation of the credential file was taken into use.
    fn generation_loaded(&self, generation: u64) {
        let _ = generation;
    }

    /// Content of the credential file was refused, and the generation before it kept; `reason`
    /// is [`KeepReason::metric_label`](crate::loader::KeepReason::metric_label).
    fn generation_refused(&self, reason: &'static str) {
        let _ = reason;
    }

    /// One HTTP request to a token endpoint ended.
    fn token_requested(&self, request: &TokenRequestEvent<'_>) {
        let _ = request;
    }

    /// A request failed and will be repeated after `delay`.
    fn request_retried(&self, endpoint_host: &str, delay: Duration) {
        let _ = (endpoint_host, delay);
    }

    /// A token could not be fetched, after every retry and fallback.
    fn token_failed(&self, error: &TokenError) {
        let _ = error;
    }
}

/// One HTTP request to a token endpoint.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TokenRequestEvent<'a> {
    /// The host of the endpoint.
    pub endpoint_host: &'a str,
    /// The HTTP status; none if no answer came.
    pub status: Option<u16>,
    /// From sending the request to the end of the answer.
    pub elapsed: Duration,
}

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoMetrics;

impl MetricsHook for NoMetrics {}
