//! The kinds that are watched.

use lanyard_api::{
    HostedCluster, HostedClusterIdentities, HostedControlPlane, SecretProviderClassPodStatus,
};
use lanyard_desired::OwnedKind;
use lanyard_desired::workload::PRIVATE_ROUTER;

use crate::settings::Role;
use crate::subject::Subject;

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WatchedKind {
    /// What is wished.
    HostedClusters,
    /// What we tell.
    Identities,
    /// What we or others made for a hosted cluster.
    Owned(OwnedKind),
    /// The pods of control planes, where canaries tell what they know.
    Pods,
    /// Where nodes tell what they know.
    PodStatuses,
    /// The Services that lead control planes to private vaults, which others make.
    PrivateRouters,
}

/// The label of what we make.
pub(crate) const OURS: &str = "app.kubernetes.io/managed-by=lanyard";

impl WatchedKind {
    /// What is watched in this role.
    pub(crate) fn of(role: Role) -> Vec<Self> {
        let mut kinds = vec![Self::HostedClusters, Self::Identities, Self::Pods, Self::PodStatuses];
        match role {
            Role::All => {
                kinds.push(Self::PrivateRouters);
                kinds.extend(OwnedKind::ALL.map(Self::Owned));
            }
            Role::IdentityOnly => kinds.push(Self::Owned(OwnedKind::SecretProviderClass)),
        }
        kinds
    }

    /// How it is watched. Only what is ours, where others have objects of the kind, too.
    pub(crate) fn subject(self, role: Role) -> Subject {
        match self {
            Self::HostedClusters => {
                Subject::of(HostedCluster::API_VERSION, HostedCluster::KIND, "hostedclusters")
            }
            Self::Identities => Subject::of(
                HostedClusterIdentities::API_VERSION,
                HostedClusterIdentities::KIND,
                HostedClusterIdentities::PLURAL,
            ),
            // Consumers that others render bear it as ours do, in either role.
            Self::Pods => {
                Subject::of("v1", "Pod", "pods").labelled(HostedControlPlane::CONTROL_PLANE_LABEL)
            }
            Self::PodStatuses => Subject::of(
                SecretProviderClassPodStatus::API_VERSION,
                SecretProviderClassPodStatus::KIND,
                "secretproviderclasspodstatuses",
            ),
            Self::PrivateRouters => Subject::of("v1", "Service", "services").named(PRIVATE_ROUTER),
            Self::Owned(kind) => {
                let subject = Subject::owned(kind);
                match role {
                    Role::All => subject.labelled(OURS),
                    Role::IdentityOnly => subject,
                }
            }
        }
    }

    /// Whether nothing at all can be done without it: whatever is made is in the namespace of a
    /// control plane, and belongs to it.
    pub(crate) const fn is_needed(self) -> bool {
        matches!(
            self,
            Self::HostedClusters
                | Self::Identities
                | Self::Owned(OwnedKind::Namespace | OwnedKind::HostedControlPlane)
        )
    }

    /// The name of the kind.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HostedClusters => HostedCluster::KIND,
            Self::Identities => HostedClusterIdentities::KIND,
            Self::Owned(kind) => kind.facts().kind,
            Self::Pods => "Pod",
            Self::PodStatuses => SecretProviderClassPodStatus::KIND,
            Self::PrivateRouters => "Service",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_the_label_that_ours_and_those_of_others_bear() {
        for role in [Role::All, Role::IdentityOnly] {
            let labels = WatchedKind::Pods.subject(role).labels;
            assert_eq!(labels, Some("hypershift.openshift.io/hosted-control-plane"));
        }
    }
}
