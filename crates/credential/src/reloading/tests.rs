use azure_core::credentials::{TokenCredential as _, TokenRequestOptions};
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
use crate::fixture::{CLIENT, LEAF, OTHER, OTHER_PKCS8, TENANT, client_secret, document, to_bytes};
use crate::metrics::MetricsHook;
use crate::scripted_service::{RecordedRequest, ScriptedReply, TokenServiceFixture};
use crate::token::error::TokenError;
use crate::token::request::TokenRequestContext;

const VAULT: &str = "https://vault.azure.net/.default";
const ARM: &str = "https://management.azure.com/.default";

/// A credential file in its own folder, which is only read when the test requests it.
struct ReloadingCredentialFixture {
    token_service: TokenServiceFixture,
    folder: TempDir,
}

impl ReloadingCredentialFixture {
    fn new(
        service: impl Fn(&RecordedRequest, usize) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        let fixture = Self {
            token_service: TokenServiceFixture::new(service),
            folder: tempfile::tempdir().unwrap(),
        };
        fixture.write(&first_document());
        fixture
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("identity.json")
    }

    fn write(&self, document: &Value) {
        fs::write(self.path(), to_bytes(document)).unwrap();
    }

    fn options(&self) -> ReloadingCertificateOptions {
        let year = Duration::from_hours(24 * 365);
        let file = CredentialFileOptions {
            events: false,
            poll_interval: year,
            resync_interval: year,
            ..CredentialFileOptions::default()
        };
        ReloadingCertificateOptions {
            file,
            ..ReloadingCertificateOptions::with_transport(self.token_service.options())
        }
    }

    async fn open(&self) -> Arc<ReloadingCertificateCredential> {
        ReloadingCertificateCredential::open(self.path(), self.options()).await.unwrap()
    }

    /// Replaces the file, reloads it, and lets the rotation complete.
    async fn rotate(&self, credential: &ReloadingCertificateCredential, document: &Value) {
        self.write(document);
        credential.engine.source().file().reload().await;
        self.token_service.run_pending_tasks().await;
    }
}

fn first_document() -> Value {
    document("2026-11-01T00:00:00Z")
}

/// The same identity with another certificate.
fn second_document() -> Value {
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

fn jwt_part(observed: &RecordedRequest, number: usize) -> Value {
    let assertion = observed.form_field("client_assertion").unwrap();
    let part = assertion.split('.').nth(number).unwrap().to_owned();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// Whether the client assertion contains this certificate.
fn is_signed_with(observed: &RecordedRequest, certificate: &[u8]) -> bool {
    let pem = std::str::from_utf8(certificate).unwrap();
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    jwt_part(observed, 0)["x5c"][0] == json!(body)
}

/// Accepts the keys of `certificates` only.
fn accept_certificates(
    certificates: &'static [&'static [u8]],
) -> impl Fn(&RecordedRequest, usize) -> ScriptedReply {
    move |observed, number| {
        if certificates.iter().any(|certificate| is_signed_with(observed, certificate)) {
            ScriptedReply::token(&format!("t{number}"), 3_600)
        } else {
            ScriptedReply::error("invalid_client", 700_027)
        }
    }
}

#[tokio::test]
async fn certificate_is_exchanged_for_a_token() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let credential = fixture.open().await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t0");
    assert_eq!(credential.with_cached_token(VAULT, str::len), Some(2));
    let observed = fixture.token_service.script.request(0);
    let endpoint = format!("https://login.example/{TENANT}/oauth2/v2.0/token");
    assert_eq!(observed.url.as_str(), endpoint);
    assert_eq!(observed.form_field("client_id").unwrap(), CLIENT);
    assert_eq!(observed.form_field("grant_type").unwrap(), "client_credentials");
    let claims = jwt_part(&observed, 1);
    assert_eq!((&claims["aud"], &claims["iss"]), (&json!(endpoint), &json!(CLIENT)));
    assert_eq!(jwt_part(&observed, 0)["x5c"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_rotation_keeps_the_tokens_and_tries_the_new_key_on_each_scope() {
    let fixture = ReloadingCredentialFixture::new(|_, number| match number {
        0 | 1 => ScriptedReply::token(&format!("t{number}"), 3_600),
        _ => ScriptedReply::token(&format!("t{number}"), 3_600).gated(),
    });
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    get(&credential, ARM).await.unwrap();
    fixture.rotate(&credential, &second_document()).await;
    assert_eq!(credential.generation().number(), 2);
    assert_eq!(credential.health().key, KeyHealth::Untried);
    // Both at once, while the old tokens are in use.
    assert_eq!(fixture.token_service.script.request_count(), 4);
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t0");
    assert_eq!(get(&credential, ARM).await.unwrap(), "t1");
    fixture.token_service.script.release(2);
    fixture.token_service.run_pending_tasks().await;
    assert_eq!(fixture.token_service.script.request_count(), 4);
    assert!(is_signed_with(&fixture.token_service.script.request(2), OTHER));
    assert!(is_signed_with(&fixture.token_service.script.request(3), OTHER));
    assert_eq!(credential.health().key, KeyHealth::Accepted { generation: 2 });
    assert!(credential.health().tokens.scopes.iter().all(|scope| scope.generation == 2));
}

#[tokio::test]
async fn no_more_than_four_scopes_are_tried_at_once() {
    let scope = |number: usize| format!("https://service{number}.example/.default");
    let fixture = ReloadingCredentialFixture::new(|_, number| match number {
        0..10 => ScriptedReply::token("t", 3_600),
        _ => ScriptedReply::token("t", 3_600).gated(),
    });
    let credential = fixture.open().await;
    for number in 0..10 {
        get(&credential, &scope(number)).await.unwrap();
    }
    fixture.rotate(&credential, &second_document()).await;
    assert_eq!(fixture.token_service.script.request_count(), 10 + 4);
    fixture.token_service.script.release(1);
    fixture.token_service.run_pending_tasks().await;
    assert_eq!(fixture.token_service.script.request_count(), 10 + 5);
    fixture.token_service.script.release(10);
    fixture.token_service.run_pending_tasks().await;
    assert_eq!(fixture.token_service.script.request_count(), 10 + 10);
}

#[tokio::test]
async fn in_flight_request_with_the_old_key_does_not_test_the_new_key() {
    let fixture = ReloadingCredentialFixture::new(|observed, number| match number {
        0 => ScriptedReply::token("t0", 3_600),
        1 => ScriptedReply::token("t1", 3_600).gated(),
        _ if is_signed_with(observed, OTHER) => ScriptedReply::error("invalid_client", 700_027),
        _ => ScriptedReply::token("rescued", 3_600),
    });
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    // A renewal is due, and is sent with the old key.
    fixture.token_service.advance(Duration::from_mins(56)).await;
    get(&credential, VAULT).await.unwrap();
    fixture.token_service.run_pending_tasks().await;
    assert_eq!(fixture.token_service.script.request_count(), 2);
    fixture.rotate(&credential, &second_document()).await;
    assert_eq!(fixture.token_service.script.request_count(), 2);
    fixture.token_service.script.release(1);
    fixture.token_service.run_pending_tasks().await;
    assert!(is_signed_with(&fixture.token_service.script.request(1), LEAF));
    assert!(is_signed_with(&fixture.token_service.script.request(2), OTHER));
    let health = credential.health();
    assert!(matches!(health.key, KeyHealth::Refused { generation: 2, .. }), "{health:?}");
}

#[tokio::test]
async fn inconclusive_trials_of_the_new_key_are_retried() {
    let fixture = ReloadingCredentialFixture::new(|_, number| match number {
        0 => ScriptedReply::token("t0", 3_600),
        1..12 => ScriptedReply::status(503, "busy"),
        _ => ScriptedReply::token("t1", 3_600),
    });
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    fixture.rotate(&credential, &second_document()).await;
    assert_eq!(credential.health().key, KeyHealth::Untried);
    for _ in 0..120 {
        fixture.token_service.advance(Duration::from_secs(1)).await;
    }
    assert_eq!(credential.health().key, KeyHealth::Accepted { generation: 2 });
    assert_eq!(fixture.token_service.script.request_count(), 13);
    fixture.token_service.advance(Duration::from_mins(5)).await;
    assert_eq!(fixture.token_service.script.request_count(), 13);
}

#[tokio::test]
async fn waiting_trial_does_not_keep_the_engine_alive() {
    let fixture = ReloadingCredentialFixture::new(|_, number| match number {
        0 => ScriptedReply::token("t0", 3_600),
        _ => ScriptedReply::error("temporarily_unavailable", 90_033),
    });
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    fixture.rotate(&credential, &second_document()).await;
    for _ in 0..60 {
        fixture.token_service.advance(Duration::from_secs(1)).await;
    }
    let engine = Arc::downgrade(&credential.engine);
    drop(credential);
    for _ in 0..120 {
        fixture.token_service.advance(Duration::from_secs(1)).await;
    }
    assert!(engine.upgrade().is_none());
    assert_eq!(fixture.token_service.clock.sleeper_count(), 0);
}

#[tokio::test]
async fn a_rotation_to_another_identity_drops_the_tokens_and_fetches_new_ones() {
    let fixture = ReloadingCredentialFixture::new(|observed, _| {
        ScriptedReply::token(&observed.form_field("client_id").unwrap(), 3_600)
    });
    let credential = fixture.open().await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), CLIENT);
    let mut other = second_document();
    other["client_id"] = json!("another-client");
    fixture.rotate(&credential, &other).await;
    assert_eq!(fixture.token_service.script.request_count(), 2);
    assert_eq!(get(&credential, VAULT).await.unwrap(), "another-client");
    assert_eq!(fixture.token_service.script.request_count(), 2);
}

#[tokio::test]
async fn previous_key_is_used_while_entra_rejects_the_new_one() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let credential = fixture.open().await;
    fixture.rotate(&credential, &second_document()).await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    assert!(is_signed_with(&fixture.token_service.script.request(0), OTHER));
    assert!(is_signed_with(&fixture.token_service.script.request(1), LEAF));
    let health = credential.health();
    let KeyHealth::Refused { generation: 2, error } = &health.key else { panic!("{health:?}") };
    assert!(error.text.contains("AADSTS700027") && error.hint.is_some());
    assert_eq!(health.tokens.last_generation, Some(1));
    assert!(credential.is_ready());
}

#[tokio::test]
async fn rejected_new_key_is_reported_in_health_while_tokens_stay_valid() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    fixture.rotate(&credential, &second_document()).await;
    assert!(matches!(credential.health().key, KeyHealth::Refused { generation: 2, .. }));
    assert!(get(&credential, VAULT).await.is_ok());
    assert!(credential.is_ready());
}

#[tokio::test]
async fn an_expired_key_is_no_fallback() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let mut brief = first_document();
    brief["not_after"] = json!("2026-11-21T12:00:01Z");
    fixture.write(&brief);
    let credential = fixture.open().await;
    fixture.rotate(&credential, &second_document()).await;
    fixture.token_service.clock.advance(Duration::from_secs(1));
    assert!(matches!(get(&credential, VAULT).await, Err(TokenError::Refused(_))));
    assert!(
        !(0..fixture.token_service.script.request_count())
            .any(|n| is_signed_with(&fixture.token_service.script.request(n), LEAF))
    );
}

#[tokio::test]
async fn a_key_of_another_identity_is_no_fallback() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let credential = fixture.open().await;
    let mut other = second_document();
    other["client_id"] = json!("another-client");
    fixture.rotate(&credential, &other).await;
    assert!(matches!(get(&credential, VAULT).await, Err(TokenError::Refused(_))));
    assert_eq!(fixture.token_service.script.request_count(), 1);
}

/// The second document with a later timestamp: another version with the same broken key.
fn third_document() -> Value {
    let mut document = second_document();
    document["not_before"] = json!("2026-11-20T12:00:00Z");
    document
}

#[tokio::test]
async fn last_accepted_key_survives_two_bad_rotations() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    fixture.rotate(&credential, &second_document()).await;
    fixture.rotate(&credential, &third_document()).await;
    assert_eq!(credential.generation().number(), 3);
    assert!(get(&credential, ARM).await.is_ok());
    let health = credential.health();
    assert!(matches!(health.key, KeyHealth::Refused { generation: 3, .. }), "{health:?}");
    assert_eq!(health.tokens.last_generation, Some(1));
}

#[tokio::test]
async fn last_accepted_key_survives_a_wrong_client_id() {
    let fixture = ReloadingCredentialFixture::new(|observed, number| {
        if observed.form_field("client_id").unwrap() == CLIENT && is_signed_with(observed, LEAF) {
            ScriptedReply::token(&format!("t{number}"), 3_600)
        } else {
            ScriptedReply::error("invalid_client", 700_027)
        }
    });
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    let mut mistaken = second_document();
    mistaken["client_id"] = json!("another-client");
    fixture.rotate(&credential, &mistaken).await;
    assert!(get(&credential, ARM).await.is_err());
    fixture.rotate(&credential, &third_document()).await;
    assert!(get(&credential, ARM).await.is_ok());
    assert_eq!(credential.health().tokens.last_generation, Some(1));
}

#[tokio::test]
async fn last_accepted_key_is_not_used_after_expiry() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let mut brief = first_document();
    brief["not_after"] = json!("2026-11-21T12:00:01Z");
    fixture.write(&brief);
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    fixture.rotate(&credential, &second_document()).await;
    fixture.rotate(&credential, &third_document()).await;
    fixture.token_service.clock.advance(Duration::from_secs(1));
    let before = fixture.token_service.script.request_count();
    assert!(matches!(get(&credential, ARM).await, Err(TokenError::Refused(_))));
    let observed = (before..fixture.token_service.script.request_count())
        .map(|n| fixture.token_service.script.request(n));
    assert!(!observed.into_iter().any(|observed| is_signed_with(&observed, LEAF)));
}

#[tokio::test]
async fn key_rejection_reloads_the_file_immediately() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[OTHER]));
    let credential = fixture.open().await;
    fixture.write(&second_document());
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    assert_eq!(credential.generation().number(), 2);
    fixture.token_service.run_pending_tasks().await;
    assert_eq!(credential.health().key, KeyHealth::Accepted { generation: 2 });
}

#[tokio::test]
async fn persistent_key_rejection_reloads_the_file_once() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[]));
    let credential = fixture.open().await;
    for _ in 0..5 {
        assert!(get(&credential, VAULT).await.is_err());
        fixture.token_service.clock.advance(Duration::from_mins(1));
    }
    assert_eq!(fixture.token_service.script.request_count(), 5);
    assert_eq!(credential.health().file.counts.unchanged, 1);
    assert!(!credential.is_ready());
}

#[tokio::test]
async fn key_error_codes_count_with_any_oauth_error() {
    for code in [700_027, 700_024, 1_000_502, 7_000_214] {
        let fixture = ReloadingCredentialFixture::new(move |observed, _| {
            if is_signed_with(observed, OTHER) {
                ScriptedReply::token("t", 3_600)
            } else {
                ScriptedReply::error("invalid_request", code)
            }
        });
        let credential = fixture.open().await;
        fixture.write(&second_document());
        assert_eq!(get(&credential, VAULT).await.unwrap(), "t", "{code}");
    }
}

#[tokio::test]
async fn other_entra_errors_do_not_change_the_key_health() {
    let fixture = ReloadingCredentialFixture::new(|_, _| {
        ScriptedReply::error("unauthorized_client", 700_016)
    });
    let credential = fixture.open().await;
    fixture.write(&second_document());
    assert!(get(&credential, VAULT).await.is_err());
    assert_eq!(fixture.token_service.script.request_count(), 1);
    assert_eq!(credential.generation().number(), 1);
    assert_eq!(credential.health().key, KeyHealth::Untried);
}

#[tokio::test]
async fn other_tenants_use_their_own_token_endpoint() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let credential = fixture.open().await;
    let context = TokenRequestContext::new().for_tenant("fabrikam.example".parse().unwrap());
    let mut options = TokenRequestOptions::default();
    options.method_options.context.insert(context);
    credential.get_token(&[VAULT], Some(options)).await.unwrap();
    let observed = fixture.token_service.script.request(0);
    let endpoint = "https://login.example/fabrikam.example/oauth2/v2.0/token";
    assert_eq!(observed.url.as_str(), endpoint);
    assert_eq!(jwt_part(&observed, 1)["aud"], endpoint);
}

#[tokio::test]
async fn an_expired_credential_is_not_ready_once_its_tokens_are_gone() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let mut brief = first_document();
    brief["not_after"] = json!("2026-11-21T12:10:00Z");
    fixture.write(&brief);
    let credential = fixture.open().await;
    assert!(credential.is_ready());
    get(&credential, VAULT).await.unwrap();
    fixture.token_service.clock.advance(Duration::from_mins(30));
    assert!(credential.is_ready());
    fixture.token_service.clock.advance(Duration::from_mins(31));
    assert!(!credential.is_ready());
}

#[tokio::test]
async fn failing_first_load_returns_the_error() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    fs::remove_file(fixture.path()).unwrap();
    let missing = ReloadingCertificateCredential::open(fixture.path(), fixture.options()).await;
    assert!(matches!(missing, Err(LoadError::Read { .. })));
}

#[tokio::test]
async fn dropping_the_credential_stops_all_tasks() {
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[LEAF]));
    let credential = fixture.open().await;
    get(&credential, VAULT).await.unwrap();
    let engine = Arc::downgrade(&credential.engine);
    drop(credential);
    for _ in 0..1_000 {
        if fixture.token_service.clock.sleeper_count() == 0 {
            break;
        }
        fixture.token_service.run_pending_tasks().await;
    }
    assert!(engine.upgrade().is_none());
    assert_eq!(fixture.token_service.clock.sleeper_count(), 0);
}

#[derive(Debug, Default)]
struct RecordingMetricsHook(Mutex<Vec<String>>);

impl MetricsHook for RecordingMetricsHook {
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
    let fixture = ReloadingCredentialFixture::new(accept_certificates(&[]));
    let received = Arc::new(RecordingMetricsHook::default());
    let mut options = fixture.options();
    let metrics: Arc<dyn MetricsHook> = Arc::<RecordingMetricsHook>::clone(&received);
    options.transport =
        TokenTransport::new(TokenTransportOptions { metrics, ..fixture.token_service.options() });
    let credential = ReloadingCertificateCredential::open(fixture.path(), options).await.unwrap();
    get(&credential, VAULT).await.unwrap_err();
    fixture.rotate(&credential, &second_document()).await;
    fixture.rotate(&credential, &first_document()).await;
    fs::write(fixture.path(), "{").unwrap();
    credential.engine.source().file().reload().await;
    fixture.token_service.run_pending_tasks().await;
    assert_eq!(
        *received.0.lock(),
        ["loaded 1", "failed Some(700027)", "loaded 2", "refused: older", "refused: unusable"]
    );
    assert_eq!(fixture.token_service.clock.now().as_second(), 1_795_262_400);
}

#[tokio::test]
async fn renew_token_replaces_the_token_and_keeps_it_on_failure() {
    let fixture = ReloadingCredentialFixture::new(|_, number| match number {
        0 | 1 => ScriptedReply::token(&format!("t{number}"), 3_600),
        _ => ScriptedReply::error("unauthorized_client", 700_016),
    });
    let credential = fixture.open().await;
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t0");
    credential.renew_token(VAULT).await.unwrap();
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    let refused = credential.renew_token(VAULT).await.unwrap_err();
    assert_eq!(refused.code(), "AADSTS700016");
    assert_eq!(get(&credential, VAULT).await.unwrap(), "t1");
    assert_eq!(credential.health().tokens.errors[0].code, "AADSTS700016");
}
