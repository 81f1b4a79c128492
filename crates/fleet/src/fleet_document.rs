//! The fields of a `fleet.yaml`, as the user writes them. Names and ids are text, so that every problem with them is
//! reported.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;

/// Applications, the AKS clusters on which they run, and what their identities may read.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FleetDocument {
    /// The version of the format: `lanyard.dev/v1alpha1`.
    pub(crate) api_version: String,
    /// The kind: `Fleet`.
    pub(crate) kind: String,
    pub(crate) metadata: FleetMetadata,
    /// Values for all clusters that do not have their own.
    #[serde(default)]
    pub(crate) defaults: ClusterDefaults,
    /// The AKS clusters.
    pub(crate) clusters: Vec<ClusterEntry>,
    /// The applications. Each has an identity of its own on each cluster.
    pub(crate) applications: Vec<ApplicationEntry>,
    /// The order in which clusters are changed. By default, one after another, in the order of the file.
    #[serde(default)]
    pub(crate) rollout: RolloutEntry,
}

/// The name of the fleet.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FleetMetadata {
    /// The name of the fleet: a DNS label. Journals and tags contain it.
    pub(crate) name: String,
}

/// Where lanyard creates the identities of a cluster, and what it may change of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ClusterDefaults {
    /// The subscription of the identities. By default, that of the cluster.
    pub(crate) identity_subscription: Option<String>,
    /// The resource group of the identities. It is created if it does not exist.
    pub(crate) identity_resource_group: Option<String>,
    /// The region of the identities. By default, that of the cluster.
    pub(crate) location: Option<String>,
    /// Further tags of the identities.
    pub(crate) tags: Option<BTreeMap<String, String>>,
    /// Whether lanyard may enable the OIDC issuer and workload identity of a cluster, which restarts its API server.
    pub(crate) oidc_issuer: Option<OidcIssuerMode>,
}

/// What happens if a cluster has no OIDC issuer, or no workload identity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OidcIssuerMode {
    /// Lanyard enables both. This restarts the API server of the cluster.
    Enable,
    /// The plan cannot be applied.
    #[default]
    Require,
}

/// An AKS cluster.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(crate) struct ClusterEntry {
    /// The name of the cluster in the fleet: a DNS label.
    pub(crate) name: String,
    /// The id of the AKS cluster in Azure Resource Manager.
    pub(crate) id: String,
    /// Labels, by which overlays and waves select clusters.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Values that differ from the defaults.
    #[serde(flatten)]
    pub(crate) own: ClusterDefaults,
}

/// An application.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApplicationEntry {
    /// The name of the application: a DNS label.
    pub(crate) name: String,
    /// The namespace of its pods.
    pub(crate) namespace: String,
    /// The ServiceAccount of its pods. By default, the name of the application.
    pub(crate) service_account: Option<String>,
    /// The audience of the ServiceAccount tokens. By default, `api://AzureADTokenExchange`.
    pub(crate) audience: Option<String>,
    /// The name of the identity on each cluster. By default, `${fleet}-${application}-${cluster}`.
    pub(crate) identity_name: Option<String>,
    /// The vault secrets that the identities may read.
    pub(crate) key_vault: Option<KeyVaultEntry>,
    /// Values that only some clusters have.
    #[serde(default)]
    pub(crate) overlays: Vec<OverlayEntry>,
}

/// Secrets of a vault.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KeyVaultEntry {
    /// The id of the vault in Azure Resource Manager.
    pub(crate) id: String,
    /// The names of the secrets. Each identity gets a role on each of them, and none on the vault.
    pub(crate) secrets: Vec<String>,
}

/// Values of an application on the clusters with certain labels.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OverlayEntry {
    /// The labels that a cluster must have, all of them. The label `name` is the name of the cluster.
    pub(crate) match_labels: BTreeMap<String, String>,
    /// The vault secrets in place of those of the application.
    pub(crate) key_vault: Option<KeyVaultEntry>,
}

/// The order in which clusters are changed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RolloutEntry {
    /// The waves, one after another. A cluster is in the first wave whose labels it has.
    #[serde(default)]
    pub(crate) waves: Vec<WaveEntry>,
}

/// Clusters that are changed before those of the next wave.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WaveEntry {
    /// The name of the wave: a DNS label.
    pub(crate) name: String,
    /// The labels that a cluster must have, all of them. Without labels, every cluster that is in no earlier wave.
    #[serde(default)]
    pub(crate) match_labels: BTreeMap<String, String>,
    /// The label whose values order the clusters of the wave, numbers before texts. By default, the order of the file.
    pub(crate) order_by: Option<String>,
    /// How many clusters are changed at the same time: a number, or a percentage of the wave, which is rounded down to at
    /// least 1. By default 1.
    pub(crate) max_concurrency: Option<ShareEntry>,
    /// How many clusters may fail before no further one is started: a number, or a percentage of the wave, which is rounded
    /// up. By default 0.
    pub(crate) max_allowed_failures: Option<ShareEntry>,
    /// How long to wait after the wave, such as `10m`, before the next one begins.
    pub(crate) pause_after: Option<String>,
}

/// A number of clusters, or a percentage such as `25%`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ShareEntry {
    /// A number of clusters.
    Count(usize),
    /// A percentage.
    Percentage(String),
}

/// The JSON Schema of a `fleet.yaml`, for editors.
pub fn fleet_schema() -> Schema {
    schemars::schema_for!(FleetDocument)
}
