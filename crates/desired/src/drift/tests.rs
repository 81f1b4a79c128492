use jiff::{SignedDuration, Timestamp, ToSpan};
use lanyard_api::canary_facts::LoadedCredential;
use lanyard_api::{CanaryFacts, VolumeFacts};
use serde_json::json;

use super::*;
use crate::fixture::{changed as wire, valid};
use crate::lint_shared_credentials;
use crate::problem::Problems;
use crate::status::Facts;

const DISK: Component = Component::Disk;
const CLASS: &str = "managed-azure-disk-csi";

#[derive(Debug, Clone)]
struct World {
    cluster: ValidatedHostedCluster,
    now: Timestamp,
    pods: Vec<ObservedPod>,
    volumes: Vec<ObservedVolume>,
    changed: Vec<ChangedObject>,
    shared: Vec<Problem>,
    lacking: Vec<Drift>,
}

fn noon() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

impl World {
    fn new() -> Self {
        Self {
            cluster: valid(&wire(&[])),
            now: noon(),
            pods: Vec::new(),
            volumes: Vec::new(),
            changed: Vec::new(),
            shared: Vec::new(),
            lacking: Vec::new(),
        }
    }

    /// A pod that mounts and has loaded credentials that begin on these days of May.
    fn with_pod(mut self, name: &str, mounted: i64, loaded: i64) -> Self {
        let id = format!("secret/{}", self.cluster.identities[&DISK].secret_name);
        let object = ObjectFacts {
            id: id.clone(),
            version: format!("v{mounted}"),
            not_before: Some(day(mounted)),
            not_after: Some(day(mounted + 90)),
            renew_after: None,
        };
        self.volumes.push(ObservedVolume {
            pod: name.to_owned(),
            class: CLASS.to_owned(),
            is_mounted: true,
            objects: vec![(id, format!("v{mounted}"))],
            facts: Facts::Told(VolumeFacts { objects: vec![object], ..VolumeFacts::default() }),
            ..ObservedVolume::default()
        });
        let credential = LoadedCredential {
            client_id: "c".to_owned(),
            thumbprint: format!("thumb{loaded}"),
            not_before: Some(day(loaded)),
            not_after: Some(day(loaded + 90)),
            renew_after: None,
            cannot_renew_after: None,
        };
        self.pods.push(ObservedPod {
            name: name.to_owned(),
            is_ready: true,
            canary: Facts::Told(CanaryFacts {
                component: DISK.name().to_owned(),
                credential: Some(credential),
                ..CanaryFacts::default()
            }),
            ..ObservedPod::default()
        });
        self
    }

    fn find(&self, memory: &Memory) -> (Vec<Finding>, Memory) {
        find(
            &Evidence {
                cluster: &self.cluster,
                now: self.now,
                pods: &self.pods,
                volumes: &self.volumes,
                changed: &self.changed,
                shared: &self.shared,
                lacking: &self.lacking,
                reach: Reach::default(),
            },
            memory,
        )
    }

    /// What is found once it has lasted for as long as it takes.
    fn lasting(mut self) -> Vec<Drift> {
        let (_, memory) = self.find(&Memory::default());
        self.now += SignedDuration::try_from(Reach::default().longest()).unwrap();
        self.find(&memory).0.into_iter().map(|finding| finding.drift).collect()
    }
}

fn day(day: i64) -> Timestamp {
    "2026-05-01T00:00:00Z".parse::<Timestamp>().unwrap() + (day * 24).hours()
}

#[test]
fn pods_that_mount_and_use_the_same_version_are_in_step() {
    let world = World::new().with_pod("a", 1, 1).with_pod("b", 1, 1);
    assert_eq!(world.find(&Memory::default()), (vec![], Memory::default()));
    assert_eq!(world.lasting(), []);
}

#[test]
fn a_mount_is_stale_once_it_lasts_longer_than_a_rotation_may_take() {
    let mut world = World::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
    let (found, memory) = world.find(&Memory::default());
    assert_eq!(found, [], "nodes look one after another");
    let due = memory.next_look(world.now, Reach::default()).unwrap();
    world.now += 2.minutes();
    assert_eq!(world.find(&memory), (vec![], memory.clone()));
    world.now = noon() + SignedDuration::try_from(Reach::default().longest()).unwrap();
    assert!(due <= world.now);
    let (found, memory) = world.find(&memory);
    let expected = Drift::StaleMount {
        component: DISK,
        pod: "a".to_owned(),
        mounted: "v1".to_owned(),
        newest: "v9".to_owned(),
    };
    assert_eq!(found, [Finding { drift: expected, since: noon() }]);

    let caught_up = World::new().with_pod("a", 9, 9).with_pod("b", 9, 9);
    assert_eq!(caught_up.find(&memory), (vec![], Memory::default()), "forgotten when it is over");
}

#[test]
fn only_pods_that_are_ready_and_stay_are_compared() {
    let changes: [fn(&mut ObservedPod); 2] =
        [|pod| pod.is_ready = false, |pod| pod.is_deleting = true];
    for change in changes {
        let mut world = World::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
        change(&mut world.pods[0]);
        assert_eq!(world.lasting(), []);
    }
}

#[test]
fn a_version_whose_age_nobody_tells_is_stale_beside_one_that_is_known() {
    let mut world = World::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
    world.volumes[0].facts = Facts::Absent;
    assert_eq!(world.clone().lasting().len(), 1);
    world.volumes[1].facts = Facts::Absent;
    assert_eq!(world.lasting(), [], "versions themselves have no order");
}

#[test]
fn a_pod_that_mounts_another_secret_than_the_cluster_names_is_found() {
    let mut world = World::new().with_pod("a", 1, 1);
    world.volumes[0].objects[0].0 = "secret/former".to_owned();
    let found = world.lasting();
    assert_eq!(found[0].kind(), "OtherObjectMounted");
    assert!(found[0].message().contains("`secret/harbour-disk`"), "{}", found[0].message());
}

#[test]
fn the_case_of_a_secret_s_name_is_no_difference() {
    let mut world = World::new().with_pod("a", 1, 1);
    let id = world.volumes[0].objects[0].0.to_ascii_uppercase();
    world.volumes[0].objects[0].0 = id;
    assert_eq!(world.lasting(), []);
}

#[test]
fn a_process_that_goes_on_with_an_older_certificate_is_found() {
    let world = World::new().with_pod("a", 9, 1);
    assert_eq!(world.find(&Memory::default()).0, [], "it may be loading it");
    let expected = Drift::OldCertificateInUse {
        component: DISK,
        pod: "a".to_owned(),
        thumbprint: "thumb1".to_owned(),
        mounted: "v9".to_owned(),
    };
    assert_eq!(world.lasting(), [expected]);
}

#[test]
fn a_process_that_has_loaded_more_than_its_node_told_is_not_behind() {
    assert_eq!(World::new().with_pod("a", 1, 9).lasting(), []);
    // The stamps of a certificate and of its document differ a little.
    let mut world = World::new().with_pod("a", 9, 9);
    let Facts::Told(canary) = &mut world.pods[0].canary else { panic!() };
    canary.credential.as_mut().unwrap().not_before = Some(day(8));
    assert_eq!(world.clone().lasting(), []);
    let Facts::Told(canary) = &mut world.pods[0].canary else { panic!() };
    canary.component = "file".to_owned();
    assert_eq!(world.lasting(), []);
}

#[test]
fn what_was_changed_and_left_is_found_at_once() {
    let mut world = World::new();
    let paths = ["z", "a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
    world.changed.push(ChangedObject { object: "ConfigMap n/x".to_owned(), paths });
    let (found, _) = world.find(&Memory::default());
    let message = found[0].drift.message();
    assert_eq!(message, "ConfigMap n/x is not as rendered: a, b, c, d, e and 2 more");
}

#[test]
fn a_secret_that_two_clusters_name_is_found_at_the_one_it_is_told_of() {
    let other = valid(&wire(&[("/metadata/name".to_owned(), json!("another"))]));
    let world = World::new();
    let problems: Problems = lint_shared_credentials([&other, &world.cluster]);
    let shared: Vec<_> = problems.into_iter().collect();
    let (found, _) = World { shared, ..world }.find(&Memory::default());
    assert_eq!(found.len(), 9);
    assert!(found[0].drift.message().contains("is a credential of `clusters/another` too"));
}

#[test]
fn a_restart_neither_forgets_a_finding_nor_finds_it_anew() {
    let mut world = World::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
    let (_, memory) = world.find(&Memory::default());
    world.now += 1.hour();
    let (found, memory) = world.find(&memory);
    let drift = found.iter().map(|finding| lanyard_api::hosted_cluster_identities::DriftStatus {
        kind: finding.drift.kind().to_owned(),
        subject: finding.drift.subject(),
        message: finding.drift.message(),
        since: finding.since,
    });
    let status = IdentitiesStatus { drift: drift.collect(), ..IdentitiesStatus::default() };
    let resumed = Memory::resumed(Some(&status));
    assert_eq!(resumed, memory);
    world.now += 1.minute();
    assert_eq!(world.find(&resumed).0, found);
}

#[test]
fn a_kind_that_cannot_be_used_is_told_at_once_and_once() {
    let kind = "SecretProviderClass".to_owned();
    let message = "could not watch secretproviderclasses".to_owned();
    let lacking = Drift::KindNotServed(LackingKind { kind, message, hint: "install the CRDs" });
    let world = World { lacking: vec![lacking.clone(), lacking], ..World::new() };
    let (found, _) = world.find(&Memory::default());
    let told: Vec<_> = found.iter().map(|it| (it.drift.kind(), it.drift.subject())).collect();
    assert_eq!(told, [("KindNotServed", "SecretProviderClass".to_owned())]);
    assert_eq!(found[0].drift.hint(), "install the CRDs");
}

#[test]
fn every_kind_is_listed_and_says_what_to_do() {
    let text = || "x".to_owned();
    let lacking = || LackingKind { kind: text(), message: text(), hint: "see x" };
    let all = [
        Drift::KindForbidden(lacking()),
        Drift::KindNotServed(lacking()),
        Drift::ObjectChanged { object: text(), paths: vec![] },
        Drift::OldCertificateInUse {
            component: DISK,
            pod: text(),
            thumbprint: text(),
            mounted: text(),
        },
        Drift::OtherObjectMounted { component: DISK, pod: text(), named: text() },
        Drift::SharedCredential { field: text(), message: text() },
        Drift::StaleMount { component: DISK, pod: text(), mounted: text(), newest: text() },
    ];
    assert_eq!(all.each_ref().map(Drift::kind), Drift::KINDS);
    assert!(all.iter().all(|drift| !drift.hint().is_empty() && !drift.message().is_empty()));
}
