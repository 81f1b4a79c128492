//! The workloads of a control plane.

use serde_json::Value;

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::desired::Desired;
use crate::objects::Inputs;

/// The ServiceAccount of canaries, and the RoleBinding that gives it its rights.
pub const CANARY_ACCOUNT: &str = "lanyard-canary";
/// The ClusterRole with the rights of canaries: `get` and `patch` of pods.
pub const CANARY_ROLE: &str = "lanyard-canary";

/// The deployments, by name.
pub(crate) fn desired_workloads(
    _cluster: &ValidatedHostedCluster,
    _desired: &Desired,
    _inputs: &Inputs<'_>,
) -> Vec<(String, Value)> {
    Vec::new()
}
