//! The desired objects of a hosted cluster in the namespace of its control plane.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use lanyard_api::parameters::{IdentityMode, ProviderParameters};
use lanyard_api::{SecretProviderClass, VaultObjectEntry};
use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::{Consumer, CredentialPathSource};

use super::azure_cluster::{AzureCluster, desired_azure_cluster};
use super::cloud_config::{
    CLOUD_CONFIG_KEY, CREDENTIAL_PATH_KEY, desired_cloud_config_secrets,
    desired_worker_cloud_config,
};
use super::cluster_identity::{AzureClusterIdentity, desired_cluster_identity};
use super::credential_injection::{CredentialInjection, desired_injection};
use super::network_secret::desired_network_secret;
use super::render_context::{RenderContext, object_metadata};
use super::{ControlPlaneIdentity, ValidatedHostedCluster};
use crate::objects::{ObjectKey, OwnedKind};

#[cfg(test)]
mod tests;

/// The desired objects of a hosted cluster, all in the namespace of its control plane.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredState {
    /// The namespace of the control plane.
    pub namespace: String,
    /// One SecretProviderClass for every running component, in the order of the HostedCluster API.
    pub secret_provider_classes: Vec<SecretProviderClass>,
    /// The cloud configuration of the nodes.
    pub config_maps: Vec<ConfigMap>,
    /// The cloud configurations of the control plane, and the settings of the cloud network config
    /// controller.
    pub secrets: Vec<Secret>,
    /// The identity of Cluster API Provider Azure; `None` if the provider does not support the
    /// cloud.
    pub cluster_identity: Option<AzureClusterIdentity>,
    /// The cluster of Cluster API Provider Azure, which refers to the identity; `None` without the
    /// identity.
    pub azure_cluster: Option<AzureCluster>,
    /// The desired objects that contain an unusable value of the HostedCluster, so that they cannot
    /// be rendered.
    pub unrendered: Vec<ObjectKey>,
    /// The credential injections: a volume, a mount and variables for every consumer.
    pub credential_injections: Vec<CredentialInjection>,
}

/// Computes the desired objects of a hosted cluster.
pub fn desired_state(cluster: &ValidatedHostedCluster, names: &RenderContext) -> DesiredState {
    let namespace = cluster.control_plane_namespace();
    let unrendered = |kind, name: &str| ObjectKey {
        kind,
        namespace: Some(namespace.clone()),
        name: name.to_owned(),
    };
    let mut missing = Vec::new();
    let (mut config_maps, mut secrets) = (Vec::new(), Vec::new());
    match desired_worker_cloud_config(cluster, names) {
        Ok(config_map) => config_maps.push(config_map),
        Err(name) => missing.push(unrendered(OwnedKind::ConfigMap, name)),
    }
    for secret in desired_cloud_config_secrets(cluster, names) {
        match secret {
            Ok(secret) => secrets.push(secret),
            Err(name) => missing.push(unrendered(OwnedKind::Secret, name)),
        }
    }
    secrets.push(desired_network_secret(cluster, names));
    let cluster_identity = desired_cluster_identity(cluster, names);
    let azure_cluster =
        cluster_identity.as_ref().and_then(|_| desired_azure_cluster(cluster, names));
    if cluster_identity.is_some() && azure_cluster.is_none() {
        missing.push(unrendered(OwnedKind::AzureCluster, &cluster.name));
    }
    DesiredState {
        secret_provider_classes: cluster
            .running_components()
            .map(|(component, identity)| desired_class(cluster, names, component, identity))
            .collect(),
        config_maps,
        secrets,
        cluster_identity,
        azure_cluster,
        unrendered: missing,
        credential_injections: cluster
            .running_components()
            .flat_map(|(component, identity)| {
                let encryption = cluster.encryption.as_ref();
                let wire =
                    move |consumer| desired_injection(component, consumer, identity, encryption);
                component.consumers().iter().map(wire)
            })
            .collect(),
        namespace,
    }
}

/// The class depends only on the vault, its tenant, the secret's name and encoding, the vault
/// reader and the cloud.
fn desired_class(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
    component: Component,
    identity: &ControlPlaneIdentity,
) -> SecretProviderClass {
    let parameters = ProviderParameters {
        identity: IdentityMode::ManagedIdentity { client_id: names.vault_reader },
        vault_name: cluster.vault.name.clone(),
        tenant: cluster.vault.tenant.0.clone(),
        cloud: Some(cluster.azure.cloud).filter(|cloud| cloud.provider_name().is_some()),
        cloud_env_file: None,
        objects: vec![VaultObjectEntry::secret(
            identity.secret_name.clone(),
            Some(identity.encoding),
        )],
    };
    let name = component.definition().secret_provider_class;
    SecretProviderClass::for_azure(object_metadata(cluster, names, name), &parameters)
}

impl DesiredState {
    /// Returns the SecretProviderClass of this name.
    pub fn secret_provider_class(&self, name: &str) -> Option<&SecretProviderClass> {
        self.secret_provider_classes
            .iter()
            .find(|class| class.metadata.name.as_deref() == Some(name))
    }

    /// Returns the credential injection of a consumer; `None` if its component does not run.
    pub fn injection_for(
        &self,
        component: Component,
        consumer: &Consumer,
    ) -> Option<&CredentialInjection> {
        self.credential_injections
            .iter()
            .find(|wiring| wiring.component == component && wiring.consumer == *consumer)
    }

    /// Returns the credential path that a consumer is configured with, read from the object that
    /// configures it; `None` if the component does not run or has no configured path.
    pub fn configured_credential_path(
        &self,
        component: Component,
        consumer: &Consumer,
    ) -> Option<String> {
        let wiring = self.injection_for(component, consumer)?;
        match consumer.path_source {
            CredentialPathSource::Computed => {
                Some(format!("{}/{}", consumer.mount_path, wiring.secret_name))
            }
            CredentialPathSource::ClusterIdentity => {
                let identity = self.cluster_identity.as_ref()?;
                Some(identity.spec.user_assigned_identity_credentials_path.clone())
            }
            CredentialPathSource::CloudConfig { secret, .. }
            | CredentialPathSource::StorageOperator { secret, .. } => {
                self.credential_path_in_cloud_config(secret)
            }
            CredentialPathSource::Environment { name }
            | CredentialPathSource::Rendered { name, .. } => wiring.variable_value(name),
        }
    }

    /// Returns the path of the credential file in the consumer's volume: the mount path and the
    /// file name from the volume's class.
    pub fn mounted_credential_path(
        &self,
        component: Component,
        consumer: &Consumer,
    ) -> Option<String> {
        let wiring = self.injection_for(component, consumer)?;
        let class = self.secret_provider_class(wiring.class_name()?)?;
        let parameters = class.parse_parameters().ok()?;
        let file = parameters.objects.first()?.file_name();
        Some(format!("{}/{file}", wiring.mount.mount_path))
    }

    fn credential_path_in_cloud_config(&self, secret: &str) -> Option<String> {
        let secret = self.secrets.iter().find(|s| s.metadata.name.as_deref() == Some(secret))?;
        let text = &secret.data.as_ref()?.get(CLOUD_CONFIG_KEY)?.0;
        let config: serde_json::Value = serde_json::from_slice(text).ok()?;
        Some(config.get(CREDENTIAL_PATH_KEY)?.as_str()?.to_owned())
    }
}
