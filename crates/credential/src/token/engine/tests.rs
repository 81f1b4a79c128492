use std::future::Future as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Waker};

use azure_core::error::ErrorKind;
use lanyard_clock::{Clock as _, ManualClock};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::entra::exchange::ProofExchange;
use crate::entra::request::Proof;
use crate::scripted::{Bench, Reply};

const VAULT: &str = "https://vault.azure.net/.default";
const ARM: &str = "https://management.azure.com/.default";

/// Exchanges a fixed assertion at a fixed endpoint.
#[derive(Debug)]
struct FixedSource(TokenTransport);

#[async_trait::async_trait]
impl TokenSource for FixedSource {
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError> {
        let claims = key.variant.claims_parameter()?;
        let endpoint = "https://login.example/t/oauth2/v2.0/token".parse().unwrap();
        let exchange = ProofExchange {
            endpoint: &endpoint,
            client_id: "client",
            scope: &key.scope,
            proof: Proof::Assertion("a.b.c"),
            claims: claims.as_deref(),
            request_id: Uuid::nil(),
        };
        exchange.fetch(&self.0, 1).await
    }
}

fn engine(bench: &Bench) -> Arc<TokenEngine<FixedSource>> {
    let transport = bench.transport();
    Arc::new(TokenEngine::new(FixedSource(transport.clone()), &transport))
}

fn options(context: TokenRequestContext) -> TokenRequestOptions<'static> {
    let mut options = TokenRequestOptions::default();
    options.method_options.context.insert(context);
    options
}

async fn get(engine: &TokenEngine<FixedSource>, scope: &str) -> Result<String, TokenError> {
    get_with(engine, scope, None).await
}

async fn get_with(
    engine: &TokenEngine<FixedSource>,
    scope: &str,
    options: Option<TokenRequestOptions<'_>>,
) -> Result<String, TokenError> {
    match engine.access_token(&[scope], options).await {
        Ok(token) => Ok(token.token.secret().to_owned()),
        Err(error) => Err(TokenError::of(&error).unwrap().clone()),
    }
}

fn spawn_get(
    engine: &Arc<TokenEngine<FixedSource>>,
    scope: &'static str,
) -> tokio::task::JoinHandle<Result<String, TokenError>> {
    let engine = Arc::clone(engine);
    tokio::spawn(async move { get(&engine, scope).await })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn ten_thousand_callers_of_a_cold_scope_cause_one_request() {
    let bench = Bench::new(|_, _| Reply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let callers: Vec<_> = (0..10_000).map(|_| spawn_get(&engine, VAULT)).collect();
    bench.settle().await;
    bench.script.release(10_000);
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), "t");
    }
    assert_eq!(bench.script.requests(), 1);
}

#[tokio::test]
async fn a_cached_token_is_handed_out_without_a_request() {
    let bench = Bench::new(|_, number| Reply::token(&format!("t{number}"), 3_600));
    let engine = engine(&bench);
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(engine.lend(VAULT, &PLAIN, |token| token.reveal().len()), Some(2));
    assert_eq!(engine.lend(ARM, &PLAIN, |token| token.reveal().len()), None);
    assert_eq!(bench.script.requests(), 1);
    assert_eq!(bench.script.seen(0).field("scope").unwrap(), VAULT);
}

#[tokio::test]
async fn the_expiry_that_callers_see_is_wall_time() {
    let bench = Bench::new(|_, _| Reply::token("t", 3_600));
    let engine = engine(&bench);
    let token = engine.access_token(&[VAULT], None).await.unwrap();
    assert_eq!(token.expires_on.unix_timestamp(), bench.clock.now().as_second() + 3_600);
}

#[tokio::test]
async fn a_hanging_request_for_one_scope_holds_up_no_other() {
    let bench = Bench::new(|seen, _| match seen.field("scope").as_deref() {
        Some(VAULT) => Reply::Silence,
        _ => Reply::token("arm", 3_600),
    });
    let engine = engine(&bench);
    let hanging = spawn_get(&engine, VAULT);
    bench.settle().await;
    assert_eq!(get(&engine, ARM).await.unwrap(), "arm");
    assert_eq!(get(&engine, ARM).await.unwrap(), "arm");
    assert!(!hanging.is_finished());
}

#[tokio::test]
async fn the_request_outlives_the_caller_who_asked_first() {
    let bench = Bench::new(|_, _| Reply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let first = spawn_get(&engine, VAULT);
    bench.settle().await;
    let second = spawn_get(&engine, VAULT);
    bench.settle().await;
    first.abort();
    bench.settle().await;
    bench.script.release(1);
    assert_eq!(second.await.unwrap().unwrap(), "t");
    assert_eq!(bench.script.requests(), 1);
}

#[tokio::test]
async fn cancelled_callers_do_not_keep_the_others_waiting() {
    let bench = Bench::new(|_, _| Reply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let callers: Vec<_> = (0..1_000).map(|_| spawn_get(&engine, VAULT)).collect();
    bench.settle().await;
    callers.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
    bench.script.release(1);
    for (number, caller) in callers.into_iter().enumerate() {
        match caller.await {
            Ok(token) => assert_eq!(token.unwrap(), "t"),
            Err(error) => assert!(error.is_cancelled() && number % 2 == 0),
        }
    }
    assert_eq!(bench.script.requests(), 1);
}

#[tokio::test]
async fn callers_of_a_fetch_that_panics_share_a_second_one() {
    let bench = Bench::new(|_, number| {
        assert_ne!(number, 0, "the first request panics");
        Reply::token("t", 3_600)
    });
    let engine = engine(&bench);
    let callers: Vec<_> = (0..20).map(|_| spawn_get(&engine, VAULT)).collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), "t");
    }
    assert_eq!(bench.script.requests(), 2);
}

#[tokio::test]
async fn a_failure_is_shared_and_remembered_for_a_moment() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::refusal("invalid_client", 700_016).gated(),
        _ => Reply::token("t", 3_600),
    });
    let engine = engine(&bench);
    let callers: Vec<_> = (0..20).map(|_| spawn_get(&engine, VAULT)).collect();
    bench.settle().await;
    bench.script.release(1);
    for caller in callers {
        assert!(matches!(caller.await.unwrap(), Err(TokenError::Refused(_))));
    }
    assert!(get(&engine, VAULT).await.is_err());
    assert_eq!(bench.script.requests(), 1);
    bench.pass(seconds(1)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t");
    assert_eq!(bench.script.requests(), 2);
}

#[tokio::test]
async fn a_failure_that_repeats_is_remembered_longer() {
    let bench = Bench::new(|_, _| Reply::refusal("unauthorized_client", 700_016));
    let engine = engine(&bench);
    let mut windows = Vec::new();
    for _ in 0..7 {
        let before = bench.script.requests();
        let start = bench.clock.monotonic();
        while bench.script.requests() == before {
            bench.clock.advance(Duration::from_millis(500));
            get(&engine, VAULT).await.unwrap_err();
        }
        windows.push(bench.clock.monotonic().saturating_sub(start).as_millis());
    }
    assert_eq!(windows, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
}

#[tokio::test]
async fn a_due_token_is_renewed_in_the_background_by_one_request() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::token("old", 3_600),
        _ => Reply::token("new", 3_600).gated(),
    });
    let engine = engine(&bench);
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.pass(seconds(3_299)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.settle().await;
    assert_eq!(bench.script.requests(), 1);
    bench.pass(seconds(1)).await;
    for _ in 0..100 {
        assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    }
    bench.settle().await;
    assert_eq!(bench.script.requests(), 2);
    bench.script.release(1);
    bench.settle().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "new");
    let counts = engine.health().counts;
    assert_eq!((counts.issued, counts.renewed, counts.failed), (2, 1, 0));
}

#[tokio::test]
async fn refresh_in_of_a_long_lived_token_is_honoured() {
    let body = r#"{"access_token":"old","expires_in":"86400","refresh_in":"43200"}"#;
    let bench = Bench::new(move |_, number| match number {
        0 => Reply::status(200, body),
        _ => Reply::token("new", 86_400),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.pass(seconds(43_199)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.pass(seconds(1)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.settle().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "new");
}

#[tokio::test]
async fn a_failed_early_renewal_keeps_the_old_token_and_is_not_hurried() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::token("old", 3_600),
        1 => Reply::refusal("invalid_client", 700_027),
        _ => Reply::token("new", 3_600),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.pass(seconds(3_300)).await;
    for _ in 0..29 {
        assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
        bench.pass(seconds(1)).await;
    }
    assert_eq!(bench.script.requests(), 2);
    assert_eq!(engine.health().errors.len(), 1);
    assert!(engine.health().is_ready());
    bench.pass(seconds(1)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.settle().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "new");
    assert_eq!(engine.health().errors, []);
}

#[tokio::test]
async fn a_scope_that_does_not_exist_leaves_the_credential_ready() {
    let bench = Bench::new(|seen, _| match seen.field("scope").as_deref() {
        Some(ARM) => Reply::refusal("invalid_client", 700_027),
        _ => Reply::refusal("invalid_resource", 500_011),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap_err();
    assert!(engine.health().is_ready());
    assert_eq!(engine.health().errors.len(), 1);
    let elsewhere = TokenRequestContext::new().for_tenant("fabrikam.example".parse().unwrap());
    get_with(&engine, ARM, Some(options(elsewhere))).await.unwrap_err();
    assert!(engine.health().is_ready());
    get(&engine, ARM).await.unwrap_err();
    assert!(!engine.health().is_ready());
}

#[tokio::test]
async fn each_scope_keeps_its_own_error_until_its_own_token_comes() {
    let bench = Bench::new(|seen, number| match (seen.field("scope").as_deref(), number) {
        (Some(VAULT), 0) => Reply::refusal("unauthorized_client", 700_016),
        _ => Reply::token("t", 3_600),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap_err();
    assert!(!engine.health().is_ready());
    get(&engine, ARM).await.unwrap();
    let health = engine.health();
    assert_eq!(health.errors.iter().map(|error| &*error.scope).collect::<Vec<_>>(), [VAULT]);
    assert!(!health.identity_in_doubt);
    bench.pass(seconds(2)).await;
    get(&engine, VAULT).await.unwrap();
    assert_eq!(engine.health().errors, []);
}

#[tokio::test]
async fn scopes_that_never_repeat_do_not_fill_the_health() {
    let bench = Bench::new(|_, _| Reply::refusal("invalid_scope", 70_011));
    let engine = engine(&bench);
    for number in 0..70 {
        get(&engine, &format!("https://service{number}.example/.default")).await.unwrap_err();
        bench.clock.advance(seconds(1));
    }
    let errors = engine.health().errors;
    assert_eq!(errors.len(), 64);
    assert!(errors[0].scope.contains("service69") && errors[63].scope.contains("service6."));
}

#[tokio::test]
async fn in_its_last_seconds_a_token_is_replaced_before_it_is_handed_out() {
    let bench = Bench::new(|_, number| Reply::token(&format!("t{number}"), 3_600));
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.clock.advance(seconds(3_571));
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t1");
}

#[tokio::test]
async fn a_token_in_its_last_seconds_is_better_than_an_error() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::token("old", 3_600),
        _ => Reply::refusal("invalid_client", 700_027),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.clock.advance(seconds(3_580));
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.clock.advance(seconds(20));
    assert!(get(&engine, VAULT).await.is_err());
    assert!(!engine.health().is_ready());
}

#[tokio::test]
async fn while_the_authority_throttles_valid_tokens_serve_and_cold_callers_fail_fast() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::token("old", 3_600),
        1 => Reply::status(429, "Too Many Requests").with_header("retry-after", "60"),
        _ => Reply::token("new", 3_600),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.pass(seconds(3_300)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.settle().await;
    assert_eq!(bench.script.requests(), 2);
    let cold = get(&engine, ARM).await.unwrap_err();
    assert!(matches!(cold, TokenError::CoolingDown { remaining, .. } if remaining == seconds(60)));
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    assert_eq!(bench.script.requests(), 2);
    bench.pass(seconds(60)).await;
    assert_eq!(get(&engine, ARM).await.unwrap(), "new");
}

#[tokio::test]
async fn a_caller_without_patience_leaves_and_the_token_still_comes() {
    let bench = Bench::new(|_, _| Reply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let impatient = options(TokenRequestContext::new().within(Duration::from_millis(200)));
    let (outcome, took) = bench.timed(get_with(&engine, VAULT, Some(impatient))).await;
    assert!(matches!(outcome, Err(TokenError::OutOfPatience { .. })));
    assert_eq!(took, Duration::from_millis(200));
    bench.script.release(1);
    bench.settle().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t");
    assert_eq!(bench.script.requests(), 1);
}

#[tokio::test]
async fn variants_have_tokens_of_their_own_and_claims_pass_the_cache_by() {
    let bench = Bench::new(|_, number| Reply::token(&format!("t{number}"), 3_600));
    let engine = engine(&bench);
    let cae = || TokenRequestContext::new().with_continuous_access_evaluation();
    let claims = || cae().with_claims(r#"{"access_token":{"nbf":{"value":"1"}}}"#).unwrap();
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(get_with(&engine, VAULT, Some(options(cae()))).await.unwrap(), "t1");
    assert_eq!(get_with(&engine, VAULT, Some(options(claims()))).await.unwrap(), "t2");
    assert_eq!(get_with(&engine, VAULT, Some(options(claims()))).await.unwrap(), "t2");
    // The challenge came because t1 was revoked.
    assert_eq!(get_with(&engine, VAULT, Some(options(cae()))).await.unwrap(), "t2");
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(bench.script.seen(0).field("claims"), None);
    let sent = bench.script.seen(2).field("claims").unwrap();
    assert!(sent.contains("CP1") && sent.contains("nbf"), "{sent}");
}

#[tokio::test]
async fn errors_have_the_shape_of_azure_core() {
    let bench = Bench::new(|_, _| Reply::refusal("invalid_client", 700_027));
    let engine = engine(&bench);
    let error = engine.access_token(&[VAULT], None).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Credential);
    let inner = error.downcast_ref::<azure_core::Error>().unwrap();
    let ErrorKind::HttpResponse { status, error_code, raw_response } = inner.kind() else {
        panic!("{inner:?}")
    };
    assert_eq!(u16::from(*status), 401);
    assert_eq!(error_code.as_deref(), Some("invalid_client"));
    assert!(raw_response.is_some());
    let Some(TokenError::Refused(refusal)) = TokenError::of(&error) else { panic!("{error:?}") };
    assert_eq!(refusal.code(), Some(700_027));
    assert!(error.to_string().contains("AADSTS700027"));
}

#[tokio::test]
async fn a_wrong_number_of_scopes_is_an_error_and_no_request() {
    let bench = Bench::new(|_, _| Reply::token("t", 3_600));
    let engine = engine(&bench);
    for scopes in [&[][..], &[VAULT, ARM][..]] {
        let error = engine.access_token(scopes, None).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Credential);
        assert!(matches!(TokenError::of(&error), Some(TokenError::NotOneScope { .. })));
    }
    assert_eq!(bench.script.requests(), 0);
}

#[tokio::test]
async fn tokens_of_a_former_identity_are_dropped_even_when_they_land_late() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::token("former", 3_600).gated(),
        _ => Reply::token("present", 3_600),
    });
    let engine = engine(&bench);
    let early = spawn_get(&engine, VAULT);
    bench.settle().await;
    engine.drop_tokens();
    assert_eq!(get(&engine, VAULT).await.unwrap(), "present");
    bench.script.release(1);
    assert_eq!(early.await.unwrap().unwrap(), "former");
    assert_eq!(get(&engine, VAULT).await.unwrap(), "present");
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let bench = Bench::new(|_, _| Reply::token("t", 3_600));
    let engine = engine(&bench);
    let mut asking = pin!(get(&engine, VAULT));
    let polled = asking.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
    assert!(matches!(polled, std::task::Poll::Ready(Err(TokenError::NoRuntime))));
}

#[test]
fn a_flight_that_went_down_with_its_runtime_is_flown_again() {
    let bench = Bench::new(|_, number| match number {
        0 => Reply::Silence,
        _ => Reply::token("t", 3_600),
    });
    let engine = engine(&bench);
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let _waiting = spawn_get(&engine, VAULT);
        bench.settle().await;
    });
    drop(first);
    assert_eq!(runtime().block_on(get(&engine, VAULT)).unwrap(), "t");
}

#[tokio::test]
async fn the_health_shows_tokens_without_showing_them() {
    let bench = Bench::new(|_, _| Reply::token("planted-marker", 3_600));
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.clock.advance(seconds(600));
    let health = engine.health();
    assert_eq!(health.scopes.len(), 1);
    assert_eq!(health.scopes[0].scope, VAULT);
    assert_eq!(health.scopes[0].seconds_left, 3_000);
    assert_eq!(health.counts.issued, 1);
    assert_eq!(health.last_generation, Some(1));
    let printed = format!("{health:?} {engine:?} {}", serde_json::to_string(&health).unwrap());
    assert!(!printed.contains("planted-marker"), "{printed}");
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Pass(u64),
    Ask,
    Mood(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u64..400).prop_map(Step::Pass),
        Just(Step::Ask),
        any::<bool>().prop_map(Step::Mood),
    ]
}

/// The life of every token in the property below.
const LIFE: u64 = 900;

proptest! {
    #[test]
    fn no_history_hands_out_an_expired_token_or_withholds_a_valid_one(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let clock = Arc::new(OnceLock::<ManualClock>::new());
            let willing = Arc::new(AtomicBool::new(true));
            let (service_clock, mood) = (Arc::clone(&clock), Arc::clone(&willing));
            let bench = Bench::new(move |_, _| {
                if !mood.load(Ordering::Relaxed) {
                    return Reply::refusal("invalid_client", 700_027);
                }
                // The token says when it was issued.
                let issued = service_clock.get().unwrap().monotonic().as_secs();
                Reply::token(&issued.to_string(), LIFE)
            });
            clock.set(bench.clock.clone()).unwrap();
            let engine = engine(&bench);
            let mut newest = None;
            let mut asks = 0;
            for step in steps {
                match step {
                    Step::Pass(passed) => bench.pass(seconds(passed)).await,
                    Step::Mood(mood) => willing.store(mood, Ordering::Relaxed),
                    Step::Ask => {
                        asks += 1;
                        let now = bench.clock.monotonic().as_secs();
                        let alive = newest.is_some_and(|issued| now < issued + LIFE);
                        match get(&engine, VAULT).await {
                            Ok(token) => {
                                let issued: u64 = token.parse().unwrap();
                                assert!(now < issued + LIFE, "expired");
                                newest = newest.max(Some(issued));
                            }
                            Err(_) => assert!(!alive, "a valid token was withheld"),
                        }
                        bench.settle().await;
                    }
                }
            }
            assert!(bench.script.requests() <= asks);
        });
    }
}
