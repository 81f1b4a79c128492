//! The table of the kinds that lanyard writes.

use super::ObjectWriter;

/// A kind of object that lanyard writes for hosted clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnedKind {
    /// The namespace of the control plane.
    Namespace,
    /// The `HostedControlPlane`.
    HostedControlPlane,
    /// The service account of the canaries.
    ServiceAccount,
    /// The binding of the canaries' role.
    RoleBinding,
    /// The SecretProviderClass that mounts one credential.
    SecretProviderClass,
    /// A cloud configuration, or the copy of a trust bundle.
    ConfigMap,
    /// A configuration without a credential, or the copy of a pull secret or SSH key.
    Secret,
    /// The identity of Cluster API.
    AzureClusterIdentity,
    /// The infrastructure of Cluster API, which refers to the identity.
    AzureCluster,
    /// The workload of a component.
    Deployment,
}

/// The API metadata and the writers of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindInfo {
    /// `apiVersion`.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// The plural resource name in API URLs.
    pub plural: &'static str,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
    /// The writers of objects of the kind.
    pub writers: &'static [ObjectWriter],
}

const HOSTED_CLUSTER_WRITER: &[ObjectWriter] = &[ObjectWriter::HostedCluster];
const BOTH_WRITERS: &[ObjectWriter] = &ObjectWriter::ALL;

const fn namespaced_kind(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    writers: &'static [ObjectWriter],
) -> KindInfo {
    KindInfo { api_version, kind, plural, namespaced: true, writers }
}

const NAMESPACE: KindInfo = KindInfo {
    api_version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    namespaced: false,
    writers: HOSTED_CLUSTER_WRITER,
};
const HOSTED_CONTROL_PLANE: KindInfo = namespaced_kind(
    lanyard_api::HostedControlPlane::API_VERSION,
    lanyard_api::HostedControlPlane::KIND,
    "hostedcontrolplanes",
    HOSTED_CLUSTER_WRITER,
);
const SERVICE_ACCOUNT: KindInfo =
    namespaced_kind("v1", "ServiceAccount", "serviceaccounts", HOSTED_CLUSTER_WRITER);
const ROLE_BINDING: KindInfo = namespaced_kind(
    "rbac.authorization.k8s.io/v1",
    "RoleBinding",
    "rolebindings",
    HOSTED_CLUSTER_WRITER,
);
const SECRET_PROVIDER_CLASS: KindInfo = namespaced_kind(
    lanyard_api::SecretProviderClass::API_VERSION,
    lanyard_api::SecretProviderClass::KIND,
    "secretproviderclasses",
    BOTH_WRITERS,
);
const CONFIG_MAP: KindInfo = namespaced_kind("v1", "ConfigMap", "configmaps", BOTH_WRITERS);
const SECRET: KindInfo = namespaced_kind("v1", "Secret", "secrets", BOTH_WRITERS);
const AZURE_CLUSTER_IDENTITY: KindInfo = namespaced_kind(
    crate::hosted_cluster::cluster_identity::AzureClusterIdentity::API_VERSION,
    crate::hosted_cluster::cluster_identity::AzureClusterIdentity::KIND,
    "azureclusteridentities",
    HOSTED_CLUSTER_WRITER,
);
const AZURE_CLUSTER: KindInfo = namespaced_kind(
    crate::hosted_cluster::azure_cluster::AzureCluster::API_VERSION,
    crate::hosted_cluster::azure_cluster::AzureCluster::KIND,
    "azureclusters",
    HOSTED_CLUSTER_WRITER,
);
const DEPLOYMENT: KindInfo = namespaced_kind("apps/v1", "Deployment", "deployments", BOTH_WRITERS);

impl OwnedKind {
    /// All kinds, in the order in which they are applied.
    pub const ALL: [Self; 10] = [
        Self::Namespace,
        Self::HostedControlPlane,
        Self::ServiceAccount,
        Self::RoleBinding,
        Self::SecretProviderClass,
        Self::ConfigMap,
        Self::Secret,
        Self::AzureClusterIdentity,
        Self::AzureCluster,
        Self::Deployment,
    ];

    /// Returns the table row of the kind.
    pub const fn info(self) -> &'static KindInfo {
        match self {
            Self::Namespace => &NAMESPACE,
            Self::HostedControlPlane => &HOSTED_CONTROL_PLANE,
            Self::ServiceAccount => &SERVICE_ACCOUNT,
            Self::RoleBinding => &ROLE_BINDING,
            Self::SecretProviderClass => &SECRET_PROVIDER_CLASS,
            Self::ConfigMap => &CONFIG_MAP,
            Self::Secret => &SECRET,
            Self::AzureClusterIdentity => &AZURE_CLUSTER_IDENTITY,
            Self::AzureCluster => &AZURE_CLUSTER,
            Self::Deployment => &DEPLOYMENT,
        }
    }

    /// Returns the kind with this `apiVersion` and `kind`.
    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| {
            let facts = known.info();
            facts.api_version == api_version && facts.kind == kind
        })
    }
}
