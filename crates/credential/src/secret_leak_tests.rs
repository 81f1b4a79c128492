//! Plants secrets everywhere, triggers every failure, and checks that no error, health report or log line
//! contains them.

use std::fmt::Write as _;
use std::fs;
use std::sync::{Arc, LazyLock};

use azure_core::credentials::TokenCredential;
use lanyard_clock::ErrorHint as _;
use parking_lot::Mutex;
use proptest::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::fixture::{document, to_bytes};
use crate::scripted_service::{ScriptedReply, TokenServiceFixture};
use crate::{
    CredentialFileOptions, FederatedTokenCredential, FederatedTokenSettings,
    ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError,
};

const VAULT: &str = "https://vault.azure.net/.default";
/// Part of every token and of every service account token.
const MARKER: &str = "planted-marker";

/// Records every span and event, at every level.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<String>>);

impl Visit for LogCapture {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0.lock(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A faulty response that contains all secrets that the service knows.
#[derive(Debug, Clone, Copy)]
enum FaultyReply {
    Token,
    TruncatedToken,
    TokenWithoutLifetime,
    EchoAsJson,
    EchoAsPage,
    EchoTruncated,
    Throttle,
    Unavailable,
    ConnectionReset,
}

const FAULTY_REPLIES: [FaultyReply; 9] = [
    FaultyReply::Token,
    FaultyReply::TruncatedToken,
    FaultyReply::TokenWithoutLifetime,
    FaultyReply::EchoAsJson,
    FaultyReply::EchoAsPage,
    FaultyReply::EchoTruncated,
    FaultyReply::Throttle,
    FaultyReply::Unavailable,
    FaultyReply::ConnectionReset,
];

impl FaultyReply {
    fn reply(self, assertion: &str, body: &str) -> ScriptedReply {
        let token = format!("{MARKER}-{assertion}");
        match self {
            Self::Token => ScriptedReply::token(&token, 3_600),
            Self::TruncatedToken => {
                ScriptedReply::status(200, &format!(r#"{{"access_token":"{token}"#))
            }
            Self::TokenWithoutLifetime => ScriptedReply::status(
                200,
                &format!(r#"{{"access_token":"{token}","expires_in":"{token}"}}"#),
            ),
            Self::EchoAsJson => ScriptedReply::status(
                401,
                &format!(
                    r#"{{"error":"invalid_client","error_description":"AADSTS700213: {assertion}","error_codes":[700213],"trace_id":"{assertion}","claims":"{assertion}"}}"#
                ),
            ),
            Self::EchoAsPage => {
                ScriptedReply::status(403, &format!("<html>{body} {assertion}</html>"))
            }
            Self::EchoTruncated => {
                ScriptedReply::status(400, &format!(r#"{{"error":"{assertion}"#))
            }
            Self::Throttle => {
                ScriptedReply::status(429, assertion).with_header("retry-after", "60")
            }
            Self::Unavailable => {
                ScriptedReply::status(503, assertion).with_header("x-echo", assertion)
            }
            Self::ConnectionReset => ScriptedReply::ConnectionReset,
        }
    }
}

fn faulty_service(
    mischiefs: Vec<FaultyReply>,
    assertions: &Arc<Mutex<Vec<String>>>,
) -> TokenServiceFixture {
    let assertions = Arc::clone(assertions);
    TokenServiceFixture::new(move |observed, number| {
        let assertion = observed.form_field("client_assertion").unwrap();
        assertions.lock().push(assertion.clone());
        mischiefs[number % mischiefs.len()].reply(&assertion, &observed.body)
    })
}

/// Requests tokens several times and returns everything that a program could print.
async fn collect_printed_output(
    bench: &TokenServiceFixture,
    credential: &dyn TokenCredential,
) -> String {
    let mut printed = String::new();
    for _ in 0..3 {
        // The credential returns the token itself, which is not printed.
        if let Err(error) = bench.run_to_completion(credential.get_token(&[VAULT], None)).await {
            let inner = TokenError::of(&error).unwrap();
            writeln!(printed, "{error} {error:?} {inner} {inner:?} {:?}", inner.hint()).unwrap();
            if let Some(response) = inner.response() {
                let body = String::from_utf8_lossy(response.body());
                writeln!(printed, "{response:?} {body}").unwrap();
            }
            let mut source = std::error::Error::source(&error);
            while let Some(error) = source {
                writeln!(printed, "{error} {error:?}").unwrap();
                source = error.source();
            }
        }
        bench.clock.advance(std::time::Duration::from_mins(61));
    }
    writeln!(printed, "{credential:?}").unwrap();
    printed
}

fn assert_no_secrets(printed: &str, assertions: &[String]) {
    assert!(!assertions.is_empty());
    assert!(!printed.contains(MARKER), "{printed}");
    for assertion in assertions {
        // Payload and signature; the header of a JWT is public.
        for part in assertion.split('.').skip(1) {
            assert!(!printed.contains(part), "{part} in {printed}");
        }
    }
}

/// A second live dispatcher. With a single one, `tracing` asks only the default of the current thread whether a new
/// callsite is enabled, so a test on another thread without a subscriber could disable the callsite for all.
static SECOND_DISPATCHER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(LogCapture::default()));

fn run_with_log_capture(case: impl Future<Output = String>) -> String {
    LazyLock::force(&SECOND_DISPATCHER);
    let log = LogCapture::default();
    let printed = tracing::subscriber::with_default(log.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(case)
    });
    let logged = log.0.lock().clone();
    assert!(logged.contains("requesting a token"), "nothing was logged: {logged}");
    printed + &logged
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn service_account_tokens_never_appear_in_output(
        mischiefs in proptest::collection::vec(proptest::sample::select(&FAULTY_REPLIES[..]), 1..5),
    ) {
        let assertions = Arc::default();
        let bench = faulty_service(mischiefs, &assertions);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, format!("e30.{MARKER}.{MARKER}-signature")).unwrap();
        let settings = FederatedTokenSettings {
            client_id: Some("client".to_owned()),
            tenant_id: Some("tenant".to_owned()),
            token_file: Some(path),
            authority_host: None,
        };
        let printed = run_with_log_capture(async {
            let credential =
                FederatedTokenCredential::from_settings(settings, bench.transport()).unwrap();
            let printed = collect_printed_output(&bench, &*credential).await;
            format!("{printed} {:?}", credential.health())
        });
        assert_no_secrets(&printed, &assertions.lock());
    }

    #[test]
    fn certificates_and_assertions_never_appear_in_output(
        mischiefs in proptest::collection::vec(proptest::sample::select(&FAULTY_REPLIES[..]), 1..5),
    ) {
        let assertions = Arc::default();
        let bench = faulty_service(mischiefs, &assertions);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity.json");
        let document = document("2026-11-01T00:00:00Z");
        fs::write(&path, to_bytes(&document)).unwrap();
        let year = std::time::Duration::from_hours(24 * 365);
        let file =
            CredentialFileOptions { events: false, poll_interval: year, resync_interval: year, ..CredentialFileOptions::default() };
        let options = ReloadingCertificateOptions {
            file,
            ..ReloadingCertificateOptions::with_transport(bench.options())
        };
        let printed = run_with_log_capture(async {
            let credential = ReloadingCertificateCredential::open(&path, options).await.unwrap();
            let printed = collect_printed_output(&bench, &*credential).await;
            let health = credential.health();
            format!("{printed} {health:?} {}", serde_json::to_string(&health).unwrap())
        });
        assert_no_secrets(&printed, &assertions.lock());
        let secret = document["client_secret"].as_str().unwrap();
        prop_assert!(!printed.contains(&secret[..40]));
    }
}
