use azure_core::http::Method;
use lanyard_clock::Clock as _;

use super::*;
use crate::scripted::{Bench, Reply};

struct Ask(Url);

impl Exchange for Ask {
    fn endpoint(&self) -> &Url {
        &self.0
    }

    fn request(&self) -> Request {
        Request::new(self.0.clone(), Method::Post)
    }

    fn may_pass(&self, response: &RawResponse) -> bool {
        matches!(u16::from(response.status()), 408 | 429 | 500..)
    }
}

fn ask() -> Ask {
    Ask("https://login.example/t/oauth2/v2.0/token".parse().unwrap())
}

fn status(outcome: &Result<Answer, TokenError>) -> u16 {
    outcome.as_ref().unwrap().response.status().into()
}

#[tokio::test]
async fn passing_trouble_is_waited_out_with_growing_delays() {
    for trouble in [408, 429, 500, 502, 503, 504, 0] {
        let bench = Bench::new(move |_, number| match (number, trouble) {
            (0..3, 0) => Reply::Broken,
            (0..3, status) => Reply::status(status, "trouble"),
            _ => Reply::status(200, "{}"),
        });
        let transport = bench.transport();
        let (outcome, took) = bench.timed(transport.send(&ask())).await;
        assert_eq!(status(&outcome), 200, "{trouble}");
        assert_eq!(bench.script.requests(), 4, "{trouble}");
        assert_eq!(took, Duration::from_millis(500 + 1_000 + 2_000), "{trouble}");
    }
}

#[tokio::test]
async fn refusals_and_redirects_are_final() {
    for trouble in [301, 302, 307, 400, 401, 403, 407] {
        let bench = Bench::new(move |_, _| {
            Reply::status(trouble, "").with_header("location", "https://elsewhere.example/")
        });
        let (outcome, took) = bench.timed(bench.transport().send(&ask())).await;
        assert_eq!(status(&outcome), trouble);
        assert_eq!(bench.script.requests(), 1);
        assert_eq!(took, Duration::ZERO);
    }
}

#[tokio::test]
async fn the_attempts_end_with_the_last_answer() {
    let bench = Bench::new(|_, _| Reply::status(503, "trouble"));
    let outcome = bench.drive(bench.transport().send(&ask())).await;
    assert_eq!(status(&outcome), 503);
    assert_eq!(bench.script.requests(), 5);
}

#[tokio::test]
async fn a_broken_line_is_reported_with_its_cause() {
    let bench = Bench::new(|_, _| Reply::Broken);
    let outcome = bench.drive(bench.transport().send(&ask())).await;
    let Err(TokenError::Unreachable { endpoint, attempts, source }) = outcome else {
        panic!("an answer came")
    };
    assert_eq!((endpoint.as_str(), attempts), ("https://login.example/t/oauth2/v2.0/token", 5));
    assert_eq!(*source.kind(), ErrorKind::Io);
}

#[tokio::test]
async fn silence_ends_after_the_limit_and_within_the_budget() {
    let bench = Bench::new(|_, _| Reply::Silence);
    let (outcome, took) = bench.timed(bench.transport().send(&ask())).await;
    assert!(matches!(outcome, Err(TokenError::TimedOut { attempts: 2, .. })));
    assert_eq!(took, Duration::from_millis(60_500));
}

#[tokio::test]
async fn a_short_cool_down_is_waited_out_by_everybody_who_calls_that_authority() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::status(429, "Too Many Requests").with_header("retry-after", "20"),
        _ => Reply::status(200, "{}"),
    });
    let transport = bench.transport();
    let other = transport.clone();
    let (first, second, elsewhere) = (
        tokio::spawn(async move { status(&transport.send(&ask()).await) }),
        async { status(&bench.drive(other.send(&ask())).await) },
        Ask("https://login.elsewhere.example/".parse().unwrap()),
    );
    bench.settle().await;
    assert_eq!(bench.script.requests(), 1);
    assert_eq!(status(&other.send(&elsewhere).await), 200);
    assert_eq!(second.await, 200);
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(bench.script.requests(), 4);
    assert_eq!(bench.clock.monotonic(), Duration::from_secs(21));
}

#[tokio::test]
async fn a_cool_down_beyond_the_budget_fails_at_once() {
    let bench =
        Bench::new(|_, _| Reply::status(429, "Too Many Requests").with_header("retry-after", "60"));
    let transport = bench.transport();
    let (outcome, took) = bench.timed(transport.send(&ask())).await;
    assert_eq!((status(&outcome), took), (429, Duration::ZERO));
    let again = transport.send(&ask()).await;
    assert!(matches!(again, Err(TokenError::CoolingDown { .. })));
    assert_eq!(bench.script.requests(), 1);
    assert_eq!(transport.cool_down(&ask().0, None), Some(Duration::from_mins(1)));
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(transport.cool_down(&ask().0, None), None);
}

/// An application of a tenant.
struct App(Url, &'static str);

impl Exchange for App {
    fn endpoint(&self) -> &Url {
        &self.0
    }

    fn request(&self) -> Request {
        Request::new(self.0.clone(), Method::Post)
    }

    fn client_id(&self) -> Option<&str> {
        Some(self.1)
    }

    fn may_pass(&self, _: &RawResponse) -> bool {
        false
    }
}

#[tokio::test]
async fn an_application_that_is_throttled_keeps_no_other_waiting_and_an_authority_in_trouble_all() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::status(429, "Too Many Requests").with_header("retry-after", "60"),
        3 => Reply::status(503, "trouble").with_header("retry-after", "60"),
        _ => Reply::status(200, "{}"),
    });
    let transport = bench.transport();
    let app = |tenant: &str, client| {
        App(format!("https://login.example/{tenant}/token").parse().unwrap(), client)
    };
    assert_eq!(status(&transport.send(&app("t", "one")).await), 429);
    for (tenant, client) in [("t", "other"), ("u", "one")] {
        assert_eq!(status(&transport.send(&app(tenant, client)).await), 200);
    }
    let throttled = transport.send(&app("t", "one")).await;
    let own = |client: &Option<String>| client.as_deref() == Some("one");
    assert!(matches!(throttled, Err(TokenError::CoolingDown { client, .. }) if own(&client)));
    assert_eq!(bench.script.requests(), 3);
    assert_eq!(status(&transport.send(&app("t", "other")).await), 503);
    let left_alone = transport.send(&app("u", "one")).await;
    assert!(matches!(left_alone, Err(TokenError::CoolingDown { client: None, .. })));
}

#[tokio::test]
async fn an_endless_answer_is_cut() {
    let bench = Bench::new(|_, _| Reply::status(200, &"x".repeat(LONGEST_ANSWER + 1)));
    let outcome = bench.drive(bench.transport().send(&ask())).await;
    assert_eq!(outcome.unwrap().response.body().len(), LONGEST_ANSWER);
}

#[tokio::test]
async fn everything_that_happens_is_counted() {
    #[derive(Debug, Default)]
    struct Counter(parking_lot::Mutex<Vec<String>>);

    impl MetricsHook for Counter {
        fn token_requested(&self, request: &TokenRequested<'_>) {
            let (host, status) = (request.endpoint_host, request.status);
            self.0.lock().push(format!("{host} {status:?}"));
        }

        fn request_retried(&self, endpoint_host: &str, delay: Duration) {
            self.0.lock().push(format!("{endpoint_host} again in {} ms", delay.as_millis()));
        }
    }

    let bench = Bench::new(|_, number| match number {
        0 => Reply::Broken,
        _ => Reply::status(200, "{}"),
    });
    let counter = Arc::new(Counter::default());
    let metrics: Arc<dyn MetricsHook> = Arc::<Counter>::clone(&counter);
    let transport = TokenTransport::new(TokenTransportOptions { metrics, ..bench.options() });
    bench.drive(transport.send(&ask())).await.ok().unwrap();
    assert_eq!(
        *counter.0.lock(),
        ["login.example None", "login.example again in 500 ms", "login.example Some(200)"]
    );
}

fn limited(bench: &Bench, concurrent: u32) -> TokenTransport {
    let limits = Some(RequestLimits { per_second: 20, concurrent });
    TokenTransport::new(TokenTransportOptions { limits, ..bench.options() })
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_the_limit_allows() {
    let bench = Bench::new(|_, _| Reply::status(200, "{}").gated());
    let transport = limited(&bench, 2);
    let all: Vec<_> = (0..4)
        .map(|_| {
            let transport = transport.clone();
            tokio::spawn(async move { transport.send(&ask()).await })
        })
        .collect();
    bench.settle().await;
    assert_eq!(bench.script.requests(), 2);
    bench.script.release(1);
    bench.settle().await;
    assert_eq!(bench.script.requests(), 3);
    bench.script.release(3);
    for one in all {
        assert_eq!(status(&one.await.unwrap()), 200);
    }
}

#[tokio::test]
async fn a_burst_is_spread_over_time() {
    let bench = Bench::new(|_, _| Reply::status(200, "{}"));
    let transport = limited(&bench, 5);
    let burst = async {
        for _ in 0..35 {
            transport.send(&ask()).await.map(|_| ()).unwrap();
        }
    };
    // Five leave at once, then fifteen a second.
    let ((), took) = bench.timed(burst).await;
    assert!(took.abs_diff(Duration::from_secs(2)) < Duration::from_millis(1), "{took:?}");
}

#[tokio::test]
async fn whoever_gets_no_turn_within_the_budget_is_told_so() {
    let bench = Bench::new(|_, _| Reply::Silence);
    let retry = RetrySettings {
        attempts: 1,
        attempt_timeout: Duration::from_secs(100),
        ..RetrySettings::default()
    };
    let limits = Some(RequestLimits { per_second: 20, concurrent: 1 });
    let options = TokenTransportOptions { limits, retry: Some(retry), ..bench.options() };
    let transport = TokenTransport::new(options);
    let first = transport.clone();
    let first = tokio::spawn(async move { first.send(&ask()).await.map(|_| ()) });
    bench.settle().await;
    let (outcome, took) = bench.timed(transport.send(&ask())).await;
    assert!(matches!(outcome.map(|_| ()), Err(TokenError::Crowded { .. })));
    assert_eq!(took, RetrySettings::default().budget);
    first.abort();
}
