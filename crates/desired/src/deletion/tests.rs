use lanyard_api::hosted_cluster_identities::IdentityStatus;

use super::*;
use crate::fixture::{changed, valid};
use crate::status::UNKNOWN;

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

fn part(status: Option<&IdentitiesStatus>, guests: Guests, is_forced: bool) -> Parting {
    parting(&valid(&changed(&[])), status, guests, is_forced)
}

#[test]
fn every_component_has_a_row_and_all_but_the_key_leave_something() {
    assert_eq!(CLEANS_UP.map(|(component, _)| component), Component::ALL);
    for component in Component::ALL {
        let parting = part(Some(&status(component, FALSE)), Guests::default(), false);
        assert_eq!(parting.leaks.len(), usize::from(component != Component::Kms), "{component}");
        assert!(parting.may_go(), "{component}");
    }
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
