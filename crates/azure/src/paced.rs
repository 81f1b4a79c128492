//! The HTTP client under every Azure client: waits for its turn, sends, and tries again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_credential::reply::retry_after;
use parking_lot::Mutex;
use tracing::debug;

use crate::pace::{Pace, Rate};
use crate::retry::{RetryPolicy, Try};

/// A host asked to be left alone for longer than a request waits.
///
/// It comes inside an [`azure_core::Error`] of kind `Other`, because the transport lies under
/// clients that know no other error; [`CoolingError::of`] finds it there.
#[derive(Debug, thiserror::Error)]
#[error("{host} asked to be left alone for another {}s", remaining.as_secs())]
pub struct CoolingError {
    /// The host.
    pub host: String,
    /// For how long it still wants to be left alone.
    pub remaining: Duration,
}

impl CoolingError {
    /// The cool-down that an error of the SDK stands for, if it does.
    pub fn of(error: &azure_core::Error) -> Option<&Self> {
        error.downcast_ref()
    }
}

#[derive(Debug)]
pub(crate) struct PacedClient {
    inner: Arc<dyn HttpClient>,
    clock: SharedClock,
    rate: Rate,
    retry: RetryPolicy,
    hosts: Mutex<HashMap<String, Pace>>,
}

impl PacedClient {
    pub(crate) fn new(
        inner: Arc<dyn HttpClient>,
        clock: SharedClock,
        rate: Rate,
        retry: RetryPolicy,
    ) -> Self {
        Self { inner, clock, rate, retry, hosts: Mutex::new(HashMap::new()) }
    }

    async fn wait_for_turn(&self, host: &str) -> azure_core::Result<()> {
        let began = self.clock.monotonic();
        let mut wait = self.pace(host, |pace| pace.take(began, self.rate));
        // Others may be told to stay away while this one sleeps, so it asks again when it wakes.
        while !wait.is_zero() {
            let waited = self.clock.monotonic().saturating_sub(began);
            if waited.saturating_add(wait) > self.retry.cap {
                self.pace(host, |pace| pace.put_back(self.rate));
                let error = CoolingError { host: host.to_owned(), remaining: wait };
                return Err(azure_core::Error::new(ErrorKind::Other, error));
            }
            debug!(host, wait_millis = wait.as_millis(), "request waits for its turn");
            self.clock.sleep(wait).await;
            wait = self.pace(host, |pace| pace.cooling(self.clock.monotonic()));
        }
        Ok(())
    }

    fn pace<T>(&self, host: &str, work: impl FnOnce(&mut Pace) -> T) -> T {
        work(self.hosts.lock().entry(host.to_owned()).or_default())
    }

    fn note_cool_down(&self, host: &str, outcome: Try) {
        if let Try::Replied { status: 429 | 503, retry_after: Some(pause) } = outcome {
            let now = self.clock.monotonic();
            self.pace(host, |pace| pace.cool(now, pause));
        }
    }
}

#[async_trait]
impl HttpClient for PacedClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let mut attempt = 0;
        loop {
            self.wait_for_turn(&host).await?;
            let result = self.inner.execute_request(request).await;
            let outcome = outcome_of(&result, self.clock.now());
            self.note_cool_down(&host, outcome);
            let Some(pause) = self.retry.pause(attempt, request.method(), outcome, fastrand::f64())
            else {
                return result;
            };
            attempt += 1;
            debug!(host, attempt, ?outcome, pause_millis = pause.as_millis(), "trying again");
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
        let client = PacedClient::new(
            shared,
            Arc::new(clock.clone()),
            Rate::default(),
            RetryPolicy::default(),
        );
        (Arc::new(client), inner, clock)
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
        assert_eq!(*inner.seen.lock(), [Duration::ZERO, ten, ten]);
    }

    #[tokio::test]
    async fn a_cool_down_that_begins_while_a_request_waits_holds_for_it_too() {
        let (client, inner, clock) = paced(&[(200, &[])]);
        client.pace("management.azure.com", |pace| pace.cool(Duration::ZERO, SECOND));
        let waiting = {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.execute_request(&request()).await })
        };
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        client.pace("management.azure.com", |pace| pace.cool(Duration::ZERO, SECOND * 5));
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
        assert!(error.to_string().contains("3600s"), "{error}");
        assert_eq!(inner.seen.lock().len(), 1);
    }
}
