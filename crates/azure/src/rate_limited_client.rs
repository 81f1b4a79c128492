//! The HTTP client under every Azure client: waits for its turn, sends, and tries again.

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

/// A request was not sent, because its host is left alone for longer than a request waits.
///
/// It comes inside an [`azure_core::Error`] of kind `Other`, because the transport lies under
/// clients that know no other error; [`ThrottledError::of`] finds it there.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{host} {cause} for another {}s", remaining.as_secs())]
pub struct ThrottledError {
    /// The host.
    pub host: String,
    /// Why it is left alone.
    pub cause: ThrottleCause,
    /// For how long it still is.
    pub remaining: Duration,
}

/// Why a host is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleCause {
    /// It asked for it.
    Throttled,
    /// It did not ask for it: as many of our own requests wait for it as may go out meanwhile.
    LocalRateLimit,
    /// It failed again and again.
    CircuitOpen,
}

impl fmt::Display for ThrottleCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Throttled => "asked to be left alone",
            Self::LocalRateLimit => "is asked as fast as it may be, and all turns are taken",
            Self::CircuitOpen => "failed again and again and is left alone",
        })
    }
}

impl ThrottledError {
    /// The cool-down that an error of the SDK stands for, if it does.
    pub fn of(error: &azure_core::Error) -> Option<&Self> {
        error.downcast_ref()
    }
}

impl From<ThrottledError> for azure_core::Error {
    fn from(error: ThrottledError) -> Self {
        Self::new(ErrorKind::Other, error)
    }
}

/// How hosts are asked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestPolicy {
    pub(crate) rate: RequestRate,
    pub(crate) retry: RetryPolicy,
    pub(crate) breaker: Option<CircuitBreakerPolicy>,
}

/// The hosts of recent requests. Tenants choose their names in classes, so idle hosts are dropped.
#[derive(Debug, Default)]
struct HostTable(HashMap<String, HostEntry>);

#[derive(Debug, Default)]
struct HostEntry {
    host: HostQueue,
    last_used_at: Duration,
}

impl HostTable {
    /// The host of this name, new or known.
    fn entry(&mut self, name: &str, now: Duration) -> &mut HostQueue {
        if !self.0.contains_key(name) {
            self.evict_idle(now);
        }
        let known = self.0.entry(name.to_owned()).or_default();
        known.last_used_at = now;
        &mut known.host
    }

    /// Drops hosts that were idle for [`IDLE_TIMEOUT`]. If there are still too many, it drops the longest idle ones,
    /// and hosts that rest only after all others. A host for which requests wait stays.
    fn evict_idle(&mut self, now: Duration) {
        let is_idle = |known: &HostEntry| now.saturating_sub(known.last_used_at) >= IDLE_TIMEOUT;
        self.0.retain(|_, known| known.host.has_queued_requests() || !is_idle(known));
        if self.0.len() < MAX_HOSTS {
            return;
        }
        let mut idle: Vec<_> =
            self.0.iter().filter(|(_, known)| !known.host.has_queued_requests()).collect();
        idle.sort_unstable_by_key(|(_, known)| (known.host.is_paused(now), known.last_used_at));
        // Some more than one: it takes a look at all of them.
        let names: Vec<String> =
            idle.into_iter().take(MAX_HOSTS / 8).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.0.remove(&name);
        }
    }
}

/// Longer than any cool-down, so that nothing is forgotten that still holds.
const IDLE_TIMEOUT: Duration = Duration::from_mins(15);
/// Many times as many as a program asks.
const MAX_HOSTS: usize = 1024;

/// A client of one priority and asker; those of a transport share the hosts.
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

    /// The same for requests of another priority, on behalf of somebody else.
    pub(crate) fn with_priority(&self, priority: RequestPriority, asker: FlowId) -> Self {
        Self { priority, flow: asker, ..self.clone() }
    }

    /// Waits until a request may go; it may have to be the breaker's probe.
    async fn wait_until_allowed(&self, host: &str) -> Result<Option<BreakerProbe>, ThrottledError> {
        let began = self.clock.monotonic();
        let patience = self.policy.retry.cap;
        let (place, bell) = self.with_host(host, |known| known.enqueue(self.priority, self.flow));
        let _queued = QueuedRequestGuard { client: self, host, position: place };
        let refuse = |because, remaining| ThrottledError {
            host: host.to_owned(),
            cause: because,
            remaining,
        };
        loop {
            let now = self.clock.monotonic();
            let left = patience.saturating_sub(now.saturating_sub(began));
            let (step, estimate, because) = self.with_host(host, |known| {
                let step = known.decide(place, now, self.policy.rate);
                let is_throttled = known.rate_limiter.is_throttled(now);
                let because = if is_throttled {
                    ThrottleCause::Throttled
                } else {
                    ThrottleCause::LocalRateLimit
                };
                (step, known.estimated_wait(place, now, self.policy.rate), because)
            });
            let pause = match step {
                // The place is gone already; leaving it again rings for the next.
                QueueDecision::SendNow(probe) => return Ok(probe),
                QueueDecision::CircuitOpen(pause) => {
                    return Err(refuse(ThrottleCause::CircuitOpen, pause));
                }
                // Whoever passes makes it longer, which is seen by asking again.
                QueueDecision::Wait(_) | QueueDecision::WaitInQueue if estimate > left => {
                    return Err(refuse(because, estimate));
                }
                QueueDecision::Wait(pause) => pause,
                QueueDecision::WaitInQueue => left,
            };
            debug!(host, ?step, priority = ?self.priority, "request waits for its turn");
            select(self.clock.sleep(pause), pin!(bell.notified())).await;
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
            let (asked, believed) = (asked.as_secs(), MAX_COOL_DOWN.as_secs());
            warn!(host, asked, believed, "the host asked to be left alone for too many seconds");
        }
        self.with_host(host, |known| {
            let rate = self.policy.rate;
            match outcome {
                AttemptOutcome::Responded { status: 429, retry_after } => {
                    known.rate_limiter.record_throttling(now, retry_after, rate);
                }
                AttemptOutcome::Responded { status: 503, retry_after: Some(pause) } => {
                    // It failed, and a breaker says how long such a host is left alone at most.
                    let most = self.policy.breaker.map_or(pause, |policy| policy.max_pause);
                    known.rate_limiter.start_cool_down(now, pause.min(most), rate);
                }
                AttemptOutcome::Responded { status: ..500, .. } => {
                    known.rate_limiter.record_success()
                }
                _ => {}
            }
            let Some(policy) = self.policy.breaker else { return };
            if !outcome.is_failure() {
                known.circuit_breaker.record_success();
            } else if known.circuit_breaker.record_failure(now, policy, fastrand::f64(), probe) {
                warn!(host, "the host fails again and again and is left alone");
                known.wake_all();
            }
        });
    }
}

/// A place in the queue of a host, which is left when its owner goes.
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

/// A request that is under way. Dropped before it came back, it was no probe.
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
                // What the host said itself says more.
                Err(cooling) => return last.unwrap_or_else(|| Err(cooling.into())),
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
            debug!(host, attempt, ?outcome, pause_millis = pause.as_millis(), "trying again");
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

    /// Runs `work` while the clock jumps to whatever it sleeps for.
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
        let (place, _bell) =
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
        hosts.entry("waited-for", SECOND + IDLE_TIMEOUT).dequeue(place);
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
            // The second asks while the first is being told to stay away.
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
            host.rate_limiter.start_cool_down(Duration::ZERO, SECOND, RequestRate::default())
        });
        let waiting = {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.execute_request(&request()).await })
        };
        while clock.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        client.with_host(HOST, |host| {
            host.rate_limiter.start_cool_down(Duration::ZERO, SECOND * 5, RequestRate::default())
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
        // An hour is more than is believed.
        assert!(error.to_string().ends_with("asked to be left alone for another 600s"), "{error}");
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
        // The first finds nobody before it.
        assert_eq!(*order.lock(), [low, high, high, normal, low]);
        assert_eq!(*inner.request_times.lock(), [0, 1, 2, 3, 4].map(|second| SECOND * second));
    }

    #[tokio::test]
    async fn too_long_a_local_queue_is_reported_as_local_rate_limit() {
        let (client, inner, clock) = rate_limited_client(&[(200, &[][..]); 3]);
        let retry = RetryPolicy { cap: SECOND * 2, ..RetryPolicy::default() };
        let slow = RequestRate { per_second: 1, burst: 1 };
        let manners = RequestPolicy { rate: slow, retry, ..RequestPolicy::default() };
        let client = RateLimitedClient { policy: manners, ..(*client).clone() };
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
        /// Fails, and then hangs until somebody else is asked.
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
        let manners = RequestPolicy { breaker: Some(policy), ..RequestPolicy::default() };
        let inner: Arc<dyn HttpClient> = Arc::new(HangingProbeClient::default());
        let client = RateLimitedClient::new(inner, Arc::new(clock.clone()), manners);
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
            host.rate_limiter.start_cool_down(Duration::ZERO, SECOND, RequestRate::default())
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
        let manners = RequestPolicy { breaker, ..RequestPolicy::default() };
        let client = RateLimitedClient { policy: manners, ..(*client).clone() };
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
