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

use crate::breaker::{BreakerPolicy, Probe};
use crate::pace::{LONGEST_COOL_DOWN, Rate};
use crate::retry::{RetryPolicy, Try};
use crate::turns::{Asker, Host, Place, Priority, Step};

/// A request was not sent, because its host is left alone for longer than a request waits.
///
/// It comes inside an [`azure_core::Error`] of kind `Other`, because the transport lies under
/// clients that know no other error; [`CoolingError::of`] finds it there.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{host} {because} for another {}s", remaining.as_secs())]
pub struct CoolingError {
    /// The host.
    pub host: String,
    /// Why it is left alone.
    pub because: CoolingCause,
    /// For how long it still is.
    pub remaining: Duration,
}

/// Why a host is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoolingCause {
    /// It asked for it.
    Throttled,
    /// It did not ask for it: as many of our own requests wait for it as may go out meanwhile.
    Busy,
    /// It failed again and again.
    Outage,
}

impl fmt::Display for CoolingCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Throttled => "asked to be left alone",
            Self::Busy => "is asked as fast as it may be, and all turns are taken",
            Self::Outage => "failed again and again and is left alone",
        })
    }
}

impl CoolingError {
    /// The cool-down that an error of the SDK stands for, if it does.
    pub fn of(error: &azure_core::Error) -> Option<&Self> {
        error.downcast_ref()
    }
}

impl From<CoolingError> for azure_core::Error {
    fn from(error: CoolingError) -> Self {
        Self::new(ErrorKind::Other, error)
    }
}

/// How hosts are asked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manners {
    pub(crate) rate: Rate,
    pub(crate) retry: RetryPolicy,
    pub(crate) breaker: Option<BreakerPolicy>,
}

/// The hosts of recent requests. Tenants choose their names in classes, so idle hosts are dropped.
#[derive(Debug, Default)]
struct Hosts(HashMap<String, Known>);

#[derive(Debug, Default)]
struct Known {
    host: Host,
    used_at: Duration,
}

impl Hosts {
    /// The host of this name, new or known.
    fn entry(&mut self, name: &str, now: Duration) -> &mut Host {
        if !self.0.contains_key(name) {
            self.forget_idle(now);
        }
        let known = self.0.entry(name.to_owned()).or_default();
        known.used_at = now;
        &mut known.host
    }

    /// Drops hosts that were idle for [`IDLE`]. If there are still too many, it drops the longest idle ones,
    /// and hosts that rest only after all others. A host for which requests wait stays.
    fn forget_idle(&mut self, now: Duration) {
        let is_idle = |known: &Known| now.saturating_sub(known.used_at) >= IDLE;
        self.0.retain(|_, known| known.host.is_waited_for() || !is_idle(known));
        if self.0.len() < MOST_HOSTS {
            return;
        }
        let mut idle: Vec<_> =
            self.0.iter().filter(|(_, known)| !known.host.is_waited_for()).collect();
        idle.sort_unstable_by_key(|(_, known)| (known.host.rests(now), known.used_at));
        // Some more than one: it takes a look at all of them.
        let names: Vec<String> =
            idle.into_iter().take(MOST_HOSTS / 8).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.0.remove(&name);
        }
    }
}

/// Longer than any cool-down, so that nothing is forgotten that still holds.
const IDLE: Duration = Duration::from_mins(15);
/// Many times as many as a program asks.
const MOST_HOSTS: usize = 1024;

/// A client of one priority and asker; those of a transport share the hosts.
#[derive(Debug, Clone)]
pub(crate) struct PacedClient {
    inner: Arc<dyn HttpClient>,
    clock: SharedClock,
    manners: Manners,
    hosts: Arc<Mutex<Hosts>>,
    priority: Priority,
    asker: Asker,
}

impl PacedClient {
    pub(crate) fn new(inner: Arc<dyn HttpClient>, clock: SharedClock, manners: Manners) -> Self {
        let (priority, asker) = (Priority::default(), Asker::default());
        Self { inner, clock, manners, hosts: Arc::default(), priority, asker }
    }

    /// The same for requests of another priority, on behalf of somebody else.
    pub(crate) fn at(&self, priority: Priority, asker: Asker) -> Self {
        Self { priority, asker, ..self.clone() }
    }

    /// Waits until a request may go; it may have to be the breaker's probe.
    async fn wait_for_turn(&self, host: &str) -> Result<Option<Probe>, CoolingError> {
        let began = self.clock.monotonic();
        let patience = self.manners.retry.cap;
        let (place, bell) = self.host(host, |known| known.join(self.priority, self.asker));
        let _queued = Queued { client: self, host, place };
        let refuse =
            |because, remaining| CoolingError { host: host.to_owned(), because, remaining };
        loop {
            let now = self.clock.monotonic();
            let left = patience.saturating_sub(now.saturating_sub(began));
            let (step, estimate, because) = self.host(host, |known| {
                let step = known.step(place, now, self.manners.rate);
                let is_throttled = known.pace.is_throttled(now);
                let because =
                    if is_throttled { CoolingCause::Throttled } else { CoolingCause::Busy };
                (step, known.estimate(place, now, self.manners.rate), because)
            });
            let pause = match step {
                // The place is gone already; leaving it again rings for the next.
                Step::Go(probe) => return Ok(probe),
                Step::Outage(pause) => return Err(refuse(CoolingCause::Outage, pause)),
                // Whoever passes makes it longer, which is seen by asking again.
                Step::Wait(_) | Step::Queue if estimate > left => {
                    return Err(refuse(because, estimate));
                }
                Step::Wait(pause) => pause,
                Step::Queue => left,
            };
            debug!(host, ?step, priority = ?self.priority, "request waits for its turn");
            select(self.clock.sleep(pause), pin!(bell.notified())).await;
        }
    }

    fn host<T>(&self, host: &str, work: impl FnOnce(&mut Host) -> T) -> T {
        let now = self.clock.monotonic();
        work(self.hosts.lock().entry(host, now))
    }

    fn note(&self, host: &str, outcome: Try, probe: Option<Probe>) {
        let now = self.clock.monotonic();
        if let Try::Replied { status: 429 | 503, retry_after: Some(asked) } = outcome
            && asked > LONGEST_COOL_DOWN
        {
            let (asked, believed) = (asked.as_secs(), LONGEST_COOL_DOWN.as_secs());
            warn!(host, asked, believed, "the host asked to be left alone for too many seconds");
        }
        self.host(host, |known| {
            let rate = self.manners.rate;
            match outcome {
                Try::Replied { status: 429, retry_after } => {
                    known.pace.throttle(now, retry_after, rate);
                }
                Try::Replied { status: 503, retry_after: Some(pause) } => {
                    // It failed, and a breaker says how long such a host is left alone at most.
                    let most = self.manners.breaker.map_or(pause, |policy| policy.longest_pause);
                    known.pace.cool(now, pause.min(most), rate);
                }
                Try::Replied { status: ..500, .. } => known.pace.relax(),
                _ => {}
            }
            let Some(policy) = self.manners.breaker else { return };
            if !outcome.is_failure() {
                known.breaker.succeed();
            } else if known.breaker.fail(now, policy, fastrand::f64(), probe) {
                warn!(host, "the host fails again and again and is left alone");
                known.ring();
            }
        });
    }
}

/// A place in the queue of a host, which is left when its owner goes.
struct Queued<'a> {
    client: &'a PacedClient,
    host: &'a str,
    place: Place,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.client.host(self.host, |known| known.leave(self.place));
    }
}

/// A request that is under way. Dropped before it came back, it was no probe.
struct Sent<'a> {
    client: &'a PacedClient,
    host: &'a str,
    probe: Option<Probe>,
}

impl Sent<'_> {
    fn came_back(mut self, outcome: Try) {
        self.client.note(self.host, outcome, self.probe.take());
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if let Some(probe) = self.probe {
            let now = self.client.clock.monotonic();
            self.client.host(self.host, |known| known.breaker.give_up(probe, now));
        }
    }
}

#[async_trait]
impl HttpClient for PacedClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let (mut last, mut attempt) = (None, 0);
        loop {
            let probe = match self.wait_for_turn(&host).await {
                Ok(probe) => probe,
                // What the host said itself says more.
                Err(cooling) => return last.unwrap_or_else(|| Err(cooling.into())),
            };
            let sent = Sent { client: self, host: &host, probe };
            let result = self.inner.execute_request(request).await;
            let outcome = outcome_of(&result, self.clock.now());
            sent.came_back(outcome);
            let retry = self.manners.retry;
            let Some(pause) = retry.pause(attempt, request.method(), outcome, fastrand::f64())
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

fn outcome_of(result: &azure_core::Result<AsyncRawResponse>, now: Timestamp) -> Try {
    match result {
        Ok(response) => Try::Replied {
            status: response.status().into(),
            retry_after: retry_after(response.headers(), now),
        },
        Err(error) if *error.kind() == ErrorKind::Connection => Try::NotSent,
        Err(_) => Try::Broken,
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

    type Pairs = &'static [(&'static str, &'static str)];

    #[derive(Debug, Default)]
    struct Scripted {
        replies: Mutex<VecDeque<(u16, Pairs)>>,
        seen: Mutex<Vec<Duration>>,
        clock: Option<ManualClock>,
    }

    #[async_trait]
    impl HttpClient for Scripted {
        async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
            let at = self.clock.as_ref().map(ManualClock::monotonic).unwrap_or_default();
            self.seen.lock().push(at);
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
    async fn run<T: Send + 'static>(
        clock: &ManualClock,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let task = tokio::spawn(work);
        while !task.is_finished() {
            tokio::task::yield_now().await;
            if let Some(due) = clock.next_due() {
                clock.advance(due);
            }
        }
        task.await.unwrap()
    }

    fn paced(replies: &[(u16, Pairs)]) -> (Arc<PacedClient>, Arc<Scripted>, ManualClock) {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let inner = Arc::new(Scripted {
            replies: Mutex::new(replies.iter().copied().collect()),
            clock: Some(clock.clone()),
            ..Scripted::default()
        });
        let shared: Arc<dyn HttpClient> = Arc::<Scripted>::clone(&inner);
        let client = PacedClient::new(shared, Arc::new(clock.clone()), Manners::default());
        (Arc::new(client), inner, clock)
    }

    #[test]
    fn hosts_that_nobody_asks_are_forgotten() {
        let mut hosts = Hosts::default();
        let (place, _bell) =
            hosts.entry("waited-for", SECOND).join(Priority::Low, Asker::default());
        hosts.entry("cooling", SECOND).pace.cool(SECOND, LONGEST_COOL_DOWN, Rate::default());
        hosts.entry("new", SECOND + LONGEST_COOL_DOWN);
        assert!(hosts.0.contains_key("cooling"));
        hosts.entry("newer", SECOND + IDLE);
        let mut names: Vec<_> = hosts.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["new", "newer", "waited-for"]);
        hosts.entry("waited-for", SECOND + IDLE).leave(place);
        hosts.entry("throttled", IDLE).pace.cool(IDLE, LONGEST_COOL_DOWN, Rate::default());

        for number in 0..MOST_HOSTS * 3 {
            let now = SECOND * u32::try_from(number / 10).unwrap() + IDLE;
            hosts.entry(&format!("kv{number}.vault.azure.net"), now);
            assert!(hosts.0.len() <= MOST_HOSTS);
            assert!(hosts.0.contains_key("throttled"));
        }
        let last = format!("kv{}.vault.azure.net", MOST_HOSTS * 3 - 1);
        assert!(hosts.0.contains_key(&last));
    }

    #[tokio::test]
    async fn one_throttled_caller_makes_everybody_wait_for_that_host() {
        let throttled: Pairs = &[("retry-after", "10")];
        let (client, inner, clock) = paced(&[(429, throttled), (200, &[]), (200, &[])]);
        let both = {
            let client = Arc::clone(&client);
            // The second asks while the first is being told to stay away.
            run(&clock, async move {
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
        let next = ten + Rate::default().interval();
        assert_eq!(*inner.seen.lock(), [Duration::ZERO, ten, next]);
    }

    #[tokio::test]
    async fn a_cool_down_that_begins_while_a_request_waits_holds_for_it_too() {
        let (client, inner, clock) = paced(&[(200, &[])]);
        client.host(HOST, |host| host.pace.cool(Duration::ZERO, SECOND, Rate::default()));
        let waiting = {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.execute_request(&request()).await })
        };
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        client.host(HOST, |host| host.pace.cool(Duration::ZERO, SECOND * 5, Rate::default()));
        run(&clock, async move { waiting.await.unwrap().unwrap() }).await;
        assert_eq!(*inner.seen.lock(), [SECOND * 5]);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_cool_down_beyond_patience_fails_at_once_and_sends_nothing() {
        let (client, inner, clock) = paced(&[(429, &[("retry-after", "3600")])]);
        let refused = {
            let client = Arc::clone(&client);
            run(&clock, async move { client.execute_request(&request()).await }).await
        };
        assert_eq!(refused.unwrap().status(), StatusCode::TooManyRequests);
        let error = client.execute_request(&request()).await.unwrap_err();
        // An hour is more than is believed.
        assert!(error.to_string().ends_with("asked to be left alone for another 600s"), "{error}");
        assert_eq!(CoolingError::of(&error).unwrap().because, CoolingCause::Throttled);
        assert_eq!(inner.seen.lock().len(), 1);
    }

    #[tokio::test]
    async fn who_waits_for_a_mount_passes_those_who_wait_for_nobody() {
        let (client, inner, clock) = paced(&[(200, &[][..]); 6]);
        let slow = Manners { rate: Rate { per_second: 1, burst: 1 }, ..Manners::default() };
        let client = PacedClient { manners: slow, ..(*client).clone() };
        let order = Arc::new(Mutex::new(Vec::new()));
        let send = |priority: Priority| {
            let (client, order) = (client.at(priority, Asker::default()), Arc::clone(&order));
            async move {
                client.execute_request(&request()).await.unwrap();
                order.lock().push(priority);
            }
        };
        let all = futures::future::join_all([
            send(Priority::Low),
            send(Priority::Low),
            send(Priority::Normal),
            send(Priority::High),
            send(Priority::High),
        ]);
        run(&clock, all).await;
        let (low, normal, high) = (Priority::Low, Priority::Normal, Priority::High);
        // The first finds nobody before it.
        assert_eq!(*order.lock(), [low, high, high, normal, low]);
        assert_eq!(*inner.seen.lock(), [0, 1, 2, 3, 4].map(|second| SECOND * second));
    }

    #[tokio::test]
    async fn who_would_wait_too_long_behind_our_own_is_not_told_that_the_host_asked_for_it() {
        let (client, inner, clock) = paced(&[(200, &[][..]); 3]);
        let retry = RetryPolicy { cap: SECOND * 2, ..RetryPolicy::default() };
        let slow = Rate { per_second: 1, burst: 1 };
        let manners = Manners { rate: slow, retry, ..Manners::default() };
        let client = PacedClient { manners, ..(*client).clone() };
        let asking = (0..4).map(|_| {
            let client = client.clone();
            async move { client.execute_request(&request()).await }
        });
        let outcomes = run(&clock, futures::future::join_all(asking.collect::<Vec<_>>())).await;
        assert!(outcomes[..3].iter().all(Result::is_ok));
        let refused = CoolingError::of(outcomes[3].as_ref().unwrap_err()).unwrap();
        assert_eq!((refused.because, refused.remaining), (CoolingCause::Busy, SECOND * 3));
        assert_eq!(inner.seen.lock().len(), 3);
    }

    #[tokio::test]
    async fn a_probe_that_nobody_waits_for_any_more_lets_the_next_one_go() {
        /// Fails, and then hangs until somebody else is asked.
        #[derive(Debug, Default)]
        struct Hanging(Mutex<u32>);

        #[async_trait]
        impl HttpClient for Hanging {
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
        let policy = BreakerPolicy { failures: 1, ..BreakerPolicy::default() };
        let manners = Manners { breaker: Some(policy), ..Manners::default() };
        let inner: Arc<dyn HttpClient> = Arc::new(Hanging::default());
        let client = PacedClient::new(inner, Arc::new(clock.clone()), manners);
        client.execute_request(&request()).await.unwrap();
        clock.advance(SECOND * 10);
        let (first, second) = (request(), request());
        let mut probe = Box::pin(client.execute_request(&first));
        assert!(futures::poll!(&mut probe).is_pending());
        let refused = client.execute_request(&second).await.unwrap_err();
        assert_eq!(CoolingError::of(&refused).unwrap().because, CoolingCause::Outage);
        drop(probe);
        let answered = client.execute_request(&second).await.unwrap();
        assert_eq!(answered.status(), StatusCode::Ok);
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_queue_to_the_next() {
        let (client, inner, clock) = paced(&[(200, &[])]);
        client.host(HOST, |host| host.pace.cool(Duration::ZERO, SECOND, Rate::default()));
        let mut gone = Box::pin({
            let client = client.at(Priority::High, Asker::default());
            async move { client.execute_request(&request()).await }
        });
        assert!(futures::poll!(&mut gone).is_pending());
        let next = {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.execute_request(&request()).await })
        };
        while clock.sleepers() < 2 {
            tokio::task::yield_now().await;
        }
        drop(gone);
        run(&clock, async move { next.await.unwrap().unwrap() }).await;
        assert_eq!(*inner.seen.lock(), [SECOND]);
    }

    #[tokio::test]
    async fn a_host_that_fails_again_and_again_is_left_alone_until_a_probe_succeeds() {
        let replies: Vec<(u16, Pairs)> = [[500; 8].as_slice(), &[200, 200]]
            .concat()
            .into_iter()
            .map(|status| (status, &[][..]))
            .collect();
        let (client, inner, clock) = paced(&replies);
        let breaker = Some(BreakerPolicy::default());
        let manners = Manners { breaker, ..Manners::default() };
        let client = PacedClient { manners, ..(*client).clone() };
        let ask = || {
            let client = client.clone();
            async move { client.execute_request(&request()).await }
        };
        for _ in 0..2 {
            let failed = run(&clock, ask()).await.unwrap();
            assert_eq!(failed.status(), StatusCode::InternalServerError);
        }
        let refused = ask().await.unwrap_err();
        let refused = CoolingError::of(&refused).unwrap();
        assert_eq!(refused.because, CoolingCause::Outage);
        assert_eq!(inner.seen.lock().len(), 8);
        clock.advance(refused.remaining);
        for _ in 0..2 {
            assert_eq!(ask().await.unwrap().status(), StatusCode::Ok);
        }
    }
}
