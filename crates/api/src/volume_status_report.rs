//! The report of a node about a volume, beyond the fields of the pod status.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The report of a node about a volume, stored as JSON in the annotation
/// [`VOLUME_REPORT_ANNOTATION`](crate::SecretProviderClassPodStatus::VOLUME_REPORT_ANNOTATION) of
/// the pod status. An absent field is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatusReport {
    /// The name of the last hop that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_hop: Option<String>,
    /// The outcome code of the current failure; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The outcome code of the cause, if `outcome` describes the reaction to a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The time at which the failure started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The attempted operation and the response at the start of the failure. The message stays
    /// unchanged while the outcome does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reports about the objects of the volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectStatusReport>,
}

/// The report of a node about one object of a volume. It never contains the object's value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatusReport {
    /// The object's id, as in the pod status.
    pub id: String,
    /// The mounted version.
    pub version: String,
    /// The start of the validity of the object's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The expiry of the object's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// The time from which a newer version is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after: Option<Timestamp>,
}
