//! Tests in virtual time that a run of apply, interrupted at any request, is rolled back to the state before it.

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

use lanyard_changes::{NothingToRollBack, ResourceError, ResourceKey, ResourceOutcome, WritePhase};
use lanyard_clock::ErrorHint as _;

use crate::cluster_fixture::ClusterFixture;
use crate::request_cutter::CutPosition;
use crate::virtual_time_azure::run_in_virtual_time;

const POSITIONS: [CutPosition; 2] = [CutPosition::BeforeRequest, CutPosition::AfterRequest];

/// Changes two resources that apply repairs in place.
async fn cause_drift(fixture: &ClusterFixture) {
    fixture
        .change_live("load-balancer", |body| {
            body["properties"]["outboundRules"][0]["properties"]["allocatedOutboundPorts"] =
                512.into();
        })
        .await;
    fixture
        .change_live("vnet", |body| {
            body["properties"]["addressSpace"]["addressPrefixes"] =
                serde_json::json!(["10.0.0.0/8"]);
        })
        .await;
}

#[test]
fn interrupted_creation_is_rolled_back_at_every_request() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        let before = fixture.resource_ids().await;
        fixture.apply().await;
        let requests = fixture.request_count();
        fixture.destroy().await;
        let mut rolled_back = 0;
        for number in 0..requests {
            for position in POSITIONS {
                fixture.cut_at(number, position);
                assert!(fixture.interrupted_apply().await, "{number} {position:?}");
                match fixture.roll_back().await {
                    Ok(report) => {
                        assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
                        rolled_back += 1;
                    }
                    // The run had not begun.
                    Err(error) => assert_eq!(error, NothingToRollBack::NoInterruptedRun),
                }
                assert_eq!(fixture.resource_ids().await, before, "{number} {position:?}");
                assert_eq!(fixture.recorded_count().await, 0, "{number} {position:?}");
                let second = fixture.roll_back().await.unwrap_err();
                assert_eq!(second, NothingToRollBack::NoInterruptedRun);
            }
        }
        assert!(rolled_back >= requests, "{rolled_back} of {requests}");
        fixture.azure.shutdown().await;
    });
}

#[test]
fn interrupted_repair_is_rolled_back_at_every_request() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        fixture.apply().await;
        cause_drift(&fixture).await;
        let (ids, bodies) = (fixture.resource_ids().await, fixture.bodies().await);
        fixture.cut_at(usize::MAX, CutPosition::BeforeRequest);
        assert!(!fixture.interrupted_apply().await);
        let requests = fixture.request_count();
        assert_ne!(fixture.bodies().await, bodies);
        cause_drift(&fixture).await;
        assert_eq!(fixture.bodies().await, bodies);
        let mut restored = 0;
        for number in 0..requests {
            for position in POSITIONS {
                fixture.cut_at(number, position);
                assert!(fixture.interrupted_apply().await, "{number} {position:?}");
                if let Ok(report) = fixture.roll_back().await {
                    assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
                    let updated = |it: &&ResourceOutcome| matches!(it, ResourceOutcome::Updated);
                    restored += report.outcomes.values().filter(updated).count();
                }
                assert_eq!(fixture.bodies().await, bodies, "{number} {position:?}");
                assert_eq!(fixture.resource_ids().await, ids, "{number} {position:?}");
            }
        }
        assert!(restored > 4, "{restored}");
        // The roll-back keeps the ownership, so everything is still removed with the cluster.
        assert!(fixture.destroy().await.succeeded());
        assert_eq!(fixture.recorded_count().await, 0);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn roll_back_that_ends_at_any_request_is_continued_by_both_kinds_of_runs() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        let before = fixture.resource_ids().await;
        fixture.apply().await;
        let complete = fixture.resource_ids().await;
        let requests = fixture.request_count();
        fixture.destroy().await;
        let last_write = requests - 1;
        let interrupt = async || {
            fixture.cut_at(last_write, CutPosition::BeforeRequest);
            assert!(fixture.interrupted_apply().await);
        };
        interrupt().await;
        fixture.cut_at(usize::MAX, CutPosition::BeforeRequest);
        assert!(!fixture.interrupted_roll_back().await);
        let requests = fixture.request_count();
        for number in 0..requests {
            for position in POSITIONS {
                interrupt().await;
                fixture.cut_at(number, position);
                assert!(fixture.interrupted_roll_back().await, "{number} {position:?}");
                assert!(fixture.roll_back().await.unwrap().succeeded());
                assert_eq!(fixture.resource_ids().await, before, "{number} {position:?}");

                interrupt().await;
                fixture.cut_at(number, position);
                assert!(fixture.interrupted_roll_back().await, "{number} {position:?}");
                let report = fixture.apply().await;
                assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
                assert_eq!(fixture.resource_ids().await, complete, "{number} {position:?}");
                assert!(fixture.destroy().await.succeeded());
                assert_eq!(fixture.resource_ids().await, before, "{number} {position:?}");
            }
        }
        fixture.azure.shutdown().await;
    });
}

#[test]
fn roll_back_of_a_continued_run_undoes_both_parts() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start_with_roles().await;
        let (ids, bodies) = (fixture.resource_ids().await, fixture.bodies().await);
        fixture.apply().await;
        let requests = fixture.request_count();
        fixture.destroy().await;
        for number in [requests / 2, requests * 5 / 8, requests * 3 / 4] {
            for number in [number, requests / 2] {
                fixture.cut_at(number, CutPosition::AfterRequest);
                assert!(fixture.interrupted_apply().await, "{number} of {requests}");
            }
            let report = fixture.roll_back().await.unwrap();
            assert!(report.succeeded(), "{number}: {:?}", report.outcomes);
            assert_eq!(fixture.resource_ids().await, ids, "{number}");
            assert_eq!(fixture.bodies().await, bodies, "{number}");
        }
        fixture.azure.shutdown().await;
    });
}

#[test]
fn replaced_and_deleted_role_assignments_are_created_again() {
    run_in_virtual_time(async {
        const REPLACED: &str = "role/azure-disk/group";
        const DELETED: &str = "role/azure-file/group";
        let mut fixture = ClusterFixture::start_with_roles().await;
        fixture.apply().await;
        fixture.change_principal(REPLACED, "role/ingress/group").await;
        fixture.remove_from_graph(DELETED);
        let bodies = fixture.bodies().await;
        fixture.cut_at(usize::MAX, CutPosition::BeforeRequest);
        assert_eq!(fixture.plan().await.writes().count(), 2, "{:?}", fixture.plan().await);
        fixture.cut_at(usize::MAX, CutPosition::BeforeRequest);
        drop(fixture.plan().await);
        let reads = fixture.request_count();
        let mut undone = 0;
        for number in reads..reads + 7 {
            for position in POSITIONS {
                fixture.cut_at(number, position);
                assert!(fixture.interrupted_apply().await, "{number} {position:?}");
                if let Ok(report) = fixture.roll_back().await {
                    assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
                    let written = |it: &&ResourceOutcome| !matches!(it, ResourceOutcome::Unchanged);
                    undone += report.outcomes.values().filter(written).count();
                }
                assert_eq!(fixture.bodies().await, bodies, "{number} {position:?}");
            }
        }
        assert!(undone >= 4, "{undone}");
        fixture.azure.shutdown().await;
    });
}

#[test]
fn role_assignment_of_a_principal_outside_the_cluster_is_not_created_again() {
    run_in_virtual_time(async {
        const DELETED: &str = "role/azure-file/group";
        const OWNER: &str = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";
        let mut fixture = ClusterFixture::start_with_roles().await;
        fixture.apply().await;
        let complete = fixture.resource_ids().await;
        fixture.remove_from_graph(DELETED);
        fixture.cut_at(usize::MAX, CutPosition::BeforeRequest);
        assert_eq!(fixture.plan().await.writes().count(), 1);
        // The run ends at the request that deletes the role assignment.
        for number in fixture.request_count().. {
            fixture.cut_at(number, CutPosition::AfterRequest);
            assert!(fixture.interrupted_apply().await, "{number}");
            if fixture.resource_ids().await != complete {
                break;
            }
            drop(fixture.roll_back().await);
        }
        let without_role = fixture.resource_ids().await;
        assert_eq!(without_role.len(), complete.len() - 1);
        let foreign = fixture.run(fixture.azure.owner()).await.object_id;
        let forge = |before: &mut serde_json::Value| {
            let role = before["properties"]["roleDefinitionId"].as_str().unwrap();
            let (definitions, _) = role.rsplit_once('/').unwrap();
            let role = format!("{definitions}/{OWNER}");
            before["properties"]["roleDefinitionId"] = role.into();
            before["properties"]["principalId"] = foreign.to_string().into();
        };
        fixture.forge_earlier_bodies(forge).await;

        let writes = fixture.write_count();
        let report = fixture.roll_back().await.unwrap();
        let outcome = &report.outcomes[&ResourceKey::new(DELETED)];
        let is_refused =
            matches!(outcome, ResourceOutcome::Failed(ResourceError::UnknownPrincipal { .. }));
        assert!(is_refused, "{outcome:?}");
        assert_eq!(fixture.write_count(), writes);
        assert_eq!(fixture.resource_ids().await, without_role);
        fixture.azure.shutdown().await;
    });
}

/// Adds a probe to the load balancer as a controller would.
async fn add_probe(fixture: &ClusterFixture) {
    let probe = serde_json::json!({"name": "controller", "properties":
        {"protocol": "Tcp", "port": 80, "intervalInSeconds": 5, "probeThreshold": 2}});
    let add = |body: &mut serde_json::Value| {
        body["properties"]["probes"].as_array_mut().unwrap().push(probe);
    };
    fixture.change_live("load-balancer", add).await;
}

async fn probe_count(fixture: &ClusterFixture) -> usize {
    fixture.live("load-balancer").await["properties"]["probes"].as_array().unwrap().len()
}

#[test]
fn additions_of_controllers_since_the_run_stay() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        fixture.apply().await;
        cause_drift(&fixture).await;
        fixture.cut_at(usize::MAX, CutPosition::BeforeRequest);
        assert!(!fixture.interrupted_apply().await);
        let last = fixture.request_count() - 1;
        cause_drift(&fixture).await;
        fixture.cut_at(last, CutPosition::BeforeRequest);
        assert!(fixture.interrupted_apply().await);
        fixture.azure.advance(std::time::Duration::from_mins(1)).await;
        add_probe(&fixture).await;
        let report = fixture.roll_back().await.unwrap();
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert_eq!(probe_count(&fixture).await, 2);
        let balancer = fixture.live("load-balancer").await;
        let rule = &balancer["properties"]["outboundRules"][0]["properties"];
        assert_eq!(rule["allocatedOutboundPorts"], 512);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn resource_whose_deletion_was_only_announced_stays() {
    run_in_virtual_time(async {
        let mut fixture = ClusterFixture::start().await;
        fixture.apply().await;
        fixture.remove_from_graph("load-balancer");
        fixture.cut_at(usize::MAX, CutPosition::BeforeRequest);
        assert_eq!(fixture.plan().await.writes().count(), 1);
        let reads = fixture.request_count();
        // The run reads the resource twice, announces the deletion, and ends before the request.
        fixture.cut_at(reads + 2, CutPosition::BeforeRequest);
        assert!(fixture.interrupted_apply().await);
        let recorded = fixture.recorded().await;
        let balancer = recorded.get(&ResourceKey::new("load-balancer")).unwrap();
        assert_eq!(balancer.phase, WritePhase::Sent);
        add_probe(&fixture).await;
        let writes = fixture.write_count();
        let report = fixture.roll_back().await.unwrap();
        assert!(report.succeeded(), "{:?}", report.outcomes);
        assert_eq!(fixture.write_count(), writes);
        assert_eq!(probe_count(&fixture).await, 2);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn interrupted_destroy_that_removed_everything_ends_when_it_is_repeated() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        fixture.apply().await;
        fixture.cut_at(1, CutPosition::BeforeRequest);
        assert!(fixture.interrupted_destroy().await);
        let error = fixture.roll_back().await.unwrap_err();
        assert_eq!(error, NothingToRollBack::InterruptedDestroy);
        fixture.destroy().await;
        fixture.reopen_last_run().await;
        let error = fixture.roll_back().await.unwrap_err();
        assert_eq!(error, NothingToRollBack::InterruptedDestroy);
        assert!(fixture.destroy().await.succeeded());
        let error = fixture.roll_back().await.unwrap_err();
        assert_eq!(error, NothingToRollBack::NoInterruptedRun);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn only_interrupted_runs_of_apply_are_rolled_back() {
    run_in_virtual_time(async {
        let fixture = ClusterFixture::start().await;
        assert!(fixture.apply().await.succeeded());
        let complete = fixture.resource_ids().await;
        let error = fixture.roll_back().await.unwrap_err();
        assert_eq!(error, NothingToRollBack::NoInterruptedRun);
        assert!(error.hint().unwrap().contains("lanyard destroy"), "{:?}", error.hint());

        fixture.cut_at(2, CutPosition::AfterRequest);
        assert!(fixture.interrupted_destroy().await);
        let error = fixture.roll_back().await.unwrap_err();
        assert_eq!(error, NothingToRollBack::InterruptedDestroy);
        assert!(error.hint().unwrap().contains("without --roll-back"), "{:?}", error.hint());
        assert!(fixture.apply().await.succeeded());
        assert_eq!(fixture.resource_ids().await, complete);
        fixture.azure.shutdown().await;
    });
}
