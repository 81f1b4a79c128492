//! The inputs of the identity status, read from the management cluster.

use std::collections::BTreeSet;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;

use super::observed_pods::{ObservedPod, ObservedVolume};
use crate::drift::DriftFinding;
use crate::forecast::RenewalPolicy;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::key_rotation::DataEncryption;
use crate::problem::ValidationProblems;
use crate::workload::CanaryCalls;

/// All inputs of a hosted cluster's identity status. The order of pods and of volumes does not
/// matter.
#[derive(Debug, Clone, Copy)]
pub struct IdentityStatusInputs<'a> {
    /// The hosted cluster.
    pub cluster: ClusterValidation<'a>,
    /// `metadata.generation` of the HostedCluster.
    pub generation: Option<i64>,
    /// The current time. Only transitions contain it.
    pub now: Timestamp,
    /// The SecretProviderClasses in the namespace of the control plane.
    pub classes: ObservedClasses<'a>,
    /// The pods in the namespace of the control plane.
    pub pods: &'a [ObservedPod],
    /// The `SecretProviderClassPodStatus`es in the namespace of the control plane.
    pub volumes: &'a [ObservedVolume],
    /// The inputs that determine the canaries' proof calls and final hops.
    pub canary_calls: CanaryCalls<'a>,
    /// The time limits for renewals and rotations.
    pub renewal_policy: &'a RenewalPolicy,
    /// The lints of the HostedCluster, and the errors because of which single objects cannot be
    /// rendered.
    pub problems: &'a ValidationProblems,
    /// The state of the data encryption, if this operator keeps the key record.
    pub data_encryption: Option<&'a DataEncryption>,
    /// Whether the HostedCluster is being deleted. Its pods then disappear, and identities keep
    /// their last status.
    pub is_deleting: bool,
    /// The findings of [`crate::drift::find_drift`].
    pub drift_findings: &'a [DriftFinding],
    /// The stored status.
    pub previous_status: Option<&'a HostedClusterIdentitiesStatus>,
}

/// The result of validating the HostedCluster.
#[derive(Debug, Clone, Copy)]
pub enum ClusterValidation<'a> {
    /// The HostedCluster is valid.
    Valid(&'a ValidatedHostedCluster),
    /// The HostedCluster is invalid. The status still reports the running workloads, which belong
    /// to an earlier generation.
    Invalid(&'a ValidationProblems),
}

/// The existing SecretProviderClasses.
#[derive(Debug, Clone, Copy)]
pub enum ObservedClasses<'a> {
    /// The classes could not be listed: the kind is not served or access is denied.
    Unknown,
    /// The names of all classes.
    Listed(&'a BTreeSet<String>),
}

impl ObservedClasses<'_> {
    pub(super) fn contains(self, name: &str) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Listed(names) => Some(names.contains(name)),
        }
    }
}
