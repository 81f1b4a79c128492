//! The validated form of a managed Azure HostedCluster.

use std::collections::BTreeMap;
use std::fmt;

use lanyard_vocabulary::{
    ArmResourceId, Cloud, Component, EntraClientId, EntraTenantId, InfraId, KeyVersion,
    ObjectEncoding, SecretName, SubscriptionId, VaultName,
};

pub mod azure_cluster;
pub mod cloud_config;
pub mod cluster_identity;
pub mod control_plane_endpoint;
pub mod credential_injection;
pub mod desired_state;
pub mod encryption_config;
pub mod key_rotation;
pub mod kms_api_version;
pub mod network_secret;
pub mod render_context;
pub mod shared_credentials;
pub mod validate;

/// A validated HostedCluster of managed Azure. Only [`validate::validate`] creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValidatedHostedCluster {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.infraID`.
    pub infra_id: InfraId,
    /// `spec.dns.baseDomain`.
    pub base_domain: Option<String>,
    /// `spec.issuerURL`: the issuer of service account tokens.
    pub issuer_url: String,
    /// The Azure placement of the cluster.
    pub azure: AzurePlacement,
    /// The vault with the credentials of the control plane.
    pub vault: CredentialVault,
    /// The identities of the running components. A component that is disabled or has no identity is
    /// absent.
    pub identities: BTreeMap<Component, ControlPlaneIdentity>,
    /// The identities of components on the nodes.
    pub data_plane: DataPlaneClientIds,
    /// The encryption of secrets at rest, if it uses a vault key with the identity of
    /// [`Component::Kms`].
    pub encryption: Option<KmsEncryption>,
}

/// `spec.platform.azure` without the identities.
///
/// The fields that are `None` for an unusable value belong to values that the API accepts and that
/// only some objects need: lanyard does not render these objects, and all others are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzurePlacement {
    /// `cloud`.
    pub cloud: Cloud,
    /// `location`.
    pub location: String,
    /// `tenantID`.
    pub tenant: ClusterTenant,
    /// `subscriptionID`.
    pub subscription: SubscriptionId,
    /// `resourceGroup`: the resource group of machines, disks and load balancers.
    pub resource_group: String,
    /// `vnetID`; `None` if it is not the id of a virtual network.
    pub vnet: Option<ArmResourceId>,
    /// `subnetID`.
    pub subnet: ArmResourceId,
    /// `securityGroupID`; `None` if it is not the id of a network security group.
    pub security_group: Option<ArmResourceId>,
    /// `containerRegistry.credentials.managedIdentity.resourceID`.
    pub registry_identity: Option<ArmResourceId>,
    /// The health probes of load balancers; `None` if an annotation is invalid.
    pub health_probe: Option<LoadBalancerHealthProbe>,
}

/// The tenant of the cluster's resources, which may differ from the tenant of the vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTenant(pub EntraTenantId);

/// The tenant of the vault with the credentials, which may differ from the tenant of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultTenant(pub EntraTenantId);

/// `managedIdentitiesKeyVault`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialVault {
    /// The name of the vault.
    pub name: VaultName,
    /// The tenant of the vault.
    pub tenant: VaultTenant,
}

/// The identity of one component of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneIdentity {
    /// `clientID`; optional, because the credential contains the client id.
    pub client_id: Option<EntraClientId>,
    /// `credentialsSecretName`: the name of the vault secret and of the file in the mount.
    pub secret_name: SecretName,
    /// `objectEncoding`.
    pub encoding: ObjectEncoding,
}

impl ControlPlaneIdentity {
    /// Returns whether both identities use the same secret. Vaults compare names
    /// case-insensitively.
    pub(crate) fn shares_secret(&self, other: &Self) -> bool {
        self.secret_name.as_str().eq_ignore_ascii_case(other.secret_name.as_str())
    }
}

/// `dataPlane`. Invalid client ids are reported and omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPlaneClientIds {
    /// The client id of the image registry on the nodes.
    pub image_registry: Option<EntraClientId>,
    /// The client id of the disk CSI driver on the nodes.
    pub disk: Option<EntraClientId>,
    /// The client id of the file CSI driver on the nodes.
    pub file: Option<EntraClientId>,
}

/// `spec.secretEncryption.kms.azure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsEncryption {
    /// The key that encrypts new data.
    pub active_key: EncryptionKey,
    /// A previous key that only decrypts.
    pub backup_key: Option<EncryptionKey>,
    /// `keyVaultType` is `ManagedHSM`.
    pub is_managed_hsm: bool,
    /// `keyVaultAccess` is `Private`.
    pub is_private_access: bool,
    /// The vault of the spec's active key, whatever the current roles of the keys: the only private
    /// vault that HyperShift's private router knows.
    pub routed_vault: VaultName,
}

impl KmsEncryption {
    /// Returns whether the private router leads to the vault of this key.
    pub fn is_routed(&self, key: &EncryptionKey) -> bool {
        key.vault.as_str().eq_ignore_ascii_case(self.routed_vault.as_str())
    }
}

/// A key in a vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionKey {
    /// The name of the vault or managed HSM.
    pub vault: VaultName,
    /// The name of the key.
    pub name: SecretName,
    /// The version of the key.
    pub version: KeyVersion,
}

impl fmt::Display for EncryptionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vault, name, version } = self;
        write!(formatter, "key `{name}` version `{version}` of vault `{vault}`")
    }
}

/// The health probe mode of load balancers, set by annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LoadBalancerHealthProbe {
    /// One shared probe for the node.
    #[default]
    Shared,
    /// One shared probe for the node, at a custom path or port.
    SharedAt {
        /// The path, if it is not the default.
        path: Option<String>,
        /// The port, if it is not the default.
        port: Option<u16>,
    },
    /// A probe for each service.
    ServiceNodePort,
}

impl LoadBalancerHealthProbe {
    /// Returns the value of `clusterServiceLoadBalancerHealthProbeMode`.
    pub const fn mode(&self) -> &'static str {
        match self {
            Self::Shared | Self::SharedAt { .. } => "shared",
            Self::ServiceNodePort => "servicenodeport",
        }
    }
}

impl ValidatedHostedCluster {
    /// Returns the namespace of the control plane: `<namespace>-<name>`, with `.` in the name
    /// replaced by `-`.
    pub fn control_plane_namespace(&self) -> String {
        control_plane_namespace(&self.namespace, &self.name)
    }

    /// Returns the value of [`CLUSTER_ANNOTATION`](lanyard_api::HostedCluster::CLUSTER_ANNOTATION):
    /// `<namespace>/<name>`.
    pub fn namespaced_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the running components with their identities, in the order of the HostedCluster API.
    pub fn running_components(&self) -> impl Iterator<Item = (Component, &ControlPlaneIdentity)> {
        self.identities.iter().map(|(component, identity)| (*component, identity))
    }

    /// Returns the resource id of the resource group of machines, disks and load balancers.
    pub fn managed_resource_group(&self) -> ArmResourceId {
        ArmResourceId::subscription_scope(&self.azure.subscription)
            .child("resourceGroups", &self.azure.resource_group)
    }
}

/// Returns the namespace of a HostedCluster's control plane: `<namespace>-<name>`, with `.` in the
/// name replaced by `-`. Two clusters may have the same control-plane namespace.
pub fn control_plane_namespace(namespace: &str, name: &str) -> String {
    format!("{namespace}-{}", name.replace('.', "-"))
}
