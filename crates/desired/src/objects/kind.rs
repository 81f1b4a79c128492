//! The kinds of objects that are written, in one table.

use super::Writer;

/// A kind of object that is written for hosted clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnedKind {
    /// The namespace of the control plane.
    Namespace,
    /// The control plane.
    HostedControlPlane,
    /// What canaries are to the API server.
    ServiceAccount,
    /// What canaries may do there.
    RoleBinding,
    /// The way of one credential to its pods.
    SecretProviderClass,
    /// A configuration.
    ConfigMap,
    /// A configuration, too: no Secret that is written here holds a credential.
    Secret,
    /// The identity of Cluster API.
    AzureClusterIdentity,
    /// A component.
    Deployment,
}

/// What is known of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindFacts {
    /// `apiVersion`.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// The name in URLs.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Who writes objects of the kind.
    pub writers: &'static [Writer],
}

const HOSTED_CLUSTER: &[Writer] = &[Writer::HostedCluster];
const BOTH: &[Writer] = &Writer::ALL;

const fn namespaced(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    writers: &'static [Writer],
) -> KindFacts {
    KindFacts { api_version, kind, plural, namespaced: true, writers }
}

const NAMESPACE: KindFacts = KindFacts {
    api_version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    namespaced: false,
    writers: HOSTED_CLUSTER,
};
const HOSTED_CONTROL_PLANE: KindFacts = namespaced(
    lanyard_api::HostedControlPlane::API_VERSION,
    lanyard_api::HostedControlPlane::KIND,
    "hostedcontrolplanes",
    HOSTED_CLUSTER,
);
const SERVICE_ACCOUNT: KindFacts =
    namespaced("v1", "ServiceAccount", "serviceaccounts", HOSTED_CLUSTER);
const ROLE_BINDING: KindFacts =
    namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", HOSTED_CLUSTER);
const SECRET_PROVIDER_CLASS: KindFacts = namespaced(
    lanyard_api::SecretProviderClass::API_VERSION,
    lanyard_api::SecretProviderClass::KIND,
    "secretproviderclasses",
    BOTH,
);
const CONFIG_MAP: KindFacts = namespaced("v1", "ConfigMap", "configmaps", &[Writer::ControlPlane]);
const SECRET: KindFacts = namespaced("v1", "Secret", "secrets", BOTH);
const AZURE_CLUSTER_IDENTITY: KindFacts = namespaced(
    crate::hosted_cluster::cluster_identity::AzureClusterIdentity::API_VERSION,
    crate::hosted_cluster::cluster_identity::AzureClusterIdentity::KIND,
    "azureclusteridentities",
    HOSTED_CLUSTER,
);
const DEPLOYMENT: KindFacts = namespaced("apps/v1", "Deployment", "deployments", BOTH);

impl OwnedKind {
    /// Every kind, in the order in which they are written.
    pub const ALL: [Self; 9] = [
        Self::Namespace,
        Self::HostedControlPlane,
        Self::ServiceAccount,
        Self::RoleBinding,
        Self::SecretProviderClass,
        Self::ConfigMap,
        Self::Secret,
        Self::AzureClusterIdentity,
        Self::Deployment,
    ];

    /// The row of the kind.
    pub const fn facts(self) -> &'static KindFacts {
        match self {
            Self::Namespace => &NAMESPACE,
            Self::HostedControlPlane => &HOSTED_CONTROL_PLANE,
            Self::ServiceAccount => &SERVICE_ACCOUNT,
            Self::RoleBinding => &ROLE_BINDING,
            Self::SecretProviderClass => &SECRET_PROVIDER_CLASS,
            Self::ConfigMap => &CONFIG_MAP,
            Self::Secret => &SECRET,
            Self::AzureClusterIdentity => &AZURE_CLUSTER_IDENTITY,
            Self::Deployment => &DEPLOYMENT,
        }
    }

    /// The kind of an object with these two fields.
    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| {
            let facts = known.facts();
            facts.api_version == api_version && facts.kind == kind
        })
    }
}
