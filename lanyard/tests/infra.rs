//! Tests the infrastructure of a cluster in virtual time against the local Azure: plan, apply, interruption at
//! every request, and destroy.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "infra/cluster_fixture.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod cluster_fixture;
#[path = "support/cluster_resources.rs"]
mod cluster_resources;
#[path = "infra/request_cutter.rs"]
mod request_cutter;
#[path = "support/virtual_time_azure.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod virtual_time_azure;

use lanyard_changes::{ResourceChange, ResourceOutcome};
use serde_json::json;

use crate::cluster_fixture::ClusterFixture;
use crate::request_cutter::CutPosition;
use crate::virtual_time_azure::run_in_virtual_time;

#[test]
fn second_apply_writes_nothing_and_destroy_leaves_nothing() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        let before = fixture.resource_ids().await;
        let report = fixture.apply().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert_eq!(fixture.resource_ids().await.len(), before.len() + 9);

        let plan = fixture.plan().await;
        assert_eq!(plan.writes().count(), 0, "{plan:?}");
        let writes = fixture.write_count();
        assert!(fixture.apply().await.succeeded());
        assert_eq!(fixture.write_count(), writes);

        let report = fixture.destroy().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert_eq!(fixture.resource_ids().await, before);
        assert_eq!(fixture.recorded_count().await, 0);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn drift_is_planned_and_repaired_and_additions_of_controllers_stay() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        assert!(fixture.apply().await.succeeded());
        fixture
            .change_live("load-balancer", |body| {
                body["properties"]["outboundRules"][0]["properties"]["allocatedOutboundPorts"] =
                    512.into();
                let probe = json!({"name": "controller", "properties":
                    {"protocol": "Tcp", "port": 80, "intervalInSeconds": 5, "probeThreshold": 2}});
                body["properties"]["probes"].as_array_mut().unwrap().push(probe);
            })
            .await;
        let plan = fixture.plan().await;
        let changed: Vec<_> = plan.writes().collect();
        assert_eq!(changed.len(), 1, "{changed:?}");
        let ResourceChange::Update { differences } = &changed[0].change else {
            panic!("{changed:?}");
        };
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert!(differences[0].path.ends_with("allocatedOutboundPorts"), "{differences:?}");

        let report = fixture.apply().await;
        let updated = |outcome: &&ResourceOutcome| matches!(outcome, ResourceOutcome::Updated);
        assert_eq!(report.outcomes.values().filter(updated).count(), 1, "{:?}", report.outcomes);
        assert_eq!(fixture.plan().await.writes().count(), 0);
        let balancer = fixture.live("load-balancer").await;
        assert_eq!(balancer["properties"]["probes"].as_array().unwrap().len(), 2);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn run_that_ends_at_any_request_is_continued() {
    run_in_virtual_time(async { continue_after_cuts(ClusterFixture::start().await, 1).await });
}

/// With identities and roles, a run has five times as many requests. Each cut takes as long as four complete runs, so
/// only some of them are tested.
#[test]
fn run_with_identities_and_roles_that_ends_at_a_request_is_continued() {
    run_in_virtual_time(async {
        continue_after_cuts(ClusterFixture::start_with_roles().await, 17).await;
    });
}

/// Interrupts creation and removal at every `step`th request, and continues them.
async fn continue_after_cuts(fixture: ClusterFixture, step: usize) {
    let before = fixture.resource_ids().await;
    fixture.apply().await;
    let complete = fixture.resource_ids().await;
    let requests = fixture.request_count();
    fixture.destroy().await;
    assert_eq!(fixture.resource_ids().await, before);
    let (mut positions, mut cuts) = (0, 0);
    for number in (0..requests).step_by(step) {
        for position in [CutPosition::BeforeRequest, CutPosition::AfterRequest] {
            positions += 1;
            fixture.cut_at(number, position);
            cuts += usize::from(fixture.interrupted_apply().await);
            let report = fixture.apply().await;
            assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
            assert_eq!(fixture.resource_ids().await, complete, "{number} {position:?}");
            fixture.cut_at(number, position);
            cuts += usize::from(fixture.interrupted_destroy().await);
            let report = fixture.destroy().await;
            assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
            assert_eq!(fixture.resource_ids().await, before, "{number} {position:?}");
        }
    }
    assert!(cuts >= positions, "{cuts} of {positions} positions interrupted a run");
    fixture.azure.shutdown().await;
}
