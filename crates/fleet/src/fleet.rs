//! A valid fleet: applications, the clusters on which they run, and what their identities may read.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lanyard_azure::ResourceTags;
use lanyard_vocabulary::{ArmResourceId, SecretName, SubscriptionId};

use crate::fleet_document::OidcIssuerMode;

/// A valid fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The name of the fleet.
    pub name: FleetLabel,
    /// The clusters, in the order of the file.
    pub clusters: Vec<FleetCluster>,
    /// The applications, in the order of the file.
    pub applications: Vec<Application>,
}

/// The name of a fleet, a cluster, an application, a namespace or a ServiceAccount: a DNS label (RFC 1123).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetLabel(String);

/// A text is not a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` does not have 1 to 63 small letters, digits and `-`, a letter or digit first and last"
)]
pub struct ParseFleetLabelError(String);

impl FleetLabel {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FleetLabel {
    type Err = ParseFleetLabelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = (1..=63).contains(&text.len())
            && text.chars().all(is_allowed)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if is_label {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseFleetLabelError(text.to_owned()))
        }
    }
}

impl fmt::Display for FleetLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
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
        let value_of = |name: &str| match name {
            NAME_LABEL => Some(self.name.as_str()),
            _ => self.labels.get(name).map(String::as_str),
        };
        labels.iter().all(|(name, value)| value_of(name) == Some(value))
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
