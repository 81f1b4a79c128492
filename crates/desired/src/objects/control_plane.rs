//! The namespace of the control plane, the HostedControlPlane, and the ServiceAccount and
//! RoleBinding of the canaries.

use lanyard_api::crd_definitions::{default_etcd, default_networking};
use lanyard_api::{HostedCluster, HostedControlPlane};
use serde_json::{Map, Value, json};

use super::inputs::DesiredObjectInputs;
use super::mirrored_metadata::{annotation, mirrored_annotations, mirrored_labels};
use super::reference_copies::ReferencedObject;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::workload::{CANARY_CLUSTER_ROLE, CANARY_SERVICE_ACCOUNT};

/// Annotation of a HostedCluster: the pod security standard of the control plane's namespace.
const POD_SECURITY_ANNOTATION: &str =
    "hypershift.openshift.io/pod-security-admission-label-override";

/// Fields of a HostedCluster that a HostedControlPlane has under another name; of a release, only
/// the image is copied.
const RELEASE_FIELDS: [(&str, &str); 2] =
    [("release", "releaseImage"), ("controlPlaneRelease", "controlPlaneReleaseImage")];

pub(super) fn desired_namespace(
    cluster: &ValidatedHostedCluster,
    inputs: &DesiredObjectInputs<'_>,
) -> Value {
    let standard = annotation(inputs.wire, POD_SECURITY_ANNOTATION)
        .unwrap_or_else(|| inputs.templates.pod_security());
    // HyperShift copies the id only where its operator runs with `MANAGED_SERVICE=ARO-HCP`. Every
    // cluster for which lanyard renders objects is one of managed Azure.
    let resource_id = annotation(inputs.wire, HostedCluster::RESOURCE_ID_ANNOTATION)
        .map(|id| (HostedCluster::RESOURCE_ID_ANNOTATION.to_owned(), json!(id)));
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
                // OpenShift's controller would replace the three labels.
                "security.openshift.io/scc.podSecurityLabelSync": "false",
            },
            "annotations": resource_id.into_iter().collect::<Map<_, _>>(),
        },
    })
}

/// The HostedControlPlane has the spec of its HostedCluster, unknown fields included. References to
/// objects in the namespace of the HostedCluster are replaced by those to their copies.
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
        for object in ReferencedObject::ALL {
            let reference = object.copied_reference(wire);
            if let Some(reference) = reference {
                spec.insert(object.field().to_owned(), reference);
            } else {
                spec.remove(object.field());
            }
        }
        add_required_fields(spec, cluster);
    }
    let mut metadata = json!({
        "name": cluster.name,
        "namespace": cluster.control_plane_namespace(),
        "annotations": mirrored_annotations(wire),
    });
    let labels = mirrored_labels(wire);
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    json!({
        "apiVersion": HostedControlPlane::API_VERSION,
        "kind": HostedControlPlane::KIND,
        "metadata": metadata,
        "spec": spec,
    })
}

/// Adds the fields that the HostedControlPlane requires and the HostedCluster does not, with the
/// values that HyperShift writes: the defaults of the HostedCluster API, and the zero values of
/// Go's structs.
fn add_required_fields(spec: &mut Map<String, Value>, cluster: &ValidatedHostedCluster) {
    let required = [
        ("dns", json!({"baseDomain": ""})),
        ("etcd", default_etcd()),
        ("issuerURL", json!(cluster.issuer_url)),
        ("networking", default_networking()),
    ];
    for (name, value) in required {
        spec.entry(name).or_insert(value);
    }
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
