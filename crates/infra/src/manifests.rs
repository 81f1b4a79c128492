//! The Kubernetes objects of a new hosted cluster (`create cluster azure`): its namespace, Secrets, HostedCluster
//! and NodePools.
//!
//! [`ClusterOptions`] are the values of the flags, each valid by itself. [`HostedClusterParameters::new`] checks
//! them together with the infrastructure. [`HostedClusterParameters::manifests`] is a pure function, so that the
//! objects can be checked before anything is created.

mod choices;
mod hosted_cluster;
mod node_pools;
mod options;
mod parameters;
mod secrets;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub use self::choices::{
    AvailabilityPolicy, AvailabilityZone, DiagnosticsStorage, EndpointAccess, HostEncryption,
    ImageGeneration, InvalidChoiceError, NetworkType, NodeArchitecture, NodeUpgradeType,
    OAuthPublishing,
};
pub use self::options::{
    ClusterAccount, ClusterOptions, DiagnosticsOptions, IpRange, KubernetesName,
    MarketplaceOptions, NodePoolOptions, ParseIpRangeError, ParseKubernetesNameError,
    PrivateAccessOptions,
};
pub use self::parameters::{FlagProblem, FlagProblems, HostedClusterParameters};
pub use self::secrets::{
    GenerateKeyError, SecretInputs, SecretManifest, SshKeyInput, generate_encryption_key,
};

/// The label of the objects of a cluster whose infrastructure has this id. `destroy cluster azure` removes the
/// Secrets with the label.
pub const INFRA_LABEL: &str = "hypershift.openshift.io/auto-created-for-infra";

/// The objects of a hosted cluster, in the order in which they are applied.
#[derive(Debug, Clone)]
pub struct ClusterManifests {
    /// The namespace. It may contain other clusters.
    pub namespace: Value,
    /// The Secrets.
    pub secrets: Vec<SecretManifest>,
    /// The HostedCluster.
    pub hosted_cluster: Value,
    /// The NodePools.
    pub node_pools: Vec<Value>,
}

impl HostedClusterParameters {
    /// Renders the objects.
    pub fn manifests(&self, secrets: SecretInputs) -> ClusterManifests {
        let namespace = self.options.namespace.as_str();
        ClusterManifests {
            namespace: json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": { "name": namespace },
            }),
            hosted_cluster: self.hosted_cluster(secrets.has_ssh_key()),
            node_pools: self.node_pools(),
            secrets: self.secrets(secrets),
        }
    }
}

impl ClusterManifests {
    /// The objects as YAML documents. Without `with_secrets`, the Secrets are left out, as in HyperShift.
    ///
    /// # Errors
    ///
    /// Never for the objects of [`HostedClusterParameters::manifests`].
    pub fn to_yaml(&self, with_secrets: bool) -> Result<String, serde_saphyr::SerializeError> {
        let secrets = self.secrets.iter().filter(|_| with_secrets).map(SecretManifest::to_json);
        let objects = std::iter::once(self.namespace.clone())
            .chain(secrets)
            .chain([self.hosted_cluster.clone()])
            .chain(self.node_pools.iter().cloned());
        let to_yaml = |object: Value| {
            // Ids stay on one line, as in Go's YAML.
            let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
            serde_saphyr::to_string_with_options(&object, options)
        };
        let documents: Result<Vec<_>, _> = objects.map(to_yaml).collect();
        Ok(documents?.join("---\n"))
    }
}
