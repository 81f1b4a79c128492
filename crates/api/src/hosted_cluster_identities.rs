//! `HostedClusterIdentities`: the status of every identity of a hosted cluster.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

use crate::namespaced_kind::namespaced_kind;

/// The status of the identities of a hosted cluster. The object has the name and the namespace of
/// its HostedCluster, which owns it. It has no `spec`: only the operator writes it.
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
    /// The status of the identities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<HostedClusterIdentitiesStatus>,
}

/// `status` of [`HostedClusterIdentities`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostedClusterIdentitiesStatus {
    /// The `metadata.generation` of the HostedCluster that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One entry for each identity, in the order of the HostedCluster API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<IdentityStatus>,
    /// The conditions. The operator also writes them to the HostedCluster if its permissions allow
    /// that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Objects that differ from the rendered state, and mounted credentials that are not in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftStatus>,
}

impl IdentityStatus {
    /// The maximum length of [`loaded_version`](Self::loaded_version) that the CRD allows, in
    /// characters.
    pub const MAX_VERSION_LENGTH: u8 = 127;
}

/// The status of one identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// The component, by the name of its field in the HostedCluster API.
    pub component: String,
    /// `clientID` from the HostedCluster, or the client id of the loaded credential if the
    /// HostedCluster has none.
    #[serde(default, rename = "clientID", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The name of the SecretProviderClass that mounts the credential.
    pub secret_provider_class: String,
    /// `True`, `False`, or `Unknown` if no report exists.
    pub ready: String,
    /// The reason for `ready`: `AsExpected`, an outcome code, `NotReported`…
    pub reason: String,
    /// The attempted operation, the response and the suggested next step; empty while the identity
    /// works.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The name of the last hop that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_hop: Option<String>,
    /// The name of the hop that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_hop: Option<String>,
    /// The version of the vault secret that the pods use. If pods differ, this is the oldest
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_version: Option<String>,
    /// The start of the credential's validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The expiry of the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// The time from which a newer credential is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after: Option<Timestamp>,
    /// The time from which the identity can no longer be renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_renew_after: Option<Timestamp>,
    /// The time of the last transition of `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// An object that differs from the rendered state, or a mounted credential that is not in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftStatus {
    /// The kind of drift: `ObjectChanged`, `StaleMount`, `OldCertificateInUse`…
    pub kind: String,
    /// The affected component, pod or object.
    pub subject: String,
    /// The observed difference and the suggested next step.
    pub message: String,
    /// The time at which the drift was first observed.
    pub since: Timestamp,
}

impl HostedClusterIdentities {
    /// `apiVersion`.
    pub const API_VERSION: &str = "lanyard.dev/v1alpha1";
    /// `kind`.
    pub const KIND: &str = "HostedClusterIdentities";
    /// The plural resource name in API URLs.
    pub const PLURAL: &str = "hostedclusteridentities";
}

namespaced_kind!(HostedClusterIdentities, "lanyard.dev", "v1alpha1", Self::PLURAL);

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
