use lanyard_api::CanaryStatusReport;
use lanyard_api::canary_report::HopFailure;

use super::*;
use crate::fixture::{example_with_changes, validated_cluster};
use crate::forecast::RenewalPolicy;
use crate::problem::ValidationProblems;
use crate::status::{CONDITION_UNKNOWN, ObservedClasses, ObservedPod, StatusReportAnnotation};
use crate::templates::WorkloadTemplates;
use crate::workload::CanaryCalls;

const GROUP: &str =
    "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/harbour-harbour-7kq2m";

fn status_with(component: Component, ready: &str) -> HostedClusterIdentitiesStatus {
    let identity = IdentityStatus {
        component: component.name().to_owned(),
        ready: ready.to_owned(),
        reason: "AADSTS700027".to_owned(),
        ..IdentityStatus::default()
    };
    HostedClusterIdentitiesStatus {
        identities: vec![identity],
        ..HostedClusterIdentitiesStatus::default()
    }
}

fn dependents(count: usize) -> Dependents {
    let machine =
        |index| Dependent { kind: DependentKind::AzureMachine, name: format!("m-{index}") };
    let pool = Dependent { kind: DependentKind::NodePool, name: "workers".to_owned() };
    let there = (0..count).map(machine).chain([pool]).collect();
    Dependents { remaining: there, unlisted_kinds: Vec::new() }
}

/// Returns the deletion status of a cluster with these pods.
fn deletion_status_with_pods(
    pods: &[ObservedPod],
    status: &HostedClusterIdentitiesStatus,
    remaining_dependents: Dependents,
    is_forced: bool,
) -> DeletionStatus {
    let cluster = validated_cluster(&example_with_changes(&[]));
    let (policy, lints) = (RenewalPolicy::default(), ValidationProblems::default());
    let templates = WorkloadTemplates::default();
    let observed = IdentityStatusInputs {
        cluster: ClusterValidation::Valid(&cluster),
        generation: None,
        now: at("2026-06-01T12:00:00Z"),
        classes: ObservedClasses::Unknown,
        pods,
        volumes: &[],
        canary_calls: CanaryCalls { templates: &templates, private_router: None },
        renewal_policy: &policy,
        problems: &lints,
        data_encryption: None,
        is_deleting: true,
        drift_findings: &[],
        previous_status: None,
    };
    deletion_status(&observed, status, remaining_dependents, is_forced)
}

fn deletion_status_of(
    status: Option<&HostedClusterIdentitiesStatus>,
    remaining_dependents: Dependents,
    is_forced: bool,
) -> DeletionStatus {
    deletion_status_with_pods(
        &[],
        &status.cloned().unwrap_or_default(),
        remaining_dependents,
        is_forced,
    )
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn every_component_except_kms_orphans_resources_in_a_scope() {
    for component in Component::ALL {
        let deletion = deletion_status_of(
            Some(&status_with(component, CONDITION_FALSE)),
            Dependents::default(),
            false,
        );
        let places: Vec<_> =
            deletion.orphaned_resources.iter().map(|orphaned| orphaned.place.as_str()).collect();
        let network = GROUP.replace("harbour-harbour", "harbour-vnet-harbour");
        let zone =
            format!("{GROUP}/providers/Microsoft.Network/privateDnsZones/harbour.hcp.example.com");
        let rules = format!(
            "{}/providers/Microsoft.Network/networkSecurityGroups/harbour-harbour-7kq2m-nsg",
            GROUP.replace("harbour-harbour", "harbour-nsg-harbour")
        );
        let expected: Vec<&str> = match component {
            Component::Kms => Vec::new(),
            Component::CloudProvider => vec![GROUP, &rules],
            Component::ControlPlaneOperator => vec![&network],
            Component::Ingress => vec![&zone],
            _ => vec![GROUP],
        };
        assert_eq!(places, expected, "{component}");
        assert!(deletion.is_unblocked(), "{component}");
    }
}

#[test]
fn usable_credential_orphans_nothing_until_it_expires_or_fails() {
    let mut reported = status_with(Component::NodePoolManagement, CONDITION_FALSE);
    let identity = &mut reported.identities[0];
    identity.reason = "SecretNotFound".to_owned();
    identity.failed_hop = Some("vault-read".to_owned());
    identity.not_after = Some(at("2026-06-02T00:00:00Z"));
    let serving = deletion_status_with_pods(&[], &reported, dependents(1), false);
    assert_eq!((serving.orphaned_resources.len(), serving.is_stuck()), (0, false));
    let message = serving.message().unwrap();
    assert!(
        message.ends_with("cannot be renewed, and still clean up: nodePoolManagement (SecretNotFound) until 2026-06-02T00:00:00Z"),
        "{message}"
    );

    let failure = HopFailure {
        hop: "entra-token".to_owned(),
        code: "AADSTS700016".to_owned(),
        message: String::new(),
        hint: String::new(),
        since: at("2026-06-01T11:00:00Z"),
    };
    let canary = CanaryStatusReport {
        component: "nodePoolManagement".to_owned(),
        failure: Some(failure),
        ..CanaryStatusReport::default()
    };
    let pod = ObservedPod {
        is_ready: true,
        canary_report: StatusReportAnnotation::Parsed(canary),
        ..ObservedPod::default()
    };
    assert!(deletion_status_with_pods(&[pod], &reported, dependents(1), false).is_stuck());

    reported.identities[0].not_after = Some(at("2026-06-01T12:00:00Z"));
    assert!(deletion_status_with_pods(&[], &reported, dependents(1), false).is_stuck());
    reported.identities[0].not_after = None;
    reported.identities[0].failed_hop = Some("entra-token".to_owned());
    assert!(deletion_status_with_pods(&[], &reported, dependents(1), false).is_stuck());
}

#[test]
fn deletion_with_working_identities_has_no_message() {
    let deletion = deletion_status_of(None, Dependents::default(), false);
    assert_eq!(deletion, DeletionStatus::default());
    assert_eq!((deletion.message(), deletion.hint()), (None, None));
}

#[test]
fn broken_identity_is_named_with_its_orphaned_resources() {
    let deletion = deletion_status_of(
        Some(&status_with(Component::Disk, CONDITION_FALSE)),
        Dependents::default(),
        false,
    );
    assert_eq!(
        deletion.message().unwrap(),
        format!(
            "broken identities leave behind: disk (AADSTS700027): managed disks and snapshots of volumes, in {GROUP}"
        )
    );
    assert_eq!(
        deletion.hint().unwrap(),
        format!("delete the remaining resources in Azure; begin with {GROUP}")
    );
}

#[test]
fn unreported_identity_does_not_count_as_broken() {
    assert_eq!(
        deletion_status_of(
            Some(&status_with(Component::Disk, CONDITION_UNKNOWN)),
            Dependents::default(),
            false
        )
        .orphaned_resources,
        []
    );
    assert_eq!(deletion_status_of(None, Dependents::default(), false).orphaned_resources, []);
}

#[test]
fn dependents_block_deletion_of_the_control_plane() {
    let deletion = deletion_status_of(None, dependents(6), false);
    assert!(!deletion.is_unblocked() && !deletion.is_stuck());
    let message = "the deletion waits for NodePool workers, AzureMachine m-0, AzureMachine m-1, AzureMachine m-2, AzureMachine m-3 and 2 more";
    assert_eq!(deletion.message().unwrap(), message);
    assert!(
        deletion
            .hint()
            .unwrap()
            .starts_with("no action is needed while the deletion makes progress")
    );
}

#[test]
fn stuck_deletion_is_reported_and_proceeds_when_forced() {
    let broken = status_with(Component::NodePoolManagement, CONDITION_FALSE);
    let stuck = deletion_status_of(Some(&broken), dependents(1), false);
    assert!(stuck.is_stuck() && !stuck.is_unblocked() && !stuck.is_forced);
    assert!(stuck.hint().unwrap().contains("`lanyard.dev/force-deletion: \"true\"`"));
    let forced = deletion_status_of(Some(&broken), dependents(1), true);
    assert!(forced.is_unblocked() && forced.is_forced && !forced.is_stuck());
    assert_eq!(forced.orphaned_resources.len(), 1, "orphaned resources are reported anyway");
}

#[test]
fn unlisted_kind_blocks_deletion_unless_forced() {
    let error = "list nodepools of clusters: HTTP 403".to_owned();
    let unlisted =
        UnlistedKind { kind: DependentKind::NodePool, error, hint: "see the ClusterRole".into() };
    let refused = |is_forced| {
        let remaining_dependents =
            Dependents { remaining: Vec::new(), unlisted_kinds: vec![unlisted.clone()] };
        deletion_status_of(None, remaining_dependents, is_forced)
    };
    let waiting = refused(false);
    assert!(!waiting.is_unblocked() && !waiting.is_stuck());
    assert_eq!(
        waiting.message().unwrap(),
        "the deletion waits until every NodePool can be listed: list nodepools of clusters: HTTP 403"
    );
    let hint = waiting.hint().unwrap();
    assert!(
        hint.starts_with("see the ClusterRole; to delete the cluster without this check"),
        "{hint}"
    );
    assert!(hint.contains("`lanyard.dev/force-deletion: \"true\"`"), "{hint}");
    assert!(refused(true).is_unblocked() && refused(true).message().is_none());
}
