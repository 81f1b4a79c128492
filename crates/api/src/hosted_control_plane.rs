//! `HostedControlPlane`: what the control plane of a hosted cluster is made from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::HostedCluster;
use crate::hosted_cluster::HostedClusterSpec;

/// The control plane of a hosted cluster, in the namespace of the control plane.
///
/// API `hypershift.openshift.io/v1beta1`. The part that identities travel through is that of the
/// HostedCluster, from which it is copied; fields that this type does not know are kept as they
/// came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostedControlPlane {
    /// [`HostedControlPlane::API_VERSION`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// [`HostedControlPlane::KIND`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name of the HostedCluster, the namespace of the control plane, and the way back by
    /// [`HostedCluster::CLUSTER_ANNOTATION`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// As in the HostedCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<HostedClusterSpec>,
    /// Fields that this type does not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl HostedControlPlane {
    /// `apiVersion`.
    pub const API_VERSION: &str = HostedCluster::API_VERSION;
    /// `kind`.
    pub const KIND: &str = "HostedControlPlane";
    /// Label of every pod of a control plane, and of its namespace. HyperShift and the operators that
    /// it runs put it on what they render; the value of a pod's is the control plane's namespace.
    pub const CONTROL_PLANE_LABEL: &str = "hypershift.openshift.io/hosted-control-plane";
}
