//! The additions with which a pod reads a credential: a CSI volume, its mount, and variables.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{CSIVolumeSource, EnvVar, Volume, VolumeMount};
use lanyard_vocabulary::component::{Consumer, CredentialPathSource};
use lanyard_vocabulary::{Component, SecretName};

use super::{ControlPlaneIdentity, KmsEncryption};

/// The name of the CSI driver.
pub const CSI_DRIVER: &str = "secrets-store.csi.k8s.io";
/// The volume attribute with the name of the SecretProviderClass.
pub const CLASS_NAME_ATTRIBUTE: &str = "secretProviderClass";
/// The deployment and container that pass the class names on to the storage drivers.
pub const STORAGE_OPERATOR: &str = "cluster-storage-operator";

/// The credential injection for one consumer of a component.
#[derive(Debug, Clone, PartialEq)]
pub struct CredentialInjection {
    pub component: Component,
    /// The pod that reads the credential.
    pub consumer: Consumer,
    /// The name of the vault secret and of the file in the volume.
    pub secret_name: SecretName,
    /// The containers that mount the volume; more than one if the consumer runs once per key.
    pub containers: Vec<String>,
    /// The volume of the pod.
    pub volume: Volume,
    /// The mount of the containers.
    pub mount: VolumeMount,
    /// Environment variables of the consumer or of the operator that renders the consumer.
    pub variables: Vec<ContainerVariable>,
}

/// An environment variable of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerVariable {
    pub deployment: &'static str,
    pub container: &'static str,
    pub variable: EnvVar,
}

impl CredentialInjection {
    /// Returns the name of the SecretProviderClass of the volume.
    pub fn class_name(&self) -> Option<&str> {
        let attributes = self.volume.csi.as_ref()?.volume_attributes.as_ref()?;
        attributes.get(CLASS_NAME_ATTRIBUTE).map(String::as_str)
    }

    /// Returns the path of the credential file in the consumer's containers.
    pub fn credential_path(&self) -> String {
        format!("{}/{}", self.consumer.mount_path, self.secret_name)
    }

    /// Returns the value of an environment variable.
    pub(super) fn variable_value(&self, name: &str) -> Option<String> {
        let variable = self.variables.iter().find(|variable| variable.variable.name == name)?;
        variable.variable.value.clone()
    }
}

pub(super) fn desired_injection(
    component: Component,
    consumer: &Consumer,
    identity: &ControlPlaneIdentity,
    encryption: Option<&KmsEncryption>,
) -> CredentialInjection {
    let class = component.definition().secret_provider_class;
    CredentialInjection {
        component,
        consumer: *consumer,
        secret_name: identity.secret_name.clone(),
        containers: container_names(consumer, encryption),
        volume: Volume {
            name: consumer.volume.to_owned(),
            csi: Some(CSIVolumeSource {
                driver: CSI_DRIVER.to_owned(),
                read_only: Some(true),
                volume_attributes: Some(BTreeMap::from([(
                    CLASS_NAME_ATTRIBUTE.to_owned(),
                    class.to_owned(),
                )])),
                ..CSIVolumeSource::default()
            }),
            ..Volume::default()
        },
        mount: VolumeMount {
            name: consumer.volume.to_owned(),
            mount_path: consumer.mount_path.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        },
        variables: injected_variables(class, consumer, identity),
    }
}

/// The KMS plugin runs once for every key, in a container named after the key's role.
fn container_names(consumer: &Consumer, encryption: Option<&KmsEncryption>) -> Vec<String> {
    let has_backup = encryption.is_some_and(|encryption| encryption.backup_key.is_some());
    let stem = consumer.container.strip_suffix("-active").filter(|_| has_backup);
    let twin = stem.map(|stem| format!("{stem}-backup"));
    std::iter::once(consumer.container.to_owned()).chain(twin).collect()
}

/// Not every consumer gets its path from a variable. The meaning of the variable differs: the full
/// path for consumers that read the file themselves, the bare file name for the network operator.
fn injected_variables(
    class: &str,
    consumer: &Consumer,
    identity: &ControlPlaneIdentity,
) -> Vec<ContainerVariable> {
    let path = format!("{}/{}", consumer.mount_path, identity.secret_name);
    let variable = |deployment, container, name: &str, value: &str| ContainerVariable {
        deployment,
        container,
        variable: EnvVar {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            ..EnvVar::default()
        },
    };
    match consumer.path_source {
        CredentialPathSource::Computed
        | CredentialPathSource::ClusterIdentity
        | CredentialPathSource::CloudConfig { .. } => Vec::new(),
        CredentialPathSource::Environment { name } => {
            vec![variable(consumer.deployment, consumer.container, name, &path)]
        }
        CredentialPathSource::Rendered { operator, class_name, bare_name, name } => vec![
            variable(operator, operator, class_name, class),
            variable(operator, operator, bare_name, identity.secret_name.as_str()),
            variable(consumer.deployment, consumer.container, name, &path),
        ],
        CredentialPathSource::StorageOperator { class_name, .. } => {
            vec![variable(STORAGE_OPERATOR, STORAGE_OPERATOR, class_name, class)]
        }
    }
}
