//! The annotations and labels of a HostedCluster that its HostedControlPlane has as well.
//!
//! Components of the control plane read them there. A HostedControlPlane has exactly those of its
//! HostedCluster: one that the HostedCluster lacks is removed, also if another client set it.
//!
//! Source: `reconcileHostedControlPlane` of HyperShift's operator.

use lanyard_api::HostedCluster;
use serde_json::{Map, Value, json};

const ANNOTATIONS: [&str; 48] = [
    "hypershift.openshift.io/api-critical-priority-class",
    "hypershift.openshift.io/aws-karpenter-default-instance-profile",
    "hypershift.openshift.io/aws-kms-provider-image",
    "hypershift.openshift.io/aws-load-balancer-health-probe-mode",
    "hypershift.openshift.io/aws-load-balancer-subnets",
    "hypershift.openshift.io/aws-load-balancer-target-node-labels",
    "hypershift.openshift.io/aws-machine-public-ips",
    "hypershift.openshift.io/aws-termination-handler-queue-url",
    HostedCluster::HEALTH_PROBE_MODE_ANNOTATION,
    "hypershift.openshift.io/certified-operators-catalog-image",
    "hypershift.openshift.io/cleanup-cloud-resources",
    "hypershift.openshift.io/cluster-autoscaler-image",
    "hypershift.openshift.io/community-operators-catalog-image",
    "hypershift.openshift.io/control-plane-priority-class",
    "hypershift.openshift.io/debug-deployments",
    "hypershift.openshift.io/disable-ignition-server",
    "hypershift.openshift.io/disable-machine-management",
    "hypershift.openshift.io/disable-pki-reconciliation",
    "hypershift.openshift.io/disable-profiling",
    "hypershift.openshift.io/enable-metrics-forwarding",
    "hypershift.openshift.io/ensureexists-pullsecret-reconcile",
    "hypershift.openshift.io/etcd-priority-class",
    "hypershift.openshift.io/ibmcloud-kms-provider-image",
    "hypershift.openshift.io/ingress-controller-load-balancer-scope",
    "hypershift.openshift.io/karpenter-operator-image",
    "hypershift.openshift.io/karpenter-provider-aws-image",
    "hypershift.openshift.io/konnectivity-agent-image",
    "hypershift.openshift.io/konnectivity-server-image",
    "hypershift.openshift.io/kube-apiserver-goaway-chance",
    "hypershift.openshift.io/kube-apiserver-gogc",
    "hypershift.openshift.io/kube-apiserver-gomemlimit",
    "hypershift.openshift.io/kube-apiserver-max-mutating-requests-inflight",
    "hypershift.openshift.io/kube-apiserver-max-requests-inflight",
    "hypershift.openshift.io/kube-apiserver-service-account-token-max-expiration",
    "hypershift.openshift.io/kube-apiserver-verbosity-level",
    "hypershift.openshift.io/management-platform",
    "hypershift.openshift.io/olm-catalogs-is-registry-overrides",
    "hypershift.openshift.io/portieris-image",
    "hypershift.openshift.io/private-ingress-controller",
    "hypershift.openshift.io/redhat-marketplace-catalog-image",
    "hypershift.openshift.io/redhat-operators-catalog-image",
    "hypershift.openshift.io/request-serving-node-additional-selector",
    "hypershift.openshift.io/restored-from-backup",
    HostedCluster::HEALTH_PROBE_PATH_ANNOTATION,
    HostedCluster::HEALTH_PROBE_PORT_ANNOTATION,
    "hypershift.openshift.io/swift-pod-network-instance",
    "hypershift.openshift.io/topology",
    "oauth.hypershift.openshift.io/login-url-override",
];

const ANNOTATION_PREFIXES: [&str; 2] =
    ["idpoverrides.hypershift.openshift.io/", "resource-request-override.hypershift.openshift.io"];

const LABEL_PREFIX: &str = "api.openshift.com";

/// Annotation: a new value restarts every component of the control plane.
pub(crate) const RESTART_DATE_ANNOTATION: &str = "hypershift.openshift.io/restart-date";
/// Annotation of a HostedControlPlane: the restart date that was copied from the HostedCluster last.
pub(crate) const COPIED_RESTART_DATE_ANNOTATION: &str = "lanyard.dev/copied-restart-date";

/// Returns the value of an annotation of the HostedCluster.
pub(super) fn annotation<'a>(wire: &'a HostedCluster, key: &str) -> Option<&'a str> {
    wire.metadata.as_ref()?.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the annotations of the HostedControlPlane.
pub(super) fn mirrored_annotations(wire: &HostedCluster) -> Map<String, Value> {
    let annotations = wire.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let mut mirrored: Map<_, _> = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| is_mirrored_annotation(key))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let restart_date = annotation(wire, RESTART_DATE_ANNOTATION).filter(|date| !date.is_empty());
    if let Some(date) = restart_date {
        for key in [RESTART_DATE_ANNOTATION, COPIED_RESTART_DATE_ANNOTATION] {
            mirrored.insert(key.to_owned(), json!(date));
        }
    }
    mirrored
}

/// Returns the labels of the HostedControlPlane.
pub(super) fn mirrored_labels(wire: &HostedCluster) -> Map<String, Value> {
    let labels = wire.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| is_mirrored_label(key))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}

/// Returns whether a HostedControlPlane has an annotation exactly if its HostedCluster has it.
pub(crate) fn is_mirrored_annotation(key: &str) -> bool {
    ANNOTATIONS.contains(&key) || ANNOTATION_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns whether a HostedControlPlane has a label exactly if its HostedCluster has it.
pub(crate) fn is_mirrored_label(key: &str) -> bool {
    key.starts_with(LABEL_PREFIX)
}
