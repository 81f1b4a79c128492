//! The namespace of the control plane, the HostedControlPlane, and the ServiceAccount and
//! RoleBinding of the canaries.

use lanyard_api::{HostedCluster, HostedControlPlane};
use serde_json::{Map, Value, json};

use super::inputs::DesiredObjectInputs;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::workload::{CANARY_CLUSTER_ROLE, CANARY_SERVICE_ACCOUNT};

/// Annotation of a HostedCluster: the pod security standard of the control plane's namespace.
const POD_SECURITY_ANNOTATION: &str =
    "hypershift.openshift.io/pod-security-admission-label-override";

/// Annotations of a HostedCluster that are copied to its HostedControlPlane.
const MIRRORED_ANNOTATIONS: [&str; 3] = [
    HostedCluster::HEALTH_PROBE_MODE_ANNOTATION,
    HostedCluster::HEALTH_PROBE_PATH_ANNOTATION,
    HostedCluster::HEALTH_PROBE_PORT_ANNOTATION,
];

/// Fields of a HostedCluster that a HostedControlPlane has under another name; of a release, only
/// the image is copied.
const RELEASE_FIELDS: [(&str, &str); 2] =
    [("release", "releaseImage"), ("controlPlaneRelease", "controlPlaneReleaseImage")];

fn copied_annotations(wire: &HostedCluster, keys: &[&str]) -> Map<String, Value> {
    let annotations = wire.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let value = |key: &&str| annotations?.get(*key).map(|value| json!(value));
    keys.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect()
}

pub(super) fn desired_namespace(
    cluster: &ValidatedHostedCluster,
    inputs: &DesiredObjectInputs<'_>,
) -> Value {
    let chosen = copied_annotations(inputs.wire, &[POD_SECURITY_ANNOTATION]);
    let standard = chosen
        .get(POD_SECURITY_ANNOTATION)
        .and_then(Value::as_str)
        .unwrap_or_else(|| inputs.templates.pod_security());
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": cluster.control_plane_namespace(),
            "labels": {
                HostedControlPlane::CONTROL_PLANE_LABEL: "true",
                "pod-security.kubernetes.io/enforce": standard,
                "pod-security.kubernetes.io/audit": standard,
                "pod-security.kubernetes.io/warn": standard,
            },
            "annotations": copied_annotations(inputs.wire, &[HostedCluster::RESOURCE_ID_ANNOTATION]),
        },
    })
}

/// The HostedControlPlane has the spec of its HostedCluster, unknown fields included.
pub(super) fn desired_hosted_control_plane(
    cluster: &ValidatedHostedCluster,
    wire: &HostedCluster,
) -> Value {
    // Serializing a deserialized spec cannot fail.
    let mut spec = serde_json::to_value(&wire.spec).unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        for (release, image) in RELEASE_FIELDS {
            let image_of = |release: Value| release.get("image").cloned();
            if let Some(found) = spec.remove(release).and_then(image_of) {
                spec.insert(image.to_owned(), found);
            }
        }
    }
    json!({
        "apiVersion": HostedControlPlane::API_VERSION,
        "kind": HostedControlPlane::KIND,
        "metadata": {
            "name": cluster.name,
            "namespace": cluster.control_plane_namespace(),
            "annotations": copied_annotations(wire, &MIRRORED_ANNOTATIONS),
        },
        "spec": spec,
    })
}

pub(super) fn canary_service_account(cluster: &ValidatedHostedCluster) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": CANARY_SERVICE_ACCOUNT, "namespace": cluster.control_plane_namespace()},
    })
}

/// The permissions are in a ClusterRole, so that the operator needs only the permission to bind
/// that role and none to create roles.
pub(super) fn canary_role_binding(cluster: &ValidatedHostedCluster) -> Value {
    let namespace = cluster.control_plane_namespace();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": CANARY_SERVICE_ACCOUNT, "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": CANARY_CLUSTER_ROLE,
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": CANARY_SERVICE_ACCOUNT, "namespace": namespace},
        ],
    })
}
