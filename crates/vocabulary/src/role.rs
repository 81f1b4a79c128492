//! Role definitions of the components, and the scopes of their assignments.
//!
//! The permission lists belong to Azure (here: to the emulator); this table only assigns a role to each
//! component. Roles are matched by id, because Azure has renamed some before.

use uuid::{Uuid, uuid};

/// The id of a built-in role definition, which is the same in every tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RoleDefinitionId(pub Uuid);

impl RoleDefinitionId {
    /// Azure Red Hat OpenShift Cloud Controller Manager.
    pub const CLOUD_CONTROLLER_MANAGER: Self = Self(uuid!("a1f96423-95ce-4224-ab27-4e3dc72facd4"));
    /// Azure Red Hat OpenShift Cluster Ingress Operator.
    pub const INGRESS: Self = Self(uuid!("0336e1d3-7a87-462b-b6db-342b63f7802c"));
    /// Azure Red Hat OpenShift File Storage Operator.
    pub const FILE: Self = Self(uuid!("0d7aedc0-15fd-4a67-a412-efad370c947e"));
    /// Azure Red Hat OpenShift Disk Storage Operator.
    pub const DISK: Self = Self(uuid!("5b7237c5-45e1-49d6-bc18-a1f62f400748"));
    /// Azure Red Hat OpenShift Network Operator.
    pub const NETWORK: Self = Self(uuid!("be7a6435-15ae-4171-8f30-4a343eff9e8f"));
    /// Azure Red Hat OpenShift Image Registry Operator.
    pub const IMAGE_REGISTRY: Self = Self(uuid!("8b32b316-c2f5-4ddf-b05b-83dacd2d08b5"));
    /// Azure Red Hat OpenShift Hosted Control Planes Control Plane Operator.
    pub const CONTROL_PLANE_OPERATOR: Self = Self(uuid!("fc0c873f-45e9-4d0d-a7d1-585aab30c6ed"));
    /// Azure Red Hat OpenShift Hosted Control Planes Cluster API Provider.
    pub const CLUSTER_API_PROVIDER: Self = Self(uuid!("88366f10-ed47-4cc0-9fab-c8a06148393e"));
    /// Contributor: manages everything, but grants no access.
    pub const CONTRIBUTOR: Self = Self(uuid!("b24988ac-6180-42a0-ab88-20f7382dd24c"));
    pub const OWNER: Self = Self(uuid!("8e3af657-a8ff-443c-a75c-2fe8c4bcb635"));
    pub const KEY_VAULT_CRYPTO_USER: Self = Self(uuid!("12338af0-0e69-4776-bea7-57ae8d297424"));
    pub const KEY_VAULT_SECRETS_USER: Self = Self(uuid!("4633458b-17de-408a-b874-0445c86b69e6"));
    /// Reader.
    pub const READER: Self = Self(uuid!("acdd72a7-3385-48ef-bd42-f606fba81ae7"));
    /// Azure Red Hat OpenShift Federated Credential: writes federated credentials of identities.
    pub const FEDERATED_CREDENTIAL: Self = Self(uuid!("ef318e2a-8334-4a05-9e4a-295a196c6a6e"));
    /// Network Contributor.
    pub const NETWORK_CONTRIBUTOR: Self = Self(uuid!("4d97b98b-1d4f-4787-a291-c67834d212e7"));
    /// Managed Identity Operator: assigns user-assigned identities to resources.
    pub const MANAGED_IDENTITY_OPERATOR: Self = Self(uuid!("f1a07417-d97a-45cb-824c-7a7467783830"));
    /// Storage Blob Data Contributor.
    pub const STORAGE_BLOB_DATA_CONTRIBUTOR: Self =
        Self(uuid!("ba92f5b4-2d11-453d-a403-e96b0029c9fe"));
    /// Key Vault Administrator: everything in a vault's data plane.
    pub const KEY_VAULT_ADMINISTRATOR: Self = Self(uuid!("00482a5a-887f-4fb3-b363-3b7fe8e74483"));
    /// Key Vault Secrets Officer.
    pub const KEY_VAULT_SECRETS_OFFICER: Self = Self(uuid!("b86a8fe4-44ce-4948-aee5-eccb2c155cd7"));
}

/// The scope of a component's role assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoleScope {
    /// The resource group of the machines and disks: `spec.platform.azure.resourceGroup`.
    ManagedResourceGroup,
    /// The resource group of the network security group.
    SecurityGroupResourceGroup,
    /// The resource group of the virtual network.
    VnetResourceGroup,
    /// The resource group of the public DNS zone.
    DnsResourceGroup,
    /// The vault with the encryption key of the cluster.
    KeyVault,
}
