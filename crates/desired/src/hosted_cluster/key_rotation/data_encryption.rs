//! The state of the data encryption, derived from the key record.

use lanyard_api::HostedCluster;
use serde_json::Value;

use super::key_record;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::encryption_config::{is_promoted, read_status_key};

/// Condition: every value in etcd is encrypted with the active key. The name is HyperShift's.
pub const DATA_ENCRYPTION_UP_TO_DATE: &str = "EtcdDataEncryptionUpToDate";

/// State: the values are being re-encrypted. Only a person or another controller records it.
const MIGRATING_STATE: &str = "Migrating";

/// Whether all values are encrypted with the key of the spec, as far as the key record shows.
///
/// The reasons are those of HyperShift's condition. lanyard does not re-encrypt values, so it knows
/// neither their progress nor their failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataEncryption {
    /// Whether the record names one key for all values, and it is the key of the spec.
    pub is_up_to_date: bool,
    /// The reason of the condition.
    pub reason: &'static str,
    /// The state, with the suggested next step.
    pub message: String,
}

/// Returns the state of the data encryption; `None` without encryption or without a key record.
pub fn data_encryption(
    cluster: &ValidatedHostedCluster,
    wire: &HostedCluster,
) -> Option<DataEncryption> {
    let spec = &cluster.encryption.as_ref()?.active_key;
    let (status, known) = key_record(wire)?;
    let target = read_status_key(status, "targetKey").filter(|target| *target != known);
    let state = status.pointer("/history/0/state").and_then(Value::as_str);
    let (is_up_to_date, reason, message) = match target {
        None if known == *spec => {
            (true, "ReEncryptionCompleted", format!("{known} is recorded as the key of all values"))
        }
        Some(target) if is_promoted(status) => {
            let reason = if state == Some(MIGRATING_STATE) {
                "ReEncryptionInProgress"
            } else {
                "WritePromotionInProgress"
            };
            let message = format!(
                "{target} encrypts new values, and {known} is kept for values that were not re-encrypted yet"
            );
            (false, reason, message)
        }
        target => {
            let target = target.as_ref().unwrap_or(spec);
            let message =
                format!("{known} encrypts until every API server can decrypt with {target}");
            (false, "ReadOnlyRolloutInProgress", message)
        }
    };
    Some(DataEncryption { is_up_to_date, reason, message })
}
