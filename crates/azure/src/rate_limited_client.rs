//! The HTTP client under all Azure clients: waits for the rate limit, sends and retries.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use futures::future::select;
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_credential::reply::retry_after;
use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::circuit_breaker::{BreakerProbe, CircuitBreakerPolicy};
use crate::host_queue::{FlowId, HostQueue, QueueDecision, QueuePosition, RequestPriority};
use crate::rate_limiter::{MAX_COOL_DOWN, RequestRate};
use crate::retry::{AttemptOutcome, RetryPolicy};

/// A request was not sent, because its host gets no requests for longer than a request may wait.
///
/// It is wrapped in an [`azure_core::Error`] of kind `Other`, because the clients above the
/// transport know only that error type; [`ThrottledError::of`] extracts it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{host} {cause} for another {}s", remaining.as_secs())]
pub struct ThrottledError {
    pub host: String,
    /// Why no request is sent.
    pub cause: ThrottleCause,
    /// How long this still lasts.
    pub remaining: Duration,
}

/// Why a host gets no requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleCause {
    /// The host throttles requests.
    Throttled,
    /// The requests already queued in this process use up the rate limit for the whole waiting
    /// time.
    LocalRateLimit,
    /// The host failed repeatedly, so the circuit breaker is open.
    CircuitOpen,
}

impl fmt::Display for ThrottleCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Throttled => "throttles requests",
            Self::LocalRateLimit => "is at the request limit of this process",
            Self::CircuitOpen => "failed repeatedly and gets no requests",
        })
    }
}

impl ThrottledError {
    /// Extracts a [`ThrottledError`] from an SDK error, if there is one.
    pub fn of(error: &azure_core::Error) -> Option<&Self> {
        error.downcast_ref()
    }
}

impl From<ThrottledError> for azure_core::Error {
    fn from(error: ThrottledError) -> Self {
        Self::new(ErrorKind::Other, error)
    }
}

/// The rate limit, retry policy and circuit breaker for all hosts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestPolicy {
    pub(crate) rate: RequestRate,
    pub(crate) retry: RetryPolicy,
    pub(crate) breaker: Option<CircuitBreakerPolicy>,
}

/// The hosts of recent requests. Idle hosts are evicted, because tenants choose vault names in
/// their SecretProviderClasses.
#[derive(Debug, Default)]
struct HostTable(HashMap<String, HostEntry>);

#[derive(Debug, Default)]
struct HostEntry {
    host: HostQueue,
    last_used_at: Duration,
}

impl HostTable {
    /// The entry of this host, which is added if it is new.
    fn entry(&mut self, name: &str, now: Duration) -> &mut HostQueue {
        if !self.0.contains_key(name) {
            self.evict_idle(now);
        }
        let known = self.0.entry(name.to_owned()).or_default();
        known.last_used_at = now;
        &mut known.host
    }

    /// Evicts hosts that were idle for [`IDLE_TIMEOUT`]. If there are still too many, it evicts
    /// those that were idle longest, paused hosts last. Hosts with queued requests stay.
    fn evict_idle(&mut self, now: Duration) {
        let is_idle = |known: &HostEntry| now.saturating_sub(known.last_used_at) >= IDLE_TIMEOUT;
        self.0.retain(|_, known| known.host.has_queued_requests() || !is_idle(known));
        if self.0.len() < MAX_HOSTS {
            return;
        }
        let mut idle: Vec<_> =
            self.0.iter().filter(|(_, known)| !known.host.has_queued_requests()).collect();
        idle.sort_unstable_by_key(|(_, known)| (known.host.is_paused(now), known.last_used_at));
        // Evict an eighth at once, because each eviction sorts all hosts.
        let names: Vec<String> =
            idle.into_iter().take(MAX_HOSTS / 8).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.0.remove(&name);
        }
    }
}

/// Longer than any cool-down, so that a running cool-down is never forgotten.
const IDLE_TIMEOUT: Duration = Duration::from_mins(15);
/// Far more hosts than one process uses.
const MAX_HOSTS: usize = 1024;

/// A client for one priority and flow. All clients of a transport share the host table.
#[derive(Debug, Clone)]
pub(crate) struct RateLimitedClient {
    inner: Arc<dyn HttpClient>,
    clock: SharedClock,
    policy: RequestPolicy,
    hosts: Arc<Mutex<HostTable>>,
    priority: RequestPriority,
    flow: FlowId,
}

impl RateLimitedClient {
    pub(crate) fn new(
        inner: Arc<dyn HttpClient>,
        clock: SharedClock,
        policy: RequestPolicy,
    ) -> Self {
        let (priority, flow) = (RequestPriority::default(), FlowId::default());
        Self { inner, clock, policy, hosts: Arc::default(), priority, flow }
    }

    /// Returns a client for another priority and flow.
    pub(crate) fn with_priority(&self, priority: RequestPriority, flow: FlowId) -> Self {
        Self { priority, flow, ..self.clone() }
    }

    /// Waits until the request may be sent; the request may be the circuit breaker's probe.
    async fn wait_until_allowed(&self, host: &str) -> Result<Option<BreakerProbe>, ThrottledError> {
        let began = self.clock.monotonic();
        let max_wait = self.policy.retry.cap;
        let (position, wakeup) =
            self.with_host(host, |known| known.enqueue(self.priority, self.flow));
        let _queued = QueuedRequestGuard { client: self, host, position };
        let throttled =
            |cause, remaining| ThrottledError { host: host.to_owned(), cause, remaining };
        loop {
            let now = self.clock.monotonic();
            let left = max_wait.saturating_sub(now.saturating_sub(began));
            let (decision, estimate, cause) = self.with_host(host, |known| {
                let decision = known.decide(position, now, self.policy.rate);
                let is_throttled = known.rate_limiter.is_throttled(now);
                let cause = if is_throttled {
                    ThrottleCause::Throttled
                } else {
                    ThrottleCause::LocalRateLimit
                };
                (decision, known.estimated_wait(position, now, self.policy.rate), cause)
            });
            let pause = match decision {
                // The request has left the queue already; the guard's second `dequeue` wakes the
                // next one.
                QueueDecision::SendNow(probe) => return Ok(probe),
                QueueDecision::CircuitOpen(pause) => {
                    return Err(throttled(ThrottleCause::CircuitOpen, pause));
                }
                // Requests that overtake this one extend the wait, so the estimate is checked on
                // each wakeup.
                QueueDecision::Wait(_) | QueueDecision::WaitInQueue if estimate > left => {
                    return Err(throttled(cause, estimate));
                }
                QueueDecision::Wait(pause) => pause,
                QueueDecision::WaitInQueue => left,
            };
            debug!(host, ?decision, priority = ?self.priority, "request waits for the rate limit");
            select(self.clock.sleep(pause), pin!(wakeup.notified())).await;
        }
    }

    fn with_host<T>(&self, host: &str, work: impl FnOnce(&mut HostQueue) -> T) -> T {
        let now = self.clock.monotonic();
        work(self.hosts.lock().entry(host, now))
    }

    fn record_outcome(&self, host: &str, outcome: AttemptOutcome, probe: Option<BreakerProbe>) {
        let now = self.clock.monotonic();
        if let AttemptOutcome::Responded { status: 429 | 503, retry_after: Some(asked) } = outcome
            && asked > MAX_COOL_DOWN
        {
            let (asked, limit) = (asked.as_secs(), MAX_COOL_DOWN.as_secs());
            warn!(host, asked, limit, "Retry-After exceeds the limit of seconds; using the limit");
        }
        self.with_host(host, |known| {
            let rate = self.policy.rate;
            match outcome {
                AttemptOutcome::Responded { status: 429, retry_after } => {
                    known.rate_limiter.record_throttling(now, retry_after, rate);
                }
                AttemptOutcome::Responded { status: 503, retry_after: Some(pause) } => {
                    // A 503 is a failure, so the circuit breaker's longest pause limits the
                    // cool-down, too.
                    let most = self.policy.breaker.map_or(pause, |policy| policy.max_pause);
                    known.rate_limiter.start_cool_down(now, pause.min(most), rate);
                }
                AttemptOutcome::Responded { status: ..500, .. } => {
                    known.rate_limiter.record_success();
                }
                _ => {}
            }
            let Some(policy) = self.policy.breaker else { return };
            if !outcome.is_failure() {
                known.circuit_breaker.record_success();
            } else if known.circuit_breaker.record_failure(now, policy, fastrand::f64(), probe) {
                warn!(host, "the host failed repeatedly; sending no requests for a while");
                known.wake_all();
            }
        });
    }
}

/// A place in the queue of a host; dropping it removes the request from the queue.
struct QueuedRequestGuard<'a> {
    client: &'a RateLimitedClient,
    host: &'a str,
    position: QueuePosition,
}

impl Drop for QueuedRequestGuard<'_> {
    fn drop(&mut self) {
        self.client.with_host(self.host, |known| known.dequeue(self.position));
    }
}

/// A request in flight. If it is dropped before its result, it no longer counts as the probe.
struct InFlightRequest<'a> {
    client: &'a RateLimitedClient,
    host: &'a str,
    probe: Option<BreakerProbe>,
}

impl InFlightRequest<'_> {
    fn complete(mut self, outcome: AttemptOutcome) {
        self.client.record_outcome(self.host, outcome, self.probe.take());
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        if let Some(probe) = self.probe {
            let now = self.client.clock.monotonic();
            self.client
                .with_host(self.host, |known| known.circuit_breaker.abandon_probe(probe, now));
        }
    }
}

#[async_trait]
impl HttpClient for RateLimitedClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let (mut last, mut attempt) = (None, 0);
        loop {
            let probe = match self.wait_until_allowed(&host).await {
                Ok(probe) => probe,
                // An earlier reply of the host says more than the throttling error.
                Err(error) => return last.unwrap_or_else(|| Err(error.into())),
            };
            let sent = InFlightRequest { client: self, host: &host, probe };
            let result = self.inner.execute_request(request).await;
            let outcome = classify_attempt(&result, self.clock.now());
            sent.complete(outcome);
            let retry = self.policy.retry;
            let Some(pause) =
                retry.delay_before_retry(attempt, request.method(), outcome, fastrand::f64())
            else {
                return result;
            };
            debug!(
                host,
                attempt,
                ?outcome,
                pause_millis = pause.as_millis(),
                "retrying the request"
            );
            last = Some(result);
            attempt += 1;
            self.clock.sleep(pause).await;
        }
    }
}

fn classify_attempt(
    result: &azure_core::Result<AsyncRawResponse>,
    now: Timestamp,
) -> AttemptOutcome {
    match result {
        Ok(response) => AttemptOutcome::Responded {
            status: response.status().into(),
            retry_after: retry_after(response.headers(), now),
        },
        Err(error) if *error.kind() == ErrorKind::Connection => AttemptOutcome::ConnectFailed,
        Err(_) => AttemptOutcome::ConnectionLost,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use azure_core::http::headers::Headers;
    use azure_core::http::{Method, StatusCode};
    use lanyard_clock::{Clock, ManualClock};

    use super::*;

    const HOST: &str = "management.azure.com";

    type HeaderPairs = &'static [(&'static str, &'static str)];

    #[derive(Debug, Default)]
    struct ScriptedAzureClient {
        replies: Mutex<VecDeque<(u16, HeaderPairs)>>,
        request_times: Mutex<Vec<Duration>>,
        clock: Option<ManualClock>,
    }

    #[async_trait]
    impl HttpClient for ScriptedAzureClient {
        async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
            let at = self.clock.as_ref().map(ManualClock::monotonic).unwrap_or_default();
            self.request_times.lock().push(at);
            let (status, pairs) = self.replies.lock().pop_front().unwrap();
            let mut headers = Headers::new();
            for (name, value) in pairs {
                headers.insert(*name, *value);
            }
            Ok(AsyncRawResponse::from_bytes(StatusCode::from(status), headers, ""))
        }
    }

    fn request() -> Request {
        Request::new("https://management.azure.com/x".parse().unwrap(), Method::Get)
    }

    /// Runs `work`, advancing the clock to each next deadline.
    async fn run_with_clock<T: Send + 'static>(
        clock: &ManualClock,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let task = tokio::spawn(work);
        while !task.is_finished() {
            tokio::task::yield_now().await;
            if let Some(due) = clock.time_until_next_deadline() {
                clock.advance(due);
            }
        }
        task.await.unwrap()
    }

    fn rate_limited_client(
        replies: &[(u16, HeaderPairs)],
    ) -> (Arc<RateLimitedClient>, Arc<ScriptedAzureClient>, ManualClock) {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let inner = Arc::new(ScriptedAzureClient {
            replies: Mutex::new(replies.iter().copied().collect()),
            clock: Some(clock.clone()),
            ..ScriptedAzureClient::default()
        });
        let shared: Arc<dyn HttpClient> = Arc::<ScriptedAzureClient>::clone(&inner);
        let client =
            RateLimitedClient::new(shared, Arc::new(clock.clone()), RequestPolicy::default());
        (Arc::new(client), inner, clock)
    }

    #[test]
    fn idle_hosts_are_evicted() {
        let mut hosts = HostTable::default();
        let (position, _wakeup) =
            hosts.entry("waited-for", SECOND).enqueue(RequestPriority::Low, FlowId::default());
        hosts.entry("cooling", SECOND).rate_limiter.start_cool_down(
            SECOND,
            MAX_COOL_DOWN,
            RequestRate::default(),
        );
        hosts.entry("new", SECOND + MAX_COOL_DOWN);
        assert!(hosts.0.contains_key("cooling"));
        hosts.entry("newer", SECOND + IDLE_TIMEOUT);
        let mut names: Vec<_> = hosts.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["new", "newer", "waited-for"]);
        hosts.entry("waited-for", SECOND + IDLE_TIMEOUT).dequeue(position);
        hosts.entry("throttled", IDLE_TIMEOUT).rate_limiter.start_cool_down(
            IDLE_TIMEOUT,
            MAX_COOL_DOWN,
            RequestRate::default(),
        );

        for number in 0..MAX_HOSTS * 3 {
            let now = SECOND * u32::try_from(number / 10).unwrap() + IDLE_TIMEOUT;
            hosts.entry(&format!("kv{number}.vault.azure.net"), now);
            assert!(hosts.0.len() <= MAX_HOSTS);
            assert!(hosts.0.contains_key("throttled"));
        }
        let last = format!("kv{}.vault.azure.net", MAX_HOSTS * 3 - 1);
        assert!(hosts.0.contains_key(&last));
    }

    #[tokio::test]
    async fn throttling_of_one_request_delays_all_requests_to_that_host() {
        let throttled: HeaderPairs = &[("retry-after", "10")];
        let (client, inner, clock) =
            rate_limited_client(&[(429, throttled), (200, &[]), (200, &[])]);
        let both = {
            let client = Arc::clone(&client);
            // The second request is sent while the first waits for the end of the throttling.
            run_with_clock(&clock, async move {
                let (one, other) = (request(), request());
                futures::join!(client.execute_request(&one), async {
                    tokio::task::yield_now().await;
                    client.execute_request(&other).await
                })
            })
            .await
        };
        assert_eq!(both.0.unwrap().status(), StatusCode::Ok);
        assert_eq!(both.1.unwrap().status(), StatusCode::Ok);
        let ten = Duration::from_secs(10);
        let next = ten + RequestRate::default().interval();
        assert_eq!(*inner.request_times.lock(), [Duration::ZERO, ten, next]);
    }

    #[tokio::test]
    async fn cool_down_started_during_the_wait_delays_the_queued_request() {
        let (client, inner, clock) = rate_limited_client(&[(200, &[])]);
        client.with_host(HOST, |host| {
            host.rate_limiter.start_cool_down(Duration::ZERO, SECOND, RequestRate::default());
        });
        let waiting = {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.execute_request(&request()).await })
        };
        while clock.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        client.with_host(HOST, |host| {
            host.rate_limiter.start_cool_down(Duration::ZERO, SECOND * 5, RequestRate::default());
        });
        run_with_clock(&clock, async move { waiting.await.unwrap().unwrap() }).await;
        assert_eq!(*inner.request_times.lock(), [SECOND * 5]);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn cool_down_longer_than_the_retry_limit_fails_without_sending() {
        let (client, inner, clock) = rate_limited_client(&[(429, &[("retry-after", "3600")])]);
        let refused = {
            let client = Arc::clone(&client);
            run_with_clock(&clock, async move { client.execute_request(&request()).await }).await
        };
        assert_eq!(refused.unwrap().status(), StatusCode::TooManyRequests);
        let error = client.execute_request(&request()).await.unwrap_err();
        // One hour exceeds the longest accepted cool-down of ten minutes.
        assert!(error.to_string().ends_with("throttles requests for another 600s"), "{error}");
        assert_eq!(ThrottledError::of(&error).unwrap().cause, ThrottleCause::Throttled);
        assert_eq!(inner.request_times.lock().len(), 1);
    }

    #[tokio::test]
    async fn high_priority_requests_are_sent_before_lower_priorities() {
        let (client, inner, clock) = rate_limited_client(&[(200, &[][..]); 6]);
        let slow = RequestPolicy {
            rate: RequestRate { per_second: 1, burst: 1 },
            ..RequestPolicy::default()
        };
        let client = RateLimitedClient { policy: slow, ..(*client).clone() };
        let order = Arc::new(Mutex::new(Vec::new()));
        let send = |priority: RequestPriority| {
            let (client, order) =
                (client.with_priority(priority, FlowId::default()), Arc::clone(&order));
            async move {
                client.execute_request(&request()).await.unwrap();
                order.lock().push(priority);
            }
        };
        let all = futures::future::join_all([
            send(RequestPriority::Low),
            send(RequestPriority::Low),
            send(RequestPriority::Normal),
            send(RequestPriority::High),
            send(RequestPriority::High),
        ]);
        run_with_clock(&clock, all).await;
        let (low, normal, high) =
            (RequestPriority::Low, RequestPriority::Normal, RequestPriority::High);
        // The first request is sent immediately, because the queue is empty.
        assert_eq!(*order.lock(), [low, high, high, normal, low]);
        assert_eq!(*inner.request_times.lock(), [0, 1, 2, 3, 4].map(|second| SECOND * second));
    }

    #[tokio::test]
    async fn too_long_a_local_queue_is_reported_as_local_rate_limit() {
        let (client, inner, clock) = rate_limited_client(&[(200, &[][..]); 3]);
        let retry = RetryPolicy { cap: SECOND * 2, ..RetryPolicy::default() };
        let slow = RequestRate { per_second: 1, burst: 1 };
        let request_policy = RequestPolicy { rate: slow, retry, ..RequestPolicy::default() };
        let client = RateLimitedClient { policy: request_policy, ..(*client).clone() };
        let asking = (0..4).map(|_| {
            let client = client.clone();
            async move { client.execute_request(&request()).await }
        });
        let outcomes =
            run_with_clock(&clock, futures::future::join_all(asking.collect::<Vec<_>>())).await;
        assert!(outcomes[..3].iter().all(Result::is_ok));
        let refused = ThrottledError::of(outcomes[3].as_ref().unwrap_err()).unwrap();
        assert_eq!((refused.cause, refused.remaining), (ThrottleCause::LocalRateLimit, SECOND * 3));
        assert_eq!(inner.request_times.lock().len(), 3);
    }

    #[tokio::test]
    async fn dropped_probe_lets_the_next_request_probe() {
        /// The first request fails, the second hangs, and all later ones succeed.
        #[derive(Debug, Default)]
        struct HangingProbeClient(Mutex<u32>);

        #[async_trait]
        impl HttpClient for HangingProbeClient {
            async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
                let number = {
                    let mut number = self.0.lock();
                    *number += 1;
                    *number
                };
                let status = match number {
                    1 => StatusCode::NotImplemented,
                    2 => std::future::pending().await,
                    _ => StatusCode::Ok,
                };
                Ok(AsyncRawResponse::from_bytes(status, Headers::new(), ""))
            }
        }
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let policy =
            CircuitBreakerPolicy { failure_threshold: 1, ..CircuitBreakerPolicy::default() };
        let request_policy = RequestPolicy { breaker: Some(policy), ..RequestPolicy::default() };
        let inner: Arc<dyn HttpClient> = Arc::new(HangingProbeClient::default());
        let client = RateLimitedClient::new(inner, Arc::new(clock.clone()), request_policy);
        client.execute_request(&request()).await.unwrap();
        clock.advance(SECOND * 10);
        let (first, second) = (request(), request());
        let mut probe = Box::pin(client.execute_request(&first));
        assert!(futures::poll!(&mut probe).is_pending());
        let refused = client.execute_request(&second).await.unwrap_err();
        assert_eq!(ThrottledError::of(&refused).unwrap().cause, ThrottleCause::CircuitOpen);
        drop(probe);
        let answered = client.execute_request(&second).await.unwrap();
        assert_eq!(answered.status(), StatusCode::Ok);
    }

    #[tokio::test]
    async fn dropped_request_leaves_the_queue() {
        let (client, inner, clock) = rate_limited_client(&[(200, &[])]);
        client.with_host(HOST, |host| {
            host.rate_limiter.start_cool_down(Duration::ZERO, SECOND, RequestRate::default());
        });
        let mut gone = Box::pin({
            let client = client.with_priority(RequestPriority::High, FlowId::default());
            async move { client.execute_request(&request()).await }
        });
        assert!(futures::poll!(&mut gone).is_pending());
        let next = {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.execute_request(&request()).await })
        };
        while clock.sleeper_count() < 2 {
            tokio::task::yield_now().await;
        }
        drop(gone);
        run_with_clock(&clock, async move { next.await.unwrap().unwrap() }).await;
        assert_eq!(*inner.request_times.lock(), [SECOND]);
    }

    #[tokio::test]
    async fn failing_host_gets_no_requests_until_a_probe_succeeds() {
        let replies: Vec<(u16, HeaderPairs)> = [[500; 8].as_slice(), &[200, 200]]
            .concat()
            .into_iter()
            .map(|status| (status, &[][..]))
            .collect();
        let (client, inner, clock) = rate_limited_client(&replies);
        let breaker = Some(CircuitBreakerPolicy::default());
        let request_policy = RequestPolicy { breaker, ..RequestPolicy::default() };
        let client = RateLimitedClient { policy: request_policy, ..(*client).clone() };
        let ask = || {
            let client = client.clone();
            async move { client.execute_request(&request()).await }
        };
        for _ in 0..2 {
            let failed = run_with_clock(&clock, ask()).await.unwrap();
            assert_eq!(failed.status(), StatusCode::InternalServerError);
        }
        let refused = ask().await.unwrap_err();
        let refused = ThrottledError::of(&refused).unwrap();
        assert_eq!(refused.cause, ThrottleCause::CircuitOpen);
        assert_eq!(inner.request_times.lock().len(), 8);
        clock.advance(refused.remaining);
        for _ in 0..2 {
            assert_eq!(ask().await.unwrap().status(), StatusCode::Ok);
        }
    }
}
