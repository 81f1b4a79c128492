//! The nine control-plane components and their consumers.
//!
//! There is one row per component, and one row per pod that reads its credential. Code that handles
//! components iterates [`Component::ALL`]; a new component is a new row.
//!
//! Source: HyperShift's operators and the operators of the components, as deployed by them.

use std::str::FromStr;

use serde::Serialize;

use crate::role::{RoleDefinitionId, RoleScope};

/// A control-plane component with its own Azure identity.
///
/// Displays as its field in the HostedCluster API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum Component {
    /// The cloud controller manager.
    CloudProvider,
    /// Cluster API Provider Azure.
    NodePoolManagement,
    /// The control plane operator itself.
    ControlPlaneOperator,
    /// The image registry operator.
    ImageRegistry,
    /// The ingress operator.
    Ingress,
    /// The cloud network config controller.
    Network,
    /// The Azure Disk CSI controller.
    Disk,
    /// The Azure File CSI controller.
    File,
    /// Encryption of secrets at rest with a vault key.
    Kms,
}

#[derive(Debug, Clone, Copy)]
pub struct ComponentDefinition {
    /// The field of the identity in the HostedCluster API.
    pub field: &'static str,
    /// The parent of the field.
    pub parent: IdentityFieldParent,
    /// The name of its SecretProviderClass.
    pub secret_provider_class: &'static str,
    /// The display name.
    pub title: &'static str,
    /// The suffix of its vault secret in documentation: `<name>-<suffix>`.
    pub secret_suffix: &'static str,
    /// The key of its role assignments in HyperShift.
    pub role_key: &'static str,
    /// The name of its operator in the ARO HCP service.
    pub service_name: &'static str,
    /// Whether a HostedCluster may omit it.
    pub optional: bool,
    /// The role that the component needs.
    pub role: RoleDefinitionId,
    /// The scopes at which the component needs the role.
    pub scopes: &'static [RoleScope],
    /// The pods that read its credential.
    pub consumers: &'static [Consumer],
}

/// The object in the HostedCluster API that contains an identity's field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityFieldParent {
    /// `managedIdentities.controlPlane` of the authentication configuration.
    ControlPlane,
    /// `secretEncryption.kms.azure`.
    SecretEncryption,
}

impl IdentityFieldParent {
    /// The path of the object in a HostedCluster.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ControlPlane => {
                "spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane"
            }
            Self::SecretEncryption => "spec.secretEncryption.kms.azure",
        }
    }
}

/// A pod that reads a component's credential, and the source of the credential's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer {
    /// The deployment (or static pod) in the control-plane namespace.
    pub deployment: &'static str,
    /// The container that mounts the volume.
    pub container: &'static str,
    /// The name of the CSI volume in the pod.
    pub volume: &'static str,
    /// The mount path of the volume; the file in it has the name of the vault secret.
    pub mount_path: &'static str,
    /// How the consumer gets the path of the file: computed from mount path and secret name, from an
    /// environment variable, from the cloud configuration or from an AzureClusterIdentity.
    pub path_source: CredentialPathSource,
}

/// How a consumer gets the path of its credential file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialPathSource {
    /// The consumer joins the mount path and the secret name of the HostedCluster.
    Computed,
    /// `spec.userAssignedIdentityCredentialsPath` of an `AzureClusterIdentity`.
    ClusterIdentity,
    /// The key `aadMSIDataPlaneIdentityPath` of the cloud configuration in this Secret.
    CloudConfig {
        /// The name of the Secret; its key is `cloud.conf`.
        secret: &'static str,
        /// The mount of the cloud configuration.
        mount: CloudConfigMount,
    },
    /// An environment variable with the full path.
    Environment {
        /// The name of the variable.
        name: &'static str,
    },
    /// An operator gets the secret name and the class, and renders the consumer with the full path in `name`.
    Rendered {
        /// The operator's deployment and container.
        operator: &'static str,
        /// The operator's variable with the name of the class.
        class_name: &'static str,
        /// The operator's variable with the secret name.
        bare_name: &'static str,
        /// The consumer's variable with the full path.
        name: &'static str,
    },
    /// Like [`CredentialPathSource::CloudConfig`], with a volume that a storage operator adds. The operator
    /// gets the name of the class in a variable.
    StorageOperator {
        /// The Secret with the cloud configuration.
        secret: &'static str,
        /// The mount of the cloud configuration.
        mount: CloudConfigMount,
        /// The storage operator's variable with the name of the class.
        class_name: &'static str,
    },
}

/// The mount of a consumer's cloud configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudConfigMount {
    /// The name of the volume in the pod.
    pub volume: &'static str,
    /// Where the volume is mounted.
    pub directory: &'static str,
    /// The name of the file.
    pub file: &'static str,
}

impl CloudConfigMount {
    /// The path of the file.
    pub fn path(&self) -> String {
        format!("{}/{}", self.directory, self.file)
    }
}

const CERTS_MOUNT_PATH: &str = "/mnt/certs";
const STORAGE_CLOUD_CONFIG: CloudConfigMount =
    CloudConfigMount { volume: "cloud-config", directory: "/etc/kubernetes", file: "cloud.conf" };
const CREDENTIALS_PATH_VARIABLE: &str = "MANAGED_AZURE_HCP_CREDENTIALS_FILE_PATH";

use RoleScope::{
    DnsResourceGroup, KeyVault, ManagedResourceGroup, SecurityGroupResourceGroup, VnetResourceGroup,
};

const CLOUD_PROVIDER: ComponentDefinition = ComponentDefinition {
    field: "cloudProvider",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-cloud-provider",
    title: "Azure Cloud Controller Manager",
    secret_suffix: "cloud-provider",
    role_key: "cloud-provider",
    service_name: "cloud-controller-manager",
    optional: false,
    role: RoleDefinitionId::CLOUD_CONTROLLER_MANAGER,
    scopes: &[ManagedResourceGroup, SecurityGroupResourceGroup, VnetResourceGroup],
    consumers: &[Consumer {
        deployment: "azure-cloud-controller-manager",
        container: "cloud-controller-manager",
        volume: "cloud-provider-cert",
        mount_path: CERTS_MOUNT_PATH,
        path_source: CredentialPathSource::CloudConfig {
            secret: "azure-cloud-config",
            mount: CloudConfigMount {
                volume: "cloud-config",
                directory: "/etc/cloud",
                file: "cloud.conf",
            },
        },
    }],
};

const NODE_POOL_MANAGEMENT: ComponentDefinition = ComponentDefinition {
    field: "nodePoolManagement",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-nodepool-management",
    title: "Cluster API Provider Azure",
    secret_suffix: "nodepool-mgmt",
    role_key: "capz",
    service_name: "cluster-api-azure",
    optional: false,
    role: RoleDefinitionId::CLUSTER_API_PROVIDER,
    scopes: &[ManagedResourceGroup, VnetResourceGroup],
    consumers: &[Consumer {
        deployment: "capi-provider",
        container: "manager",
        volume: "nodepool-management-cert",
        mount_path: CERTS_MOUNT_PATH,
        path_source: CredentialPathSource::ClusterIdentity,
    }],
};

const CONTROL_PLANE_OPERATOR: ComponentDefinition = ComponentDefinition {
    field: "controlPlaneOperator",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-cpo",
    title: "Control Plane Operator",
    secret_suffix: "cpo",
    role_key: "cpo",
    service_name: "control-plane",
    optional: false,
    role: RoleDefinitionId::CONTROL_PLANE_OPERATOR,
    scopes: &[ManagedResourceGroup, SecurityGroupResourceGroup, VnetResourceGroup],
    consumers: &[Consumer {
        deployment: "control-plane-operator",
        container: "control-plane-operator",
        volume: "cpo-cert",
        mount_path: CERTS_MOUNT_PATH,
        path_source: CredentialPathSource::Computed,
    }],
};

const IMAGE_REGISTRY: ComponentDefinition = ComponentDefinition {
    field: "imageRegistry",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-image-registry",
    title: "Cluster Image Registry Operator",
    secret_suffix: "image-registry",
    role_key: "ciro",
    service_name: "image-registry",
    optional: true,
    role: RoleDefinitionId::IMAGE_REGISTRY,
    scopes: &[ManagedResourceGroup],
    consumers: &[Consumer {
        deployment: "cluster-image-registry-operator",
        container: "cluster-image-registry-operator",
        volume: "image-registry-cert",
        mount_path: CERTS_MOUNT_PATH,
        path_source: CredentialPathSource::Environment { name: CREDENTIALS_PATH_VARIABLE },
    }],
};

const INGRESS: ComponentDefinition = ComponentDefinition {
    field: "ingress",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-ingress",
    title: "Cluster Ingress Operator",
    secret_suffix: "ingress",
    role_key: "ingress",
    service_name: "ingress",
    optional: false,
    role: RoleDefinitionId::INGRESS,
    scopes: &[ManagedResourceGroup, VnetResourceGroup, DnsResourceGroup],
    consumers: &[Consumer {
        deployment: "ingress-operator",
        container: "ingress-operator",
        volume: "ingress-cert",
        mount_path: CERTS_MOUNT_PATH,
        path_source: CredentialPathSource::Environment { name: CREDENTIALS_PATH_VARIABLE },
    }],
};

const NETWORK: ComponentDefinition = ComponentDefinition {
    field: "network",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-network",
    title: "Cloud Network Config Controller",
    secret_suffix: "network",
    role_key: "cncc",
    service_name: "cloud-network-config",
    optional: false,
    role: RoleDefinitionId::NETWORK,
    scopes: &[ManagedResourceGroup, VnetResourceGroup],
    consumers: &[Consumer {
        deployment: "cloud-network-config-controller",
        container: "controller",
        volume: "cncc-cert",
        mount_path: "/var/run/secrets/azure",
        path_source: CredentialPathSource::Rendered {
            operator: "cluster-network-operator",
            class_name: "ARO_HCP_SECRET_PROVIDER_CLASS",
            bare_name: CREDENTIALS_PATH_VARIABLE,
            name: "ARO_HCP_CLIENT_CREDENTIALS_PATH",
        },
    }],
};

const DISK: ComponentDefinition = ComponentDefinition {
    field: "disk",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-disk-csi",
    title: "Azure Disk CSI Driver",
    secret_suffix: "disk",
    role_key: "azure-disk",
    service_name: "disk-csi-driver",
    optional: false,
    role: RoleDefinitionId::DISK,
    scopes: &[ManagedResourceGroup],
    consumers: &[Consumer {
        deployment: "azure-disk-csi-driver-controller",
        container: "csi-driver",
        volume: "azure-disk",
        mount_path: CERTS_MOUNT_PATH,
        path_source: CredentialPathSource::StorageOperator {
            secret: "azure-disk-csi-config",
            mount: STORAGE_CLOUD_CONFIG,
            class_name: "ARO_HCP_SECRET_PROVIDER_CLASS_FOR_DISK",
        },
    }],
};

const FILE: ComponentDefinition = ComponentDefinition {
    field: "file",
    parent: IdentityFieldParent::ControlPlane,
    secret_provider_class: "managed-azure-file-csi",
    title: "Azure File CSI Driver",
    secret_suffix: "file",
    role_key: "azure-file",
    service_name: "file-csi-driver",
    optional: false,
    role: RoleDefinitionId::FILE,
    scopes: &[ManagedResourceGroup, SecurityGroupResourceGroup, VnetResourceGroup],
    consumers: &[Consumer {
        deployment: "azure-file-csi-driver-controller",
        container: "csi-driver",
        volume: "azure-file",
        mount_path: CERTS_MOUNT_PATH,
        path_source: CredentialPathSource::StorageOperator {
            secret: "azure-file-csi-config",
            mount: STORAGE_CLOUD_CONFIG,
            class_name: "ARO_HCP_SECRET_PROVIDER_CLASS_FOR_FILE",
        },
    }],
};

const KMS: ComponentDefinition = ComponentDefinition {
    field: "kms",
    parent: IdentityFieldParent::SecretEncryption,
    secret_provider_class: "managed-azure-kms",
    title: "Kube API Server (KMS)",
    secret_suffix: "kms",
    role_key: "kms",
    service_name: "kms",
    optional: true,
    role: RoleDefinitionId::KEY_VAULT_CRYPTO_USER,
    scopes: &[KeyVault],
    consumers: &[
        Consumer {
            deployment: "kube-apiserver",
            container: "azure-kms-provider-active",
            volume: "kms-cert",
            mount_path: CERTS_MOUNT_PATH,
            path_source: CredentialPathSource::CloudConfig {
                secret: "azure-kms-config",
                mount: CloudConfigMount {
                    volume: "azure-kms-credentials",
                    directory: "/etc/kubernetes",
                    file: "azure.json",
                },
            },
        },
        Consumer {
            deployment: "control-plane-operator",
            container: "control-plane-operator",
            volume: "kms-cert",
            mount_path: "/mnt/kms",
            path_source: CredentialPathSource::Computed,
        },
    ],
};

impl Component {
    /// Every component, in the order of the API.
    pub const ALL: [Self; 9] = [
        Self::CloudProvider,
        Self::NodePoolManagement,
        Self::ControlPlaneOperator,
        Self::ImageRegistry,
        Self::Ingress,
        Self::Network,
        Self::Disk,
        Self::File,
        Self::Kms,
    ];

    /// The definition of the component.
    pub const fn definition(self) -> &'static ComponentDefinition {
        match self {
            Self::CloudProvider => &CLOUD_PROVIDER,
            Self::NodePoolManagement => &NODE_POOL_MANAGEMENT,
            Self::ControlPlaneOperator => &CONTROL_PLANE_OPERATOR,
            Self::ImageRegistry => &IMAGE_REGISTRY,
            Self::Ingress => &INGRESS,
            Self::Network => &NETWORK,
            Self::Disk => &DISK,
            Self::File => &FILE,
            Self::Kms => &KMS,
        }
    }

    /// The name of the component: its field in the HostedCluster API.
    pub const fn name(self) -> &'static str {
        self.definition().field
    }

    /// The path of the identity in a HostedCluster.
    pub fn field_path(self) -> String {
        format!("{}.{}", self.definition().parent.path(), self.definition().field)
    }

    /// The pods that read the component's credential.
    pub const fn consumers(self) -> &'static [Consumer] {
        self.definition().consumers
    }
}

impl From<Component> for &'static str {
    fn from(component: Component) -> Self {
        component.name()
    }
}

crate::display_text!(Component, name());

/// The text is not the name of a component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a component; known: {known}", known = Component::ALL.map(Component::name).join(", "))]
pub struct ParseComponentError(pub String);

impl FromStr for Component {
    type Err = ParseComponentError;

    /// Parses the field name of the API.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|component| component.name() == text)
            .ok_or_else(|| ParseComponentError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_component_has_its_own_name_class_and_role_key() {
        fn distinct(column: fn(&ComponentDefinition) -> &'static str) -> usize {
            Component::ALL.iter().map(|c| column(c.definition())).collect::<HashSet<_>>().len()
        }
        assert_eq!(distinct(|facts| facts.field), 9);
        assert_eq!(distinct(|facts| facts.secret_provider_class), 9);
        assert_eq!(distinct(|facts| facts.role_key), 9);
        assert_eq!(distinct(|facts| facts.service_name), 9);
        assert_eq!(distinct(|facts| facts.secret_suffix), 9);
    }

    #[test]
    fn kms_has_two_consumers_with_two_paths() {
        let paths: Vec<_> = Component::Kms.consumers().iter().map(|c| c.mount_path).collect();
        assert_eq!(paths, ["/mnt/certs", "/mnt/kms"]);
        for component in Component::ALL.into_iter().filter(|c| *c != Component::Kms) {
            assert_eq!(component.consumers().len(), 1, "{component}");
        }
    }

    #[test]
    fn no_two_volumes_of_one_pod_share_a_mount_path() {
        let mut observed = HashSet::new();
        for consumer in Component::ALL.iter().flat_map(|component| component.consumers()) {
            let place = (consumer.deployment, consumer.container, consumer.mount_path);
            assert!(observed.insert(place), "{place:?}");
        }
    }

    #[test]
    fn component_parses_from_its_field_and_the_error_lists_known_names() {
        for component in Component::ALL {
            assert_eq!(component.name().parse(), Ok(component));
        }
        let error = "capz".parse::<Component>().unwrap_err().to_string();
        assert!(error.contains("nodePoolManagement"), "{error}");
    }
}
