//! Everything that a hosted cluster should have in the namespace of its control plane.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use lanyard_api::parameters::{IdentityMode, ProviderParameters};
use lanyard_api::{ObjectEntry, SecretProviderClass};
use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::{Consumer, Told};

use super::cloud_config::{CLOUD_CONF, IDENTITY_PATH, cloud_config_secrets, worker_cloud_config};
use super::cluster_identity::{AzureClusterIdentity, desired_cluster_identity};
use super::names::{Names, metadata};
use super::network_secret::desired_network_secret;
use super::wiring::{Wiring, desired_wiring};
use super::{ControlPlaneIdentity, ValidatedHostedCluster};

#[cfg(test)]
mod tests;

/// The objects of a hosted cluster, all in the namespace of its control plane.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// The namespace of the control plane.
    pub namespace: String,
    /// One class for every component that runs, in the order of the API.
    pub secret_provider_classes: Vec<SecretProviderClass>,
    /// The cloud configuration of the nodes.
    pub config_maps: Vec<ConfigMap>,
    /// The cloud configurations of the control plane, and what the network controller is told.
    pub secrets: Vec<Secret>,
    /// The identity of Cluster API, where it knows the cloud.
    pub cluster_identity: Option<AzureClusterIdentity>,
    /// What the pods get: a volume, a mount and variables for every consumer.
    pub wirings: Vec<Wiring>,
}

/// Decides what a hosted cluster should have.
pub fn desired(cluster: &ValidatedHostedCluster, names: &Names) -> Desired {
    let mut secrets = cloud_config_secrets(cluster, names);
    secrets.push(desired_network_secret(cluster, names));
    Desired {
        namespace: cluster.control_plane_namespace(),
        secret_provider_classes: cluster
            .components()
            .map(|(component, identity)| class(cluster, names, component, identity))
            .collect(),
        config_maps: vec![worker_cloud_config(cluster, names)],
        secrets,
        cluster_identity: desired_cluster_identity(cluster, names),
        wirings: cluster
            .components()
            .flat_map(|(component, identity)| {
                let encryption = cluster.encryption.as_ref();
                let wire =
                    move |consumer| desired_wiring(component, consumer, identity, encryption);
                component.consumers().iter().map(wire)
            })
            .collect(),
    }
}

/// The class depends on the vault, its tenant, the secret's name and encoding, the reader and the
/// cloud, and on nothing else.
fn class(
    cluster: &ValidatedHostedCluster,
    names: &Names,
    component: Component,
    identity: &ControlPlaneIdentity,
) -> SecretProviderClass {
    let parameters = ProviderParameters {
        identity: IdentityMode::ManagedIdentity { client_id: names.vault_reader },
        vault_name: cluster.vault.name.clone(),
        tenant: cluster.vault.tenant.0.clone(),
        cloud: Some(cluster.azure.cloud).filter(|cloud| cloud.provider_name().is_some()),
        cloud_env_file: None,
        objects: vec![ObjectEntry::secret(identity.secret_name.clone(), Some(identity.encoding))],
    };
    let name = component.facts().secret_provider_class;
    SecretProviderClass::of_azure(metadata(cluster, names, name), &parameters)
}

impl Desired {
    /// The class of this name.
    pub fn secret_provider_class(&self, name: &str) -> Option<&SecretProviderClass> {
        self.secret_provider_classes
            .iter()
            .find(|class| class.metadata.name.as_deref() == Some(name))
    }

    /// The wiring of a consumer, if its component runs.
    pub fn wiring(&self, component: Component, consumer: &Consumer) -> Option<&Wiring> {
        self.wirings
            .iter()
            .find(|wiring| wiring.component == component && wiring.consumer == *consumer)
    }

    /// The path of the credential file that a consumer is told, read out of the object through
    /// which it is told; nothing where the component does not run or is not told.
    pub fn consumer_path(&self, component: Component, consumer: &Consumer) -> Option<String> {
        let wiring = self.wiring(component, consumer)?;
        match consumer.told {
            Told::Computed => Some(format!("{}/{}", consumer.mount_path, wiring.secret_name)),
            Told::ClusterIdentity => {
                let identity = self.cluster_identity.as_ref()?;
                Some(identity.spec.user_assigned_identity_credentials_path.clone())
            }
            Told::CloudConfig { secret, .. } | Told::StorageOperator { secret, .. } => {
                self.path_in_cloud_config(secret)
            }
            Told::Environment { name } | Told::Rendered { name, .. } => wiring.variable(name),
        }
    }

    /// The path of the file that the consumer's volume provides: the mount, and the file that the
    /// volume's class names.
    pub fn volume_path(&self, component: Component, consumer: &Consumer) -> Option<String> {
        let wiring = self.wiring(component, consumer)?;
        let class = self.secret_provider_class(wiring.class_name()?)?;
        let parameters = class.parse_parameters().ok()?;
        let file = parameters.objects.first()?.file_name();
        Some(format!("{}/{file}", wiring.mount.mount_path))
    }

    fn path_in_cloud_config(&self, secret: &str) -> Option<String> {
        let secret = self.secrets.iter().find(|s| s.metadata.name.as_deref() == Some(secret))?;
        let text = &secret.data.as_ref()?.get(CLOUD_CONF)?.0;
        let config: serde_json::Value = serde_json::from_slice(text).ok()?;
        Some(config.get(IDENTITY_PATH)?.as_str()?.to_owned())
    }
}
