//! Tests the creation of a cluster in virtual time while the local Azure rejects and delays requests. A run ends
//! either with every resource, or with the reason of each that is missing, and the next run completes it.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "infra/cluster_fixture.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod cluster_fixture;
#[path = "support/cluster_resources.rs"]
mod cluster_resources;
#[path = "infra/request_cutter.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod request_cutter;
#[path = "support/virtual_time_azure.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod virtual_time_azure;

use std::time::Duration;

use lanyard_changes::{ResourceKey, ResourceOutcome, RunReport};
use lanyard_vocabulary::format_error_chain;
use serde_json::{Value, json};

use crate::cluster_fixture::ClusterFixture;
use crate::virtual_time_azure::run_in_virtual_time;

/// The number of resources of the cluster.
const RESOURCES: usize = 49;
const VNET: &str = "*/virtualNetworks/*";
const ROLES: &str = "*/roleAssignments/*";

/// What a run that did not create everything reports.
#[derive(Debug, PartialEq, Eq)]
struct FailedRun {
    /// The resources whose write failed.
    failed: Vec<String>,
    /// The resources that need one of them.
    blocked: Vec<String>,
}

impl FailedRun {
    fn of(report: &RunReport) -> Self {
        let keys = |wanted: fn(&ResourceOutcome) -> bool| {
            let found = report.outcomes.iter().filter(|(_, outcome)| wanted(outcome));
            found.map(|(key, _)| key.to_string()).collect()
        };
        Self {
            failed: keys(|it| matches!(it, ResourceOutcome::Failed(_))),
            blocked: keys(|it| matches!(it, ResourceOutcome::Blocked(_))),
        }
    }
}

fn reason(report: &RunReport, key: &str) -> String {
    match &report.outcomes[&ResourceKey::new(key)] {
        ResourceOutcome::Failed(error) => format_error_chain(error),
        _ => "the write did not fail".to_owned(),
    }
}

/// A rule that rejects writes of a path.
fn reject(path: &str, effect: &Value, limit: &Value) -> Value {
    let mut rule = json!({ "name": "reject", "service": "arm", "method": "PUT", "path": path, "effect": effect });
    rule.as_object_mut().unwrap().extend(limit.as_object().unwrap().clone());
    rule
}

fn status(status: u16, code: &str) -> Value {
    json!({ "type": "status", "status": status, "code": code, "message": "Rejected by the test." })
}

/// Applies with a rule. Returns the report and the duration in virtual time.
async fn apply_with_rule(fixture: &ClusterFixture, rule: &Value) -> (RunReport, Duration) {
    fixture.azure.change("POST", "faults", &rule.to_string()).await;
    let clock = fixture.azure.shared_clock();
    let began = clock.monotonic();
    let report = fixture.apply().await;
    assert_eq!(report.outcomes.len(), RESOURCES, "every resource has a result");
    (report, clock.monotonic().saturating_sub(began))
}

/// The planned writes are exactly the resources that the report does not call done, and the next run completes
/// the cluster.
async fn assert_next_run_completes(fixture: &ClusterFixture, report: &RunReport) {
    let FailedRun { mut failed, blocked } = FailedRun::of(report);
    failed.extend(blocked);
    failed.sort();
    // A pause that Azure asked for at the end of the run is over.
    fixture.azure.advance(Duration::from_mins(2)).await;
    let mut planned: Vec<_> =
        fixture.plan().await.writes().map(|planned| planned.key.to_string()).collect();
    planned.sort();
    assert_eq!(planned, failed, "the report and Azure differ");
    fixture.azure.change("DELETE", "faults", "").await;
    let settings = json!({ "resourceManager": { "longRunning": [] } });
    fixture.azure.change("PATCH", "settings", &settings.to_string()).await;
    let report = fixture.apply().await;
    assert!(report.succeeded(), "{:?}", report.outcomes);
    assert_eq!(fixture.plan().await.writes().count(), 0);
}

#[test]
fn writes_that_collide_with_other_operations_are_repeated() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = status(409, "AnotherOperationInProgress");
        let rule = reject("*", &effect, &json!({ "every": 3 }));
        let (report, _) = apply_with_rule(&fixture, &rule).await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn conflict_that_does_not_pass_stops_only_what_needs_the_resource() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = status(409, "PropertyChangeNotAllowed");
        let (report, _) = apply_with_rule(&fixture, &reject(VNET, &effect, &json!({}))).await;
        assert_eq!(
            FailedRun::of(&report),
            FailedRun {
                failed: vec!["vnet".to_owned()],
                blocked: vec!["private-zone-link".to_owned()]
            }
        );
        let reason = reason(&report, "vnet");
        assert!(reason.contains("409 PropertyChangeNotAllowed: Rejected by the test."), "{reason}");
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn journal_does_not_record_a_resource_whose_creation_a_policy_denied() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = status(403, "RequestDisallowedByPolicy");
        let (report, _) = apply_with_rule(&fixture, &reject(VNET, &effect, &json!({}))).await;
        assert_eq!(FailedRun::of(&report).failed, ["vnet"]);
        let recorded = fixture.recorded().await;
        assert_eq!(recorded.get(&ResourceKey::new("vnet")), None);
        assert!(recorded.get(&ResourceKey::new("group/vnet")).is_some());
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn conflict_of_a_group_is_not_mistaken_for_an_equal_group() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = status(409, "ScopeLocked");
        // The groups of the cluster have the same location and tags.
        let rule = reject("*/lagoon-nsg-lagoon-x7k2p", &effect, &json!({}));
        let (report, _) = apply_with_rule(&fixture, &rule).await;
        assert_eq!(FailedRun::of(&report).failed, ["group/nsg"]);
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn destroy_that_azure_rejects_names_the_reason_and_is_continued() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let before = fixture.resource_ids().await;
        assert!(fixture.apply().await.succeeded());
        let recorded = fixture.recorded_count().await;
        for (path, effect, key) in [
            (ROLES, status(403, "AuthorizationFailed"), "role/cloud-provider/group"),
            ("*/lagoon-vnet-lagoon-x7k2p", status(409, "ScopeLocked"), "group/vnet"),
        ] {
            let mut rule = reject(path, &effect, &json!({}));
            rule["method"] = json!("DELETE");
            fixture.azure.change("POST", "faults", &rule.to_string()).await;
            let report = fixture.destroy().await;
            assert!(!report.succeeded());
            let code = effect["code"].as_str().unwrap();
            assert!(reason(&report, key).contains(code), "{:?}", report.outcomes);
            fixture.azure.change("DELETE", "faults", "").await;
            assert!(fixture.recorded_count().await <= recorded);
        }
        let report = fixture.destroy().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert_eq!(fixture.resource_ids().await, before);
        assert_eq!(fixture.recorded_count().await, 0);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn pause_that_azure_asks_for_is_kept() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = json!({ "type": "throttle", "retry_after": 120 });
        let (report, time) =
            apply_with_rule(&fixture, &reject(ROLES, &effect, &json!({ "times": 3 }))).await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert!(time >= Duration::from_mins(2), "{time:?}");
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn rate_limit_that_does_not_end_is_the_reason() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = json!({ "type": "throttle", "retry_after": 30 });
        let (report, time) = apply_with_rule(&fixture, &reject("*", &effect, &json!({}))).await;
        let run = FailedRun::of(&report);
        assert_eq!(run.failed.len() + run.blocked.len(), RESOURCES, "{run:?}");
        for key in &run.failed {
            let reason = reason(&report, key);
            assert!(reason.contains("429") || reason.contains("throttled"), "{key}: {reason}");
        }
        assert!(time <= Duration::from_mins(16), "{time:?}");
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn principals_that_take_ten_minutes_are_waited_for() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = status(400, "PrincipalNotFound");
        let rule = reject(ROLES, &effect, &json!({ "seconds": 600 }));
        let (report, time) = apply_with_rule(&fixture, &rule).await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert!((600..900).contains(&time.as_secs()), "{time:?}");
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn principal_that_stays_unknown_is_the_reason() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let effect = status(400, "PrincipalNotFound");
        let (report, time) = apply_with_rule(&fixture, &reject(ROLES, &effect, &json!({}))).await;
        let failed = FailedRun::of(&report);
        assert_eq!((failed.failed.len(), failed.blocked.len()), (18, 0));
        let reason = reason(&report, "role/azure-disk/group");
        assert!(reason.contains("PrincipalNotFound"), "{reason}");
        // 16 are written at the same time, the last two after them.
        assert!(time <= Duration::from_mins(31), "{time:?}");
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn new_identities_get_their_roles_before_the_directory_is_replicated() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let delays = json!({ "propagation": { "directory":
            { "resourceManagerSeconds": 600, "graphSeconds": 600, "federatedCredentialSeconds": 600 } } });
        fixture.azure.change("PATCH", "settings", &delays.to_string()).await;
        let clock = fixture.azure.shared_clock();
        let began = clock.monotonic();
        let report = fixture.apply().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        // The principal type in the request makes the look-up in the directory unnecessary.
        assert!(clock.monotonic().saturating_sub(began) < Duration::from_mins(1));
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}

#[test]
fn failed_operation_is_reported_with_its_code_and_repaired_by_the_next_run() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let outcome = json!({ "status": "Failed", "code": "OverconstrainedAllocationRequest",
            "message": "There is no capacity." });
        let settings = json!({ "resourceManager": { "longRunning": [
            { "resourceType": "Microsoft.Network/loadBalancers", "polls": 2, "outcome": outcome },
        ] } });
        fixture.azure.change("PATCH", "settings", &settings.to_string()).await;
        let report = fixture.apply().await;
        let failed = FailedRun::of(&report);
        assert_eq!(failed.failed, ["load-balancer"]);
        let reason = reason(&report, "load-balancer");
        assert!(reason.contains("OverconstrainedAllocationRequest"), "{reason}");
        assert!(reason.contains("There is no capacity."), "{reason}");
        let settings = json!({ "resourceManager": { "longRunning": [] } });
        fixture.azure.change("PATCH", "settings", &settings.to_string()).await;
        let report = fixture.apply().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        let balancer = fixture.live("load-balancer").await;
        assert_eq!(balancer["properties"]["provisioningState"], "Succeeded");
        fixture.azure.shutdown().await;
    });
}

#[test]
fn resources_that_are_missing_right_after_their_creation_are_read_again() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let settings = json!({ "resourceManager": { "longRunning": [
            { "resourceType": "Microsoft.Network", "polls": 2, "missingReads": 2 },
        ] } });
        fixture.azure.change("PATCH", "settings", &settings.to_string()).await;
        let report = fixture.apply().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert_next_run_completes(&fixture, &report).await;
        fixture.azure.shutdown().await;
    });
}
