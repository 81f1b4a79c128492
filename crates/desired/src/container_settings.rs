//! The environment variables and mounts that lanyard adds to the containers of components.

use lanyard_vocabulary::component::{CloudConfigMount, Consumer, CredentialPathSource};

use crate::hosted_cluster::encryption_config::{ENCRYPTION_CONFIG_KEY, ENCRYPTION_CONFIG_SECRET};

/// Environment variable of the storage drivers: the path of their cloud configuration.
pub(crate) const CREDENTIAL_FILE_VARIABLE: &str = "AZURE_CREDENTIAL_FILE";

/// Environment variable of HyperShift's operators: the client id that reads the vault.
pub(crate) const VAULT_READER: &str = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID";

/// Environment variable of HyperShift's operators: the service that manages the management cluster.
pub(crate) const MANAGED_SERVICE_VARIABLE: &str = "MANAGED_SERVICE";

/// The mount with the sockets of the KMS plugins.
pub(crate) const KMS_SOCKET_MOUNT: CloudConfigMount =
    CloudConfigMount { volume: "kms-socket", directory: "/opt", file: "" };

/// The mount with the API server's `EncryptionConfiguration`.
pub(crate) const ENCRYPTION_CONFIG_MOUNT: CloudConfigMount = CloudConfigMount {
    volume: ENCRYPTION_CONFIG_SECRET,
    directory: "/etc/kubernetes/secret-encryption",
    file: ENCRYPTION_CONFIG_KEY,
};

/// Returns the Secret with a consumer's cloud configuration and its mount in the consumer.
pub(crate) fn cloud_config_mount(consumer: &Consumer) -> Option<(&'static str, CloudConfigMount)> {
    match consumer.path_source {
        CredentialPathSource::CloudConfig { secret, mount }
        | CredentialPathSource::StorageOperator { secret, mount, .. } => Some((secret, mount)),
        _ => None,
    }
}
