//! One event for each transition, and none for anything else.

use super::*;

const DISK: Component = Component::Disk;

/// The events from one world to another: type and reason.
fn events(from: &World, to: &mut World) -> Vec<(EventType, String)> {
    let previous = from.status();
    to.previous = Some(previous.clone());
    let events = transitions(Some(&previous), &to.status());
    events.into_iter().map(|event| (event.event_type, event.reason)).collect()
}

fn one(event_type: EventType, reason: &str) -> Vec<(EventType, String)> {
    vec![(event_type, reason.to_owned())]
}

#[test]
fn a_restart_with_the_same_facts_tells_nothing() {
    let mut broken = World::good();
    broken.fail(DISK, Hop::Granted, "AuthorizationFailed");
    for world in [World::good(), broken] {
        assert_eq!(events(&world, &mut world.clone().later(60)), []);
    }
}

#[test]
fn an_identity_that_breaks_changes_its_reason_and_recovers_is_told_once_each() {
    let good = World::good();
    let mut broken = World::good();
    broken.fail(DISK, Hop::EntraToken, "AADSTS700027");
    assert_eq!(events(&good, &mut broken), one(EventType::Warning, "AADSTS700027"));
    let mut other = World::good();
    other.fail(DISK, Hop::Granted, "AuthorizationFailed");
    assert_eq!(events(&broken, &mut other), one(EventType::Warning, "AuthorizationFailed"));
    assert_eq!(events(&other, &mut World::good()), one(EventType::Normal, "IdentityReady"));
}

#[test]
fn an_event_names_the_identity_the_hop_and_the_next_step() {
    let mut broken = World::good();
    broken.fail(DISK, Hop::EntraToken, "AADSTS700027");
    let told = transitions(Some(&World::good().status()), &broken.status());
    assert_eq!(
        told[0].message,
        "identity `disk` is broken at `entra-token`: pod `azure-disk-csi-driver-controller`: what came back; next: do this"
    );
    assert_eq!(told[0].event_type.name(), "Warning");
}

#[test]
fn trouble_that_breaks_nothing_is_told_when_it_begins_and_when_it_ends() {
    let mut troubled = World::good();
    troubled.outcome(DISK, OutcomeCode::VaultThrottled);
    assert_eq!(events(&World::good(), &mut troubled), one(EventType::Warning, "VaultThrottled"));
    assert_eq!(events(&troubled, &mut World::good()), one(EventType::Normal, "IdentityReady"));
}

#[test]
fn knowing_less_is_news_and_not_yet_knowing_more_is_none() {
    let mut silent = World::good();
    silent.pod_of(DISK).canary = Facts::Absent;
    assert_eq!(events(&World::good(), &mut silent), one(EventType::Warning, "NotProven"));
    let mut gone = silent.clone();
    gone.pod_of(DISK).is_ready = false;
    assert_eq!(events(&silent, &mut gone), []);
    assert_eq!(events(&gone, &mut World::good()), one(EventType::Normal, "IdentityReady"));
}

#[test]
fn the_first_status_tells_what_is_known_and_no_more() {
    let mut world = World::good();
    world.pod_of(DISK).canary = Facts::Absent;
    world.fail(Component::File, Hop::Granted, "AuthorizationFailed");
    let told = transitions(None, &world.status());
    let warnings = told.iter().filter(|it| it.event_type == EventType::Warning).count();
    assert_eq!((told.len(), warnings), (8, 1));
    assert!(told.iter().all(|event| !event.message.contains("`disk`")));
}

#[test]
fn a_rotation_is_told_when_the_oldest_version_is_loaded_with_the_end_of_the_new_one() {
    let id = World::good().volume_of(DISK).objects[0].0.clone();
    let (pod, class) = (DISK.consumers()[0].deployment, DISK.facts().secret_provider_class);
    // The node tells it at once, and the canary when it has gone all its way.
    let mut mounted = World::good();
    *mounted.volume_of(DISK) = volume(pod, class, &id, "v2", stamps(10));
    assert_eq!(events(&World::good(), &mut mounted), []);
    let mut loaded = mounted.clone();
    loaded.load(DISK, 10);
    let told = transitions(Some(&mounted.status()), &loaded.status());
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].reason, "CredentialRotated");
    let end = stamps(10).2;
    assert!(
        told[0].message.ends_with(&format!("version v2 is loaded in every pod, valid until {end}"))
    );

    // Of two pods the one with the newer credential goes: that is no rotation.
    assert_eq!(events(&loaded, &mut World::good()), []);
}

#[test]
fn conditions_are_told_when_they_turn_bad_and_when_they_are_good_again() {
    let mut bad = World::good();
    bad.probe(Component::Kms, ProbeFacts::ENCRYPTION, false, "AzureError");
    assert_eq!(events(&World::good(), &mut bad), one(EventType::Warning, "AzureError"));
    let mut good = World::good();
    good.probe(Component::Kms, ProbeFacts::ENCRYPTION, true, "AsExpected");
    assert_eq!(events(&bad, &mut good), one(EventType::Normal, "ValidAzureKMSConfig"));
    assert_eq!(events(&good, &mut World::good()), []);
    assert_eq!(events(&bad, &mut World::good()), one(EventType::Warning, "StatusUnknown"));
}

#[test]
fn an_event_is_never_longer_than_the_api_takes() {
    let mut world = World::good();
    world.fail(DISK, Hop::Granted, "AuthorizationFailed");
    world.canary_of(DISK).failure.as_mut().unwrap().message = "ü".repeat(5_000);
    for event in transitions(None, &world.status()) {
        assert!(event.message.len() <= 1_024 && event.reason.len() <= 128);
    }
}
