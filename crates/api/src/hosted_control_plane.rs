//! `HostedControlPlane`: the input of the operator that runs a hosted cluster's control plane.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::HostedCluster;
use crate::hosted_cluster::HostedClusterSpec;

/// The control plane of a hosted cluster, in the namespace of the control plane.
///
/// API `hypershift.openshift.io/v1beta1`. HyperShift copies the spec from the HostedCluster, so the
/// same spec type is used. Unknown fields are preserved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostedControlPlane {
    /// [`HostedControlPlane::API_VERSION`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// [`HostedControlPlane::KIND`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name of the HostedCluster, the namespace of the control plane, and a reference to the
    /// HostedCluster in [`HostedCluster::CLUSTER_ANNOTATION`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// The spec, copied from the HostedCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<HostedClusterSpec>,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl HostedControlPlane {
    /// `apiVersion`.
    pub const API_VERSION: &str = HostedCluster::API_VERSION;
    /// `kind`.
    pub const KIND: &str = "HostedControlPlane";
    /// Label on every pod of a control plane and on its namespace. HyperShift and the operators
    /// that it runs set the label on the objects that they render. On a pod, the value is the
    /// namespace of the control plane.
    pub const CONTROL_PLANE_LABEL: &str = "hypershift.openshift.io/hosted-control-plane";
}
