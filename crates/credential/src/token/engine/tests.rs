use std::future::Future as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Waker};

use azure_core::error::ErrorKind;
use lanyard_clock::{Clock as _, ManualClock};
use proptest::prelude::*;

use super::*;
use crate::entra::exchange::exchange;
use crate::entra::request::ClientAuthentication;
use crate::fixture;
use crate::scripted_service::{ScriptedReply, TokenServiceFixture};

const VAULT: &str = "https://vault.azure.net/.default";
const ARM: &str = "https://management.azure.com/.default";

/// Exchanges a fixed assertion at a fixed endpoint.
#[derive(Debug)]
struct FixedTokenSource(TokenTransport);

#[async_trait::async_trait]
impl TokenSource for FixedTokenSource {
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError> {
        let authentication = ClientAuthentication::Assertion("a.b.c");
        exchange(&fixture::application(), authentication, key, 1, &self.0).await
    }
}

fn engine(bench: &TokenServiceFixture) -> Arc<TokenEngine<FixedTokenSource>> {
    let transport = bench.transport();
    Arc::new(TokenEngine::new(FixedTokenSource(transport.clone()), &transport))
}

fn options(context: TokenRequestContext) -> TokenRequestOptions<'static> {
    let mut options = TokenRequestOptions::default();
    options.method_options.context.insert(context);
    options
}

async fn get(engine: &TokenEngine<FixedTokenSource>, scope: &str) -> Result<String, TokenError> {
    get_with(engine, scope, None).await
}

async fn get_with(
    engine: &TokenEngine<FixedTokenSource>,
    scope: &str,
    options: Option<TokenRequestOptions<'_>>,
) -> Result<String, TokenError> {
    match engine.access_token(&[scope], options).await {
        Ok(token) => Ok(token.token.secret().to_owned()),
        Err(error) => Err(TokenError::of(&error).unwrap().clone()),
    }
}

fn spawn_get(
    engine: &Arc<TokenEngine<FixedTokenSource>>,
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
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let callers: Vec<_> = (0..10_000).map(|_| spawn_get(&engine, VAULT)).collect();
    bench.run_pending_tasks().await;
    bench.script.release(10_000);
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), "t");
    }
    assert_eq!(bench.script.request_count(), 1);
}

#[tokio::test]
async fn a_cached_token_is_handed_out_without_a_request() {
    let bench =
        TokenServiceFixture::new(|_, number| ScriptedReply::token(&format!("t{number}"), 3_600));
    let engine = engine(&bench);
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(
        engine.with_cached_token(VAULT, &DEFAULT_VARIANT, |token| token.expose().len()),
        Some(2)
    );
    assert_eq!(engine.with_cached_token(ARM, &DEFAULT_VARIANT, |token| token.expose().len()), None);
    assert_eq!(bench.script.request_count(), 1);
    assert_eq!(bench.script.request(0).form_field("scope").unwrap(), VAULT);
}

#[tokio::test]
async fn the_expiry_that_callers_see_is_wall_time() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    let engine = engine(&bench);
    let token = engine.access_token(&[VAULT], None).await.unwrap();
    assert_eq!(token.expires_on.unix_timestamp(), bench.clock.now().as_second() + 3_600);
}

#[tokio::test]
async fn hanging_request_does_not_block_other_scopes() {
    let bench =
        TokenServiceFixture::new(|observed, _| match observed.form_field("scope").as_deref() {
            Some(VAULT) => ScriptedReply::NoResponse,
            _ => ScriptedReply::token("arm", 3_600),
        });
    let engine = engine(&bench);
    let hanging = spawn_get(&engine, VAULT);
    bench.run_pending_tasks().await;
    assert_eq!(get(&engine, ARM).await.unwrap(), "arm");
    assert_eq!(get(&engine, ARM).await.unwrap(), "arm");
    assert!(!hanging.is_finished());
}

#[tokio::test]
async fn in_flight_request_survives_cancellation_of_its_first_caller() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let first = spawn_get(&engine, VAULT);
    bench.run_pending_tasks().await;
    let second = spawn_get(&engine, VAULT);
    bench.run_pending_tasks().await;
    first.abort();
    bench.run_pending_tasks().await;
    bench.script.release(1);
    assert_eq!(second.await.unwrap().unwrap(), "t");
    assert_eq!(bench.script.request_count(), 1);
}

#[tokio::test]
async fn cancelled_callers_do_not_delay_other_callers() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let callers: Vec<_> = (0..1_000).map(|_| spawn_get(&engine, VAULT)).collect();
    bench.run_pending_tasks().await;
    callers.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
    bench.script.release(1);
    for (number, caller) in callers.into_iter().enumerate() {
        match caller.await {
            Ok(token) => assert_eq!(token.unwrap(), "t"),
            Err(error) => assert!(error.is_cancelled() && number % 2 == 0),
        }
    }
    assert_eq!(bench.script.request_count(), 1);
}

#[tokio::test]
async fn callers_of_a_fetch_that_panics_share_a_second_one() {
    let bench = TokenServiceFixture::new(|_, number| {
        assert_ne!(number, 0, "the first request panics");
        ScriptedReply::token("t", 3_600)
    });
    let engine = engine(&bench);
    let callers: Vec<_> = (0..20).map(|_| spawn_get(&engine, VAULT)).collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), "t");
    }
    assert_eq!(bench.script.request_count(), 2);
}

#[tokio::test]
async fn failure_is_shared_and_cached_briefly() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::error("invalid_client", 700_016).gated(),
        _ => ScriptedReply::token("t", 3_600),
    });
    let engine = engine(&bench);
    let callers: Vec<_> = (0..20).map(|_| spawn_get(&engine, VAULT)).collect();
    bench.run_pending_tasks().await;
    bench.script.release(1);
    for caller in callers {
        assert!(matches!(caller.await.unwrap(), Err(TokenError::Refused(_))));
    }
    assert!(get(&engine, VAULT).await.is_err());
    assert_eq!(bench.script.request_count(), 1);
    bench.advance(seconds(1)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t");
    assert_eq!(bench.script.request_count(), 2);
}

#[tokio::test]
async fn repeated_failures_are_cached_longer() {
    let bench =
        TokenServiceFixture::new(|_, _| ScriptedReply::error("unauthorized_client", 700_016));
    let engine = engine(&bench);
    let mut windows = Vec::new();
    for _ in 0..7 {
        let before = bench.script.request_count();
        let start = bench.clock.monotonic();
        while bench.script.request_count() == before {
            bench.clock.advance(Duration::from_millis(500));
            get(&engine, VAULT).await.unwrap_err();
        }
        windows.push(bench.clock.monotonic().saturating_sub(start).as_millis());
    }
    assert_eq!(windows, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
}

#[tokio::test]
async fn a_due_token_is_renewed_in_the_background_by_one_request() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::token("old", 3_600),
        _ => ScriptedReply::token("new", 3_600).gated(),
    });
    let engine = engine(&bench);
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.advance(seconds(3_299)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.run_pending_tasks().await;
    assert_eq!(bench.script.request_count(), 1);
    bench.advance(seconds(1)).await;
    for _ in 0..100 {
        assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    }
    bench.run_pending_tasks().await;
    assert_eq!(bench.script.request_count(), 2);
    bench.script.release(1);
    bench.run_pending_tasks().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "new");
    let counts = engine.health().counts;
    assert_eq!((counts.issued, counts.renewed, counts.failed), (2, 1, 0));
}

#[tokio::test]
async fn refresh_in_of_a_long_lived_token_is_honoured() {
    let body = r#"{"access_token":"old","expires_in":"86400","refresh_in":"43200"}"#;
    let bench = TokenServiceFixture::new(move |_, number| match number {
        0 => ScriptedReply::status(200, body),
        _ => ScriptedReply::token("new", 86_400),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.advance(seconds(43_199)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.advance(seconds(1)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.run_pending_tasks().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "new");
}

#[tokio::test]
async fn failed_early_renewal_keeps_the_token_and_backs_off() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::token("old", 3_600),
        1 => ScriptedReply::error("invalid_client", 700_027),
        _ => ScriptedReply::token("new", 3_600),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.advance(seconds(3_300)).await;
    for _ in 0..29 {
        assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
        bench.advance(seconds(1)).await;
    }
    assert_eq!(bench.script.request_count(), 2);
    assert_eq!(engine.health().errors.len(), 1);
    assert!(engine.health().is_ready());
    bench.advance(seconds(1)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.run_pending_tasks().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "new");
    assert_eq!(engine.health().errors, []);
}

#[tokio::test]
async fn a_scope_that_does_not_exist_leaves_the_credential_ready() {
    let bench =
        TokenServiceFixture::new(|observed, _| match observed.form_field("scope").as_deref() {
            Some(ARM) => ScriptedReply::error("invalid_client", 700_027),
            _ => ScriptedReply::error("invalid_resource", 500_011),
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
async fn scope_errors_are_cleared_by_a_token_for_the_same_scope() {
    let bench = TokenServiceFixture::new(|observed, number| {
        match (observed.form_field("scope").as_deref(), number) {
            (Some(VAULT), 0) => ScriptedReply::error("unauthorized_client", 700_016),
            _ => ScriptedReply::token("t", 3_600),
        }
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap_err();
    assert!(!engine.health().is_ready());
    get(&engine, ARM).await.unwrap();
    let health = engine.health();
    assert_eq!(health.errors.iter().map(|error| &*error.scope).collect::<Vec<_>>(), [VAULT]);
    assert!(!health.identity_in_doubt);
    bench.advance(seconds(2)).await;
    get(&engine, VAULT).await.unwrap();
    assert_eq!(engine.health().errors, []);
}

#[tokio::test]
async fn scopes_that_never_repeat_do_not_fill_the_health() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::error("invalid_scope", 70_011));
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
async fn token_close_to_expiry_is_replaced_before_use() {
    let bench =
        TokenServiceFixture::new(|_, number| ScriptedReply::token(&format!("t{number}"), 3_600));
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.clock.advance(seconds(3_571));
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t1");
}

#[tokio::test]
async fn token_close_to_expiry_is_used_when_renewal_fails() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::token("old", 3_600),
        _ => ScriptedReply::error("invalid_client", 700_027),
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
async fn throttling_serves_cached_tokens_and_fails_uncached_scopes_fast() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::token("old", 3_600),
        1 => ScriptedReply::status(429, "Too Many Requests").with_header("retry-after", "60"),
        _ => ScriptedReply::token("new", 3_600),
    });
    let engine = engine(&bench);
    get(&engine, VAULT).await.unwrap();
    bench.advance(seconds(3_300)).await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    bench.run_pending_tasks().await;
    assert_eq!(bench.script.request_count(), 2);
    let cold = get(&engine, ARM).await.unwrap_err();
    assert!(matches!(cold, TokenError::CoolingDown { remaining, .. } if remaining == seconds(60)));
    assert_eq!(get(&engine, VAULT).await.unwrap(), "old");
    assert_eq!(bench.script.request_count(), 2);
    bench.advance(seconds(60)).await;
    assert_eq!(get(&engine, ARM).await.unwrap(), "new");
}

#[tokio::test]
async fn caller_timeout_does_not_cancel_the_token_request() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600).gated());
    let engine = engine(&bench);
    let impatient = options(TokenRequestContext::new().with_timeout(Duration::from_millis(200)));
    let (outcome, took) = bench.run_and_measure(get_with(&engine, VAULT, Some(impatient))).await;
    assert!(matches!(outcome, Err(TokenError::CallerTimeout { .. })));
    assert_eq!(took, Duration::from_millis(200));
    bench.script.release(1);
    bench.run_pending_tasks().await;
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t");
    assert_eq!(bench.script.request_count(), 1);
}

#[tokio::test]
async fn token_variants_are_cached_separately() {
    let bench =
        TokenServiceFixture::new(|_, number| ScriptedReply::token(&format!("t{number}"), 3_600));
    let engine = engine(&bench);
    let cae = || TokenRequestContext::new().with_continuous_access_evaluation();
    let claims = || cae().with_claims(r#"{"access_token":{"nbf":{"value":"1"}}}"#).unwrap();
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(get_with(&engine, VAULT, Some(options(cae()))).await.unwrap(), "t1");
    assert_eq!(get_with(&engine, VAULT, Some(options(claims()))).await.unwrap(), "t2");
    assert_eq!(get_with(&engine, VAULT, Some(options(claims()))).await.unwrap(), "t2");
    // The challenge means that t1 was revoked.
    assert_eq!(get_with(&engine, VAULT, Some(options(cae()))).await.unwrap(), "t2");
    assert_eq!(get(&engine, VAULT).await.unwrap(), "t0");
    assert_eq!(bench.script.request(0).form_field("claims"), None);
    let sent = bench.script.request(2).form_field("claims").unwrap();
    assert!(sent.contains("CP1") && sent.contains("nbf"), "{sent}");
}

#[tokio::test]
async fn errors_have_the_shape_of_azure_core() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::error("invalid_client", 700_027));
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
    let Some(TokenError::Refused(rejection)) = TokenError::of(&error) else { panic!("{error:?}") };
    assert_eq!(rejection.code(), Some(700_027));
    assert!(error.to_string().contains("AADSTS700027"));
}

#[tokio::test]
async fn a_wrong_number_of_scopes_is_an_error_and_no_request() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    let engine = engine(&bench);
    for scopes in [&[][..], &[VAULT, ARM][..]] {
        let error = engine.access_token(scopes, None).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Credential);
        assert!(matches!(TokenError::of(&error), Some(TokenError::NotOneScope { .. })));
    }
    assert_eq!(bench.script.request_count(), 0);
}

#[tokio::test]
async fn late_tokens_of_a_former_identity_are_not_cached() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::token("former", 3_600).gated(),
        _ => ScriptedReply::token("present", 3_600),
    });
    let engine = engine(&bench);
    let early = spawn_get(&engine, VAULT);
    bench.run_pending_tasks().await;
    engine.drop_tokens();
    assert_eq!(get(&engine, VAULT).await.unwrap(), "present");
    bench.script.release(1);
    assert_eq!(early.await.unwrap().unwrap(), "former");
    assert_eq!(get(&engine, VAULT).await.unwrap(), "present");
}

#[test]
fn request_outside_a_runtime_is_an_error() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    let engine = engine(&bench);
    let mut asking = pin!(get(&engine, VAULT));
    let polled = asking.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
    assert!(matches!(polled, std::task::Poll::Ready(Err(TokenError::NoRuntime))));
}

#[test]
fn fetch_lost_with_its_runtime_is_retried() {
    let bench = TokenServiceFixture::new(|_, number| match number {
        0 => ScriptedReply::NoResponse,
        _ => ScriptedReply::token("t", 3_600),
    });
    let engine = engine(&bench);
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let _waiting = spawn_get(&engine, VAULT);
        bench.run_pending_tasks().await;
    });
    drop(first);
    assert_eq!(runtime().block_on(get(&engine, VAULT)).unwrap(), "t");
}

#[tokio::test]
async fn health_lists_tokens_without_their_values() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("planted-marker", 3_600));
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
enum EngineTestStep {
    Advance(u64),
    GetToken,
    SetServiceAvailable(bool),
}

fn step() -> impl Strategy<Value = EngineTestStep> {
    prop_oneof![
        (1u64..400).prop_map(EngineTestStep::Advance),
        Just(EngineTestStep::GetToken),
        any::<bool>().prop_map(EngineTestStep::SetServiceAvailable),
    ]
}

/// The lifetime of every token in the property below.
const TOKEN_LIFETIME_SECONDS: u64 = 900;

proptest! {
    #[test]
    fn expired_tokens_are_never_returned_and_valid_ones_always(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let clock = Arc::new(OnceLock::<ManualClock>::new());
            let willing = Arc::new(AtomicBool::new(true));
            let (service_clock, mood) = (Arc::clone(&clock), Arc::clone(&willing));
            let bench = TokenServiceFixture::new(move |_, _| {
                if !mood.load(Ordering::Relaxed) {
                    return ScriptedReply::error("invalid_client", 700_027);
                }
                // The token contains its issue time.
                let issued = service_clock.get().unwrap().monotonic().as_secs();
                ScriptedReply::token(&issued.to_string(), TOKEN_LIFETIME_SECONDS)
            });
            clock.set(bench.clock.clone()).unwrap();
            let engine = engine(&bench);
            let mut newest = None;
            let mut asks = 0;
            for step in steps {
                match step {
                    EngineTestStep::Advance(passed) => bench.advance(seconds(passed)).await,
                    EngineTestStep::SetServiceAvailable(mood) => willing.store(mood, Ordering::Relaxed),
                    EngineTestStep::GetToken => {
                        asks += 1;
                        let now = bench.clock.monotonic().as_secs();
                        let alive = newest.is_some_and(|issued| now < issued + TOKEN_LIFETIME_SECONDS);
                        match get(&engine, VAULT).await {
                            Ok(token) => {
                                let issued: u64 = token.parse().unwrap();
                                assert!(now < issued + TOKEN_LIFETIME_SECONDS, "expired");
                                newest = newest.max(Some(issued));
                            }
                            Err(_) => assert!(!alive, "a valid token was withheld"),
                        }
                        bench.run_pending_tasks().await;
                    }
                }
            }
            assert!(bench.script.request_count() <= asks);
        });
    }
}
