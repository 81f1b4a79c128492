//! The status while a service throttles requests.

use super::*;

const DISK: Component = Component::Disk;

#[test]
fn throttled_identity_keeps_its_status_with_the_reason() {
    let throttled = HopFailure {
        hop: "granted".to_owned(),
        code: "TooManyRequests".to_owned(),
        message: "throttled".to_owned(),
        hint: "wait".to_owned(),
        since: noon(),
    };
    let mut world = StatusFixture::all_ready();
    world.canary_report_of(DISK).throttled = Some(throttled.clone());
    let identity = world.identity_status(DISK);
    assert_eq!(
        identity_summary(&identity),
        ("True", "TooManyRequests", Some("granted"), Some("granted"))
    );
    assert!(identity.message.ends_with("throttled; next: wait"), "{}", identity.message);

    // The node's failure takes precedence: a new pod may get no credential.
    world.report_outcome(DISK, OutcomeCode::VaultThrottled);
    assert_eq!(world.identity_status(DISK).reason, "VaultThrottled");

    // A canary that started during the throttling has proven nothing yet.
    let mut world = StatusFixture::all_ready();
    let canary = world.canary_report_of(DISK);
    (canary.last_good_hop, canary.throttled) = (Some("entra-token".to_owned()), Some(throttled));
    let identity = world.identity_status(DISK);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("Unknown", "NotProven"));
    assert!(identity.message.contains("throttled"), "{}", identity.message);

    let mut world = StatusFixture::all_ready();
    world.report_canary_failure(DISK, Hop::EntraToken, "AADSTS700027");
    world.canary_report_of(DISK).throttled = Some(HopFailure::default());
    assert_eq!(world.identity_status(DISK).reason, "AADSTS700027", "it hides nothing");
}

#[test]
fn throttled_rollout_keeps_status_of_the_same_credential() {
    let throttled = || HopFailure { code: "TooManyRequests".to_owned(), ..HopFailure::default() };
    let storm = || {
        let mut world = StatusFixture::all_ready();
        world.previous_status = Some(world.status());
        let canary = world.canary_report_of(DISK);
        canary.last_good_hop = Some("entra-token".to_owned());
        canary.throttled = Some(throttled());
        world
    };
    let mut world = storm();
    let identity = world.identity_status(DISK);
    assert_eq!((identity.ready.as_str(), identity.reason.as_str()), ("True", "TooManyRequests"));
    assert_eq!(identity.last_good_hop.as_deref(), Some("granted"));
    // The status stays the same, however often it is computed.
    world.previous_status = Some(world.status());
    assert_eq!(world.identity_status(DISK), identity);

    // The status is not kept for another credential, without throttling, or if nothing was proven.
    let mut renewed = storm();
    renewed.load_credential(DISK, 1);
    let mut silent = storm();
    silent.canary_report_of(DISK).throttled = None;
    let mut unproven = storm();
    let all = &mut unproven.previous_status.as_mut().unwrap().identities;
    let known = all.iter_mut().find(|it| it.component == DISK.name()).unwrap();
    known.ready = "Unknown".to_owned();
    for world in [renewed, silent, unproven] {
        assert_eq!(world.identity_status(DISK).reason, "NotProven");
    }
}

#[test]
fn throttled_probe_keeps_its_last_result() {
    let mut world = StatusFixture::all_ready();
    let network_probe = |reason: &str| CanaryProbeReport {
        name: CanaryProbeReport::NETWORK_PROBE.to_owned(),
        good: true,
        reason: reason.to_owned(),
        message: "all are in westeurope".to_owned(),
        hint: String::new(),
        since: noon(),
    };
    world.canary_report_of(Component::ControlPlaneOperator).probes =
        vec![network_probe("AsExpected")];
    let before = world.status();
    assert_eq!(
        world.condition(VALID_NETWORK),
        condition_content("True", "AsExpected", "All is well")
    );
    world.canary_report_of(Component::ControlPlaneOperator).probes =
        vec![network_probe("TooManyRequests")];
    let expected_condition = condition_content("True", "TooManyRequests", "all are in westeurope");
    assert_eq!(world.condition(VALID_NETWORK), expected_condition);
    assert_eq!(status_transitions(Some(&before), &world.status()), []);
}

#[test]
fn unthrottled_encryption_probe_takes_precedence() {
    for (throttled, other) in [
        (Component::Kms, Component::ControlPlaneOperator),
        (Component::ControlPlaneOperator, Component::Kms),
    ] {
        let mut world = StatusFixture::all_ready();
        world.report_probe(throttled, CanaryProbeReport::ENCRYPTION_PROBE, true, "TooManyRequests");
        let message = format!("{throttled} reports encryption");
        let expected = condition_content("True", "TooManyRequests", &message);
        assert_eq!(world.condition(VALID_KMS_CONFIG), expected);
        world.report_probe(other, CanaryProbeReport::ENCRYPTION_PROBE, true, "AsExpected");
        assert_eq!(
            world.condition(VALID_KMS_CONFIG),
            condition_content("True", "AsExpected", "All is well")
        );
        world.report_probe(other, CanaryProbeReport::ENCRYPTION_PROBE, false, "AzureError");
        assert_eq!(world.condition(VALID_KMS_CONFIG).0, "False");
    }
}
