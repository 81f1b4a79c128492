use std::io;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{self, bytes, document, time};
use crate::generation::CandidateOptions;

const T1: &str = "2027-01-01T00:00:00Z";
const T2: &str = "2027-02-01T00:00:00Z";
const NOW: &str = "2027-02-02T00:00:00Z";
const FOLLOWER: FollowerState = FollowerState { following: true, watcher_alive: true };

/// Feeds one version of the file through the machine, as the shell does.
fn offer_at(loader: &mut Loader, content: &[u8], now: Timestamp) -> Action {
    let mut event = Event::FileChanged;
    loop {
        event = match loader.on(event, now) {
            Action::Read => Event::Read(Ok(Content::new(content.to_vec()))),
            Action::Parse(content) => Event::Parsed(parse(content.bytes())),
            action => return action,
        };
    }
}

fn parse(bytes: &[u8]) -> Result<Box<Candidate>, LoadError> {
    let path = PathBuf::from("identity.json");
    Candidate::parse(bytes, &CandidateOptions::default())
        .map(Box::new)
        .map_err(|source| LoadError::Content { path, source })
}

fn gone() -> LoadError {
    LoadError::Read { path: PathBuf::from("identity.json"), source: io::ErrorKind::NotFound.into() }
}

fn offer(loader: &mut Loader, content: &[u8]) -> Action {
    offer_at(loader, content, time(NOW))
}

fn with(not_before: &str, key: &str, value: Value) -> Vec<u8> {
    let mut document = document(not_before);
    document[key] = value;
    bytes(&document)
}

fn loaded(not_before: &str) -> Loader {
    let mut loader = Loader::default();
    let action = offer(&mut loader, &bytes(&document(not_before)));
    assert!(matches!(action, Action::Publish(_)), "{action:?}");
    loader
}

fn published(action: Action) -> Arc<Generation> {
    match action {
        Action::Publish(generation) => generation,
        other => panic!("not published: {other:?}"),
    }
}

fn health(loader: &Loader) -> LoaderHealth {
    loader.report().health(loader.current().unwrap(), FOLLOWER, time(NOW))
}

#[test]
fn every_cause_leads_to_a_read() {
    let mut loader = loaded(T1);
    for cause in [Event::FileChanged, Event::BackstopTick, Event::ReloadRequested] {
        assert!(matches!(loader.on(cause, time(NOW)), Action::Read));
    }
}

#[test]
fn the_first_load_fails_fast() {
    for content in [&b""[..], b"{}", b"not json"] {
        let mut loader = Loader::default();
        for _ in 0..2 {
            let action = offer(&mut loader, content);
            assert!(matches!(action, Action::Fail(LoadError::Content { .. })), "{action:?}");
        }
        assert!(loader.current().is_none());
    }
    let mut loader = Loader::default();
    assert!(matches!(loader.on(Event::Read(Err(gone())), time(NOW)), Action::Fail(_)));
}

#[test]
fn the_same_content_is_ignored_before_it_is_parsed() {
    let mut loader = loaded(T1);
    let content = Content::new(bytes(&document(T1)));
    let action = loader.on(Event::Read(Ok(content)), time(NOW));
    assert!(matches!(action, Action::Ignore(IgnoreReason::SameContent)), "{action:?}");
    assert_eq!(health(&loader).counts.unchanged, 1);
}

#[test]
fn a_newer_not_before_replaces_the_credential_and_keeps_the_old_one_as_fallback() {
    let mut loader = loaded(T1);
    let generation = published(offer(&mut loader, &bytes(&document(T2))));
    assert_eq!((generation.number(), generation.not_before()), (2, time(T2)));
    assert_eq!(generation.loaded_at(), time(NOW));
    assert_eq!(loader.previous().unwrap().number(), 1);
    assert_eq!(health(&loader).counts.published, 2);
}

#[test]
fn stamps_are_compared_as_times_and_not_as_text() {
    let mut loader = loaded("2027-01-01T12:00:00+00:00");
    // Later as a text, earlier as a time.
    let action = offer(&mut loader, &bytes(&document("2027-01-01T13:00:00+02:00")));
    assert!(matches!(action, Action::Keep(KeepReason::Older { .. })), "{action:?}");
    let fraction = offer(&mut loader, &bytes(&document("2027-01-01T12:00:00.000000001Z")));
    assert_eq!(published(fraction).number(), 2);
}

#[test]
fn an_equal_not_before_with_other_content_is_taken() {
    let mut loader = loaded(T1);
    let repaired = with(T1, "tenant_id", json!("repaired.example"));
    let generation = published(offer(&mut loader, &repaired));
    assert_eq!(generation.tenant_id().as_str(), "repaired.example");
}

#[test]
fn an_equal_not_before_is_refused_where_the_strict_rule_is_asked_for() {
    let mut loader = Loader::new(EqualStamps::Refuse);
    published(offer(&mut loader, &bytes(&document(T1))));
    let action = offer(&mut loader, &with(T1, "tenant_id", json!("other.example")));
    assert!(matches!(action, Action::Keep(KeepReason::EqualStamp)), "{action:?}");
    assert_eq!(health(&loader).counts.refused_equal, 1);
    assert_eq!(published(offer(&mut loader, &bytes(&document(T2)))).number(), 2);
}

#[test]
fn an_older_not_before_is_refused_counted_once_and_reported_until_the_file_is_right_again() {
    let mut loader = loaded(T2);
    let older = bytes(&document(T1));
    let action = offer(&mut loader, &older);
    let (offered, held) = (time(T1), time(T2));
    assert!(
        matches!(action, Action::Keep(KeepReason::Older { offered: o, held: h }) if o == offered && h == held),
        "{action:?}"
    );
    let again = offer(&mut loader, &older);
    assert!(matches!(again, Action::Ignore(IgnoreReason::RefusedBefore)), "{again:?}");
    let state = health(&loader);
    assert_eq!(state.counts.refused_older, 1);
    assert!(state.warnings.contains(&HealthWarning::FileRefused { offered, held }));
    offer(&mut loader, &bytes(&document(T2)));
    let refused = |w: &HealthWarning| matches!(w, HealthWarning::FileRefused { .. });
    assert!(!health(&loader).warnings.iter().any(refused));
}

#[test]
fn unusable_content_keeps_the_old_credential_and_is_counted_once() {
    let mut loader = loaded(T1);
    let later = "2027-02-03T00:00:00Z";
    let action = offer(&mut loader, b"{\"client_id\": ");
    assert!(matches!(action, Action::Keep(KeepReason::Failed(_))), "{action:?}");
    let again = offer_at(&mut loader, b"{\"client_id\": ", time(later));
    assert!(matches!(again, Action::Ignore(IgnoreReason::UnusableBefore)), "{again:?}");
    let state = health(&loader);
    assert_eq!((state.counts.failed, state.counts.unchanged), (1, 1));
    let error = state.last_error.unwrap();
    assert_eq!(error.at, time(NOW));
    assert!(error.message.contains("cut short"), "{}", error.message);
    assert!(error.hint.contains("writer"), "{}", error.hint);
    assert_eq!(state.generation, 1);
    assert_eq!(published(offer(&mut loader, &bytes(&document(T2)))).number(), 2);
    assert_eq!(health(&loader).last_error, None);
    let back = offer(&mut loader, b"{\"client_id\": ");
    assert!(matches!(back, Action::Keep(KeepReason::Failed(_))), "{back:?}");
}

#[test]
fn the_health_says_what_is_wrong_with_content_that_came_back() {
    let mut loader = loaded(T1);
    offer(&mut loader, b"{");
    let wrong = health(&loader).last_error;
    loader.on(Event::Read(Err(gone())), time(NOW));
    assert_ne!(health(&loader).last_error, wrong);
    offer(&mut loader, b"{");
    assert_eq!(health(&loader).last_error, wrong);
}

#[test]
fn a_parser_that_was_stopped_is_asked_again() {
    let mut loader = loaded(T1);
    for failures in 1..=2 {
        let read = Event::Read(Ok(Content::new(bytes(&document(T2)))));
        assert!(matches!(loader.on(read, time(NOW)), Action::Parse(_)));
        let stopped = LoadError::Stopped { path: PathBuf::from("identity.json") };
        loader.on(Event::Parsed(Err(stopped)), time(NOW));
        assert_eq!(health(&loader).counts.failed, failures);
    }
}

#[test]
fn a_failure_is_over_once_the_old_content_is_back() {
    let mut loader = loaded(T1);
    loader.on(Event::Read(Err(gone())), time(NOW));
    assert!(health(&loader).last_error.is_some());
    offer(&mut loader, &bytes(&document(T1)));
    assert_eq!(health(&loader).last_error, None);
}

#[test]
fn an_ec_key_is_a_failure_that_says_why() {
    let mut loader = loaded(T1);
    let secret = fixture::client_secret(&[fixture::EC_PKCS8, fixture::EC]);
    offer(&mut loader, &with(T2, "client_secret", json!(secret)));
    let message = health(&loader).last_error.unwrap().message;
    assert!(message.contains("EC P-256"), "{message}");
}

#[test]
fn the_previous_generation_is_let_go_when_it_expires() {
    let mut loader = loaded(T1);
    published(offer(&mut loader, &bytes(&document(T2))));
    let expiry = time("2027-04-01T00:00:00Z");
    let second = jiff::SignedDuration::from_secs(1);
    loader.on(Event::BackstopTick, expiry - second);
    assert!(loader.previous().is_some());
    loader.on(Event::BackstopTick, expiry);
    assert!(loader.previous().is_none());
}

#[test]
fn a_rotation_that_changes_the_identity_is_reported() {
    let mut loader = loaded(T1);
    let mut other = document(T2);
    other["client_id"] = json!("44444444-4444-4444-8444-444444444444");
    other["authentication_endpoint"] = json!("https://login.other.example/");
    let generation = published(offer(&mut loader, &bytes(&other)));
    assert!(!generation.is_same_identity(loader.previous().unwrap()));
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
    let generation = fixture::generation(1, &document(T1), time(T1));
    let report = Report::default();
    let at = |now: &str| report.health(&generation, FOLLOWER, time(now));
    let state = at("2027-01-02T00:00:00Z");
    assert_eq!(state.seconds_to_not_after, Some(89 * 86_400));
    assert_eq!(state.seconds_to_renew_after, Some(44 * 86_400));
    assert_eq!(state.seconds_to_cannot_renew_after, Some(179 * 86_400));
    assert_eq!(state.warnings, []);
    let since = time("2027-02-15T00:00:00Z");
    assert_eq!(at("2027-02-15T00:00:00Z").warnings, [HealthWarning::RenewalDue { since }]);
    let from = time(T1);
    assert_eq!(at("2026-12-31T23:59:59Z").warnings, [HealthWarning::NotYetValid { from }]);
    let late = at("2027-07-01T00:00:00Z");
    assert_eq!(
        late.warnings,
        [
            HealthWarning::Expired { since: time("2027-04-01T00:00:00Z") },
            HealthWarning::RenewalImpossible { since: time("2027-06-30T00:00:00Z") },
        ]
    );
    assert_eq!(late.seconds_to_not_after, Some(-91 * 86_400));
}

#[test]
fn stamps_outside_the_certificates_dates_are_warned_about() {
    let mut placeholder = document("2020-01-01T00:00:00Z");
    placeholder["not_after"] = json!("2400-01-01T00:00:00Z");
    let generation = fixture::generation(1, &placeholder, time(T1));
    let validity = generation.certificate_validity();
    let warnings = Report::default().health(&generation, FOLLOWER, time(T1)).warnings;
    let stamp = time("2020-01-01T00:00:00Z");
    assert!(warnings.contains(&HealthWarning::CertificateStartsLater {
        stamp,
        certificate: validity.not_before
    }));
    let stamp = time("2400-01-01T00:00:00Z");
    assert!(warnings.contains(&HealthWarning::CertificateEndsEarlier {
        stamp,
        certificate: validity.not_after
    }));
    assert_eq!(generation.expires_at(), validity.not_after);
}

/// What the file may hold next in the random walks below; nothing if it cannot be read.
fn version() -> impl Strategy<Value = Option<Vec<u8>>> {
    let stamp = (0_u8..4).prop_map(|hour| format!("2027-01-01T{hour:02}:00:00Z"));
    let tenant = prop::sample::select(vec!["a.example", "b.example"]);
    prop_oneof![
        6 => (stamp, tenant)
            .prop_map(|(stamp, tenant)| Some(with(&stamp, "tenant_id", json!(tenant)))),
        1 => Just(Some(b"{\"client_id\"".to_vec())),
        1 => Just(Some(Vec::new())),
        1 => Just(None),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn not_before_never_goes_back_and_numbers_never_skip(
        versions in prop::collection::vec(version(), 1..12),
        strict in any::<bool>(),
    ) {
        let rule = if strict { EqualStamps::Refuse } else { EqualStamps::Take };
        let mut loader = Loader::new(rule);
        let mut newest: Option<Arc<Generation>> = None;
        let mut answers = 0;
        for content in &versions {
            let action = match content {
                Some(content) => offer(&mut loader, content),
                None => loader.on(Event::Read(Err(gone())), time(NOW)),
            };
            match action {
                Action::Publish(generation) => {
                    if let Some(before) = &newest {
                        prop_assert!(generation.not_before() >= before.not_before());
                        prop_assert!(!strict || generation.not_before() > before.not_before());
                        prop_assert_eq!(generation.number(), before.number() + 1);
                        prop_assert_ne!(generation.content_hash(), before.content_hash());
                    }
                    newest = Some(generation);
                }
                Action::Fail(_) => prop_assert!(newest.is_none()),
                Action::Ignore(_) | Action::Keep(_) => prop_assert!(newest.is_some()),
                Action::Read | Action::Parse(_) => prop_assert!(false, "unanswered"),
            }
            answers += 1;
            prop_assert_eq!(loader.current().map(|g| g.number()), newest.as_ref().map(|g| g.number()));
        }
        let counts = loader.report().counts;
        let counted = counts.published
            + counts.unchanged
            + counts.failed
            + counts.refused_older
            + counts.refused_equal;
        prop_assert_eq!(counted, answers);
    }
}
