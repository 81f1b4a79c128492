use jiff::{SignedDuration, Timestamp, ToSpan};
use lanyard_api::canary_report::LoadedCredential;
use lanyard_api::{CanaryStatusReport, VolumeStatusReport};
use serde_json::json;

use super::*;
use crate::fixture::{example_with_changes as wire, validated_cluster};
use crate::lint_shared_credentials;
use crate::problem::ValidationProblems;
use crate::status::StatusReportAnnotation;

const DISK: Component = Component::Disk;
const CLASS: &str = "managed-azure-disk-csi";

#[derive(Debug, Clone)]
struct DriftFixture {
    cluster: ValidatedHostedCluster,
    now: Timestamp,
    pods: Vec<ObservedPod>,
    volumes: Vec<ObservedVolume>,
    changed_objects: Vec<ChangedObject>,
    shared_credentials: Vec<ValidationProblem>,
    unavailable_kinds: Vec<Drift>,
}

fn noon() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

impl DriftFixture {
    fn new() -> Self {
        Self {
            cluster: validated_cluster(&wire(&[])),
            now: noon(),
            pods: Vec::new(),
            volumes: Vec::new(),
            changed_objects: Vec::new(),
            shared_credentials: Vec::new(),
            unavailable_kinds: Vec::new(),
        }
    }

    /// Adds a pod whose mounted and loaded credentials begin on these days of May.
    fn with_pod(mut self, name: &str, mounted: i64, loaded: i64) -> Self {
        let id = format!("secret/{}", self.cluster.identities[&DISK].secret_name);
        let object = ObjectStatusReport {
            id: id.clone(),
            version: format!("v{mounted}"),
            not_before: Some(may_day(mounted)),
            not_after: Some(may_day(mounted + 90)),
            renew_after: None,
        };
        self.volumes.push(ObservedVolume {
            pod_name: name.to_owned(),
            class_name: CLASS.to_owned(),
            is_mounted: true,
            objects: vec![(id, format!("v{mounted}"))],
            report: StatusReportAnnotation::Parsed(VolumeStatusReport {
                objects: vec![object],
                ..VolumeStatusReport::default()
            }),
            ..ObservedVolume::default()
        });
        let credential = LoadedCredential {
            client_id: "c".to_owned(),
            thumbprint: format!("thumb{loaded}"),
            not_before: Some(may_day(loaded)),
            not_after: Some(may_day(loaded + 90)),
            renew_after: None,
            cannot_renew_after: None,
        };
        self.pods.push(ObservedPod {
            name: name.to_owned(),
            is_ready: true,
            canary_report: StatusReportAnnotation::Parsed(CanaryStatusReport {
                component: DISK.name().to_owned(),
                credential: Some(credential),
                ..CanaryStatusReport::default()
            }),
            ..ObservedPod::default()
        });
        self
    }

    fn find_drift(&self, memory: &DriftHistory) -> (Vec<DriftFinding>, DriftHistory) {
        find_drift(
            &DriftInputs {
                cluster: &self.cluster,
                now: self.now,
                pods: &self.pods,
                volumes: &self.volumes,
                changed_objects: &self.changed_objects,
                shared_credentials: &self.shared_credentials,
                unavailable_kinds: &self.unavailable_kinds,
                propagation_delay: PropagationDelay::default(),
            },
            memory,
        )
    }

    /// Returns the findings after every grace period.
    fn find_lasting_drift(mut self) -> Vec<Drift> {
        let (_, memory) = self.find_drift(&DriftHistory::default());
        self.now += SignedDuration::try_from(PropagationDelay::default().total()).unwrap();
        self.find_drift(&memory).0.into_iter().map(|finding| finding.drift).collect()
    }
}

fn may_day(day: i64) -> Timestamp {
    "2026-05-01T00:00:00Z".parse::<Timestamp>().unwrap() + (day * 24).hours()
}

#[test]
fn pods_that_mount_and_use_the_same_version_are_in_step() {
    let world = DriftFixture::new().with_pod("a", 1, 1).with_pod("b", 1, 1);
    assert_eq!(world.find_drift(&DriftHistory::default()), (vec![], DriftHistory::default()));
    assert_eq!(world.find_lasting_drift(), []);
}

#[test]
fn a_mount_is_stale_once_it_lasts_longer_than_a_rotation_may_take() {
    let mut world = DriftFixture::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
    let (found, memory) = world.find_drift(&DriftHistory::default());
    assert_eq!(found, [], "nodes poll at different times");
    let due = memory.next_finding_at(world.now, PropagationDelay::default()).unwrap();
    world.now += 2.minutes();
    assert_eq!(world.find_drift(&memory), (vec![], memory.clone()));
    world.now = noon() + SignedDuration::try_from(PropagationDelay::default().total()).unwrap();
    assert!(due <= world.now);
    let (found, memory) = world.find_drift(&memory);
    let expected = Drift::StaleMount {
        component: DISK,
        pod: "a".to_owned(),
        mounted_version: "v1".to_owned(),
        newest_version: "v9".to_owned(),
    };
    assert_eq!(found, [DriftFinding { drift: expected, since: noon() }]);

    let caught_up = DriftFixture::new().with_pod("a", 9, 9).with_pod("b", 9, 9);
    assert_eq!(
        caught_up.find_drift(&memory),
        (vec![], DriftHistory::default()),
        "forgotten when it is over"
    );
}

#[test]
fn only_pods_that_are_ready_and_stay_are_compared() {
    let changes: [fn(&mut ObservedPod); 2] =
        [|pod| pod.is_ready = false, |pod| pod.is_deleting = true];
    for change in changes {
        let mut world = DriftFixture::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
        change(&mut world.pods[0]);
        assert_eq!(world.find_lasting_drift(), []);
    }
}

#[test]
fn version_of_unknown_age_is_stale_beside_a_known_one() {
    let mut world = DriftFixture::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
    world.volumes[0].report = StatusReportAnnotation::Absent;
    assert_eq!(world.clone().find_lasting_drift().len(), 1);
    world.volumes[1].report = StatusReportAnnotation::Absent;
    assert_eq!(world.find_lasting_drift(), [], "versions themselves have no order");
}

#[test]
fn a_pod_that_mounts_another_secret_than_the_cluster_names_is_found() {
    let mut world = DriftFixture::new().with_pod("a", 1, 1);
    world.volumes[0].objects[0].0 = "secret/former".to_owned();
    let found = world.find_lasting_drift();
    assert_eq!(found[0].kind(), "OtherObjectMounted");
    assert!(found[0].message().contains("`secret/harbour-disk`"), "{}", found[0].message());
}

#[test]
fn the_case_of_a_secret_s_name_is_no_difference() {
    let mut world = DriftFixture::new().with_pod("a", 1, 1);
    let id = world.volumes[0].objects[0].0.to_ascii_uppercase();
    world.volumes[0].objects[0].0 = id;
    assert_eq!(world.find_lasting_drift(), []);
}

#[test]
fn a_process_that_goes_on_with_an_older_certificate_is_found() {
    let world = DriftFixture::new().with_pod("a", 9, 1);
    assert_eq!(world.find_drift(&DriftHistory::default()).0, [], "it may be loading it");
    let expected = Drift::OldCertificateInUse {
        component: DISK,
        pod: "a".to_owned(),
        thumbprint: "thumb1".to_owned(),
        mounted_version: "v9".to_owned(),
    };
    assert_eq!(world.find_lasting_drift(), [expected]);
}

#[test]
fn process_ahead_of_its_node_report_is_no_drift() {
    assert_eq!(DriftFixture::new().with_pod("a", 1, 9).find_lasting_drift(), []);
    // The timestamps of a certificate and of its document differ slightly.
    let mut world = DriftFixture::new().with_pod("a", 9, 9);
    let StatusReportAnnotation::Parsed(canary) = &mut world.pods[0].canary_report else { panic!() };
    canary.credential.as_mut().unwrap().not_before = Some(may_day(8));
    assert_eq!(world.clone().find_lasting_drift(), []);
    let StatusReportAnnotation::Parsed(canary) = &mut world.pods[0].canary_report else { panic!() };
    canary.component = "file".to_owned();
    assert_eq!(world.find_lasting_drift(), []);
}

#[test]
fn changed_object_is_drift_immediately() {
    let mut world = DriftFixture::new();
    let paths = ["z", "a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
    world.changed_objects.push(ChangedObject { object: "ConfigMap n/x".to_owned(), paths });
    let (found, _) = world.find_drift(&DriftHistory::default());
    let message = found[0].drift.message();
    assert_eq!(message, "ConfigMap n/x is not as rendered: a, b, c, d, e and 2 more");
}

#[test]
fn shared_credential_is_drift_of_the_linted_cluster() {
    let other = validated_cluster(&wire(&[("/metadata/name".to_owned(), json!("another"))]));
    let world = DriftFixture::new();
    let problems: ValidationProblems = lint_shared_credentials([&other, &world.cluster]);
    let shared: Vec<_> = problems.into_iter().collect();
    let (found, _) =
        DriftFixture { shared_credentials: shared, ..world }.find_drift(&DriftHistory::default());
    assert_eq!(found.len(), 9);
    assert!(found[0].drift.message().contains("is a credential of `clusters/another` too"));
}

#[test]
fn restart_keeps_the_start_time_of_a_finding() {
    let mut world = DriftFixture::new().with_pod("a", 1, 1).with_pod("b", 9, 9);
    let (_, memory) = world.find_drift(&DriftHistory::default());
    world.now += 1.hour();
    let (found, memory) = world.find_drift(&memory);
    let drift = found.iter().map(|finding| lanyard_api::hosted_cluster_identities::DriftStatus {
        kind: finding.drift.kind().to_owned(),
        subject: finding.drift.subject(),
        message: finding.drift.message(),
        since: finding.since,
    });
    let status = HostedClusterIdentitiesStatus {
        drift: drift.collect(),
        ..HostedClusterIdentitiesStatus::default()
    };
    let resumed = DriftHistory::from_status(Some(&status));
    assert_eq!(resumed, memory);
    world.now += 1.minute();
    assert_eq!(world.find_drift(&resumed).0, found);
}

#[test]
fn unavailable_kind_is_reported_once_immediately() {
    let kind = "SecretProviderClass".to_owned();
    let message = "could not watch secretproviderclasses".to_owned();
    let lacking =
        Drift::KindNotServed(UnavailableKind { kind, message, hint: "install the CRDs".into() });
    let world =
        DriftFixture { unavailable_kinds: vec![lacking.clone(), lacking], ..DriftFixture::new() };
    let (found, _) = world.find_drift(&DriftHistory::default());
    let kinds: Vec<_> = found.iter().map(|it| (it.drift.kind(), it.drift.subject())).collect();
    assert_eq!(kinds, [("KindNotServed", "SecretProviderClass".to_owned())]);
    assert_eq!(found[0].drift.hint(), "install the CRDs");
}

#[test]
fn every_drift_kind_is_listed_and_has_a_hint() {
    let text = || "x".to_owned();
    let lacking = || UnavailableKind { kind: text(), message: text(), hint: "see x".into() };
    let all = [
        Drift::KindForbidden(lacking()),
        Drift::KindNotServed(lacking()),
        Drift::ObjectChanged { object: text(), paths: vec![] },
        Drift::OldCertificateInUse {
            component: DISK,
            pod: text(),
            thumbprint: text(),
            mounted_version: text(),
        },
        Drift::UnexpectedObjectMounted { component: DISK, pod: text(), expected_id: text() },
        Drift::SharedCredential { field: text(), message: text() },
        Drift::StaleMount {
            component: DISK,
            pod: text(),
            mounted_version: text(),
            newest_version: text(),
        },
    ];
    assert_eq!(all.each_ref().map(Drift::kind), Drift::KINDS);
    assert!(all.iter().all(|drift| !drift.hint().is_empty() && !drift.message().is_empty()));
}
