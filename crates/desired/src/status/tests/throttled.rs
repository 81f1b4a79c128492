//! What is told while a service throttles.

use super::*;

const DISK: Component = Component::Disk;

#[test]
fn what_is_throttled_stays_as_it_was_and_says_why_nobody_asks() {
    let throttled = HopFailure {
        hop: "granted".to_owned(),
        code: "TooManyRequests".to_owned(),
        message: "throttled".to_owned(),
        hint: "wait".to_owned(),
        since: noon(),
    };
    let mut world = World::good();
    world.canary_of(DISK).throttled = Some(throttled.clone());
    let identity = world.identity(DISK);
    assert_eq!(said(&identity), ("True", "TooManyRequests", Some("granted"), Some("granted")));
    assert!(identity.message.ends_with("throttled; next: wait"), "{}", identity.message);

    // What the node says is worse: a pod that starts now may get no credential.
    world.outcome(DISK, OutcomeCode::VaultThrottled);
    assert_eq!(world.identity(DISK).reason, "VaultThrottled");

    // A canary that began in the middle has proven nothing yet.
    let mut world = World::good();
    let canary = world.canary_of(DISK);
    (canary.last_good_hop, canary.throttled) = (Some("entra-token".to_owned()), Some(throttled));
    let identity = world.identity(DISK);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("Unknown", "NotProven"));
    assert!(identity.message.contains("throttled"), "{}", identity.message);

    let mut world = World::good();
    world.fail(DISK, Hop::EntraToken, "AADSTS700027");
    world.canary_of(DISK).throttled = Some(HopFailure::default());
    assert_eq!(world.identity(DISK).reason, "AADSTS700027", "it hides nothing");
}

#[test]
fn a_rollout_while_a_service_throttles_takes_back_nothing_of_the_same_credential() {
    let throttled = || HopFailure { code: "TooManyRequests".to_owned(), ..HopFailure::default() };
    let storm = || {
        let mut world = World::good();
        world.previous = Some(world.status());
        let canary = world.canary_of(DISK);
        canary.last_good_hop = Some("entra-token".to_owned());
        canary.throttled = Some(throttled());
        world
    };
    let mut world = storm();
    let identity = world.identity(DISK);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("True", "TooManyRequests"));
    assert_eq!(identity.last_good_hop.as_deref(), Some("granted"));
    // It stands on what stood there, however often it is looked at.
    world.previous = Some(world.status());
    assert_eq!(world.identity(DISK), identity);

    // Nothing is known of another credential; nor where nobody throttles, or nothing was proven.
    let mut renewed = storm();
    renewed.load(DISK, 1);
    let mut silent = storm();
    silent.canary_of(DISK).throttled = None;
    let mut unproven = storm();
    let all = &mut unproven.previous.as_mut().unwrap().identities;
    let known = all.iter_mut().find(|it| it.component == DISK.name()).unwrap();
    known.ready = "Unknown".to_owned();
    for world in [renewed, silent, unproven] {
        assert_eq!(world.identity(DISK).reason, "NotProven");
    }
}

#[test]
fn a_probe_that_is_throttled_says_what_it_found_before_and_that_nobody_looks() {
    let mut world = World::good();
    let told = |reason: &str| ProbeFacts {
        name: ProbeFacts::NETWORK.to_owned(),
        good: true,
        reason: reason.to_owned(),
        message: "all are in westeurope".to_owned(),
        hint: String::new(),
        since: noon(),
    };
    world.canary_of(Component::ControlPlaneOperator).probes = vec![told("AsExpected")];
    let before = world.status();
    assert_eq!(world.condition(VALID_NETWORK), triple("True", "AsExpected", "All is well"));
    world.canary_of(Component::ControlPlaneOperator).probes = vec![told("TooManyRequests")];
    let said = triple("True", "TooManyRequests", "all are in westeurope");
    assert_eq!(world.condition(VALID_NETWORK), said);
    assert_eq!(transitions(Some(&before), &world.status()), []);
}

#[test]
fn of_two_probes_of_the_key_one_that_may_ask_speaks_before_one_that_is_throttled() {
    for (throttled, other) in [
        (Component::Kms, Component::ControlPlaneOperator),
        (Component::ControlPlaneOperator, Component::Kms),
    ] {
        let mut world = World::good();
        world.probe(throttled, ProbeFacts::ENCRYPTION, true, "TooManyRequests");
        let message = format!("{throttled} tells of encryption");
        let told = triple("True", "TooManyRequests", &message);
        assert_eq!(world.condition(VALID_KMS_CONFIG), told);
        world.probe(other, ProbeFacts::ENCRYPTION, true, "AsExpected");
        assert_eq!(world.condition(VALID_KMS_CONFIG), triple("True", "AsExpected", "All is well"));
        world.probe(other, ProbeFacts::ENCRYPTION, false, "AzureError");
        assert_eq!(world.condition(VALID_KMS_CONFIG).0, "False");
    }
}
