//! A hosted cluster of managed Azure whose every value was checked.

use std::collections::BTreeMap;
use std::fmt;

use lanyard_vocabulary::{
    ArmResourceId, Cloud, Component, EntraClientId, EntraTenantId, InfraId, KeyVersion,
    ObjectEncoding, SecretName, SubscriptionId, VaultName,
};

pub mod cloud_config;
pub mod cluster_identity;
pub mod credential_injection;
pub mod desired_state;
pub mod encryption_config;
pub mod key_rotation;
pub mod network_secret;
pub mod render_context;
pub mod shared_credentials;
pub mod validate;

/// A hosted cluster of managed Azure. It comes from [`validate::validate`] only.
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
    /// Where the cluster runs.
    pub azure: AzurePlacement,
    /// The vault with the credentials of the control plane.
    pub vault: CredentialVault,
    /// The identities of the components that the cluster runs: a component that is switched off
    /// or has no identity is absent.
    pub identities: BTreeMap<Component, ControlPlaneIdentity>,
    /// The identities of components on the nodes.
    pub data_plane: DataPlaneClientIds,
    /// The encryption of secrets at rest, where a key in a vault does it with the identity of
    /// [`Component::KmsSpec`].
    pub encryption: Option<KmsEncryption>,
}

/// `spec.platform.azure` without the identities.
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
    /// `resourceGroup`: the group of machines, disks and load balancers.
    pub resource_group: String,
    /// `vnetID`.
    pub vnet: ArmResourceId,
    /// `subnetID`.
    pub subnet: ArmResourceId,
    /// `securityGroupID`.
    pub security_group: ArmResourceId,
    /// `containerRegistry.credentials.managedIdentity.resourceID`.
    pub registry_identity: Option<ArmResourceId>,
    /// How load balancers probe services.
    pub health_probe: LoadBalancerHealthProbe,
}

/// The tenant of the cluster's resources, which need not be the tenant of the vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTenant(pub EntraTenantId);

/// The tenant of the vault with the credentials, which need not be the tenant of the cluster.
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
    /// `clientID`; the flow does without it.
    pub client_id: Option<EntraClientId>,
    /// `credentialsSecretName`: the vault secret, and the file in the mount.
    pub secret_name: SecretName,
    /// `objectEncoding`.
    pub encoding: ObjectEncoding,
}

impl ControlPlaneIdentity {
    /// Whether both have their credential in one secret; a vault ignores the case of names.
    pub(crate) fn shares_secret(&self, other: &Self) -> bool {
        self.secret_name.as_str().eq_ignore_ascii_case(other.secret_name.as_str())
    }
}

/// `dataPlane`. A text that is no client id is reported and left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPlaneClientIds {
    /// The image registry on the nodes.
    pub image_registry: Option<EntraClientId>,
    /// The disk driver on the nodes.
    pub disk: Option<EntraClientId>,
    /// The file driver on the nodes.
    pub file: Option<EntraClientId>,
}

/// `spec.secretEncryption.kms.azure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsEncryption {
    /// The key that encrypts.
    pub active_key: EncryptionKey,
    /// A key that still decrypts.
    pub backup_key: Option<EncryptionKey>,
    /// `keyVaultType` is `ManagedHSM`.
    pub is_managed_hsm: bool,
    /// `keyVaultAccess` is `Private`.
    pub is_private_access: bool,
}

/// A key in a vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionKey {
    /// The vault or managed HSM.
    pub vault: VaultName,
    /// The key.
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

/// How load balancers probe services, by annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LoadBalancerHealthProbe {
    /// One probe for the node.
    #[default]
    Shared,
    /// One probe for the node, at a place of its own.
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
    /// The value of `clusterServiceLoadBalancerHealthProbeMode`.
    pub const fn mode(&self) -> &'static str {
        match self {
            Self::Shared | Self::SharedAt { .. } => "shared",
            Self::ServiceNodePort => "servicenodeport",
        }
    }
}

impl ValidatedHostedCluster {
    /// The namespace of the control plane: `<namespace>-<name>`, the name with `-` for every `.`.
    pub fn control_plane_namespace(&self) -> String {
        control_plane_namespace(&self.namespace, &self.name)
    }

    /// The value of the annotation that leads from an object back to its cluster.
    pub fn namespaced_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The components that the cluster runs, with their identities, in the order of the API.
    pub fn running_components(&self) -> impl Iterator<Item = (Component, &ControlPlaneIdentity)> {
        self.identities.iter().map(|(component, identity)| (*component, identity))
    }

    /// The group of machines, disks and load balancers, as a scope.
    pub fn managed_resource_group(&self) -> ArmResourceId {
        ArmResourceId::subscription_scope(&self.azure.subscription)
            .child("resourceGroups", &self.azure.resource_group)
    }
}

/// The namespace of the control plane of a HostedCluster: `<namespace>-<name>`, the name with `-`
/// for every `.`. Two clusters may come to one.
pub fn control_plane_namespace(namespace: &str, name: &str) -> String {
    format!("{namespace}-{}", name.replace('.', "-"))
}
