//! Each transition emits one event; anything else emits none.

use super::*;

const DISK: Component = Component::Disk;

/// Returns type and reason of the events between two fixtures.
fn events_between(from: &StatusFixture, to: &mut StatusFixture) -> Vec<(EventType, String)> {
    let previous = from.status();
    to.previous_status = Some(previous.clone());
    let events = status_transitions(Some(&previous), &to.status());
    events.into_iter().map(|event| (event.event_type, event.reason)).collect()
}

fn single_event(event_type: EventType, reason: &str) -> Vec<(EventType, String)> {
    vec![(event_type, reason.to_owned())]
}

#[test]
fn restart_with_unchanged_reports_emits_no_event() {
    let mut broken = StatusFixture::all_ready();
    broken.report_canary_failure(DISK, Hop::Granted, "AuthorizationFailed");
    for world in [StatusFixture::all_ready(), broken] {
        assert_eq!(events_between(&world, &mut world.clone().advanced_by_minutes(60)), []);
    }
}

#[test]
fn break_reason_change_and_recovery_emit_one_event_each() {
    let good = StatusFixture::all_ready();
    let mut broken = StatusFixture::all_ready();
    broken.report_canary_failure(DISK, Hop::EntraToken, "AADSTS700027");
    assert_eq!(
        events_between(&good, &mut broken),
        single_event(EventType::Warning, "AADSTS700027")
    );
    let mut other = StatusFixture::all_ready();
    other.report_canary_failure(DISK, Hop::Granted, "AuthorizationFailed");
    assert_eq!(
        events_between(&broken, &mut other),
        single_event(EventType::Warning, "AuthorizationFailed")
    );
    assert_eq!(
        events_between(&other, &mut StatusFixture::all_ready()),
        single_event(EventType::Normal, "IdentityReady")
    );
}

#[test]
fn an_event_names_the_identity_the_hop_and_the_next_step() {
    let mut broken = StatusFixture::all_ready();
    broken.report_canary_failure(DISK, Hop::EntraToken, "AADSTS700027");
    let events = status_transitions(Some(&StatusFixture::all_ready().status()), &broken.status());
    assert_eq!(
        events[0].message,
        "identity `disk` is broken at `entra-token`: pod `azure-disk-csi-driver-controller`: what came back; next: do this"
    );
    assert_eq!(events[0].event_type.name(), "Warning");
}

#[test]
fn non_breaking_failure_emits_events_at_start_and_end() {
    let mut troubled = StatusFixture::all_ready();
    troubled.report_outcome(DISK, OutcomeCode::VaultThrottled);
    assert_eq!(
        events_between(&StatusFixture::all_ready(), &mut troubled),
        single_event(EventType::Warning, "VaultThrottled")
    );
    assert_eq!(
        events_between(&troubled, &mut StatusFixture::all_ready()),
        single_event(EventType::Normal, "IdentityReady")
    );
}

#[test]
fn transition_to_unknown_emits_event_but_initial_unknown_does_not() {
    let mut silent = StatusFixture::all_ready();
    silent.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    assert_eq!(
        events_between(&StatusFixture::all_ready(), &mut silent),
        single_event(EventType::Warning, "NotProven")
    );
    let mut gone = silent.clone();
    gone.pod_of_component(DISK).is_ready = false;
    assert_eq!(events_between(&silent, &mut gone), []);
    assert_eq!(
        events_between(&gone, &mut StatusFixture::all_ready()),
        single_event(EventType::Normal, "IdentityReady")
    );
}

#[test]
fn first_status_emits_events_for_known_states_only() {
    let mut world = StatusFixture::all_ready();
    world.pod_of_component(DISK).canary_report = StatusReportAnnotation::Absent;
    world.report_canary_failure(Component::File, Hop::Granted, "AuthorizationFailed");
    let events = status_transitions(None, &world.status());
    let warnings = events.iter().filter(|it| it.event_type == EventType::Warning).count();
    assert_eq!((events.len(), warnings), (8, 1));
    assert!(events.iter().all(|event| !event.message.contains("`disk`")));
}

#[test]
fn rotation_event_waits_until_every_pod_loaded_the_version() {
    let id = StatusFixture::all_ready().volume_of_component(DISK).objects[0].0.clone();
    let (pod, class) = (DISK.consumers()[0].deployment, DISK.definition().secret_provider_class);
    // The node reports the version immediately, the canary after all hops.
    let mut mounted = StatusFixture::all_ready();
    *mounted.volume_of_component(DISK) =
        observed_volume(pod, class, &id, "v2", credential_timestamps(10));
    assert_eq!(events_between(&StatusFixture::all_ready(), &mut mounted), []);
    let mut loaded = mounted.clone();
    loaded.load_credential(DISK, 10);
    let events = status_transitions(Some(&mounted.status()), &loaded.status());
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].reason, "CredentialRotated");
    let end = credential_timestamps(10).2;
    assert!(
        events[0]
            .message
            .ends_with(&format!("version v2 is loaded in every pod, valid until {end}"))
    );

    // Deleting the pod with the newer credential is no rotation.
    assert_eq!(events_between(&loaded, &mut StatusFixture::all_ready()), []);
}

#[test]
fn conditions_emit_events_on_failure_and_recovery() {
    let mut bad = StatusFixture::all_ready();
    bad.report_probe(Component::Kms, CanaryProbeReport::ENCRYPTION_PROBE, false, "AzureError");
    assert_eq!(
        events_between(&StatusFixture::all_ready(), &mut bad),
        single_event(EventType::Warning, "AzureError")
    );
    let mut good = StatusFixture::all_ready();
    good.report_probe(Component::Kms, CanaryProbeReport::ENCRYPTION_PROBE, true, "AsExpected");
    assert_eq!(
        events_between(&bad, &mut good),
        single_event(EventType::Normal, "ValidAzureKMSConfig")
    );
    assert_eq!(events_between(&good, &mut StatusFixture::all_ready()), []);
    assert_eq!(
        events_between(&bad, &mut StatusFixture::all_ready()),
        single_event(EventType::Warning, "StatusUnknown")
    );
}

#[test]
fn an_event_is_never_longer_than_the_api_takes() {
    let mut world = StatusFixture::all_ready();
    world.report_canary_failure(DISK, Hop::Granted, "AuthorizationFailed");
    world.canary_report_of(DISK).failure.as_mut().unwrap().message = "ü".repeat(5_000);
    for event in status_transitions(None, &world.status()) {
        assert!(event.message.len() <= 1_024 && event.reason.len() <= 128);
    }
}
