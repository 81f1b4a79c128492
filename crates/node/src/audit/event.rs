//! The records of the audit trail.

use jiff::Timestamp;
use lanyard_keyvault::VolumePod;
use serde::{Deserialize, Serialize};

/// One line of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The number of the line in its chain, from 1.
    pub sequence: u64,
    /// The time of the event, by the node's clock.
    pub time: Timestamp,
    #[serde(flatten)]
    pub event: AuditEvent,
    /// The hash of the previous line; 64 zeros in the first line of a chain.
    pub previous: String,
}

/// An audit event. It never contains a value, a token or a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum AuditEvent {
    /// A process started or continued the trail.
    Started {
        /// The version of lanyard.
        version: String,
    },
    /// A pod received a version of an object.
    Read(ObjectRead),
    /// The policy denied the read before any request.
    Denied(ObjectRead),
    /// The read failed.
    Refused {
        #[serde(flatten)]
        read: ObjectRead,
        /// The outcome code.
        outcome: String,
    },
    /// A credential older than the mounted one was accepted, because the class allows it.
    OlderAccepted {
        /// The pod and the class of the volume.
        by: ReadRequester,
        /// The object, as `<kind>/<name>`.
        object: String,
        /// The accepted version.
        version: String,
    },
    /// Another policy is in use.
    PolicyTaken {
        /// The SHA-256 of its file.
        digest: String,
        /// The number of rules.
        rules: usize,
    },
    /// The policy file changed and is invalid; the policy in use stays.
    PolicyKept {
        /// The problem of the file.
        problem: String,
    },
    /// Events could not be written and are missing in the trail.
    Lost {
        /// The number of lost events.
        count: u64,
    },
}

impl AuditEvent {
    /// Returns whether repeated events of this kind are all recorded.
    pub(super) const fn is_never_deduplicated(&self) -> bool {
        match self {
            Self::Read(_) | Self::Denied(_) | Self::Refused { .. } => false,
            Self::Started { .. }
            | Self::OlderAccepted { .. }
            | Self::PolicyTaken { .. }
            | Self::PolicyKept { .. }
            | Self::Lost { .. } => true,
        }
    }
}

/// A read of an object, and its requester.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRead {
    /// The pod and the class of the volume.
    pub by: ReadRequester,
    /// The mode of the identity: `managed-identity`, `workload-identity`, `identity-binding`,
    /// `service-principal`.
    pub identity_mode: String,
    /// The client id, or `system-assigned`; absent for a service principal, whose id is in the
    /// pod's own secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    pub vault: String,
    /// The object, as `<kind>/<name>`.
    pub object: String,
    /// The version: of a served read the returned one, otherwise the requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether the version came from the node's sealed cache because the vault could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// The verdict of the policy.
    #[serde(flatten)]
    pub verdict: AuditVerdict,
}

/// A pod, and the class of its volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadRequester {
    /// The pod's namespace.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The uid of the pod.
    pub uid: String,
    /// The ServiceAccount; empty if the caller does not send it.
    pub service_account: String,
    /// The SecretProviderClass; empty if the caller names none.
    pub class: String,
}

impl ReadRequester {
    /// Creates the requester of a pod and a class.
    pub fn new(pod: &VolumePod, class: &str) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            service_account: pod.service_account.clone(),
            class: class.to_owned(),
        }
    }
}

/// The verdict on a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
#[non_exhaustive]
pub enum AuditVerdict {
    /// A rule of the policy allowed the read.
    Allowed {
        /// The name of the rule.
        rule: String,
    },
    /// No rule allows the read. In `audit` mode it is served all the same.
    Unmatched,
    /// Azure alone authorized the read: the identity belongs to the pod.
    Azure,
}
