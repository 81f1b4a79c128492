//! The watched kinds.

use lanyard_api::{
    HostedCluster, HostedClusterIdentities, HostedControlPlane, SecretProviderClassPodStatus,
};
use lanyard_desired::OwnedKind;
use lanyard_desired::workload::PRIVATE_ROUTER_SERVICE;

use crate::settings::OperatorRole;
use crate::watched_resource::WatchedResource;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WatchedKind {
    /// HostedClusters, the desired state.
    HostedClusters,
    /// HostedClusterIdentities, the reported status.
    Identities,
    /// Objects that the operator or another controller creates for a hosted cluster.
    Owned(OwnedKind),
    /// The pods of control planes; canaries publish their results on them.
    Pods,
    /// The `SecretProviderClassPodStatuses`, which nodes publish.
    PodStatuses,
    /// The Services through which control planes reach private vaults; HyperShift creates them.
    PrivateRouters,
}

/// The label selector of the operator's objects.
pub(crate) const MANAGED_BY_SELECTOR: &str = "app.kubernetes.io/managed-by=lanyard";

impl WatchedKind {
    /// The watched kinds of a role.
    pub(crate) fn of(role: OperatorRole) -> Vec<Self> {
        let mut kinds = vec![Self::HostedClusters, Self::Identities, Self::Pods, Self::PodStatuses];
        match role {
            OperatorRole::All => {
                kinds.push(Self::PrivateRouters);
                kinds.extend(OwnedKind::ALL.map(Self::Owned));
            }
            OperatorRole::IdentityOnly => kinds.push(Self::Owned(OwnedKind::SecretProviderClass)),
        }
        kinds
    }

    /// The watch of the kind. For kinds that others create as well, it selects only the operator's objects.
    pub(crate) fn watched_resource(self, role: OperatorRole) -> WatchedResource {
        match self {
            Self::HostedClusters => WatchedResource::of(
                HostedCluster::API_VERSION,
                HostedCluster::KIND,
                "hostedclusters",
            ),
            Self::Identities => WatchedResource::of(
                HostedClusterIdentities::API_VERSION,
                HostedClusterIdentities::KIND,
                HostedClusterIdentities::PLURAL,
            ),
            // Consumers have this label in either role, whichever controller creates them.
            Self::Pods => WatchedResource::of("v1", "Pod", "pods")
                .with_labels(HostedControlPlane::CONTROL_PLANE_LABEL),
            Self::PodStatuses => WatchedResource::of(
                SecretProviderClassPodStatus::API_VERSION,
                SecretProviderClassPodStatus::KIND,
                "secretproviderclasspodstatuses",
            ),
            Self::PrivateRouters => {
                WatchedResource::of("v1", "Service", "services").with_name(PRIVATE_ROUTER_SERVICE)
            }
            Self::Owned(kind) => {
                let subject = WatchedResource::owned(kind);
                match role {
                    OperatorRole::All => subject.with_labels(MANAGED_BY_SELECTOR),
                    OperatorRole::IdentityOnly => subject,
                }
            }
        }
    }

    /// Whether the operator can do nothing without this kind: every created object is in the namespace of a
    /// control plane, and the control plane owns it.
    pub(crate) const fn is_required(self) -> bool {
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
            Self::Owned(kind) => kind.info().kind,
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
    fn pods_are_selected_by_control_plane_label() {
        for role in [OperatorRole::All, OperatorRole::IdentityOnly] {
            let labels = WatchedKind::Pods.watched_resource(role).labels;
            assert_eq!(labels, Some("hypershift.openshift.io/hosted-control-plane"));
        }
    }
}
