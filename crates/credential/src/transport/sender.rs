//! Sends token requests with retries.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use azure_core::Bytes;
use azure_core::error::ErrorKind;
use azure_core::http::{
    ClientOptions, Context, Pipeline, PipelineStreamOptions, RawResponse, Request, RetryOptions,
    StatusCode, Transport, Url,
};
use futures::TryStreamExt as _;
use futures::future::{Either, select};
use lanyard_clock::{SharedClock, SystemClock, period_with_jitter};
use tokio::sync::OwnedSemaphorePermit;
use zeroize::Zeroizing;

use super::cool_down::CoolDowns;
use super::request_limiter::{RequestLimits, TokenRequestLimiter};
use super::retry::RetrySettings;
use crate::entra::error::display_url;
use crate::metrics::{MetricsHook, NoMetrics, TokenRequestEvent};
use crate::randomness::{SharedRandomness, SystemRandomness};
use crate::reply::retry_after;
use crate::token::error::TokenError;

/// Options of a [`TokenTransport`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TokenTransportOptions {
    /// The HTTP client, policies and user agent. Its retry options are not used: the transport implements
    /// retries itself, with shared cool-downs. Set its `transport` to use a proxy or a custom CA; that client
    /// must not follow redirects.
    pub client: ClientOptions,
    /// The clock.
    pub clock: SharedClock,
    /// The randomness of jitter and request ids.
    pub randomness: SharedRandomness,
    /// The retry policy; defaults to the policy of the endpoint.
    pub retry: Option<RetrySettings>,
    /// The rate limits of an authority; default to the limits of the endpoint.
    pub limits: Option<RequestLimits>,
    /// The hook that receives metrics.
    pub metrics: Arc<dyn MetricsHook>,
}

impl TokenTransportOptions {
    /// Options with an HTTP client and a clock. `None` selects the default client of the endpoint.
    pub fn new(transport: Option<Transport>, clock: &SharedClock) -> Self {
        let client = ClientOptions { transport, ..ClientOptions::default() };
        Self { client, clock: SharedClock::clone(clock), ..Self::default() }
    }
}

impl Default for TokenTransportOptions {
    fn default() -> Self {
        Self {
            client: ClientOptions::default(),
            clock: SystemClock::shared(),
            randomness: Arc::new(SystemRandomness),
            retry: None,
            limits: None,
            metrics: Arc::new(NoMetrics),
        }
    }
}

/// The transport to the token endpoints. Clones share connections, cool-downs and limits, so share one
/// between all credentials of a process.
#[derive(Clone)]
pub struct TokenTransport {
    shared: Arc<TokenTransportState>,
}

struct TokenTransportState {
    pipeline: Pipeline,
    clock: SharedClock,
    randomness: SharedRandomness,
    retry: RetrySettings,
    metrics: Arc<dyn MetricsHook>,
    cool_downs: CoolDowns,
    limiter: TokenRequestLimiter,
}

/// The protocol of one exchange with a token endpoint.
pub(crate) trait TokenExchange: Sync {
    /// The URL of the endpoint.
    fn endpoint(&self) -> &Url;

    /// Builds the request; called for each attempt.
    fn request(&self) -> Request;

    /// The client id, if the endpoint throttles each application of a tenant separately: its cool-downs then
    /// apply to this application only. `None` if the endpoint throttles all callers together.
    fn client_id(&self) -> Option<&str> {
        None
    }

    /// Whether a retry may succeed.
    fn is_retryable(&self, response: &RawResponse) -> bool;
}

/// The last response of an exchange, with any status.
pub(crate) struct TokenEndpointResponse {
    pub(crate) response: RawResponse,
    /// Monotonic time just before the request was sent.
    pub(crate) requested_at: Duration,
}

impl TokenTransport {
    /// Creates a transport with its own connections and cool-downs.
    pub fn new(options: TokenTransportOptions) -> Self {
        let TokenTransportOptions { mut client, clock, randomness, retry, limits, metrics } =
            options;
        client.retry = RetryOptions::none();
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            client,
            Vec::new(),
            Vec::new(),
            None,
        );
        let (retry, cool_downs) = (retry.unwrap_or_default(), CoolDowns::default());
        let turns = TokenRequestLimiter::new(limits.unwrap_or_default());
        let shared = TokenTransportState {
            pipeline,
            clock,
            randomness,
            retry,
            metrics,
            cool_downs,
            limiter: turns,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Creates a transport with the same settings over `transport`, for endpoints with special routes.
    pub(crate) fn with_http_transport(
        mut options: TokenTransportOptions,
        transport: Transport,
    ) -> Self {
        options.client.transport = Some(transport);
        Self::new(options)
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.shared.clock
    }

    pub(crate) fn randomness(&self) -> &SharedRandomness {
        &self.shared.randomness
    }

    pub(crate) fn metrics(&self) -> &Arc<dyn MetricsHook> {
        &self.shared.metrics
    }

    /// The remaining cool-down of the authority of `endpoint`, for all callers or for this application.
    pub(crate) fn cool_down(&self, endpoint: &Url, client: Option<&str>) -> Option<Duration> {
        let (of_all, own) = self.cool_downs(endpoint, client);
        of_all.max(own)
    }

    /// The remaining cool-downs of the authority of `endpoint`: for all callers, and for this application.
    fn cool_downs(
        &self,
        endpoint: &Url,
        client: Option<&str>,
    ) -> (Option<Duration>, Option<Duration>) {
        let now = self.shared.clock.monotonic();
        let all = &self.shared.cool_downs;
        let own = client.and_then(|client| all.remaining(&application_key(endpoint, client), now));
        (all.remaining(&origin_key(endpoint), now), own)
    }

    fn exchange_cool_down(&self, exchange: &dyn TokenExchange) -> Option<Duration> {
        self.cool_down(exchange.endpoint(), exchange.client_id())
    }

    /// Sends requests until a response is final, or the attempts or the budget are used up.
    ///
    /// A `Retry-After` starts a cool-down that all callers of this transport observe: they wait, or fail
    /// immediately if it exceeds their budget. The cool-down applies to the authority after a server error,
    /// and to the application after throttling, because Entra counts by application.
    pub(crate) async fn send(
        &self,
        exchange: &dyn TokenExchange,
    ) -> Result<TokenEndpointResponse, TokenError> {
        let started = self.shared.clock.monotonic();
        let mut attempt = 0;
        loop {
            let (of_all, own) = self.cool_downs(exchange.endpoint(), exchange.client_id());
            if let Some(remaining) = of_all.max(own) {
                let wait = self.cool_down_wait(remaining);
                if !self.fits_budget(started, wait) {
                    let endpoint = display_url(exchange.endpoint());
                    let client = exchange.client_id().filter(|_| own > of_all);
                    let client = client.map(str::to_owned);
                    return Err(TokenError::CoolingDown { endpoint, client, remaining });
                }
                self.shared.clock.sleep(wait).await;
                continue;
            }
            let slot = self.acquire_permit(exchange.endpoint(), started).await?;
            if self.exchange_cool_down(exchange).is_some() {
                continue;
            }
            attempt += 1;
            let outcome = self.attempt(exchange, attempt).await;
            drop(slot);
            if !is_outcome_retryable(exchange, &outcome) {
                return outcome;
            }
            let (elapsed, chance) = (self.elapsed(started), self.shared.randomness.fraction());
            let Some(delay) = self.shared.retry.next_delay(attempt, elapsed, chance) else {
                return outcome;
            };
            let cool_down = self.exchange_cool_down(exchange);
            let wait = cool_down.map_or(delay, |left| delay.max(self.cool_down_wait(left)));
            if !self.fits_budget(started, wait) {
                return outcome;
            }
            let host = exchange.endpoint().host_str().unwrap_or_default();
            self.shared.metrics.request_retried(host, wait);
            tracing::debug!(host, attempt, delay = ?wait, "token request will be repeated");
            self.shared.clock.sleep(wait).await;
        }
    }

    /// Waits for the rate limit of the authority and acquires a permit.
    async fn acquire_permit(
        &self,
        endpoint: &Url,
        started: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, TokenError> {
        let shared = &*self.shared;
        let origin = shared.limiter.limiter_for(&origin_key(endpoint));
        let place = if let Ok(place) = Arc::clone(&origin.permits).try_acquire_owned() {
            Some(place)
        } else {
            let timeout = shared.retry.budget.saturating_sub(self.elapsed(started));
            let place = pin!(Arc::clone(&origin.permits).acquire_owned());
            match select(place, shared.clock.sleep(timeout)).await {
                Either::Left((place, _)) => place.ok(),
                Either::Right(_) => {
                    let endpoint = display_url(endpoint);
                    return Err(TokenError::ConcurrencyLimitReached { endpoint, waited: timeout });
                }
            }
        };
        // Short, because only holders of a permit wait for their send time.
        let wait = origin.reserve_send_time(shared.clock.monotonic());
        if !wait.is_zero() {
            shared.clock.sleep(wait).await;
        }
        Ok(place)
    }

    async fn attempt(
        &self,
        exchange: &dyn TokenExchange,
        attempts: u32,
    ) -> Result<TokenEndpointResponse, TokenError> {
        let shared = &*self.shared;
        let mut request = exchange.request();
        let asked_at = shared.clock.monotonic();
        let outcome = {
            let exchanged = Box::pin(send_once(&shared.pipeline, &mut request));
            let limit = shared.clock.sleep(shared.retry.attempt_timeout);
            match select(exchanged, limit).await {
                Either::Left((outcome, _)) => Some(outcome),
                Either::Right(_) => None,
            }
        };
        let now = shared.clock.monotonic();
        let status = match &outcome {
            Some(Ok(response)) => Some(u16::from(response.status())),
            _ => None,
        };
        shared.metrics.token_requested(&TokenRequestEvent {
            endpoint_host: exchange.endpoint().host_str().unwrap_or_default(),
            status,
            elapsed: now.saturating_sub(asked_at),
        });
        let endpoint = || display_url(exchange.endpoint());
        match outcome {
            Some(Ok(response)) => {
                self.record_cool_down(exchange, &response, now);
                Ok(TokenEndpointResponse { response, requested_at: asked_at })
            }
            Some(Err(error)) => {
                let source = Arc::new(error);
                Err(TokenError::Unreachable { endpoint: endpoint(), attempts, source })
            }
            None => {
                let limit = shared.retry.attempt_timeout;
                Err(TokenError::TimedOut { endpoint: endpoint(), attempts, limit })
            }
        }
    }

    fn record_cool_down(
        &self,
        exchange: &dyn TokenExchange,
        response: &RawResponse,
        now: Duration,
    ) {
        let is_throttled = response.status() == StatusCode::TooManyRequests;
        if !is_throttled && !response.status().is_server_error() {
            return;
        }
        let endpoint = exchange.endpoint();
        let whose = match exchange.client_id().filter(|_| is_throttled) {
            Some(client) => application_key(endpoint, client),
            None => origin_key(endpoint),
        };
        if let Some(duration) = retry_after(response.headers(), self.shared.clock.now()) {
            self.shared.cool_downs.start(&whose, now, duration);
        }
    }

    /// At least as long as requested, and up to a seventh longer, so that callers do not return together.
    fn cool_down_wait(&self, remaining: Duration) -> Duration {
        let chance = self.shared.randomness.fraction();
        period_with_jitter(remaining * 8 / 7, chance).max(remaining)
    }

    fn fits_budget(&self, started: Duration, wait: Duration) -> bool {
        self.elapsed(started).saturating_add(wait) <= self.shared.retry.budget
    }

    fn elapsed(&self, started: Duration) -> Duration {
        self.shared.clock.monotonic().saturating_sub(started)
    }
}

impl Default for TokenTransport {
    fn default() -> Self {
        Self::new(TokenTransportOptions::default())
    }
}

impl fmt::Debug for TokenTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TokenTransport")
            .field("retry", &self.shared.retry)
            .field("cool_downs", &self.shared.cool_downs)
            .finish_non_exhaustive()
    }
}

/// The cool-down key of an application of a tenant: the endpoint contains the tenant.
fn application_key(endpoint: &Url, client: &str) -> String {
    format!("{endpoint} {client}")
}

fn is_outcome_retryable(
    exchange: &dyn TokenExchange,
    outcome: &Result<TokenEndpointResponse, TokenError>,
) -> bool {
    match outcome {
        Ok(answer) => exchange.is_retryable(&answer.response),
        Err(TokenError::TimedOut { .. }) => true,
        Err(TokenError::Unreachable { source, .. }) => {
            matches!(source.kind(), ErrorKind::Io | ErrorKind::Connection)
        }
        Err(_) => false,
    }
}

/// Sends one request and reads the response, up to the maximum size of a token response.
async fn send_once(pipeline: &Pipeline, request: &mut Request) -> azure_core::Result<RawResponse> {
    let options = PipelineStreamOptions { skip_checks: true, ..PipelineStreamOptions::default() };
    let response = pipeline.stream(&Context::new(), request, Some(options)).await?;
    let (status, headers, mut body) = response.deconstruct();
    let (mut chunks, mut length) = (Vec::new(), 0);
    while let Some(mut chunk) = body.try_next().await? {
        chunk.truncate(MAX_RESPONSE_SIZE - length);
        length += chunk.len();
        chunks.push(chunk);
        if length == MAX_RESPONSE_SIZE {
            break;
        }
    }
    // One buffer that is wiped and never reallocated: it may contain a token.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length));
    for chunk in &chunks {
        bytes.extend_from_slice(chunk);
    }
    Ok(RawResponse::from_bytes(status, headers, Bytes::from_owner(bytes)))
}

fn origin_key(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The maximum size of a token response, to bound memory.
const MAX_RESPONSE_SIZE: usize = 1024 * 1024;

#[cfg(test)]
mod tests;
