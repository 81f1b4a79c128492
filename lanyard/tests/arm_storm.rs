//! An hour in which Azure Resource Manager, or Entra, throttles everybody, in virtual time: nine
//! canaries of one hosted cluster against the local Azure, and what the operator makes of their facts.

#![cfg(all(feature = "canary", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "arm_storm/azure.rs"]
mod azure;
#[path = "arm_storm/canary_fleet.rs"]
mod canary_fleet;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_canary::FailureThreshold;
use lanyard_clock::Clock as _;
use lanyard_desired::status::StatusTransition;
use lanyard_vocabulary::Component;
use serde_json::json;

use crate::azure::VirtualTimeAzure;
use crate::canary_fleet::TestCanaryFleet;

const ONE_MINUTE: Duration = Duration::from_mins(1);
/// The longest pause of a canary that nobody asked for.
const LONGEST_DEFAULT_PAUSE: Duration = Duration::from_mins(5);

/// The cluster as the operator tells it, minute by minute.
struct ThrottlingFixture {
    azure: VirtualTimeAzure,
    canary_fleet: TestCanaryFleet,
    status: Option<HostedClusterIdentitiesStatus>,
    transitions: Vec<StatusTransition>,
}

impl ThrottlingFixture {
    async fn start() -> Self {
        let azure = VirtualTimeAzure::start().await;
        let flock = TestCanaryFleet::start_all(&azure).await;
        let mut watched =
            Self { azure, canary_fleet: flock, status: None, transitions: Vec::new() };
        watched.advance_minutes(12, |_| ()).await;
        watched
    }

    /// Lets minutes pass, and looks after each.
    async fn advance_minutes(
        &mut self,
        minutes: usize,
        look: impl Fn(&HostedClusterIdentitiesStatus),
    ) {
        for _ in 0..minutes {
            self.azure.advance(ONE_MINUTE).await;
            let now = self.canary_fleet.status(self.azure.clock.now(), self.status.as_ref());
            let told = lanyard_desired::status::status_transitions(self.status.as_ref(), &now);
            self.transitions.extend(told);
            look(&now);
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

/// What a status says, without words and times.
fn readiness_values(status: &HostedClusterIdentitiesStatus) -> Vec<(String, String)> {
    let identities = status.identities.iter().map(|it| (it.component.clone(), it.ready.clone()));
    let conditions = status.conditions.iter().map(|it| (it.type_.clone(), it.status.clone()));
    identities.chain(conditions).collect()
}

fn calls_arm(component: Component) -> bool {
    component != Component::Kms
}

/// How many requests reached ARM in each part of the time since then.
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
    let mut watched = ThrottlingFixture::start().await;
    let calm = readiness_values(watched.status.as_ref().unwrap());
    assert!(calm.iter().all(|(_, verdict)| verdict == "True"), "{calm:?}");
    assert!(watched.reasons().values().all(|reason| reason == "AsExpected"));
    watched.transitions.clear();
    let tokens = watched.azure.requests("entra", watched.azure.clock.now() - 11 * ONE_MINUTE).len();

    // For an hour every request to ARM is throttled, whoever asks.
    let begins = watched.azure.clock.now();
    let effect = json!({"type": "throttle", "retry_after": retry_after});
    let rule = json!({"name": "storm", "service": "arm", "seconds": 3_600, "effect": effect});
    watched.azure.change("POST", "faults", &rule.to_string()).await;
    watched
        .advance_minutes(2, |status| {
            assert_eq!(readiness_values(status), calm, "nothing is taken back")
        })
        .await;
    // Who is to be left alone for long is told of before it is asked again.
    let is_told = watched.reasons()[&Component::Disk] == "TooManyRequests";
    assert_eq!(is_told, Duration::from_secs(retry_after.into()) >= FailureThreshold::HOPS.duration);
    watched
        .advance_minutes(28, |status| {
            assert_eq!(readiness_values(status), calm, "nothing is taken back")
        })
        .await;
    // A pod that is new has proven nothing; its identity was, with the same certificate.
    watched.canary_fleet.replace_pod(&watched.azure, Component::Disk);
    watched
        .advance_minutes(30, |status| {
            assert_eq!(readiness_values(status), calm, "nothing is taken back")
        })
        .await;
    for (component, reason) in watched.reasons() {
        let expected = if calls_arm(component) { "TooManyRequests" } else { "AsExpected" };
        assert_eq!(reason, expected, "{component}");
    }
    let asked = watched.azure.requests("arm", begins);
    let parts = requests_per_interval(&asked, begins, 20 * ONE_MINUTE, 3);
    assert!(asked.len() <= most, "{} requests in the hour", asked.len());
    assert!(parts[0] > parts[1].max(parts[2]), "the pauses grow: {parts:?}");
    let tokens_of_hour = watched.azure.requests("entra", begins).len();
    assert!(tokens_of_hour <= 6 * tokens + 9, "{tokens_of_hour} tokens, {tokens} in ten minutes");
    let vault = watched.azure.requests("key-vault", begins).len();
    assert!(vault >= 50, "the call of the key's identity goes on: {vault}");

    // It ends, and all is as it was two rounds after the last pause: those of probes are up to a
    // tenth longer.
    let longest = LONGEST_DEFAULT_PAUSE.max(Duration::from_secs(retry_after.into())).mul_f64(1.1);
    let minutes = 2 + usize::try_from(longest.as_secs().div_ceil(ONE_MINUTE.as_secs())).unwrap();
    watched.advance_minutes(minutes, |status| assert_eq!(readiness_values(status), calm)).await;
    assert!(
        watched.reasons().values().all(|reason| reason == "AsExpected"),
        "{:?}",
        watched.reasons()
    );
    watched.advance_minutes(20, |status| assert_eq!(readiness_values(status), calm)).await;

    // Everybody was told once that it began and once that it ended.
    let count = |reason: &str| watched.transitions.iter().filter(|it| it.reason == reason).count();
    assert_eq!(
        (count("TooManyRequests"), count("IdentityReady")),
        (8, 8),
        "{:?}",
        watched.transitions
    );
    assert_eq!(watched.transitions.len(), 16, "{:?}", watched.transitions);
    for component in Component::ALL {
        assert_eq!(
            watched.canary_fleet.token_lapses(component),
            0,
            "{component} had a token all the time"
        );
        let told = watched.canary_fleet.annotation_writes(component);
        // The first facts, one or two probes, and two changes for the storm.
        assert!(told <= 9, "{component} told {told} times");
    }
    watched.azure.shutdown().await;
}

#[test]
fn one_hour_of_arm_throttling_keeps_readiness_with_few_requests() {
    // A calm hour takes about 500, and this one about 110.
    azure::run_in_virtual_time(arm_throttling(7, 130));
}

#[test]
fn arm_throttling_with_retry_after_of_15_minutes_keeps_readiness() {
    azure::run_in_virtual_time(arm_throttling(900, 45));
}

#[test]
fn arm_throttling_with_retry_after_of_one_hour_keeps_readiness() {
    azure::run_in_virtual_time(arm_throttling(3_600, 12));
}

/// A certificate comes while Entra throttles; or in a brownout, after which Entra throttles.
async fn rotation_while_entra_throttles(comes_in_brownout: bool) {
    let mut watched = ThrottlingFixture::start().await;
    let calm = readiness_values(watched.status.as_ref().unwrap());
    assert!(calm.iter().all(|(_, verdict)| verdict == "True"), "{calm:?}");
    watched.transitions.clear();
    let disk = |status: &HostedClusterIdentitiesStatus| {
        let name = Component::Disk.name();
        status.identities.iter().find(|it| it.component == name).unwrap().clone()
    };
    let before = disk(watched.status.as_ref().unwrap());

    let rule =
        |effect| json!({"name": "storm", "service": "entra", "seconds": 2_400, "effect": effect});
    let throttle = rule(json!({"type": "throttle", "retry_after": 7})).to_string();
    let brownout = rule(json!({"type": "status", "status": 503})).to_string();
    let first = if comes_in_brownout { &brownout } else { &throttle };
    watched.azure.change("POST", "faults", first).await;
    if !comes_in_brownout {
        watched
            .advance_minutes(5, |status| {
                assert_eq!(readiness_values(status), calm, "every token serves on")
            })
            .await;
    }
    let component = json!({"component": Component::Disk.name()});
    watched.azure.change("POST", "rotate", &component.to_string()).await;
    watched.canary_fleet.rewrite_credential_file(&watched.azure, Component::Disk).await;
    if comes_in_brownout {
        // Trouble that may pass says nothing, neither of the old certificate nor of the new one.
        watched.advance_minutes(2, |status| assert_eq!(disk(status), before)).await;
        watched.azure.change("POST", "faults", &throttle).await;
    }
    // Nobody knows whether Entra takes the new certificate, so nobody says so; the others are as
    // they were.
    watched
        .advance_minutes(30, |status| {
            let now = disk(status);
            let is_renewed = now.not_after != before.not_after;
            assert_eq!(now.ready, if is_renewed { "Unknown" } else { "True" }, "{}", now.message);
            let others = status.identities.iter().filter(|it| it.component != now.component);
            assert!(others.into_iter().all(|it| it.ready == "True"));
        })
        .await;
    let now = disk(watched.status.as_ref().unwrap());
    assert_ne!(now.not_after, before.not_after, "it is loaded");
    assert_eq!(
        (now.reason.as_str(), now.last_good_hop.as_deref()),
        ("NotProven", Some("credential"))
    );
    let count = |watched: &ThrottlingFixture, reason: &str| {
        watched.transitions.iter().filter(|it| it.reason == reason).count()
    };
    assert_eq!(count(&watched, "NotProven"), 1, "{:?}", watched.transitions);
    assert_eq!(count(&watched, "CredentialRotated"), 0, "{:?}", watched.transitions);

    // It ends, Entra takes it, and all is well.
    watched.advance_minutes(19, |_| ()).await;
    assert_eq!(readiness_values(watched.status.as_ref().unwrap()), calm);
    assert!(
        watched.reasons().values().all(|reason| reason == "AsExpected"),
        "{:?}",
        watched.reasons()
    );
    assert_eq!(watched.canary_fleet.token_lapses(Component::Disk), 0, "the token before served on");
    watched.azure.shutdown().await;
}

#[test]
fn certificate_rotated_during_entra_throttling_is_unproven_until_accepted() {
    azure::run_in_virtual_time(rotation_while_entra_throttles(false));
}

#[test]
fn certificate_rotated_during_entra_outage_is_unproven_until_accepted() {
    azure::run_in_virtual_time(rotation_while_entra_throttles(true));
}
