//! The names that the credential injection reserves in a component's deployment, for any cluster.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::{Consumer, CredentialPathSource};

use crate::container_settings::{
    CREDENTIAL_FILE_VARIABLE, ENCRYPTION_CONFIG_MOUNT, KMS_SOCKET_MOUNT, MANAGED_SERVICE_VARIABLE,
    VAULT_READER, cloud_config_mount,
};
use crate::hosted_cluster::credential_injection::STORAGE_OPERATOR;
use crate::hosted_cluster::encryption_config::KeyRole;
use crate::problem::ValidationProblems;

/// The names of everything that lanyard adds to a deployment. A template must not use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReservedNames {
    /// Containers that a template must have.
    pub(crate) required_containers: BTreeSet<&'static str>,
    /// Names of volumes.
    pub(crate) volumes: BTreeSet<&'static str>,
    /// Mount paths, by container.
    pub(crate) mounts: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Environment variables, by container.
    pub(crate) variables: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Containers that lanyard adds unless the template has them, each with the container whose
    /// user it must have.
    pub(crate) sidecars: BTreeMap<&'static str, &'static str>,
}

/// Returns the reserved names in a deployment; `None` if the deployment cannot have a template.
pub(crate) fn reserved_names(deployment: &str) -> Option<ReservedNames> {
    let mut claims = ReservedNames::default();
    let mut is_known = false;
    for component in Component::ALL {
        for consumer in component.consumers() {
            if consumer.deployment == deployment {
                claims.reserve_for_consumer(consumer);
                is_known = true;
            }
            is_known |= claims.reserve_for_operator(deployment, consumer);
        }
    }
    is_known.then_some(claims)
}

/// Returns the deployments that may have a template.
pub(crate) fn templatable_deployments() -> BTreeSet<&'static str> {
    let consumers = Component::ALL.iter().flat_map(|component| component.consumers());
    consumers
        .flat_map(|consumer| {
            let operator = match consumer.path_source {
                CredentialPathSource::Rendered { operator, .. } => Some(operator),
                CredentialPathSource::StorageOperator { .. } => Some(STORAGE_OPERATOR),
                _ => None,
            };
            std::iter::once(consumer.deployment).chain(operator)
        })
        .collect()
}

impl ReservedNames {
    fn reserve_for_consumer(&mut self, consumer: &Consumer) {
        let container = consumer.container;
        self.reserve_volume(container, consumer.volume, consumer.mount_path);
        if container == KeyRole::Active.container_name() {
            self.reserve_for_key_plugins(consumer);
        } else {
            self.required_containers.insert(container);
        }
        match consumer.path_source {
            CredentialPathSource::CloudConfig { mount, .. } => {
                self.reserve_volume(container, mount.volume, mount.directory);
            }
            CredentialPathSource::StorageOperator { mount, .. } => {
                self.reserve_volume(container, mount.volume, mount.directory);
                self.reserve_variable(container, CREDENTIAL_FILE_VARIABLE);
            }
            CredentialPathSource::Environment { name }
            | CredentialPathSource::Rendered { name, .. } => {
                self.reserve_variable(container, name);
            }
            CredentialPathSource::Computed => {
                self.reserve_variable(container, VAULT_READER);
                self.reserve_variable(container, MANAGED_SERVICE_VARIABLE);
            }
            CredentialPathSource::ClusterIdentity => self.reserve_variable(container, VAULT_READER),
        }
    }

    /// KMS plugins are sidecars of the API server, so a template needs only the API server's
    /// container.
    fn reserve_for_key_plugins(&mut self, consumer: &Consumer) {
        for plugin in [KeyRole::Active.container_name(), KeyRole::Backup.container_name()] {
            self.sidecars.insert(plugin, consumer.deployment);
            self.reserve_volume(plugin, KMS_SOCKET_MOUNT.volume, KMS_SOCKET_MOUNT.directory);
            self.reserve_volume(plugin, consumer.volume, consumer.mount_path);
            if let Some((_, mount)) = cloud_config_mount(consumer) {
                self.reserve_volume(plugin, mount.volume, mount.directory);
            }
        }
        self.required_containers.insert(consumer.deployment);
        self.reserve_volume(
            consumer.deployment,
            KMS_SOCKET_MOUNT.volume,
            KMS_SOCKET_MOUNT.directory,
        );
        let config = ENCRYPTION_CONFIG_MOUNT;
        self.reserve_volume(consumer.deployment, config.volume, config.directory);
    }

    /// Reserves the variables that an operator needs to render a consumer.
    fn reserve_for_operator(&mut self, deployment: &str, consumer: &Consumer) -> bool {
        let (operator, variables): (_, &[_]) = match &consumer.path_source {
            CredentialPathSource::Rendered { operator, class_name, bare_name, .. } => {
                (*operator, &[*class_name, *bare_name])
            }
            CredentialPathSource::StorageOperator { class_name, .. } => {
                (STORAGE_OPERATOR, &[*class_name])
            }
            _ => return false,
        };
        if operator != deployment {
            return false;
        }
        self.required_containers.insert(operator);
        for name in variables {
            self.reserve_variable(operator, name);
        }
        true
    }

    fn reserve_volume(
        &mut self,
        container: &'static str,
        volume: &'static str,
        path: &'static str,
    ) {
        self.volumes.insert(volume);
        self.mounts.entry(container).or_default().insert(path);
    }

    fn reserve_variable(&mut self, container: &'static str, name: &'static str) {
        self.variables.entry(container).or_default().insert(name);
    }
}

/// Reports a name in `field` that is not a templatable deployment.
pub(super) fn check_deployment_name(field: &str, name: &str, problems: &mut ValidationProblems) {
    let known = templatable_deployments();
    if !known.contains(name) {
        let known: Vec<_> = known.into_iter().collect();
        problems.error_with_hint(
            field,
            format!("`{name}` is not a deployment that uses an identity"),
            format!("known: {}", known.join(", ")),
        );
    }
}
