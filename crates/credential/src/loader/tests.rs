use std::io;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{self, document, parsed_credential, timestamp, to_bytes};
use crate::generation::ParseCredentialOptions;

const T1: &str = "2027-01-01T00:00:00Z";
const T2: &str = "2027-02-01T00:00:00Z";
const NOW: &str = "2027-02-02T00:00:00Z";
const FOLLOWER: FileFollowerState = FileFollowerState { following: true, watcher_alive: true };

/// The state after the first load, with the policy for equal timestamps.
#[derive(Debug)]
struct TestLoader {
    state: LoaderState,
    equal_timestamps: EqualTimestampPolicy,
}

impl TestLoader {
    fn decide(&mut self, version: FileVersion, now: Timestamp) -> LoadDecision {
        self.state.decide(version, self.equal_timestamps, now)
    }
}

fn parse(bytes: &[u8]) -> Result<ParsedCredential, LoadError> {
    let path = PathBuf::from("identity.json");
    ParsedCredential::parse(bytes, &ParseCredentialOptions::default())
        .map_err(|source| LoadError::Content { path, source })
}

/// Passes one version of the file through the state, like the follower.
fn load_content_at(loader: &mut TestLoader, content: &[u8], now: Timestamp) -> LoadDecision {
    let hash = ContentHash::of(content);
    let version = if loader.state.known_hashes().contains(&hash) {
        FileVersion::Known(hash)
    } else {
        match parse(content) {
            Ok(credential) => FileVersion::Usable(Box::new(credential)),
            Err(error) => FileVersion::Unusable { hash, error },
        }
    };
    loader.decide(version, now)
}

fn load_content(loader: &mut TestLoader, content: &[u8]) -> LoadDecision {
    load_content_at(loader, content, timestamp(NOW))
}

fn not_found_error() -> LoadError {
    LoadError::Read { path: PathBuf::from("identity.json"), source: io::ErrorKind::NotFound.into() }
}

fn fail_read(loader: &mut TestLoader) -> LoadDecision {
    loader.decide(FileVersion::Unreadable(not_found_error()), timestamp(NOW))
}

fn document_with(not_before: &str, key: &str, value: Value) -> Vec<u8> {
    let mut document = document(not_before);
    document[key] = value;
    to_bytes(&document)
}

fn loader_with(not_before: &str) -> TestLoader {
    let state = LoaderState::first(parsed_credential(&document(not_before)), timestamp(NOW));
    TestLoader { state, equal_timestamps: EqualTimestampPolicy::Accept }
}

fn expect_published(decision: LoadDecision) -> Arc<CredentialGeneration> {
    match decision {
        LoadDecision::Publish(generation) => generation,
        other => panic!("not published: {other:?}"),
    }
}

fn health(loader: &TestLoader) -> LoaderHealth {
    loader.state.health(FOLLOWER, timestamp(NOW))
}

#[test]
fn the_same_content_is_ignored_before_it_is_parsed() {
    let mut loader = loader_with(T1);
    let hash = ContentHash::of(&to_bytes(&document(T1)));
    assert_eq!(loader.state.known_hashes(), [hash]);
    let decision = loader.decide(FileVersion::Known(hash), timestamp(NOW));
    assert!(matches!(decision, LoadDecision::Ignore(IgnoreReason::SameContent)), "{decision:?}");
    assert_eq!(health(&loader).counts.unchanged, 1);
}

#[test]
fn a_newer_not_before_replaces_the_credential_and_keeps_the_old_one_as_fallback() {
    let mut loader = loader_with(T1);
    let generation = expect_published(load_content(&mut loader, &to_bytes(&document(T2))));
    assert_eq!((generation.number(), generation.not_before()), (2, timestamp(T2)));
    assert_eq!(generation.loaded_at(), timestamp(NOW));
    assert_eq!(loader.state.previous().unwrap().number(), 1);
    assert_eq!(health(&loader).counts.published, 2);
}

#[test]
fn stamps_are_compared_as_times_and_not_as_text() {
    let mut loader = loader_with("2027-01-01T12:00:00+00:00");
    // Later as a text, earlier as a timestamp.
    let action = load_content(&mut loader, &to_bytes(&document("2027-01-01T13:00:00+02:00")));
    assert!(matches!(action, LoadDecision::Keep(KeepReason::Older { .. })), "{action:?}");
    let fraction =
        load_content(&mut loader, &to_bytes(&document("2027-01-01T12:00:00.000000001Z")));
    assert_eq!(expect_published(fraction).number(), 2);
}

#[test]
fn an_equal_not_before_with_other_content_is_taken() {
    let mut loader = loader_with(T1);
    let repaired = document_with(T1, "tenant_id", json!("repaired.example"));
    let generation = expect_published(load_content(&mut loader, &repaired));
    assert_eq!(generation.tenant_id().as_str(), "repaired.example");
}

#[test]
fn equal_not_before_is_rejected_with_the_reject_policy() {
    let mut loader = loader_with(T1);
    loader.equal_timestamps = EqualTimestampPolicy::Reject;
    let action = load_content(&mut loader, &document_with(T1, "tenant_id", json!("other.example")));
    assert!(matches!(action, LoadDecision::Keep(KeepReason::EqualTimestamp)), "{action:?}");
    assert_eq!(health(&loader).counts.refused_equal, 1);
    assert_eq!(expect_published(load_content(&mut loader, &to_bytes(&document(T2)))).number(), 2);
}

#[test]
fn older_not_before_is_counted_once_and_reported_until_corrected() {
    let mut loader = loader_with(T2);
    let older = to_bytes(&document(T1));
    let action = load_content(&mut loader, &older);
    let (offered, held) = (timestamp(T1), timestamp(T2));
    assert!(
        matches!(action, LoadDecision::Keep(KeepReason::Older { offered: o, current: h }) if o == offered && h == held),
        "{action:?}"
    );
    let repeated = load_content(&mut loader, &older);
    assert!(matches!(repeated, LoadDecision::Ignore(IgnoreReason::RejectedBefore)), "{repeated:?}");
    let state = health(&loader);
    assert_eq!(state.counts.refused_older, 1);
    assert!(state.warnings.contains(&HealthWarning::FileRefused { offered, held }));
    load_content(&mut loader, &to_bytes(&document(T2)));
    let refused = |w: &HealthWarning| matches!(w, HealthWarning::FileRefused { .. });
    assert!(!health(&loader).warnings.iter().any(refused));
}

#[test]
fn unusable_content_keeps_the_old_credential_and_is_counted_once() {
    let mut loader = loader_with(T1);
    let later = "2027-02-03T00:00:00Z";
    let action = load_content(&mut loader, b"{\"client_id\": ");
    assert!(matches!(action, LoadDecision::Keep(KeepReason::Failed(_))), "{action:?}");
    let repeated = load_content_at(&mut loader, b"{\"client_id\": ", timestamp(later));
    assert!(matches!(repeated, LoadDecision::Ignore(IgnoreReason::UnusableBefore)), "{repeated:?}");
    let state = health(&loader);
    assert_eq!((state.counts.failed, state.counts.unchanged), (1, 1));
    let error = state.last_error.unwrap();
    assert_eq!(error.at, timestamp(NOW));
    assert!(error.message.contains("cut short"), "{}", error.message);
    assert!(error.hint.contains("writer"), "{}", error.hint);
    assert_eq!(state.generation, 1);
    assert_eq!(expect_published(load_content(&mut loader, &to_bytes(&document(T2)))).number(), 2);
    assert_eq!(health(&loader).last_error, None);
    let back = load_content(&mut loader, b"{\"client_id\": ");
    assert!(matches!(back, LoadDecision::Keep(KeepReason::Failed(_))), "{back:?}");
}

#[test]
fn health_reports_the_error_of_reappearing_content() {
    let mut loader = loader_with(T1);
    load_content(&mut loader, b"{");
    let wrong = health(&loader).last_error;
    fail_read(&mut loader);
    assert_ne!(health(&loader).last_error, wrong);
    load_content(&mut loader, b"{");
    assert_eq!(health(&loader).last_error, wrong);
}

#[test]
fn stopped_parse_is_retried() {
    let mut loader = loader_with(T1);
    for failures in 1..=2 {
        let stopped = LoadError::Stopped { path: PathBuf::from("identity.json") };
        loader.decide(FileVersion::Unreadable(stopped), timestamp(NOW));
        assert_eq!(loader.state.known_hashes().len(), 1);
        assert_eq!(health(&loader).counts.failed, failures);
    }
}

#[test]
fn failure_is_cleared_when_the_old_content_returns() {
    let mut loader = loader_with(T1);
    fail_read(&mut loader);
    assert!(health(&loader).last_error.is_some());
    load_content(&mut loader, &to_bytes(&document(T1)));
    assert_eq!(health(&loader).last_error, None);
}

#[test]
fn ec_key_is_rejected_with_the_reason() {
    let mut loader = loader_with(T1);
    let secret = fixture::client_secret(&[fixture::EC_PKCS8, fixture::EC]);
    load_content(&mut loader, &document_with(T2, "client_secret", json!(secret)));
    let message = health(&loader).last_error.unwrap().message;
    assert!(message.contains("EC P-256"), "{message}");
}

#[test]
fn previous_generation_is_dropped_when_it_expires() {
    let mut loader = loader_with(T1);
    expect_published(load_content(&mut loader, &to_bytes(&document(T2))));
    let expiry = timestamp("2027-04-01T00:00:00Z");
    let second = jiff::SignedDuration::from_secs(1);
    load_content_at(&mut loader, &to_bytes(&document(T2)), expiry - second);
    assert!(loader.state.previous().is_some());
    load_content_at(&mut loader, &to_bytes(&document(T2)), expiry);
    assert!(loader.state.previous().is_none());
}

#[test]
fn a_rotation_that_changes_the_identity_is_reported() {
    let mut loader = loader_with(T1);
    let mut other = document(T2);
    other["client_id"] = json!("44444444-4444-4444-8444-444444444444");
    other["authentication_endpoint"] = json!("https://login.other.example/");
    let generation = expect_published(load_content(&mut loader, &to_bytes(&other)));
    assert!(!generation.is_same_identity(loader.state.previous().unwrap()));
    let warnings = health(&loader).warnings;
    let client = HealthWarning::ClientChanged {
        from: fixture::CLIENT.into(),
        to: "44444444-4444-4444-8444-444444444444".into(),
    };
    assert!(warnings.contains(&client), "{warnings:?}");
    assert!(warnings.iter().any(|w| matches!(w, HealthWarning::AuthorityChanged { .. })));
    assert!(!warnings.iter().any(|w| matches!(w, HealthWarning::TenantChanged { .. })));
}

#[test]
fn times_are_counted_down_and_warned_about() {
    let state = LoaderState::first(parsed_credential(&document(T1)), timestamp(T1));
    let at = |now: &str| state.health(FOLLOWER, timestamp(now));
    let state = at("2027-01-02T00:00:00Z");
    assert_eq!(state.seconds_to_not_after, Some(89 * 86_400));
    assert_eq!(state.seconds_to_renew_after, Some(44 * 86_400));
    assert_eq!(state.seconds_to_cannot_renew_after, Some(179 * 86_400));
    assert_eq!(state.warnings, []);
    let since = timestamp("2027-02-15T00:00:00Z");
    assert_eq!(at("2027-02-15T00:00:00Z").warnings, [HealthWarning::RenewalDue { since }]);
    let from = timestamp(T1);
    assert_eq!(at("2026-12-31T23:59:59Z").warnings, [HealthWarning::NotYetValid { from }]);
    let late = at("2027-07-01T00:00:00Z");
    assert_eq!(
        late.warnings,
        [
            HealthWarning::Expired { since: timestamp("2027-04-01T00:00:00Z") },
            HealthWarning::RenewalImpossible { since: timestamp("2027-06-30T00:00:00Z") },
        ]
    );
    assert_eq!(late.seconds_to_not_after, Some(-91 * 86_400));
}

#[test]
fn stamps_outside_the_certificates_dates_are_warned_about() {
    let mut placeholder = document("2020-01-01T00:00:00Z");
    placeholder["not_after"] = json!("2400-01-01T00:00:00Z");
    let state = LoaderState::first(parsed_credential(&placeholder), timestamp(T1));
    let validity = state.current().certificate_validity();
    let warnings = state.health(FOLLOWER, timestamp(T1)).warnings;
    let stamp = timestamp("2020-01-01T00:00:00Z");
    assert!(warnings.contains(&HealthWarning::CertificateStartsLater {
        stamp,
        certificate: validity.not_before
    }));
    let stamp = timestamp("2400-01-01T00:00:00Z");
    assert!(warnings.contains(&HealthWarning::CertificateEndsEarlier {
        stamp,
        certificate: validity.not_after
    }));
    assert_eq!(state.current().expires_at(), validity.not_after);
}

/// The next content of the file in the random walks below; `None` if it cannot be read.
fn version() -> impl Strategy<Value = Option<Vec<u8>>> {
    let stamp = (0_u8..4).prop_map(|hour| format!("2027-01-01T{hour:02}:00:00Z"));
    let tenant = prop::sample::select(vec!["a.example", "b.example"]);
    prop_oneof![
        6 => (stamp, tenant)
            .prop_map(|(stamp, tenant)| Some(document_with(&stamp, "tenant_id", json!(tenant)))),
        1 => Just(Some(b"{\"client_id\"".to_vec())),
        1 => Just(Some(Vec::new())),
        1 => Just(None),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn not_before_never_decreases_and_numbers_are_consecutive(
        versions in prop::collection::vec(version(), 1..12),
        strict in any::<bool>(),
    ) {
        let mut loader = loader_with("2027-01-01T00:00:00Z");
        if strict {
            loader.equal_timestamps = EqualTimestampPolicy::Reject;
        }
        let mut newest = Arc::clone(loader.state.current());
        let mut decisions = 1;
        for content in &versions {
            let decision = match content {
                Some(content) => load_content(&mut loader, content),
                None => fail_read(&mut loader),
            };
            if let LoadDecision::Publish(generation) = decision {
                prop_assert!(generation.not_before() >= newest.not_before());
                prop_assert!(!strict || generation.not_before() > newest.not_before());
                prop_assert_eq!(generation.number(), newest.number() + 1);
                prop_assert_ne!(generation.content_hash(), newest.content_hash());
                newest = generation;
            }
            prop_assert!(Arc::ptr_eq(loader.state.current(), &newest));
            decisions += 1;
        }
        let counts = health(&loader).counts;
        let counted = counts.published
            + counts.unchanged
            + counts.failed
            + counts.refused_older
            + counts.refused_equal;
        prop_assert_eq!(counted, decisions);
    }
}
