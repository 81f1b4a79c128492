use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use jiff::ToSpan;
use k8s_openapi::api::core::v1::Pod;
use lanyard_api::canary_report::{CanaryProbeReport, HopFailure, LoadedCredential};
use lanyard_api::hosted_cluster_identities::{HostedClusterIdentitiesStatus, IdentityStatus};
use lanyard_api::{
    CanaryStatusReport, ObjectStatusReport, SecretProviderClassPodStatus, VolumeStatusReport,
};
use lanyard_vocabulary::{Component, Consumer, Hop, OutcomeCode};
use serde_json::{Value, json};

use super::*;
use crate::drift::DriftFinding;
use crate::fixture::{AZURE, KMS, example_with_changes, validated_cluster};
use crate::forecast::RenewalPolicy;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::key_rotation::DataEncryption;
use crate::problem::ValidationProblems;
use crate::templates::WorkloadTemplates;
use crate::workload::CanaryCalls;

mod conditions;
mod identity;
mod properties;
mod throttled;
mod transitions;

const LOADED_CLIENT_ID: &str = "5d0c7a1e-94b3-4f26-8e70-1c2b3a4d5e6f";

/// A management cluster in which every identity works; tests break parts of it.
#[derive(Debug, Clone)]
struct StatusFixture {
    cluster: ValidatedHostedCluster,
    now: Timestamp,
    classes: Option<BTreeSet<String>>,
    pods: Vec<ObservedPod>,
    volumes: Vec<ObservedVolume>,
    drift_findings: Vec<DriftFinding>,
    renewal_policy: RenewalPolicy,
    lints: ValidationProblems,
    is_deleting: bool,
    templates: WorkloadTemplates,
    private_router: Option<IpAddr>,
    data_encryption: Option<DataEncryption>,
    previous_status: Option<HostedClusterIdentitiesStatus>,
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn noon() -> Timestamp {
    at("2026-06-01T12:00:00Z")
}

impl StatusFixture {
    fn all_ready() -> Self {
        Self::for_cluster(validated_cluster(&example_with_changes(&[])))
    }

    fn for_cluster(cluster: ValidatedHostedCluster) -> Self {
        let components: Vec<_> =
            cluster.running_components().map(|(component, _)| component).collect();
        let classes = components.iter().map(|it| it.definition().secret_provider_class.to_owned());
        let mut world = Self {
            classes: Some(classes.collect()),
            now: noon(),
            pods: Vec::new(),
            volumes: Vec::new(),
            drift_findings: Vec::new(),
            renewal_policy: RenewalPolicy::default(),
            lints: ValidationProblems::default(),
            is_deleting: false,
            templates: WorkloadTemplates::default(),
            private_router: None,
            data_encryption: None,
            previous_status: None,
            cluster,
        };
        for component in components {
            for consumer in component.consumers() {
                world.add_ready_pod(component, consumer, consumer.deployment);
            }
        }
        world
    }

    /// Adds a ready pod of the consumer, with the canary of the first component of that consumer.
    fn add_ready_pod(&mut self, component: Component, consumer: &Consumer, pod: &str) {
        let class = component.definition().secret_provider_class;
        let secret = self.cluster.identities[&component].secret_name.clone();
        self.volumes.push(observed_volume(
            pod,
            class,
            &format!("secret/{secret}"),
            "v1",
            credential_timestamps(0),
        ));
        if let Some(known) = self.pods.iter_mut().find(|known| known.name == pod) {
            known.class_names.insert(class.to_owned());
            return;
        }
        self.pods.push(ObservedPod {
            name: pod.to_owned(),
            uid: Some(format!("uid-of-{pod}")),
            deployment: Some(consumer.deployment.to_owned()),
            class_names: BTreeSet::from([class.to_owned()]),
            is_ready: true,
            started_at: Some(at("2026-06-01T00:00:00Z")),
            canary_report: StatusReportAnnotation::Parsed(canary_report(component)),
            ..ObservedPod::default()
        });
    }

    fn inputs(&self) -> IdentityStatusInputs<'_> {
        IdentityStatusInputs {
            cluster: ClusterValidation::Valid(&self.cluster),
            generation: Some(3),
            now: self.now,
            classes: self
                .classes
                .as_ref()
                .map_or(ObservedClasses::Unknown, ObservedClasses::Listed),
            pods: &self.pods,
            volumes: &self.volumes,
            canary_calls: CanaryCalls {
                templates: &self.templates,
                private_router: self.private_router,
            },
            renewal_policy: &self.renewal_policy,
            problems: &self.lints,
            data_encryption: self.data_encryption.as_ref(),
            is_deleting: self.is_deleting,
            drift_findings: &self.drift_findings,
            previous_status: self.previous_status.as_ref(),
        }
    }

    fn status(&self) -> HostedClusterIdentitiesStatus {
        identities_status(&self.inputs())
    }

    fn identity_status(&self, component: Component) -> IdentityStatus {
        let all = self.status().identities;
        all.into_iter().find(|it| it.component == component.name()).unwrap()
    }

    fn condition(&self, kind: &str) -> (String, String, String) {
        let all = self.status().conditions;
        let found = all.into_iter().find(|it| it.type_ == kind).unwrap();
        (found.status, found.reason, found.message)
    }

    fn pod_mut(&mut self, name: &str) -> &mut ObservedPod {
        self.pods.iter_mut().find(|pod| pod.name == name).unwrap()
    }

    fn pod_of_component(&mut self, component: Component) -> &mut ObservedPod {
        self.pod_mut(component.consumers()[0].deployment)
    }

    fn volume_of_component(&mut self, component: Component) -> &mut ObservedVolume {
        self.volume_of_pod(component, component.consumers()[0].deployment)
    }

    fn volume_of_pod(&mut self, component: Component, pod: &str) -> &mut ObservedVolume {
        let class = component.definition().secret_provider_class;
        self.volumes.iter_mut().find(|it| it.class_name == class && it.pod_name == pod).unwrap()
    }

    fn canary_report_of(&mut self, component: Component) -> &mut CanaryStatusReport {
        parsed_mut(&mut self.pod_of_component(component).canary_report)
    }

    fn volume_report_of(&mut self, component: Component) -> &mut VolumeStatusReport {
        parsed_mut(&mut self.volume_of_component(component).report)
    }

    fn report_outcome(&mut self, component: Component, code: OutcomeCode) {
        let facts = self.volume_report_of(component);
        facts.outcome = Some(code.name().to_owned());
        facts.message = Some(format!("what came of {code}"));
        facts.since = Some(at("2026-06-01T10:00:00.5Z"));
        facts.last_good_hop =
            crate::report_text::previous_hop(code.hop()).map(|hop| hop.name().to_owned());
    }

    fn report_canary_failure(&mut self, component: Component, hop: Hop, code: &str) {
        let facts = self.canary_report_of(component);
        facts.last_good_hop =
            crate::report_text::previous_hop(hop).map(|hop| hop.name().to_owned());
        facts.failure = Some(HopFailure {
            hop: hop.name().to_owned(),
            code: code.to_owned(),
            message: "what came back".to_owned(),
            hint: "do this".to_owned(),
            since: at("2026-06-01T11:00:00Z"),
        });
    }

    fn report_probe(&mut self, component: Component, name: &str, good: bool, reason: &str) {
        self.canary_report_of(component).probes.push(CanaryProbeReport {
            name: name.to_owned(),
            good,
            reason: reason.to_owned(),
            message: format!("{component} reports {name}"),
            hint: if good { String::new() } else { "do this".to_owned() },
            since: at("2026-06-01T11:00:00Z"),
        });
    }

    /// Makes the canary load a credential whose validity starts `days` later than that of the first
    /// one.
    fn load_credential(&mut self, component: Component, days: i64) {
        let (begin, renewal, end) = credential_timestamps(days);
        let loaded = self.canary_report_of(component).credential.as_mut().unwrap();
        (loaded.not_before, loaded.renew_after, loaded.not_after) =
            (Some(begin), Some(renewal), Some(end));
        loaded.cannot_renew_after = Some(end);
    }

    /// Stores the current status as the previous one.
    fn with_current_status_as_previous(mut self) -> Self {
        self.previous_status = Some(self.status());
        self
    }

    fn advanced_by_minutes(mut self, minutes: i64) -> Self {
        self.now += minutes.minutes();
        self
    }
}

fn parsed_mut<T>(facts: &mut StatusReportAnnotation<T>) -> &mut T {
    match facts {
        StatusReportAnnotation::Parsed(facts) => facts,
        StatusReportAnnotation::Absent | StatusReportAnnotation::Unreadable => panic!("no report"),
    }
}

/// Returns the timestamps of a credential whose validity starts `days` later than that of the first
/// one.
fn credential_timestamps(days: i64) -> (Timestamp, Timestamp, Timestamp) {
    let begin = at("2026-05-20T00:00:00Z") + (days * 24).hours();
    (begin, begin + (45 * 24).hours(), begin + (90 * 24).hours())
}

fn observed_volume(
    pod: &str,
    class: &str,
    id: &str,
    version: &str,
    (begin, renewal, end): (Timestamp, Timestamp, Timestamp),
) -> ObservedVolume {
    let facts = VolumeStatusReport {
        last_good_hop: Some("file".to_owned()),
        objects: vec![ObjectStatusReport {
            id: id.to_owned(),
            version: version.to_owned(),
            not_before: Some(begin),
            not_after: Some(end),
            renew_after: Some(renewal),
        }],
        ..VolumeStatusReport::default()
    };
    ObservedVolume {
        pod_name: pod.to_owned(),
        pod_uid: Some(format!("uid-of-{pod}")),
        class_name: class.to_owned(),
        is_mounted: true,
        objects: vec![(id.to_owned(), version.to_owned())],
        report: StatusReportAnnotation::Parsed(facts),
    }
}

fn canary_report(component: Component) -> CanaryStatusReport {
    let (begin, renewal, end) = credential_timestamps(0);
    CanaryStatusReport {
        component: component.name().to_owned(),
        last_good_hop: Some("granted".to_owned()),
        credential: Some(LoadedCredential {
            client_id: LOADED_CLIENT_ID.to_owned(),
            thumbprint: "thumb".to_owned(),
            not_before: Some(begin),
            not_after: Some(end),
            renew_after: Some(renewal),
            cannot_renew_after: Some(end),
        }),
        ..CanaryStatusReport::default()
    }
}

fn status_json(status: &HostedClusterIdentitiesStatus) -> String {
    serde_json::to_string(status).unwrap()
}

/// Returns the content of a condition.
fn condition_content(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

fn identity_summary(identity: &IdentityStatus) -> (&str, &str, Option<&str>, Option<&str>) {
    (
        identity.ready.as_str(),
        identity.reason.as_str(),
        identity.last_good_hop.as_deref(),
        identity.failed_hop.as_deref(),
    )
}

#[test]
fn observed_pod_has_deployment_classes_and_canary_report() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "ingress-operator-7d9-x", "uid": "u",
            "labels": {"pod-template-hash": "7d9"},
            "creationTimestamp": "2026-05-31T23:59:00Z",
            "annotations": {(CanaryStatusReport::REPORT_ANNOTATION): r#"{"component":"ingress","lastGoodHop":"granted"}"#},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true, "name": "ingress-operator-7d9", "uid": "r"}],
        },
        "spec": {"containers": [], "volumes": [
            {"name": "ingress-cert", "csi": {"driver": "secrets-store.csi.k8s.io", "volumeAttributes": {"secretProviderClass": "managed-azure-ingress"}}},
            {"name": "other", "csi": {"driver": "disk.csi.azure.com", "volumeAttributes": {"secretProviderClass": "no"}}},
            {"name": "empty", "emptyDir": {}},
        ]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 1, "state": {"running": {"startedAt": "2026-06-01T00:00:00Z"}}},
                {"name": "b", "image": "", "imageID": "", "ready": true, "restartCount": 4, "state": {"running": {"startedAt": "2026-06-01T01:00:00Z"}}},
            ],
        },
    }))
    .unwrap();
    let observed = ObservedPod::from_pod(&pod);
    assert_eq!(
        observed,
        ObservedPod {
            name: "ingress-operator-7d9-x".to_owned(),
            uid: Some("u".to_owned()),
            deployment: Some("ingress-operator".to_owned()),
            class_names: BTreeSet::from(["managed-azure-ingress".to_owned()]),
            is_ready: true,
            is_deleting: false,
            deletion_deadline: None,
            created_at: Some(at("2026-05-31T23:59:00Z")),
            started_at: Some(at("2026-06-01T01:00:00Z")),
            restarts: 4,
            canary_report: StatusReportAnnotation::Parsed(CanaryStatusReport {
                component: "ingress".to_owned(),
                last_good_hop: Some("granted".to_owned()),
                ..CanaryStatusReport::default()
            }),
        }
    );
}

#[test]
fn finished_pod_is_not_ready_and_invalid_report_is_unreadable() {
    let observed = |status: Value, annotation: &str| {
        let pod = json!({"metadata": {"annotations": {(CanaryStatusReport::REPORT_ANNOTATION): annotation}}, "status": status});
        ObservedPod::from_pod(&serde_json::from_value(pod).unwrap())
    };
    let ready = json!([{"type": "Ready", "status": "True"}]);
    assert!(!observed(json!({"phase": "Succeeded", "conditions": ready}), "").is_ready);
    assert!(!observed(json!({"phase": "Running"}), "").is_ready);
    assert_eq!(observed(json!({}), "[").canary_report, StatusReportAnnotation::Unreadable);
    assert_eq!(ObservedPod::from_pod(&Pod::default()), ObservedPod::default());
}

#[test]
fn observed_volume_has_versions_from_any_driver() {
    let mut status: SecretProviderClassPodStatus = serde_json::from_value(json!({
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
        "status": {
            "podName": "p", "secretProviderClassName": "c", "mounted": true,
            "objects": [{"id": "secret/a", "version": "1"}, {"version": "2"}],
        },
    }))
    .unwrap();
    let observed = ObservedVolume::from_pod_status(&status).unwrap();
    assert_eq!(observed.objects, [("secret/a".to_owned(), "1".to_owned())]);
    assert_eq!((observed.pod_uid.as_deref(), observed.is_mounted), (Some("u"), true));
    assert_eq!(observed.report, StatusReportAnnotation::Absent);
    status.status.pod_name = None;
    assert_eq!(ObservedVolume::from_pod_status(&status), None);
}
