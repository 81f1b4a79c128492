use azure_core::http::Method;
use lanyard_clock::Clock as _;

use super::*;
use crate::randomness::fixed::FixedRandomness;
use crate::scripted_service::{ScriptedReply, TokenServiceFixture};

struct TestExchange(Url);

impl TokenExchange for TestExchange {
    fn endpoint(&self) -> &Url {
        &self.0
    }

    fn request(&self) -> Request {
        Request::new(self.0.clone(), Method::Post)
    }

    fn is_retryable(&self, response: &RawResponse) -> bool {
        matches!(u16::from(response.status()), 408 | 429 | 500..)
    }
}

fn test_exchange() -> TestExchange {
    TestExchange("https://login.example/t/oauth2/v2.0/token".parse().unwrap())
}

fn status(outcome: &Result<TokenEndpointResponse, TokenError>) -> u16 {
    outcome.as_ref().unwrap().response.status().into()
}

#[tokio::test]
async fn transient_failures_are_retried_with_growing_delays() {
    for failure in [408, 429, 500, 502, 503, 504, 0] {
        let bench = TokenServiceFixture::new(move |_, number| match (number, failure) {
            (0..3, 0) => ScriptedReply::ConnectionReset,
            (0..3, status) => ScriptedReply::status(status, "trouble"),
            _ => ScriptedReply::status(200, "{}"),
        });
        let transport = bench.transport();
        let (outcome, took) = bench.run_and_measure(transport.send(&test_exchange())).await;
        assert_eq!(status(&outcome), 200, "{failure}");
        assert_eq!(bench.script.request_count(), 4, "{failure}");
        assert_eq!(took, Duration::from_millis(500 + 1_000 + 2_000), "{failure}");
    }
}

#[tokio::test]
async fn errors_and_redirects_are_not_retried() {
    for failure in [301, 302, 307, 400, 401, 403, 407] {
        let bench = TokenServiceFixture::new(move |_, _| {
            ScriptedReply::status(failure, "").with_header("location", "https://elsewhere.example/")
        });
        let (outcome, took) = bench.run_and_measure(bench.transport().send(&test_exchange())).await;
        assert_eq!(status(&outcome), failure);
        assert_eq!(bench.script.request_count(), 1);
        assert_eq!(took, Duration::ZERO);
    }
}

#[tokio::test]
async fn last_response_is_returned_after_all_attempts() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::status(503, "trouble"));
    let outcome = bench.run_to_completion(bench.transport().send(&test_exchange())).await;
    assert_eq!(status(&outcome), 503);
    assert_eq!(bench.script.request_count(), 5);
}

#[tokio::test]
async fn connection_failure_is_reported_with_its_cause() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::ConnectionReset);
    let outcome = bench.run_to_completion(bench.transport().send(&test_exchange())).await;
    let Err(TokenError::Unreachable { endpoint, attempts, source }) = outcome else {
        panic!("an answer came")
    };
    assert_eq!((endpoint.as_str(), attempts), ("https://login.example/t/oauth2/v2.0/token", 5));
    assert_eq!(*source.kind(), ErrorKind::Io);
}

#[tokio::test]
async fn missing_responses_time_out_within_the_budget() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::NoResponse);
    let (outcome, took) = bench.run_and_measure(bench.transport().send(&test_exchange())).await;
    assert!(matches!(outcome, Err(TokenError::TimedOut { attempts: 2, .. })));
    assert_eq!(took, Duration::from_millis(60_500));
}

#[tokio::test]
async fn short_cool_down_delays_all_requests_to_the_authority() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::status(429, "Too Many Requests").with_header("retry-after", "20"),
        _ => ScriptedReply::status(200, "{}"),
    });
    let transport = bench.transport();
    let other = transport.clone();
    let (first, second, elsewhere) = (
        tokio::spawn(async move { status(&transport.send(&test_exchange()).await) }),
        async { status(&bench.run_to_completion(other.send(&test_exchange())).await) },
        TestExchange("https://login.elsewhere.example/".parse().unwrap()),
    );
    bench.run_pending_tasks().await;
    assert_eq!(bench.script.request_count(), 1);
    assert_eq!(status(&other.send(&elsewhere).await), 200);
    assert_eq!(second.await, 200);
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(bench.script.request_count(), 4);
    assert_eq!(bench.clock.monotonic(), Duration::from_secs(20) * 8 / 7);
}

#[tokio::test]
async fn a_cool_down_is_never_shorter_than_requested() {
    let requested = Duration::from_secs(20);
    for (chance, expected) in [(0.0, requested * 8 / 7), (1.0, requested)] {
        let bench = TokenServiceFixture::new(|_, number| match number {
            0 => ScriptedReply::status(429, "Too Many Requests").with_header("retry-after", "20"),
            _ => ScriptedReply::status(200, "{}"),
        });
        let randomness = FixedRandomness::shared(chance);
        let options = TokenTransportOptions { randomness, ..bench.options() };
        let transport = TokenTransport::new(options);
        let (outcome, took) = bench.run_and_measure(transport.send(&test_exchange())).await;
        assert_eq!((status(&outcome), took), (200, expected));
    }
}

#[tokio::test]
async fn cool_down_longer_than_the_budget_fails_immediately() {
    let bench = TokenServiceFixture::new(|_, _| {
        ScriptedReply::status(429, "Too Many Requests").with_header("retry-after", "60")
    });
    let transport = bench.transport();
    let (outcome, took) = bench.run_and_measure(transport.send(&test_exchange())).await;
    assert_eq!((status(&outcome), took), (429, Duration::ZERO));
    let repeated = transport.send(&test_exchange()).await;
    assert!(matches!(repeated, Err(TokenError::CoolingDown { .. })));
    assert_eq!(bench.script.request_count(), 1);
    assert_eq!(transport.cool_down(&test_exchange().0, None), Some(Duration::from_mins(1)));
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(transport.cool_down(&test_exchange().0, None), None);
}

/// An exchange of an application of a tenant.
struct ApplicationExchange(Url, &'static str);

impl TokenExchange for ApplicationExchange {
    fn endpoint(&self) -> &Url {
        &self.0
    }

    fn request(&self) -> Request {
        Request::new(self.0.clone(), Method::Post)
    }

    fn client_id(&self) -> Option<&str> {
        Some(self.1)
    }

    fn is_retryable(&self, _: &RawResponse) -> bool {
        false
    }
}

#[tokio::test]
async fn throttling_applies_per_application_and_outages_per_authority() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::status(429, "Too Many Requests").with_header("retry-after", "60"),
        3 => ScriptedReply::status(503, "trouble").with_header("retry-after", "60"),
        _ => ScriptedReply::status(200, "{}"),
    });
    let transport = bench.transport();
    let app = |tenant: &str, client| {
        ApplicationExchange(
            format!("https://login.example/{tenant}/token").parse().unwrap(),
            client,
        )
    };
    assert_eq!(status(&transport.send(&app("t", "one")).await), 429);
    for (tenant, client) in [("t", "other"), ("u", "one")] {
        assert_eq!(status(&transport.send(&app(tenant, client)).await), 200);
    }
    let throttled = transport.send(&app("t", "one")).await;
    let own = |client: &Option<String>| client.as_deref() == Some("one");
    assert!(matches!(throttled, Err(TokenError::CoolingDown { client, .. }) if own(&client)));
    assert_eq!(bench.script.request_count(), 3);
    assert_eq!(status(&transport.send(&app("t", "other")).await), 503);
    let left_alone = transport.send(&app("u", "one")).await;
    assert!(matches!(left_alone, Err(TokenError::CoolingDown { client: None, .. })));
}

#[tokio::test]
async fn response_body_is_truncated_at_the_maximum_size() {
    let bench = TokenServiceFixture::new(|_, _| {
        ScriptedReply::status(200, &"x".repeat(MAX_RESPONSE_SIZE + 1))
    });
    let outcome = bench.run_to_completion(bench.transport().send(&test_exchange())).await;
    assert_eq!(outcome.unwrap().response.body().len(), MAX_RESPONSE_SIZE);
}

#[tokio::test]
async fn metrics_hook_sees_requests_and_retries() {
    #[derive(Debug, Default)]
    struct RecordingSenderMetrics(parking_lot::Mutex<Vec<String>>);

    impl MetricsHook for RecordingSenderMetrics {
        fn token_requested(&self, request: &TokenRequestEvent<'_>) {
            let (host, status) = (request.endpoint_host, request.status);
            self.0.lock().push(format!("{host} {status:?}"));
        }

        fn request_retried(&self, endpoint_host: &str, delay: Duration) {
            self.0.lock().push(format!("{endpoint_host} again in {} ms", delay.as_millis()));
        }
    }

    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::ConnectionReset,
        _ => ScriptedReply::status(200, "{}"),
    });
    let counter = Arc::new(RecordingSenderMetrics::default());
    let metrics: Arc<dyn MetricsHook> = Arc::<RecordingSenderMetrics>::clone(&counter);
    let transport = TokenTransport::new(TokenTransportOptions { metrics, ..bench.options() });
    bench.run_to_completion(transport.send(&test_exchange())).await.ok().unwrap();
    assert_eq!(
        *counter.0.lock(),
        ["login.example None", "login.example again in 500 ms", "login.example Some(200)"]
    );
}

fn limited_transport(bench: &TokenServiceFixture, concurrent: u32) -> TokenTransport {
    let limits = Some(RequestLimits { per_second: 20, concurrent });
    TokenTransport::new(TokenTransportOptions { limits, ..bench.options() })
}

#[tokio::test]
async fn concurrent_requests_are_limited() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::status(200, "{}").gated());
    let transport = limited_transport(&bench, 2);
    let all: Vec<_> = (0..4)
        .map(|_| {
            let transport = transport.clone();
            tokio::spawn(async move { transport.send(&test_exchange()).await })
        })
        .collect();
    bench.run_pending_tasks().await;
    assert_eq!(bench.script.request_count(), 2);
    bench.script.release(1);
    bench.run_pending_tasks().await;
    assert_eq!(bench.script.request_count(), 3);
    bench.script.release(3);
    for one in all {
        assert_eq!(status(&one.await.unwrap()), 200);
    }
}

#[tokio::test]
async fn a_burst_is_spread_over_time() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::status(200, "{}"));
    let transport = limited_transport(&bench, 5);
    let burst = async {
        for _ in 0..35 {
            transport.send(&test_exchange()).await.map(|_| ()).unwrap();
        }
    };
    // Five leave immediately, then fifteen per second.
    let ((), took) = bench.run_and_measure(burst).await;
    assert!(took.abs_diff(Duration::from_secs(2)) < Duration::from_millis(1), "{took:?}");
}

#[tokio::test]
async fn waiting_beyond_the_budget_returns_concurrency_limit_reached() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::NoResponse);
    let retry = RetrySettings {
        attempts: 1,
        attempt_timeout: Duration::from_secs(100),
        ..RetrySettings::default()
    };
    let limits = Some(RequestLimits { per_second: 20, concurrent: 1 });
    let options = TokenTransportOptions { limits, retry: Some(retry), ..bench.options() };
    let transport = TokenTransport::new(options);
    let first = transport.clone();
    let first = tokio::spawn(async move { first.send(&test_exchange()).await.map(|_| ()) });
    bench.run_pending_tasks().await;
    let (outcome, took) = bench.run_and_measure(transport.send(&test_exchange())).await;
    assert!(matches!(outcome.map(|_| ()), Err(TokenError::ConcurrencyLimitReached { .. })));
    assert_eq!(took, RetrySettings::default().budget);
    first.abort();
}
