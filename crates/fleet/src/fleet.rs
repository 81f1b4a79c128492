//! A valid fleet: applications, the clusters on which they run, and what their identities may read.

use std::collections::BTreeMap;

use lanyard_azure::ResourceTags;
use lanyard_vocabulary::{ArmResourceId, SecretName, SubscriptionId};

use crate::fleet_document::OidcIssuerMode;
use crate::fleet_label::FleetLabel;
use crate::wave_rule::WaveRule;

/// A valid fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The name of the fleet.
    pub name: FleetLabel,
    /// The clusters, in the order of the file.
    pub clusters: Vec<FleetCluster>,
    /// The applications, in the order of the file.
    pub applications: Vec<Application>,
    /// The waves, in the order of the file.
    pub(crate) waves: Vec<WaveRule>,
}

/// An AKS cluster of a fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetCluster {
    /// The name of the cluster in the fleet.
    pub name: FleetLabel,
    /// The AKS cluster.
    pub id: ArmResourceId,
    /// The labels, by which overlays select clusters.
    pub labels: BTreeMap<String, String>,
    /// Where the identities of the cluster are.
    pub identities: IdentityPlace,
    /// What happens without an OIDC issuer or workload identity.
    pub oidc_issuer: OidcIssuerMode,
}

/// Where the identities of a cluster are created.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityPlace {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The resource group.
    pub resource_group: String,
    /// The region; `None` for that of the cluster.
    pub location: Option<String>,
    /// Tags beside those of lanyard.
    pub tags: ResourceTags,
}

/// An application of a fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// The name of the application.
    pub name: FleetLabel,
    /// The namespace of its pods.
    pub namespace: FleetLabel,
    /// The ServiceAccount of its pods.
    pub service_account: FleetLabel,
    /// The audience of the ServiceAccount tokens.
    pub audience: String,
    /// The name of its identity on each cluster, with placeholders.
    pub(crate) identity_name: String,
    /// What its identities may read, unless an overlay says otherwise.
    pub(crate) secrets: Option<VaultSecrets>,
    pub(crate) overlays: Vec<Overlay>,
}

/// The secrets of a vault that an identity may read.
#[derive(Debug, Clone, PartialEq)]
pub struct VaultSecrets {
    /// The vault.
    pub vault: ArmResourceId,
    /// The subscription of the vault.
    pub subscription: SubscriptionId,
    /// The names of the secrets.
    pub names: Vec<SecretName>,
}

/// Values of an application on the clusters with certain labels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Overlay {
    pub(crate) match_labels: BTreeMap<String, String>,
    pub(crate) secrets: Option<VaultSecrets>,
}

/// The label with the name of the cluster.
pub(crate) const NAME_LABEL: &str = "name";

impl FleetCluster {
    /// Whether the cluster has all of these labels.
    pub(crate) fn has_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.iter().all(|(name, value)| self.label(name) == Some(value))
    }

    /// The value of a label; that of `name` is the name of the cluster.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        match name {
            NAME_LABEL => Some(self.name.as_str()),
            _ => self.labels.get(name).map(String::as_str),
        }
    }
}

impl Application {
    /// The subject of the tokens of the application's ServiceAccount.
    pub fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.service_account)
    }

    /// The name of the application's identity on a cluster.
    pub fn identity_name(&self, fleet: &FleetLabel, cluster: &FleetLabel) -> String {
        let names = [("fleet", fleet), ("application", &self.name), ("cluster", cluster)];
        names.iter().fold(self.identity_name.clone(), |name, (placeholder, value)| {
            name.replace(&format!("${{{placeholder}}}"), value.as_str())
        })
    }

    /// What the application's identity on a cluster may read: by the last overlay for the cluster, otherwise the value
    /// for all clusters.
    pub fn secrets_on(&self, cluster: &FleetCluster) -> Option<&VaultSecrets> {
        let mut overlays = self.overlays.iter().rev();
        let overlay = overlays.find(|overlay| cluster.has_labels(&overlay.match_labels));
        overlay.map_or(&self.secrets, |overlay| &overlay.secrets).as_ref()
    }
}
