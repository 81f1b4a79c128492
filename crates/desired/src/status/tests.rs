use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use jiff::ToSpan;
use k8s_openapi::api::core::v1::Pod;
use lanyard_api::canary_facts::{HopFailure, LoadedCredential, ProbeFacts};
use lanyard_api::hosted_cluster_identities::{IdentitiesStatus, IdentityStatus};
use lanyard_api::{CanaryFacts, ObjectFacts, SecretProviderClassPodStatus, VolumeFacts};
use lanyard_vocabulary::{Component, Consumer, Hop, OutcomeCode};
use serde_json::{Value, json};

use super::*;
use crate::drift::Finding;
use crate::fixture::{AZURE, KMS, changed, valid};
use crate::forecast::Policy;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::problem::Problems;
use crate::templates::WorkloadTemplates;
use crate::workload::CanaryCalls;

mod conditions;
mod identity;
mod properties;
mod throttled;
mod transitions;

const LOADED: &str = "5d0c7a1e-94b3-4f26-8e70-1c2b3a4d5e6f";

/// A management cluster in which every identity works, to be broken.
#[derive(Debug, Clone)]
struct World {
    cluster: ValidatedHostedCluster,
    now: Timestamp,
    classes: Option<BTreeSet<String>>,
    pods: Vec<ObservedPod>,
    volumes: Vec<ObservedVolume>,
    drift: Vec<Finding>,
    policy: Policy,
    lints: Problems,
    is_ending: bool,
    templates: WorkloadTemplates,
    private_router: Option<IpAddr>,
    previous: Option<IdentitiesStatus>,
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn noon() -> Timestamp {
    at("2026-06-01T12:00:00Z")
}

impl World {
    fn good() -> Self {
        Self::of(valid(&changed(&[])))
    }

    fn of(cluster: ValidatedHostedCluster) -> Self {
        let components: Vec<_> = cluster.components().map(|(component, _)| component).collect();
        let classes = components.iter().map(|it| it.facts().secret_provider_class.to_owned());
        let mut world = Self {
            classes: Some(classes.collect()),
            now: noon(),
            pods: Vec::new(),
            volumes: Vec::new(),
            drift: Vec::new(),
            policy: Policy::default(),
            lints: Problems::default(),
            is_ending: false,
            templates: WorkloadTemplates::default(),
            private_router: None,
            previous: None,
            cluster,
        };
        for component in components {
            for consumer in component.consumers() {
                world.run(component, consumer, consumer.deployment);
            }
        }
        world
    }

    /// Has a pod of the consumer run, with the canary of the component that is first there.
    fn run(&mut self, component: Component, consumer: &Consumer, pod: &str) {
        let class = component.facts().secret_provider_class;
        let secret = self.cluster.identities[&component].secret_name.clone();
        self.volumes.push(volume(pod, class, &format!("secret/{secret}"), "v1", stamps(0)));
        if let Some(known) = self.pods.iter_mut().find(|known| known.name == pod) {
            known.classes.insert(class.to_owned());
            return;
        }
        self.pods.push(ObservedPod {
            name: pod.to_owned(),
            uid: Some(format!("uid-of-{pod}")),
            deployment: Some(consumer.deployment.to_owned()),
            classes: BTreeSet::from([class.to_owned()]),
            is_ready: true,
            started: Some(at("2026-06-01T00:00:00Z")),
            canary: Facts::Told(canary(component)),
            ..ObservedPod::default()
        });
    }

    fn observed(&self) -> Observed<'_> {
        Observed {
            cluster: ClusterState::Valid(&self.cluster),
            generation: Some(3),
            now: self.now,
            classes: self.classes.as_ref().map_or(Classes::Unknown, Classes::Listed),
            pods: &self.pods,
            volumes: &self.volumes,
            canaries: CanaryCalls {
                templates: &self.templates,
                private_router: self.private_router,
            },
            policy: &self.policy,
            lints: &self.lints,
            is_ending: self.is_ending,
            drift: &self.drift,
            previous: self.previous.as_ref(),
        }
    }

    fn status(&self) -> IdentitiesStatus {
        identities_status(&self.observed())
    }

    fn identity(&self, component: Component) -> IdentityStatus {
        let all = self.status().identities;
        all.into_iter().find(|it| it.component == component.name()).unwrap()
    }

    fn condition(&self, kind: &str) -> (String, String, String) {
        let all = self.status().conditions;
        let found = all.into_iter().find(|it| it.type_ == kind).unwrap();
        (found.status, found.reason, found.message)
    }

    fn pod(&mut self, name: &str) -> &mut ObservedPod {
        self.pods.iter_mut().find(|pod| pod.name == name).unwrap()
    }

    fn pod_of(&mut self, component: Component) -> &mut ObservedPod {
        self.pod(component.consumers()[0].deployment)
    }

    fn volume_of(&mut self, component: Component) -> &mut ObservedVolume {
        self.volume_in(component, component.consumers()[0].deployment)
    }

    fn volume_in(&mut self, component: Component, pod: &str) -> &mut ObservedVolume {
        let class = component.facts().secret_provider_class;
        self.volumes.iter_mut().find(|it| it.class == class && it.pod == pod).unwrap()
    }

    fn canary_of(&mut self, component: Component) -> &mut CanaryFacts {
        told(&mut self.pod_of(component).canary)
    }

    fn facts_of(&mut self, component: Component) -> &mut VolumeFacts {
        told(&mut self.volume_of(component).facts)
    }

    fn outcome(&mut self, component: Component, code: OutcomeCode) {
        let facts = self.facts_of(component);
        facts.outcome = Some(code.name().to_owned());
        facts.message = Some(format!("what came of {code}"));
        facts.since = Some(at("2026-06-01T10:00:00.5Z"));
        facts.last_good_hop = crate::told::hop_before(code.hop()).map(|hop| hop.name().to_owned());
    }

    fn fail(&mut self, component: Component, hop: Hop, code: &str) {
        let facts = self.canary_of(component);
        facts.last_good_hop = crate::told::hop_before(hop).map(|hop| hop.name().to_owned());
        facts.failure = Some(HopFailure {
            hop: hop.name().to_owned(),
            code: code.to_owned(),
            message: "what came back".to_owned(),
            hint: "do this".to_owned(),
            since: at("2026-06-01T11:00:00Z"),
        });
    }

    fn probe(&mut self, component: Component, name: &str, good: bool, reason: &str) {
        self.canary_of(component).probes.push(ProbeFacts {
            name: name.to_owned(),
            good,
            reason: reason.to_owned(),
            message: format!("{component} tells of {name}"),
            hint: if good { String::new() } else { "do this".to_owned() },
            since: at("2026-06-01T11:00:00Z"),
        });
    }

    /// Has the canary load a credential that begins so many days later than the first one.
    fn load(&mut self, component: Component, days: i64) {
        let (begin, renewal, end) = stamps(days);
        let loaded = self.canary_of(component).credential.as_mut().unwrap();
        (loaded.not_before, loaded.renew_after, loaded.not_after) =
            (Some(begin), Some(renewal), Some(end));
        loaded.cannot_renew_after = Some(end);
    }

    /// The same where what was told stands as the status.
    fn settled(mut self) -> Self {
        self.previous = Some(self.status());
        self
    }

    fn later(mut self, minutes: i64) -> Self {
        self.now += minutes.minutes();
        self
    }
}

fn told<T>(facts: &mut Facts<T>) -> &mut T {
    match facts {
        Facts::Told(facts) => facts,
        Facts::Absent | Facts::Unreadable => panic!("nothing is told"),
    }
}

/// The stamps of a credential that begins so many days later than the first one.
fn stamps(days: i64) -> (Timestamp, Timestamp, Timestamp) {
    let begin = at("2026-05-20T00:00:00Z") + (days * 24).hours();
    (begin, begin + (45 * 24).hours(), begin + (90 * 24).hours())
}

fn volume(
    pod: &str,
    class: &str,
    id: &str,
    version: &str,
    (begin, renewal, end): (Timestamp, Timestamp, Timestamp),
) -> ObservedVolume {
    let facts = VolumeFacts {
        last_good_hop: Some("file".to_owned()),
        objects: vec![ObjectFacts {
            id: id.to_owned(),
            version: version.to_owned(),
            not_before: Some(begin),
            not_after: Some(end),
            renew_after: Some(renewal),
        }],
        ..VolumeFacts::default()
    };
    ObservedVolume {
        pod: pod.to_owned(),
        pod_uid: Some(format!("uid-of-{pod}")),
        class: class.to_owned(),
        is_mounted: true,
        objects: vec![(id.to_owned(), version.to_owned())],
        facts: Facts::Told(facts),
    }
}

fn canary(component: Component) -> CanaryFacts {
    let (begin, renewal, end) = stamps(0);
    CanaryFacts {
        component: component.name().to_owned(),
        last_good_hop: Some("granted".to_owned()),
        credential: Some(LoadedCredential {
            client_id: LOADED.to_owned(),
            thumbprint: "thumb".to_owned(),
            not_before: Some(begin),
            not_after: Some(end),
            renew_after: Some(renewal),
            cannot_renew_after: Some(end),
        }),
        ..CanaryFacts::default()
    }
}

fn bytes(status: &IdentitiesStatus) -> String {
    serde_json::to_string(status).unwrap()
}

/// What a condition says.
fn triple(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

fn said(identity: &IdentityStatus) -> (&str, &str, Option<&str>, Option<&str>) {
    (
        identity.ready.as_str(),
        identity.reason.as_str(),
        identity.last_good_hop.as_deref(),
        identity.failed_hop.as_deref(),
    )
}

#[test]
fn a_pod_is_seen_with_its_deployment_its_classes_and_what_its_canary_told() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "ingress-operator-7d9-x", "uid": "u",
            "labels": {"pod-template-hash": "7d9"},
            "creationTimestamp": "2026-05-31T23:59:00Z",
            "annotations": {(CanaryFacts::ANNOTATION): r#"{"component":"ingress","lastGoodHop":"granted"}"#},
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
    let seen = ObservedPod::of(&pod);
    assert_eq!(
        seen,
        ObservedPod {
            name: "ingress-operator-7d9-x".to_owned(),
            uid: Some("u".to_owned()),
            deployment: Some("ingress-operator".to_owned()),
            classes: BTreeSet::from(["managed-azure-ingress".to_owned()]),
            is_ready: true,
            is_deleting: false,
            gone_by: None,
            created: Some(at("2026-05-31T23:59:00Z")),
            started: Some(at("2026-06-01T01:00:00Z")),
            restarts: 4,
            canary: Facts::Told(CanaryFacts {
                component: "ingress".to_owned(),
                last_good_hop: Some("granted".to_owned()),
                ..CanaryFacts::default()
            }),
        }
    );
}

#[test]
fn a_pod_that_runs_no_more_is_not_ready_and_a_text_that_is_no_fact_is_told_apart() {
    let seen = |status: Value, annotation: &str| {
        let pod = json!({"metadata": {"annotations": {(CanaryFacts::ANNOTATION): annotation}}, "status": status});
        ObservedPod::of(&serde_json::from_value(pod).unwrap())
    };
    let ready = json!([{"type": "Ready", "status": "True"}]);
    assert!(!seen(json!({"phase": "Succeeded", "conditions": ready}), "").is_ready);
    assert!(!seen(json!({"phase": "Running"}), "").is_ready);
    assert_eq!(seen(json!({}), "[").canary, Facts::Unreadable);
    assert_eq!(ObservedPod::of(&Pod::default()), ObservedPod::default());
}

#[test]
fn a_pod_status_is_seen_with_its_versions_whoever_wrote_it() {
    let mut status: SecretProviderClassPodStatus = serde_json::from_value(json!({
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
        "status": {
            "podName": "p", "secretProviderClassName": "c", "mounted": true,
            "objects": [{"id": "secret/a", "version": "1"}, {"version": "2"}],
        },
    }))
    .unwrap();
    let seen = ObservedVolume::of(&status).unwrap();
    assert_eq!(seen.objects, [("secret/a".to_owned(), "1".to_owned())]);
    assert_eq!((seen.pod_uid.as_deref(), seen.is_mounted), (Some("u"), true));
    assert_eq!(seen.facts, Facts::Absent);
    status.status.pod_name = None;
    assert_eq!(ObservedVolume::of(&status), None);
}
