//! `SecretProviderClassPodStatus` of the Secrets Store CSI driver.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::namespaced_kind::namespaced_kind;

/// The content of one mounted volume of one pod, as reported by the node that mounted it.
///
/// API `secrets-store.csi.x-k8s.io/v1`. The kind has no `spec`, and its status is no subresource.
/// The API server prunes fields that the schema does not define, so lanyard stores its own data in
/// the annotation [`SecretProviderClassPodStatus::VOLUME_REPORT_ANNOTATION`]. Unknown fields are
/// preserved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretProviderClassPodStatus {
    /// Always [`SecretProviderClassPodStatus::API_VERSION`] in objects that lanyard writes.
    #[serde(default)]
    pub api_version: String,
    /// Always [`SecretProviderClassPodStatus::KIND`] in objects that lanyard writes.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, the node label, and the pod as the only owner.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The mounted volume.
    #[serde(default)]
    pub status: SecretProviderClassPodStatusStatus,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// `status` of a [`SecretProviderClassPodStatus`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretProviderClassPodStatusStatus {
    /// The name of the pod, in the namespace of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The name of the SecretProviderClass, in the namespace of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_provider_class_name: Option<String>,
    /// The mount path on the node. Any user who may write the object can put any value here, so it
    /// must never be used as a path to read or write (CVE-2020-8568).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
    /// Whether the volume is mounted: true after the first write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounted: Option<bool>,
    /// The objects in the volume, sorted by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<SecretProviderClassObject>,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// An object in a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretProviderClassObject {
    /// The id: for Key Vault, `<type>/<name>`, followed by `/<index>` in a version history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl SecretProviderClassPodStatus {
    /// `apiVersion`.
    pub const API_VERSION: &str = "secrets-store.csi.x-k8s.io/v1";
    /// `kind`.
    pub const KIND: &str = "SecretProviderClassPodStatus";
    /// The label with the node name, by which each node selects its own objects.
    pub const NODE_NAME_LABEL: &str = "internal.secrets-store.csi.k8s.io/node-name";
    /// The annotation with lanyard's [`VolumeStatusReport`](crate::VolumeStatusReport), as JSON.
    pub const VOLUME_REPORT_ANNOTATION: &str = "lanyard.dev/volume-facts";
}

namespaced_kind!(
    SecretProviderClassPodStatus,
    "secrets-store.csi.x-k8s.io",
    "v1",
    "secretproviderclasspodstatuses"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_survive_a_round_trip() {
        let text = serde_json::json!({
            "apiVersion": SecretProviderClassPodStatus::API_VERSION,
            "kind": SecretProviderClassPodStatus::KIND,
            "metadata": {"name": "p-n-c", "namespace": "n"},
            "status": {
                "podName": "p",
                "secretProviderClassName": "c",
                "targetPath": "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/v/mount",
                "mounted": true,
                "objects": [{"id": "secret/a", "version": "1", "newer": true}],
                "later": {"x": [1]},
            },
            "future": 1,
        });
        let status: SecretProviderClassPodStatus = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), text);
    }

    #[test]
    fn an_empty_object_is_read() {
        let status: SecretProviderClassPodStatus = serde_json::from_str("{}").unwrap();
        assert_eq!(status.status, SecretProviderClassPodStatusStatus::default());
    }
}
