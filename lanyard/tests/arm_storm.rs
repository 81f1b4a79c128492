//! Tests one hour of throttling by Azure Resource Manager or Entra in virtual time: nine canaries of one
//! hosted cluster against the local Azure, and the status that the operator derives from their facts.

#![cfg(all(feature = "canary", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "arm_storm/canary_fleet.rs"]
mod canary_fleet;
#[path = "support/virtual_time_azure.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod virtual_time_azure;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_canary::FailureThreshold;
use lanyard_clock::Clock as _;
use lanyard_desired::status::StatusTransition;
use lanyard_vocabulary::Component;
use serde_json::json;

use crate::canary_fleet::TestCanaryFleet;
use crate::virtual_time_azure::VirtualTimeAzure;

const ONE_MINUTE: Duration = Duration::from_mins(1);
/// The longest pause of a canary between requests without a `Retry-After` header.
const LONGEST_DEFAULT_PAUSE: Duration = Duration::from_mins(5);

/// The cluster with the status that the operator reports, minute by minute.
struct ThrottlingFixture {
    azure: VirtualTimeAzure,
    canary_fleet: TestCanaryFleet,
    status: Option<HostedClusterIdentitiesStatus>,
    transitions: Vec<StatusTransition>,
}

impl ThrottlingFixture {
    async fn start() -> Self {
        let azure = VirtualTimeAzure::start().await;
        let canary_fleet = TestCanaryFleet::start_all(&azure).await;
        let mut fixture = Self { azure, canary_fleet, status: None, transitions: Vec::new() };
        fixture.advance_minutes(12, |_| ()).await;
        fixture
    }

    /// Advances the time minute by minute, and checks the status after each minute.
    async fn advance_minutes(
        &mut self,
        minutes: usize,
        check: impl Fn(&HostedClusterIdentitiesStatus),
    ) {
        for _ in 0..minutes {
            self.azure.advance(ONE_MINUTE).await;
            let now = self.canary_fleet.status(self.azure.clock.now(), self.status.as_ref());
            let transitions =
                lanyard_desired::status::status_transitions(self.status.as_ref(), &now);
            self.transitions.extend(transitions);
            check(&now);
            self.status = Some(now);
        }
    }

    fn reasons(&self) -> BTreeMap<Component, String> {
        let identities = &self.status.as_ref().unwrap().identities;
        let reason = |component: Component| {
            let found = identities.iter().find(|it| it.component == component.name()).unwrap();
            (component, found.reason.clone())
        };
        Component::ALL.into_iter().map(reason).collect()
    }
}

/// The readiness values of a status, without messages and times.
fn readiness_values(status: &HostedClusterIdentitiesStatus) -> Vec<(String, String)> {
    let identities = status.identities.iter().map(|it| (it.component.clone(), it.ready.clone()));
    let conditions = status.conditions.iter().map(|it| (it.type_.clone(), it.status.clone()));
    identities.chain(conditions).collect()
}

fn calls_arm(component: Component) -> bool {
    component != Component::Kms
}

/// The number of requests to ARM in each interval since a time.
fn requests_per_interval(
    times: &[Timestamp],
    since: Timestamp,
    part: Duration,
    parts: usize,
) -> Vec<usize> {
    let number = |at: &&Timestamp| {
        let passed = Duration::try_from(at.duration_since(since)).unwrap();
        usize::try_from(passed.as_secs() / part.as_secs()).unwrap()
    };
    (0..parts).map(|part| times.iter().filter(|at| number(at) == part).count()).collect()
}

async fn arm_throttling(retry_after: u32, most: usize) {
    let mut fixture = ThrottlingFixture::start().await;
    let baseline = readiness_values(fixture.status.as_ref().unwrap());
    assert!(baseline.iter().all(|(_, verdict)| verdict == "True"), "{baseline:?}");
    assert!(fixture.reasons().values().all(|reason| reason == "AsExpected"));
    fixture.transitions.clear();
    let tokens = fixture.azure.requests("entra", fixture.azure.clock.now() - 11 * ONE_MINUTE).len();

    // For one hour, ARM throttles every request.
    let begins = fixture.azure.clock.now();
    let effect = json!({"type": "throttle", "retryAfter": retry_after});
    let rule = json!({"name": "storm", "service": "arm", "seconds": 3_600, "effect": effect});
    fixture.azure.change("POST", "faults", &rule.to_string()).await;
    fixture
        .advance_minutes(2, |status| {
            assert_eq!(readiness_values(status), baseline, "readiness is unchanged");
        })
        .await;
    // With a long Retry-After, the status reports the throttling before the next request.
    let is_reported = fixture.reasons()[&Component::Disk] == "TooManyRequests";
    assert_eq!(
        is_reported,
        Duration::from_secs(retry_after.into()) >= FailureThreshold::HOPS.duration
    );
    fixture
        .advance_minutes(28, |status| {
            assert_eq!(readiness_values(status), baseline, "readiness is unchanged");
        })
        .await;
    // A new pod has proven nothing, but its identity was proven earlier, with the same certificate.
    fixture.canary_fleet.replace_pod(&fixture.azure, Component::Disk);
    fixture
        .advance_minutes(30, |status| {
            assert_eq!(readiness_values(status), baseline, "readiness is unchanged");
        })
        .await;
    for (component, reason) in fixture.reasons() {
        let expected = if calls_arm(component) { "TooManyRequests" } else { "AsExpected" };
        assert_eq!(reason, expected, "{component}");
    }
    let asked = fixture.azure.requests("arm", begins);
    let parts = requests_per_interval(&asked, begins, 20 * ONE_MINUTE, 3);
    assert!(asked.len() <= most, "{} requests in the hour", asked.len());
    assert!(parts[0] > parts[1].max(parts[2]), "the pauses grow: {parts:?}");
    let tokens_of_hour = fixture.azure.requests("entra", begins).len();
    assert!(tokens_of_hour <= 6 * tokens + 9, "{tokens_of_hour} tokens, {tokens} in ten minutes");
    let vault = fixture.azure.requests("key-vault", begins).len();
    assert!(vault >= 50, "the call of the key's identity goes on: {vault}");

    // After the throttling ends, the status recovers within two rounds after the longest pause. Pauses of
    // probes are up to an eighth longer.
    let longest = LONGEST_DEFAULT_PAUSE.max(Duration::from_secs(retry_after.into())).mul_f64(1.125);
    let minutes = 2 + usize::try_from(longest.as_secs().div_ceil(ONE_MINUTE.as_secs())).unwrap();
    fixture.advance_minutes(minutes, |status| assert_eq!(readiness_values(status), baseline)).await;
    assert!(
        fixture.reasons().values().all(|reason| reason == "AsExpected"),
        "{:?}",
        fixture.reasons()
    );
    fixture.advance_minutes(20, |status| assert_eq!(readiness_values(status), baseline)).await;

    // The start and the end of the throttling were reported once for each identity.
    let count = |reason: &str| fixture.transitions.iter().filter(|it| it.reason == reason).count();
    assert_eq!(
        (count("TooManyRequests"), count("IdentityReady")),
        (8, 8),
        "{:?}",
        fixture.transitions
    );
    assert_eq!(fixture.transitions.len(), 16, "{:?}", fixture.transitions);
    for component in Component::ALL {
        assert_eq!(
            fixture.canary_fleet.token_lapses(component),
            0,
            "{component} had a token all the time"
        );
        let writes = fixture.canary_fleet.annotation_writes(component);
        // The first facts, one or two probes, and two changes for the throttling.
        assert!(writes <= 9, "{component} wrote its annotation {writes} times");
    }
    fixture.azure.shutdown().await;
}

#[test]
fn one_hour_of_arm_throttling_keeps_readiness_with_few_requests() {
    // An hour without throttling has about 500 requests, this one about 110.
    virtual_time_azure::run_in_virtual_time(arm_throttling(7, 130));
}

#[test]
fn arm_throttling_with_retry_after_of_15_minutes_keeps_readiness() {
    virtual_time_azure::run_in_virtual_time(arm_throttling(900, 45));
}

#[test]
fn arm_throttling_with_retry_after_of_one_hour_keeps_readiness() {
    virtual_time_azure::run_in_virtual_time(arm_throttling(3_600, 12));
}

/// A certificate is rotated while Entra throttles, or during an Entra outage after which Entra throttles.
async fn rotation_while_entra_throttles(comes_in_brownout: bool) {
    let mut fixture = ThrottlingFixture::start().await;
    let baseline = readiness_values(fixture.status.as_ref().unwrap());
    assert!(baseline.iter().all(|(_, verdict)| verdict == "True"), "{baseline:?}");
    fixture.transitions.clear();
    let disk = |status: &HostedClusterIdentitiesStatus| {
        let name = Component::Disk.name();
        status.identities.iter().find(|it| it.component == name).unwrap().clone()
    };
    let before = disk(fixture.status.as_ref().unwrap());

    let rule =
        |effect| json!({"name": "storm", "service": "entra", "seconds": 2_400, "effect": effect});
    let throttle = rule(json!({"type": "throttle", "retryAfter": 7})).to_string();
    let brownout = rule(json!({"type": "status", "status": 503})).to_string();
    let first = if comes_in_brownout { &brownout } else { &throttle };
    fixture.azure.change("POST", "faults", first).await;
    if !comes_in_brownout {
        fixture
            .advance_minutes(5, |status| {
                assert_eq!(readiness_values(status), baseline, "every token stays valid");
            })
            .await;
    }
    let component = json!({"component": Component::Disk.name()});
    fixture.azure.change("POST", "rotate", &component.to_string()).await;
    fixture.canary_fleet.rewrite_credential_file(&fixture.azure, Component::Disk).await;
    if comes_in_brownout {
        // A temporary error changes neither the status of the old certificate nor that of the new one.
        fixture.advance_minutes(2, |status| assert_eq!(disk(status), before)).await;
        fixture.azure.change("POST", "faults", &throttle).await;
    }
    // It is unknown whether Entra accepts the new certificate, so the status is `Unknown`; the status of the
    // other identities is unchanged.
    fixture
        .advance_minutes(30, |status| {
            let now = disk(status);
            let is_renewed = now.not_after != before.not_after;
            assert_eq!(now.ready, if is_renewed { "Unknown" } else { "True" }, "{}", now.message);
            let others = status.identities.iter().filter(|it| it.component != now.component);
            assert!(others.into_iter().all(|it| it.ready == "True"));
        })
        .await;
    let now = disk(fixture.status.as_ref().unwrap());
    assert_ne!(now.not_after, before.not_after, "the new certificate is loaded");
    assert_eq!(
        (now.reason.as_str(), now.last_good_hop.as_deref()),
        ("NotProven", Some("credential"))
    );
    let count = |fixture: &ThrottlingFixture, reason: &str| {
        fixture.transitions.iter().filter(|it| it.reason == reason).count()
    };
    assert_eq!(count(&fixture, "NotProven"), 1, "{:?}", fixture.transitions);
    assert_eq!(count(&fixture, "CredentialRotated"), 0, "{:?}", fixture.transitions);

    // The throttling ends, Entra accepts the certificate, and all identities are ready.
    fixture.advance_minutes(19, |_| ()).await;
    assert_eq!(readiness_values(fixture.status.as_ref().unwrap()), baseline);
    assert!(
        fixture.reasons().values().all(|reason| reason == "AsExpected"),
        "{:?}",
        fixture.reasons()
    );
    assert_eq!(
        fixture.canary_fleet.token_lapses(Component::Disk),
        0,
        "the previous token stayed valid"
    );
    fixture.azure.shutdown().await;
}

#[test]
fn certificate_rotated_during_entra_throttling_is_unproven_until_accepted() {
    virtual_time_azure::run_in_virtual_time(rotation_while_entra_throttles(false));
}

#[test]
fn certificate_rotated_during_entra_outage_is_unproven_until_accepted() {
    virtual_time_azure::run_in_virtual_time(rotation_while_entra_throttles(true));
}
