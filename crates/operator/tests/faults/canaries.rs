//! The nine canaries of a cluster, created by another controller: their pods, the node's status of their
//! volumes, and their reports.

use jiff::Timestamp;
use lanyard_api::canary_report::{CanaryProbeReport, HopFailure, LoadedCredential};
use lanyard_api::{CanaryStatusReport, HostedControlPlane};
use lanyard_vocabulary::{Component, Hop};
use serde_json::{Value, json};

use crate::fixture::{SECRET_PROVIDER_CLASSES, control_plane_namespace, secret_name};
use crate::management_api::FakeManagementApi;

const PODS: &str = "pods";
const POD_STATUSES: &str = "secretproviderclasspodstatuses";
/// The reason that a canary reports for a throttled service.
pub(crate) const TOO_MANY_REQUESTS: &str = "TooManyRequests";

/// Creates the SecretProviderClasses and the canaries of a cluster.
pub(crate) fn put_classes_and_canaries(server: &FakeManagementApi, number: usize) {
    for component in Component::ALL {
        let class = class_name(component);
        server.put_externally(
            SECRET_PROVIDER_CLASSES,
            json!({"metadata": {"name": class, "namespace": control_plane_namespace(number)}}),
        );
    }
    put_canary_pods(server, number);
}

/// Creates the canaries of a cluster; each has proven its identity.
pub(crate) fn put_canary_pods(server: &FakeManagementApi, number: usize) {
    for component in Component::ALL {
        server.put_externally(PODS, pod(number, component));
        for mounted in components_mounted_with(component) {
            server.put_externally(POD_STATUSES, pod_status(number, component, mounted));
        }
    }
}

/// The components whose canaries call Azure Resource Manager: all except the KMS, which calls a vault.
pub(crate) fn arm_components() -> impl Iterator<Item = Component> {
    Component::ALL.into_iter().filter(|component| *component != Component::Kms)
}

/// Sets since when a canary is throttled; `None` ends the throttling.
pub(crate) fn set_throttled(
    server: &FakeManagementApi,
    number: usize,
    component: Component,
    throttled: Option<Timestamp>,
) {
    server.change_externally(
        (PODS, &control_plane_namespace(number), &pod_name(component)),
        |pod| {
            pod["metadata"]["annotations"][CanaryStatusReport::REPORT_ANNOTATION] =
                canary_facts(component, throttled);
        },
    );
}

/// The report of a canary that has proven its identity.
fn canary_facts(component: Component, throttled: Option<Timestamp>) -> Value {
    let time = |text: &str| Some(text.parse().unwrap());
    let failure = |since| HopFailure {
        hop: Hop::Granted.name().to_owned(),
        code: TOO_MANY_REQUESTS.to_owned(),
        message: "the call was throttled by management.azure.com".to_owned(),
        hint: "wait".to_owned(),
        since,
    };
    let probe = |name: &str, throttled: Option<Timestamp>| CanaryProbeReport {
        name: name.to_owned(),
        good: true,
        reason: throttled.map_or("AsExpected", |_| TOO_MANY_REQUESTS).to_owned(),
        message: throttled.map_or("all is well", |_| "the probe was throttled").to_owned(),
        hint: String::new(),
        since: "2026-11-21T11:00:00Z".parse().unwrap(),
    };
    let encryption = probe(CanaryProbeReport::ENCRYPTION_PROBE, None);
    let facts = CanaryStatusReport {
        component: component.name().to_owned(),
        last_good_hop: Some(Hop::Granted.name().to_owned()),
        failure: None,
        throttled: throttled.map(failure),
        credential: Some(LoadedCredential {
            client_id: "2d9b7a06-f3e5-4810-9b6c-e54d18a07c3f".to_owned(),
            thumbprint: "thumbprint".to_owned(),
            not_before: time("2026-11-01T00:00:00Z"),
            not_after: time("2027-11-01T00:00:00Z"),
            renew_after: time("2027-05-01T00:00:00Z"),
            cannot_renew_after: time("2027-10-01T00:00:00Z"),
        }),
        probes: match component {
            Component::ControlPlaneOperator => {
                vec![encryption, probe(CanaryProbeReport::NETWORK_PROBE, throttled)]
            }
            Component::Kms => vec![encryption],
            _ => Vec::new(),
        },
    };
    Value::from(serde_json::to_string(&facts).unwrap())
}

fn pod(number: usize, component: Component) -> Value {
    let volume = |mounted: Component| {
        let attributes = json!({"secretProviderClass": class_name(mounted)});
        json!({"name": mounted.name(), "csi": {"driver": "secrets-store.csi.k8s.io",
            "readOnly": true, "volumeAttributes": attributes}})
    };
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
        "name": format!("{}-5d9c7b", component.consumers()[0].deployment), "uid": "replicas"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(component),
            "namespace": control_plane_namespace(number),
            "labels": {
                (HostedControlPlane::CONTROL_PLANE_LABEL): control_plane_namespace(number),
                (CanaryStatusReport::COMPONENT_LABEL): component.name(),
                "pod-template-hash": "5d9c7b",
            },
            "annotations": {(CanaryStatusReport::REPORT_ANNOTATION): canary_facts(component, None)},
            "ownerReferences": [owner],
        },
        "spec": {
            "containers": [{"name": "canary", "image": "lanyard"}],
            "volumes": components_mounted_with(component).map(volume).collect::<Vec<_>>(),
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "canary", "image": "lanyard", "imageID": "", "ready": true,
                "restartCount": 0, "state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}},
            }],
        },
    })
}

fn pod_status(number: usize, component: Component, mounted: Component) -> Value {
    let (pod, class) = (pod_name(component), class_name(mounted));
    let object = json!({"id": format!("secret/{}", secret_name(number, mounted)), "version": "v1"});
    json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClassPodStatus",
        "metadata": {"name": format!("{pod}-{class}"), "namespace": control_plane_namespace(number)},
        "status": {"mounted": true, "podName": pod, "secretProviderClassName": class,
            "targetPath": "/mnt", "objects": [object]},
    })
}

/// The components whose credentials are mounted into the canary pod of this component.
fn components_mounted_with(component: Component) -> impl Iterator<Item = Component> {
    let deployment = component.consumers()[0].deployment;
    Component::ALL.into_iter().filter(move |mounted| {
        mounted.consumers().iter().any(|consumer| consumer.deployment == deployment)
    })
}

fn pod_name(component: Component) -> String {
    format!("{}-5d9c7b-0", component.consumers()[0].deployment)
}

fn class_name(component: Component) -> &'static str {
    component.definition().secret_provider_class
}
