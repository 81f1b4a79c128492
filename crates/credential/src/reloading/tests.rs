use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_clock::Clock as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::fixture::{CLIENT, LEAF, OTHER, OTHER_PKCS8, TENANT, bytes, client_secret, document};
use crate::metrics::MetricsHook;
use crate::scripted::{Bench, Reply, Seen};
use crate::token::error::TokenError;
use crate::token::request::TokenRequestContext;

const VAULT: &str = "https://vault.azure.net/.default";
const ARM: &str = "https://management.azure.com/.default";

/// A credential file in a folder of its own, which nothing but the test makes us read.
struct World {
    bench: Bench,
    folder: TempDir,
}

impl World {
    fn new(service: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let world = Self { bench: Bench::new(service), folder: tempfile::tempdir().unwrap() };
        world.write(&first());
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("identity.json")
    }

    fn write(&self, document: &Value) {
        fs::write(self.path(), bytes(document)).unwrap();
    }

    fn options(&self) -> ReloadingCertificateOptions {
        let year = Duration::from_hours(24 * 365);
        let file =
            FileOptions { events: false, poll: year, backstop: year, ..FileOptions::default() };
        ReloadingCertificateOptions {
            file,
            ..ReloadingCertificateOptions::over(self.bench.options())
        }
    }

    async fn open(&self) -> Arc<ReloadingCertificateCredential> {
        ReloadingCertificateCredential::open(self.path(), self.options()).await.unwrap()
    }

    /// Replaces the file, has it read, and lets the rotation take its course.
    async fn rotate(&self, credential: &ReloadingCertificateCredential, document: &Value) {
        self.write(document);
        credential.engine.source().file().reload().await;
        self.bench.settle().await;
    }
}

fn first() -> Value {
    document("2026-11-01T00:00:00Z")
}

/// The same identity with another certificate.
fn second() -> Value {
    let mut document = document("2026-11-20T00:00:00Z");
    document["client_secret"] = json!(client_secret(&[OTHER_PKCS8, OTHER]));
    document
}

async fn get(
    credential: &ReloadingCertificateCredential,
    scope: &str,
) -> Result<String, TokenError> {
    match credential.get_token(&[scope], None).await {
        Ok(token) => Ok(token.token.secret().to_owned()),
        Err(error) => Err(TokenError::of(&error).unwrap().clone()),
    }
}

fn part(seen: &Seen, number: usize) -> Value {
    let assertion = seen.field("client_assertion").unwrap();
    let part = assertion.split('.').nth(number).unwrap().to_owned();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// Whether the certificate in the assertion is this one.
fn is_by(seen: &Seen, certificate: &[u8]) -> bool {
    let pem = std::str::from_utf8(certificate).unwrap();
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    part(seen, 0)["x5c"][0] == json!(body)
}

/// Takes the keys of `certificates`, and no others.
fn takes(certificates: &'static [&'static [u8]]) -> impl Fn(&Seen, usize) -> Reply {
    move |seen, number| {
        if certificates.iter().any(|certificate| is_by(seen, certificate)) {
            Reply::token(&format!("t{number}"), 3_600)
        } else {
            Reply::refusal("invalid_client", 700_027)
        }
    }
}

#[tokio::test]
async fn a_certificate_becomes_a_token() {
    let world = World::new(takes(&[LEAF]));
    let credential = world.open().await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t0");
    assert_eq!(credential.with_cached_token(VAULT, str::len), Some(2));
    let seen = world.bench.script.seen(0);
    let endpoint = format!("https://login.example/{TENANT}/oauth2/v2.0/token");
    assert_eq!(seen.url.as_str(), endpoint);
    assert_eq!(seen.field("client_id").unwrap(), CLIENT);
    assert_eq!(seen.field("grant_type").unwrap(), "client_credentials");
    let claims = part(&seen, 1);
    assert_eq!((&claims["aud"], &claims["iss"]), (&json!(endpoint), &json!(CLIENT)));
    assert_eq!(part(&seen, 0)["x5c"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_rotation_keeps_the_tokens_and_tries_the_new_key_on_each_scope() {
    let world = World::new(|_, number| match number {
        0 | 1 => Reply::token(&format!("t{number}"), 3_600),
        _ => Reply::token(&format!("t{number}"), 3_600).gated(),
    });
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    get(&credential, ARM).await.unwrap();
    world.rotate(&credential, &second()).await;
    assert_eq!(credential.generation().number(), 2);
    assert_eq!(credential.health().key, KeyHealth::Untried);
    // Both at once, while the old tokens serve.
    assert_eq!(world.bench.script.requests(), 4);
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t0");
    assert_eq!(get(&credential, ARM).await.unwrap(), "t1");
    world.bench.script.release(2);
    world.bench.settle().await;
    assert_eq!(world.bench.script.requests(), 4);
    assert!(is_by(&world.bench.script.seen(2), OTHER));
    assert!(is_by(&world.bench.script.seen(3), OTHER));
    assert_eq!(credential.health().key, KeyHealth::Accepted { generation: 2 });
    assert!(credential.health().tokens.scopes.iter().all(|scope| scope.generation == 2));
}

#[tokio::test]
async fn no_more_than_four_scopes_are_tried_at_once() {
    let scope = |number: usize| format!("https://service{number}.example/.default");
    let world = World::new(|_, number| match number {
        0..10 => Reply::token("t", 3_600),
        _ => Reply::token("t", 3_600).gated(),
    });
    let credential = world.open().await;
    for number in 0..10 {
        get(&credential, &scope(number)).await.unwrap();
    }
    world.rotate(&credential, &second()).await;
    assert_eq!(world.bench.script.requests(), 10 + 4);
    world.bench.script.release(1);
    world.bench.settle().await;
    assert_eq!(world.bench.script.requests(), 10 + 5);
    world.bench.script.release(10);
    world.bench.settle().await;
    assert_eq!(world.bench.script.requests(), 10 + 10);
}

#[tokio::test]
async fn a_request_under_way_with_the_old_key_is_no_trial_of_the_new_one() {
    let world = World::new(|seen, number| match number {
        0 => Reply::token("t0", 3_600),
        1 => Reply::token("t1", 3_600).gated(),
        _ if is_by(seen, OTHER) => Reply::refusal("invalid_client", 700_027),
        _ => Reply::token("rescued", 3_600),
    });
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    // A renewal is due, and leaves with the old key.
    world.bench.pass(Duration::from_mins(56)).await;
    get(&credential, VAULT).await.unwrap();
    world.bench.settle().await;
    assert_eq!(world.bench.script.requests(), 2);
    world.rotate(&credential, &second()).await;
    assert_eq!(world.bench.script.requests(), 2);
    world.bench.script.release(1);
    world.bench.settle().await;
    assert!(is_by(&world.bench.script.seen(1), LEAF));
    assert!(is_by(&world.bench.script.seen(2), OTHER));
    let health = credential.health();
    assert!(matches!(health.key, KeyHealth::Refused { generation: 2, .. }), "{health:?}");
}

#[tokio::test]
async fn trouble_on_the_way_has_the_new_key_tried_again_until_something_is_known() {
    let world = World::new(|_, number| match number {
        0 => Reply::token("t0", 3_600),
        1..12 => Reply::status(503, "busy"),
        _ => Reply::token("t1", 3_600),
    });
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    world.rotate(&credential, &second()).await;
    assert_eq!(credential.health().key, KeyHealth::Untried);
    for _ in 0..120 {
        world.bench.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(credential.health().key, KeyHealth::Accepted { generation: 2 });
    assert_eq!(world.bench.script.requests(), 13);
    world.bench.pass(Duration::from_mins(5)).await;
    assert_eq!(world.bench.script.requests(), 13);
}

#[tokio::test]
async fn a_trial_that_waits_keeps_nothing_alive() {
    let world = World::new(|_, number| match number {
        0 => Reply::token("t0", 3_600),
        _ => Reply::refusal("temporarily_unavailable", 90_033),
    });
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    world.rotate(&credential, &second()).await;
    for _ in 0..60 {
        world.bench.pass(Duration::from_secs(1)).await;
    }
    let engine = Arc::downgrade(&credential.engine);
    drop(credential);
    for _ in 0..120 {
        world.bench.pass(Duration::from_secs(1)).await;
    }
    assert!(engine.upgrade().is_none());
    assert_eq!(world.bench.clock.sleepers(), 0);
}

#[tokio::test]
async fn a_rotation_to_another_identity_drops_the_tokens_and_fetches_new_ones() {
    let world = World::new(|seen, _| Reply::token(&seen.field("client_id").unwrap(), 3_600));
    let credential = world.open().await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), CLIENT);
    let mut other = second();
    other["client_id"] = json!("another-client");
    world.rotate(&credential, &other).await;
    assert_eq!(world.bench.script.requests(), 2);
    assert_eq!(get(&credential, VAULT).await.unwrap(), "another-client");
    assert_eq!(world.bench.script.requests(), 2);
}

#[tokio::test]
async fn while_entra_refuses_the_new_key_the_one_before_serves() {
    let world = World::new(takes(&[LEAF]));
    let credential = world.open().await;
    world.rotate(&credential, &second()).await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    assert!(is_by(&world.bench.script.seen(0), OTHER));
    assert!(is_by(&world.bench.script.seen(1), LEAF));
    let health = credential.health();
    let KeyHealth::Refused { generation: 2, error } = &health.key else { panic!("{health:?}") };
    assert!(error.text.contains("AADSTS700027") && error.hint.is_some());
    assert_eq!(health.tokens.last_generation, Some(1));
    assert!(credential.is_ready());
}

#[tokio::test]
async fn a_broken_certificate_shows_in_the_health_before_any_caller_notices() {
    let world = World::new(takes(&[LEAF]));
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    world.rotate(&credential, &second()).await;
    assert!(matches!(credential.health().key, KeyHealth::Refused { generation: 2, .. }));
    assert!(get(&credential, VAULT).await.is_ok());
    assert!(credential.is_ready());
}

#[tokio::test]
async fn an_expired_key_is_no_fallback() {
    let world = World::new(takes(&[LEAF]));
    let mut brief = first();
    brief["not_after"] = json!("2026-11-21T12:00:01Z");
    world.write(&brief);
    let credential = world.open().await;
    world.rotate(&credential, &second()).await;
    world.bench.clock.advance(Duration::from_secs(1));
    assert!(matches!(get(&credential, VAULT).await, Err(TokenError::Refused(_))));
    assert!(!(0..world.bench.script.requests()).any(|n| is_by(&world.bench.script.seen(n), LEAF)));
}

#[tokio::test]
async fn a_key_of_another_identity_is_no_fallback() {
    let world = World::new(takes(&[LEAF]));
    let credential = world.open().await;
    let mut other = second();
    other["client_id"] = json!("another-client");
    world.rotate(&credential, &other).await;
    assert!(matches!(get(&credential, VAULT).await, Err(TokenError::Refused(_))));
    assert_eq!(world.bench.script.requests(), 1);
}

/// The second document again, later: another version with the same broken key.
fn third() -> Value {
    let mut document = second();
    document["not_before"] = json!("2026-11-20T12:00:00Z");
    document
}

#[tokio::test]
async fn two_bad_rotations_in_a_row_do_not_cost_the_last_good_key() {
    let world = World::new(takes(&[LEAF]));
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    world.rotate(&credential, &second()).await;
    world.rotate(&credential, &third()).await;
    assert_eq!(credential.generation().number(), 3);
    assert!(get(&credential, ARM).await.is_ok());
    let health = credential.health();
    assert!(matches!(health.key, KeyHealth::Refused { generation: 3, .. }), "{health:?}");
    assert_eq!(health.tokens.last_generation, Some(1));
}

#[tokio::test]
async fn a_wrong_client_id_between_two_versions_does_not_cost_the_last_good_key() {
    let world = World::new(|seen, number| {
        if seen.field("client_id").unwrap() == CLIENT && is_by(seen, LEAF) {
            Reply::token(&format!("t{number}"), 3_600)
        } else {
            Reply::refusal("invalid_client", 700_027)
        }
    });
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    let mut mistaken = second();
    mistaken["client_id"] = json!("another-client");
    world.rotate(&credential, &mistaken).await;
    assert!(get(&credential, ARM).await.is_err());
    world.rotate(&credential, &third()).await;
    assert!(get(&credential, ARM).await.is_ok());
    assert_eq!(credential.health().tokens.last_generation, Some(1));
}

#[tokio::test]
async fn the_last_good_key_serves_no_longer_than_it_lasts() {
    let world = World::new(takes(&[LEAF]));
    let mut brief = first();
    brief["not_after"] = json!("2026-11-21T12:00:01Z");
    world.write(&brief);
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    world.rotate(&credential, &second()).await;
    world.rotate(&credential, &third()).await;
    world.bench.clock.advance(Duration::from_secs(1));
    let before = world.bench.script.requests();
    assert!(matches!(get(&credential, ARM).await, Err(TokenError::Refused(_))));
    let seen = (before..world.bench.script.requests()).map(|n| world.bench.script.seen(n));
    assert!(!seen.into_iter().any(|seen| is_by(&seen, LEAF)));
}

#[tokio::test]
async fn a_refusal_has_the_file_read_again_at_once() {
    let world = World::new(takes(&[OTHER]));
    let credential = world.open().await;
    world.write(&second());
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    assert_eq!(credential.generation().number(), 2);
    world.bench.settle().await;
    assert_eq!(credential.health().key, KeyHealth::Accepted { generation: 2 });
}

#[tokio::test]
async fn a_certificate_that_stays_refused_has_the_file_read_once() {
    let world = World::new(takes(&[]));
    let credential = world.open().await;
    for _ in 0..5 {
        assert!(get(&credential, VAULT).await.is_err());
        world.bench.clock.advance(Duration::from_mins(1));
    }
    assert_eq!(world.bench.script.requests(), 5);
    assert_eq!(credential.health().file.counts.unchanged, 1);
    assert!(!credential.is_ready());
}

#[tokio::test]
async fn codes_about_the_key_count_whatever_error_they_come_with() {
    for code in [700_027, 700_024, 1_000_502, 7_000_214] {
        let world = World::new(move |seen, _| {
            if is_by(seen, OTHER) {
                Reply::token("t", 3_600)
            } else {
                Reply::refusal("invalid_request", code)
            }
        });
        let credential = world.open().await;
        world.write(&second());
        assert_eq!(get(&credential, VAULT).await.unwrap(), "t", "{code}");
    }
}

#[tokio::test]
async fn refusals_that_are_not_about_the_key_change_nothing() {
    let world = World::new(|_, _| Reply::refusal("unauthorized_client", 700_016));
    let credential = world.open().await;
    world.write(&second());
    assert!(get(&credential, VAULT).await.is_err());
    assert_eq!(world.bench.script.requests(), 1);
    assert_eq!(credential.generation().number(), 1);
    assert_eq!(credential.health().key, KeyHealth::Untried);
}

#[tokio::test]
async fn another_tenant_is_asked_at_its_own_endpoint() {
    let world = World::new(takes(&[LEAF]));
    let credential = world.open().await;
    let context = TokenRequestContext::new().for_tenant("fabrikam.example".parse().unwrap());
    let mut options = TokenRequestOptions::default();
    options.method_options.context.insert(context);
    credential.get_token(&[VAULT], Some(options)).await.unwrap();
    let seen = world.bench.script.seen(0);
    let endpoint = "https://login.example/fabrikam.example/oauth2/v2.0/token";
    assert_eq!(seen.url.as_str(), endpoint);
    assert_eq!(part(&seen, 1)["aud"], endpoint);
}

#[tokio::test]
async fn an_expired_credential_is_not_ready_once_its_tokens_are_gone() {
    let world = World::new(takes(&[LEAF]));
    let mut brief = first();
    brief["not_after"] = json!("2026-11-21T12:10:00Z");
    world.write(&brief);
    let credential = world.open().await;
    assert!(credential.is_ready());
    get(&credential, VAULT).await.unwrap();
    world.bench.clock.advance(Duration::from_mins(30));
    assert!(credential.is_ready());
    world.bench.clock.advance(Duration::from_mins(31));
    assert!(!credential.is_ready());
}

#[tokio::test]
async fn a_first_load_that_fails_fails_fast() {
    let world = World::new(takes(&[LEAF]));
    fs::remove_file(world.path()).unwrap();
    let missing = ReloadingCertificateCredential::open(world.path(), world.options()).await;
    assert!(matches!(missing, Err(LoadError::Read { .. })));
}

#[tokio::test]
async fn nothing_keeps_running_once_the_credential_is_dropped() {
    let world = World::new(takes(&[LEAF]));
    let credential = world.open().await;
    get(&credential, VAULT).await.unwrap();
    let engine = Arc::downgrade(&credential.engine);
    drop(credential);
    for _ in 0..1_000 {
        if world.bench.clock.sleepers() == 0 {
            break;
        }
        world.bench.settle().await;
    }
    assert!(engine.upgrade().is_none());
    assert_eq!(world.bench.clock.sleepers(), 0);
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl MetricsHook for Heard {
    fn generation_loaded(&self, generation: u64) {
        self.0.lock().push(format!("loaded {generation}"));
    }

    fn generation_refused(&self, reason: &'static str) {
        self.0.lock().push(format!("refused: {reason}"));
    }

    fn token_failed(&self, error: &TokenError) {
        let code = match error {
            TokenError::Refused(error) => error.code(),
            _ => None,
        };
        self.0.lock().push(format!("failed {code:?}"));
    }
}

#[tokio::test]
async fn loads_refusals_and_failures_are_counted() {
    let world = World::new(takes(&[]));
    let heard = Arc::new(Heard::default());
    let mut options = world.options();
    let metrics: Arc<dyn MetricsHook> = Arc::<Heard>::clone(&heard);
    options.transport =
        TokenTransport::new(TokenTransportOptions { metrics, ..world.bench.options() });
    let credential = ReloadingCertificateCredential::open(world.path(), options).await.unwrap();
    get(&credential, VAULT).await.unwrap_err();
    world.rotate(&credential, &second()).await;
    world.rotate(&credential, &first()).await;
    fs::write(world.path(), "{").unwrap();
    credential.engine.source().file().reload().await;
    world.bench.settle().await;
    assert_eq!(
        *heard.0.lock(),
        ["loaded 1", "failed Some(700027)", "loaded 2", "refused: older", "refused: unusable"]
    );
    assert_eq!(world.bench.clock.now().as_second(), 1_795_262_400);
}

#[tokio::test]
async fn a_token_is_asked_for_anew_on_request_and_the_held_one_outlives_a_refusal() {
    let world = World::new(|_, number| match number {
        0 | 1 => Reply::token(&format!("t{number}"), 3_600),
        _ => Reply::refusal("unauthorized_client", 700_016),
    });
    let credential = world.open().await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t0");
    credential.renew_token(VAULT).await.unwrap();
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    let refused = credential.renew_token(VAULT).await.unwrap_err();
    assert_eq!(refused.code(), "AADSTS700016");
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    assert_eq!(credential.health().tokens.errors[0].code, "AADSTS700016");
}
