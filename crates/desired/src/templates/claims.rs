//! What the identity of a component takes in its deployment, whatever the cluster.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::{Consumer, Told};

use crate::hosted_cluster::encryption_config::KeyPart;
use crate::hosted_cluster::wiring::STORAGE_OPERATOR;
use crate::workload::{
    CREDENTIAL_FILE, ENCRYPTION_MOUNT, KMS_SOCKET, MANAGED_SERVICE, VAULT_READER, cloud_config,
};

/// What is added to a deployment, by name; a template must leave it free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    /// Containers that a template must have.
    pub(crate) containers: BTreeSet<&'static str>,
    /// Names of volumes.
    pub(crate) volumes: BTreeSet<&'static str>,
    /// Mount paths by container.
    pub(crate) mounts: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Variables by container.
    pub(crate) variables: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Containers that are added where a template has none of the name, and the container whose user
    /// they have to be.
    pub(crate) sidecars: BTreeMap<&'static str, &'static str>,
}

/// What is taken in a deployment, if it is one that may have a template.
pub(crate) fn claims(deployment: &str) -> Option<Claims> {
    let mut claims = Claims::default();
    let mut is_known = false;
    for component in Component::ALL {
        for consumer in component.consumers() {
            if consumer.deployment == deployment {
                claims.consumer(consumer);
                is_known = true;
            }
            is_known |= claims.operator(deployment, consumer);
        }
    }
    is_known.then_some(claims)
}

/// The deployments that may have a template.
pub(crate) fn known_deployments() -> BTreeSet<&'static str> {
    let consumers = Component::ALL.iter().flat_map(|component| component.consumers());
    consumers
        .flat_map(|consumer| {
            let operator = match consumer.told {
                Told::Rendered { operator, .. } => Some(operator),
                Told::StorageOperator { .. } => Some(STORAGE_OPERATOR),
                _ => None,
            };
            std::iter::once(consumer.deployment).chain(operator)
        })
        .collect()
}

impl Claims {
    fn consumer(&mut self, consumer: &Consumer) {
        let container = consumer.container;
        self.volume(container, consumer.volume, consumer.mount_path);
        if container == KeyPart::Active.container() {
            self.key_plugin(consumer);
        } else {
            self.containers.insert(container);
        }
        match consumer.told {
            Told::CloudConfig { mount, .. } => {
                self.volume(container, mount.volume, mount.directory);
            }
            Told::StorageOperator { mount, .. } => {
                self.volume(container, mount.volume, mount.directory);
                self.variable(container, CREDENTIAL_FILE);
            }
            Told::Environment { name } | Told::Rendered { name, .. } => {
                self.variable(container, name);
            }
            Told::Computed => {
                self.variable(container, VAULT_READER);
                self.variable(container, MANAGED_SERVICE);
            }
            Told::ClusterIdentity => self.variable(container, VAULT_READER),
        }
    }

    /// The plugins of the keys stand beside the API server, which is what a template has.
    fn key_plugin(&mut self, consumer: &Consumer) {
        for plugin in [KeyPart::Active.container(), KeyPart::Backup.container()] {
            self.sidecars.insert(plugin, consumer.deployment);
            self.volume(plugin, KMS_SOCKET.volume, KMS_SOCKET.directory);
            self.volume(plugin, consumer.volume, consumer.mount_path);
            if let Some((_, mount)) = cloud_config(consumer) {
                self.volume(plugin, mount.volume, mount.directory);
            }
        }
        self.containers.insert(consumer.deployment);
        self.volume(consumer.deployment, KMS_SOCKET.volume, KMS_SOCKET.directory);
        let config = ENCRYPTION_MOUNT;
        self.volume(consumer.deployment, config.volume, config.directory);
    }

    /// What the operator that renders a consumer is told.
    fn operator(&mut self, deployment: &str, consumer: &Consumer) -> bool {
        let (operator, variables): (_, &[_]) = match &consumer.told {
            Told::Rendered { operator, class_name, bare_name, .. } => {
                (*operator, &[*class_name, *bare_name])
            }
            Told::StorageOperator { class_name, .. } => (STORAGE_OPERATOR, &[*class_name]),
            _ => return false,
        };
        if operator != deployment {
            return false;
        }
        self.containers.insert(operator);
        for name in variables {
            self.variable(operator, name);
        }
        true
    }

    fn volume(&mut self, container: &'static str, volume: &'static str, path: &'static str) {
        self.volumes.insert(volume);
        self.mounts.entry(container).or_default().insert(path);
    }

    fn variable(&mut self, container: &'static str, name: &'static str) {
        self.variables.entry(container).or_default().insert(name);
    }
}
