//! The managed identities of a hosted cluster that authenticate with ServiceAccount tokens, and their federated
//! credentials.
//!
//! A self-managed cluster has one identity for each component (`create iam azure` of HyperShift). An ARO HCP
//! cluster has such identities only for the three components that also run on worker nodes; their subjects are
//! the union of those of HyperShift's scripts and of the ARO HCP service.

use lanyard_vocabulary::Component;

use self::FederatedCredentialDefinition as Credential;
use crate::azure_name_rules::{FEDERATED_CREDENTIAL, InvalidAzureNameError, MANAGED_IDENTITY};
use crate::resource_names::ClusterResourceNames;

/// The audience of the tokens that OpenShift components send to Entra ID.
pub const OPENSHIFT_AUDIENCE: &str = "openshift";

/// The managed identity of a component of a self-managed cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkloadIdentityDefinition {
    /// The component. Its name is the key of the identity in the workload identities file, except that of KMS.
    pub component: Component,
    /// The part of the identity's name between cluster name and infrastructure id; begins with a dash.
    pub suffix: &'static str,
    /// The federated credentials of the identity.
    pub credentials: &'static [FederatedCredentialDefinition],
}

/// A federated credential, and the ServiceAccount whose tokens it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FederatedCredentialDefinition {
    /// The part of the credential's name after the name of the cluster or of the identity; begins with a dash.
    pub suffix: &'static str,
    /// The namespace of the ServiceAccount.
    pub namespace: &'static str,
    /// The name of the ServiceAccount.
    pub service_account: &'static str,
}

impl FederatedCredentialDefinition {
    const fn new(
        suffix: &'static str,
        namespace: &'static str,
        service_account: &'static str,
    ) -> Self {
        Self { suffix, namespace, service_account }
    }

    /// The subject of the ServiceAccount's tokens.
    pub fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.service_account)
    }
}

const CSI_DRIVERS: &str = "openshift-cluster-csi-drivers";
const IMAGE_REGISTRY: &str = "openshift-image-registry";
const KUBE_SYSTEM: &str = "kube-system";

/// The identities in the order of the workload identities file; KMS is the last.
const WORKLOAD_IDENTITIES: [WorkloadIdentityDefinition; 9] = [
    WorkloadIdentityDefinition {
        component: Component::ImageRegistry,
        suffix: "-image-registry",
        credentials: &[
            Credential::new("-image-registry-fed-id-registry", IMAGE_REGISTRY, "registry"),
            Credential::new(
                "-image-registry-fed-id-operator",
                IMAGE_REGISTRY,
                "cluster-image-registry-operator",
            ),
        ],
    },
    WorkloadIdentityDefinition {
        component: Component::Ingress,
        suffix: "-ingress",
        credentials: &[Credential::new(
            "-ingress-fed-id",
            "openshift-ingress-operator",
            "ingress-operator",
        )],
    },
    WorkloadIdentityDefinition {
        component: Component::File,
        suffix: "-file",
        credentials: &[
            Credential::new("-file-fed-id-node", CSI_DRIVERS, "azure-file-csi-driver-node-sa"),
            Credential::new("-file-fed-id-operator", CSI_DRIVERS, "azure-file-csi-driver-operator"),
            Credential::new(
                "-file-fed-id-controller",
                CSI_DRIVERS,
                "azure-file-csi-driver-controller-sa",
            ),
        ],
    },
    WorkloadIdentityDefinition {
        component: Component::Disk,
        suffix: "-disk",
        credentials: &[
            Credential::new("-disk-fed-id-node", CSI_DRIVERS, "azure-disk-csi-driver-node-sa"),
            Credential::new("-disk-fed-id-operator", CSI_DRIVERS, "azure-disk-csi-driver-operator"),
            Credential::new(
                "-disk-fed-id-controller",
                CSI_DRIVERS,
                "azure-disk-csi-driver-controller-sa",
            ),
        ],
    },
    WorkloadIdentityDefinition {
        component: Component::NodePoolManagement,
        suffix: "-node-pool-mgmt",
        credentials: &[Credential::new("-node-pool-mgmt-fed-id", KUBE_SYSTEM, "capi-provider")],
    },
    WorkloadIdentityDefinition {
        component: Component::CloudProvider,
        suffix: "-cloud-provider",
        credentials: &[Credential::new(
            "-cloud-provider-fed-id",
            KUBE_SYSTEM,
            "azure-cloud-provider",
        )],
    },
    WorkloadIdentityDefinition {
        component: Component::Network,
        suffix: "-network",
        credentials: &[Credential::new(
            "-network-fed-id",
            "openshift-cloud-network-config-controller",
            "cloud-network-config-controller",
        )],
    },
    WorkloadIdentityDefinition {
        component: Component::ControlPlaneOperator,
        suffix: "-control-plane-operator",
        credentials: &[Credential::new("-cpo-fed-id", KUBE_SYSTEM, "control-plane-operator")],
    },
    WorkloadIdentityDefinition {
        component: Component::Kms,
        suffix: "-kms",
        credentials: &[Credential::new("-kms-fed-id", KUBE_SYSTEM, "kms-provider")],
    },
];

/// The identities of a self-managed cluster in the order of the workload identities file: eight with 13 federated
/// credentials, or nine with 14 if the cluster encrypts secrets with a vault key (`--enable-kms`).
pub fn workload_identities(
    with_kms: bool,
) -> impl Iterator<Item = &'static WorkloadIdentityDefinition> {
    WORKLOAD_IDENTITIES.iter().filter(move |it| with_kms || it.component != Component::Kms)
}

impl WorkloadIdentityDefinition {
    /// The name of the managed identity: `<cluster><suffix>-<infraID>`.
    pub fn identity_name(&self, names: &ClusterResourceNames<'_>) -> String {
        names.identity(self.suffix)
    }
}

/// An identity of an ARO HCP cluster whose component also runs on worker nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataPlaneIdentity {
    /// The image registry.
    ImageRegistry,
    /// The Azure Disk CSI driver.
    Disk,
    /// The Azure File CSI driver.
    File,
}

struct DataPlaneIdentityDefinition {
    component: Component,
    field: &'static str,
    role_key: &'static str,
    name: &'static str,
    credentials: &'static [FederatedCredentialDefinition],
}

const REGISTRY_DEFINITION: DataPlaneIdentityDefinition = DataPlaneIdentityDefinition {
    component: Component::ImageRegistry,
    field: "imageRegistryMSIClientID",
    role_key: "ciroWI",
    name: "image-registry-MI",
    credentials: &[
        Credential::new("-fed-id", IMAGE_REGISTRY, "registry"),
        Credential::new("-fed-id-operator", IMAGE_REGISTRY, "cluster-image-registry-operator"),
    ],
};
const DISK_DEFINITION: DataPlaneIdentityDefinition = DataPlaneIdentityDefinition {
    component: Component::Disk,
    field: "diskMSIClientID",
    role_key: "azure-diskWI",
    name: "azure-disk-MI",
    credentials: &[
        Credential::new("-fed-id", CSI_DRIVERS, "azure-disk-csi-driver-node-sa"),
        Credential::new("-fed-id-operator", CSI_DRIVERS, "azure-disk-csi-driver-operator"),
        Credential::new("-fed-id-controller", CSI_DRIVERS, "azure-disk-csi-driver-controller-sa"),
    ],
};
const FILE_DEFINITION: DataPlaneIdentityDefinition = DataPlaneIdentityDefinition {
    component: Component::File,
    field: "fileMSIClientID",
    role_key: "azure-fileWI",
    name: "azure-file-MI",
    credentials: &[
        Credential::new("-fed-id", CSI_DRIVERS, "azure-file-csi-driver-node-sa"),
        Credential::new("-fed-id-operator", CSI_DRIVERS, "azure-file-csi-driver-operator"),
        Credential::new("-fed-id-controller", CSI_DRIVERS, "azure-file-csi-driver-controller-sa"),
    ],
};

impl DataPlaneIdentity {
    /// Every identity, in the order of the HostedCluster API.
    pub const ALL: [Self; 3] = [Self::ImageRegistry, Self::Disk, Self::File];

    const fn definition(self) -> &'static DataPlaneIdentityDefinition {
        match self {
            Self::ImageRegistry => &REGISTRY_DEFINITION,
            Self::Disk => &DISK_DEFINITION,
            Self::File => &FILE_DEFINITION,
        }
    }

    /// The component whose role the identity gets.
    pub const fn component(self) -> Component {
        self.definition().component
    }

    /// The field of its client id in the HostedCluster API and in the data plane identities file.
    pub const fn field(self) -> &'static str {
        self.definition().field
    }

    /// The key of its role assignments in HyperShift.
    pub const fn role_key(self) -> &'static str {
        self.definition().role_key
    }

    /// The federated credentials. The first one has the name and the subject that HyperShift's script creates, so
    /// that a later run finds it: Azure allows one credential for each issuer and subject.
    pub const fn credentials(self) -> &'static [FederatedCredentialDefinition] {
        self.definition().credentials
    }

    /// The name of the managed identity, as in HyperShift's script: `azure-disk-MI-<prefix>`.
    ///
    /// # Errors
    ///
    /// Azure does not accept the name of the identity or of one of its federated credentials.
    pub fn identity_name(self, prefix: &str) -> Result<String, InvalidAzureNameError> {
        let name = format!("{}-{prefix}", self.definition().name);
        MANAGED_IDENTITY.check(&name)?;
        for credential in self.credentials() {
            FEDERATED_CREDENTIAL.check(&format!("{name}{}", credential.suffix))?;
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cluster_identifiers::ClusterIdentifiers;

    fn count(with_kms: bool) -> (usize, usize) {
        let all = workload_identities(with_kms);
        all.fold((0, 0), |(identities, credentials), it| {
            (identities + 1, credentials + it.credentials.len())
        })
    }

    #[test]
    fn self_managed_cluster_has_eight_identities_and_nine_with_kms() {
        assert_eq!(count(false), (8, 13));
        assert_eq!(count(true), (9, 14));
        let components: HashSet<_> = workload_identities(true).map(|it| it.component).collect();
        assert_eq!(components.len(), Component::ALL.len());
    }

    #[test]
    fn names_and_subjects_are_those_of_hypershift() {
        let identifiers =
            ClusterIdentifiers::new("harbour".parse().unwrap(), "harbour-x7k2p".parse().unwrap())
                .unwrap();
        let names = ClusterResourceNames::new(&identifiers);
        let lines: Vec<_> = workload_identities(true)
            .flat_map(|it| it.credentials.iter().map(move |credential| (it, credential)))
            .map(|(it, credential)| {
                let identity = it.identity_name(&names);
                let name = names.federated_credential(credential.suffix);
                format!("{} {identity} {name} {}", it.component, credential.subject())
            })
            .collect();
        assert_eq!(lines.len(), 14);
        for expected in [
            "disk harbour-disk-harbour-x7k2p harbour-disk-fed-id-controller system:serviceaccount:openshift-cluster-csi-drivers:azure-disk-csi-driver-controller-sa",
            "imageRegistry harbour-image-registry-harbour-x7k2p harbour-image-registry-fed-id-registry system:serviceaccount:openshift-image-registry:registry",
            "nodePoolManagement harbour-node-pool-mgmt-harbour-x7k2p harbour-node-pool-mgmt-fed-id system:serviceaccount:kube-system:capi-provider",
            "controlPlaneOperator harbour-control-plane-operator-harbour-x7k2p harbour-cpo-fed-id system:serviceaccount:kube-system:control-plane-operator",
            "kms harbour-kms-harbour-x7k2p harbour-kms-fed-id system:serviceaccount:kube-system:kms-provider",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}\n{lines:#?}");
        }
    }

    #[test]
    fn no_identity_has_two_credentials_with_one_name_or_subject() {
        let tables = workload_identities(true)
            .map(|it| it.credentials)
            .chain(DataPlaneIdentity::ALL.map(DataPlaneIdentity::credentials));
        for credentials in tables {
            let names: HashSet<_> = credentials.iter().map(|it| it.suffix).collect();
            let subjects: HashSet<_> = credentials.iter().map(Credential::subject).collect();
            assert_eq!((names.len(), subjects.len()), (credentials.len(), credentials.len()));
            assert!(credentials.len() <= lanyard_federation::MAX_FEDERATED_CREDENTIALS);
        }
    }

    #[test]
    fn data_plane_identities_have_the_union_of_subjects_and_valid_names() {
        let counts = DataPlaneIdentity::ALL.map(|it| it.credentials().len());
        assert_eq!(counts, [2, 3, 3]);
        assert_eq!(DataPlaneIdentity::Disk.identity_name("dev").unwrap(), "azure-disk-MI-dev");
        for identity in DataPlaneIdentity::ALL {
            assert!(identity.identity_name("a.b").is_err());
            assert!(identity.identity_name(&"p".repeat(110)).is_err());
        }
    }
}
