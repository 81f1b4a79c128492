//! What a node knows about a volume beyond the pod status.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the node knows about a volume: the annotation
/// [`VOLUME_REPORT_ANNOTATION`](crate::SecretProviderClassPodStatus::VOLUME_REPORT_ANNOTATION) of the pod status, as JSON.
/// What is absent is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatusReport {
    /// The last hop that is known to be good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_hop: Option<String>,
    /// The code of what is wrong, while something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The code of what it came from, where the outcome says what was done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when it is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What was tried and what came back when it began. It stays as it is while the outcome does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What is known about each object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectStatusReport>,
}

/// What the node knows about one object of a volume; never the value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatusReport {
    /// The id, as in the status.
    pub id: String,
    /// The version that is mounted.
    pub version: String,
    /// When what it holds begins to be valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When what it holds ends to be valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// From when on a newer one is to be expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after: Option<Timestamp>,
}
