use lanyard_api::CanaryFacts;
use lanyard_api::canary_facts::HopFailure;

use super::*;
use crate::fixture::{changed, valid};
use crate::forecast::Policy;
use crate::problem::Problems;
use crate::status::{Classes, Facts, ObservedPod, UNKNOWN};
use crate::templates::WorkloadTemplates;
use crate::workload::CanaryCalls;

const GROUP: &str =
    "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/harbour-harbour-7kq2m";

fn status(component: Component, ready: &str) -> IdentitiesStatus {
    let identity = IdentityStatus {
        component: component.name().to_owned(),
        ready: ready.to_owned(),
        reason: "AADSTS700027".to_owned(),
        ..IdentityStatus::default()
    };
    IdentitiesStatus { identities: vec![identity], ..IdentitiesStatus::default() }
}

fn guests(count: usize) -> Guests {
    let machine = |index| Guest { kind: GuestKind::AzureMachine, name: format!("m-{index}") };
    let pool = Guest { kind: GuestKind::NodePool, name: "workers".to_owned() };
    let there = (0..count).map(machine).chain([pool]).collect();
    Guests { there, unlisted: Vec::new() }
}

/// What a cluster comes to whose pods are these.
fn part_with(
    pods: &[ObservedPod],
    status: &IdentitiesStatus,
    guests: Guests,
    is_forced: bool,
) -> Parting {
    let cluster = valid(&changed(&[]));
    let (policy, lints) = (Policy::default(), Problems::default());
    let templates = WorkloadTemplates::default();
    let observed = Observed {
        cluster: ClusterState::Valid(&cluster),
        generation: None,
        now: at("2026-06-01T12:00:00Z"),
        classes: Classes::Unknown,
        pods,
        volumes: &[],
        canaries: CanaryCalls { templates: &templates, private_router: None },
        policy: &policy,
        lints: &lints,
        is_ending: true,
        drift: &[],
        previous: None,
    };
    parting(&observed, status, guests, is_forced)
}

fn part(status: Option<&IdentitiesStatus>, guests: Guests, is_forced: bool) -> Parting {
    part_with(&[], &status.cloned().unwrap_or_default(), guests, is_forced)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn every_component_but_the_key_leaves_something_and_says_where() {
    for component in Component::ALL {
        let parting = part(Some(&status(component, FALSE)), Guests::default(), false);
        let places: Vec<_> = parting.leaks.iter().map(|leak| leak.place.as_str()).collect();
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
        assert!(parting.may_go(), "{component}");
    }
}

#[test]
fn what_goes_on_with_its_mounted_credential_leaks_nothing_until_that_ends_or_is_refused() {
    let mut told = status(Component::NodePoolManagement, FALSE);
    let identity = &mut told.identities[0];
    identity.reason = "SecretNotFound".to_owned();
    identity.failed_hop = Some("vault-read".to_owned());
    identity.not_after = Some(at("2026-06-02T00:00:00Z"));
    let serving = part_with(&[], &told, guests(1), false);
    assert_eq!((serving.leaks.len(), serving.is_stuck()), (0, false));
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
    let canary = CanaryFacts {
        component: "nodePoolManagement".to_owned(),
        failure: Some(failure),
        ..CanaryFacts::default()
    };
    let pod = ObservedPod { is_ready: true, canary: Facts::Told(canary), ..ObservedPod::default() };
    assert!(part_with(&[pod], &told, guests(1), false).is_stuck());

    told.identities[0].not_after = Some(at("2026-06-01T12:00:00Z"));
    assert!(part_with(&[], &told, guests(1), false).is_stuck());
    told.identities[0].not_after = None;
    told.identities[0].failed_hop = Some("entra-token".to_owned());
    assert!(part_with(&[], &told, guests(1), false).is_stuck());
}

#[test]
fn an_end_with_whole_identities_says_nothing() {
    let parting = part(None, Guests::default(), false);
    assert_eq!(parting, Parting::default());
    assert_eq!((parting.message(), parting.hint()), (None, None));
}

#[test]
fn a_broken_identity_is_named_with_what_stays_and_where() {
    let parting = part(Some(&status(Component::Disk, FALSE)), Guests::default(), false);
    assert_eq!(
        parting.message().unwrap(),
        format!(
            "broken identities leave behind: disk (AADSTS700027): managed disks and snapshots of volumes, in {GROUP}"
        )
    );
    assert_eq!(parting.hint().unwrap(), format!("delete in Azure what stays; begin with {GROUP}"));
}

#[test]
fn what_nobody_reported_is_not_called_broken() {
    assert_eq!(part(Some(&status(Component::Disk, UNKNOWN)), Guests::default(), false).leaks, []);
    assert_eq!(part(None, Guests::default(), false).leaks, []);
}

#[test]
fn the_control_plane_stays_while_others_have_to_clean_up() {
    let parting = part(None, guests(6), false);
    assert!(!parting.may_go() && !parting.is_stuck());
    let message = "the end waits for NodePool workers, AzureMachine m-0, AzureMachine m-1, AzureMachine m-2, AzureMachine m-3 and 2 more";
    assert_eq!(parting.message().unwrap(), message);
    assert!(parting.hint().unwrap().starts_with("nothing, if it is going on"));
}

#[test]
fn an_end_that_may_never_come_says_so_and_goes_on_when_it_is_told() {
    let broken = status(Component::NodePoolManagement, FALSE);
    let stuck = part(Some(&broken), guests(1), false);
    assert!(stuck.is_stuck() && !stuck.may_go() && !stuck.is_forced);
    assert!(stuck.hint().unwrap().contains("`lanyard.dev/force-deletion: \"true\"`"));
    let forced = part(Some(&broken), guests(1), true);
    assert!(forced.may_go() && forced.is_forced && !forced.is_stuck());
    assert_eq!(forced.leaks.len(), 1, "what stays is told all the same");
}

#[test]
fn nothing_goes_while_a_kind_cannot_be_listed_unless_nobody_waits() {
    let error = "list nodepools of clusters: HTTP 403".to_owned();
    let unlisted = Unlisted { kind: GuestKind::NodePool, error, hint: "see the ClusterRole" };
    let refused = |is_forced| {
        let guests = Guests { there: Vec::new(), unlisted: vec![unlisted.clone()] };
        part(None, guests, is_forced)
    };
    let waiting = refused(false);
    assert!(!waiting.may_go() && !waiting.is_stuck());
    assert_eq!(
        waiting.message().unwrap(),
        "the end waits until every NodePool can be listed: list nodepools of clusters: HTTP 403"
    );
    let hint = waiting.hint().unwrap();
    assert!(hint.starts_with("see the ClusterRole; to end it without looking"), "{hint}");
    assert!(hint.contains("`lanyard.dev/force-deletion: \"true\"`"), "{hint}");
    assert!(refused(true).may_go() && refused(true).message().is_none());
}
