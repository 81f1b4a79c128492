//! `HostedClusterIdentities`: the one place that says how every identity of a hosted cluster is.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

/// How the identities of a hosted cluster are. It has the name and the namespace of its
/// HostedCluster, belongs to it, and has no `spec`: nobody but the operator writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostedClusterIdentities {
    /// [`HostedClusterIdentities::API_VERSION`].
    #[serde(default)]
    pub api_version: String,
    /// [`HostedClusterIdentities::KIND`].
    #[serde(default)]
    pub kind: String,
    /// Name and namespace of the HostedCluster, and the HostedCluster as the owner.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// How they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<HostedClusterIdentitiesStatus>,
}

/// `status` of [`HostedClusterIdentities`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostedClusterIdentitiesStatus {
    /// `metadata.generation` of the HostedCluster that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One entry for each identity, in the order of the API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<IdentityStatus>,
    /// The conditions that stand at the HostedCluster too, where the operator may write there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What is not as it was rendered, or not in use as it is mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftStatus>,
}

impl IdentityStatus {
    /// The longest [`loaded_version`](Self::loaded_version) that the API server takes, in
    /// characters.
    pub const MAX_VERSION_LENGTH: u8 = 127;
}

/// How one identity is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// The component, as its field in the HostedCluster API.
    pub component: String,
    /// `clientID` of the HostedCluster, or that of the loaded credential.
    #[serde(default, rename = "clientID", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The class that brings the credential.
    pub secret_provider_class: String,
    /// `True`, `False`, or `Unknown` where nobody reported.
    pub ready: String,
    /// A word for it: `AsExpected`, a code of an outcome, `NotReported`…
    pub reason: String,
    /// What was tried, what came back and what to do next; empty while all is well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The last hop that is known to be good, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_hop: Option<String>,
    /// The hop that is to blame, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_hop: Option<String>,
    /// The version of the vault's secret that is mounted. Where pods differ it is the oldest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_version: Option<String>,
    /// When the credential begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When the credential ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// From when on a newer credential is to be expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after: Option<Timestamp>,
    /// From when on the identity cannot be renewed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_renew_after: Option<Timestamp>,
    /// Since when `ready` is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Something that is not as it was rendered, or not in use as it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftStatus {
    /// A word for it: `ObjectChanged`, `StaleMount`, `OldCertificateInUse`…
    pub kind: String,
    /// What it is about: a component, a pod, an object.
    pub subject: String,
    /// What is so, and what to do next.
    pub message: String,
    /// Since when it is known to be so.
    pub since: Timestamp,
}

impl HostedClusterIdentities {
    /// `apiVersion`.
    pub const API_VERSION: &str = "lanyard.dev/v1alpha1";
    /// `kind`.
    pub const KIND: &str = "HostedClusterIdentities";
    /// The name in URLs.
    pub const PLURAL: &str = "hostedclusteridentities";
}

impl k8s_openapi::Resource for HostedClusterIdentities {
    const API_VERSION: &'static str = Self::API_VERSION;
    const GROUP: &'static str = "lanyard.dev";
    const KIND: &'static str = Self::KIND;
    const VERSION: &'static str = "v1alpha1";
    const URL_PATH_SEGMENT: &'static str = Self::PLURAL;
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for HostedClusterIdentities {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_identity_serializes_without_optional_fields() {
        let text = serde_json::json!({
            "apiVersion": HostedClusterIdentities::API_VERSION,
            "kind": HostedClusterIdentities::KIND,
            "metadata": {"name": "harbour", "namespace": "clusters"},
            "status": {"identities": [{
                "component": "disk",
                "secretProviderClass": "managed-azure-disk-csi",
                "ready": "Unknown",
                "reason": "NotReported",
            }]},
        });
        let identities: HostedClusterIdentities = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&identities).unwrap(), text);
    }
}
