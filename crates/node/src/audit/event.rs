//! What stands in the trail.

use jiff::Timestamp;
use lanyard_keyvault::VolumePod;
use serde::{Deserialize, Serialize};

/// One line of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The number of the line in its chain, from 1.
    pub sequence: u64,
    /// When, by the node's clock.
    pub time: Timestamp,
    /// What.
    #[serde(flatten)]
    pub event: AuditEvent,
    /// The hash of the line before; 64 zeros in the first line of a chain.
    pub previous: String,
}

/// What happened. No event holds a value, a token or a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum AuditEvent {
    /// A process began, or went on with, the trail.
    Started {
        /// Of this version of lanyard.
        version: String,
    },
    /// A version of an object was given to a pod.
    Read(ObjectRead),
    /// The policy forbade it, so nobody was asked for it.
    Denied(ObjectRead),
    /// It was asked for, and not given.
    Refused {
        /// What.
        #[serde(flatten)]
        read: ObjectRead,
        /// The outcome code.
        outcome: String,
    },
    /// A credential that is older than the mounted one was accepted, because the class says so.
    OlderAccepted {
        /// Whose volume.
        by: ReadRequester,
        /// The object, as `<kind>/<name>`.
        object: String,
        /// The version.
        version: String,
    },
    /// Another policy is in use.
    PolicyTaken {
        /// The SHA-256 of its file.
        digest: String,
        /// How many rules it has.
        rules: usize,
    },
    /// The policy file changed and cannot be used; the policy in use stays.
    PolicyKept {
        /// What is wrong with the file.
        problem: String,
    },
    /// Events could not be written and are missing here.
    Lost {
        /// How many.
        count: u64,
    },
}

impl AuditEvent {
    /// Whether the same event twice is two events.
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

/// An object, and who wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRead {
    /// For whom.
    pub by: ReadRequester,
    /// The mode of the identity: `managed-identity`, `workload-identity`, `identity-binding`,
    /// `service-principal`.
    pub identity_mode: String,
    /// The client id, or `system-assigned`; absent for a service principal, whose id is in the
    /// pod's own secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The vault.
    pub vault: String,
    /// The object, as `<kind>/<name>`.
    pub object: String,
    /// The version: of a read the one that was given, otherwise the one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it came out of the node's sealed cache because the vault could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Who allowed it.
    #[serde(flatten)]
    pub verdict: AuditVerdict,
}

/// A pod, and the class of its volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadRequester {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// Its ServiceAccount; empty where the caller does not say it.
    pub service_account: String,
    /// The SecretProviderClass; empty where the caller names none.
    pub class: String,
}

impl ReadRequester {
    /// A pod through a class.
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

/// Who allowed a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
#[non_exhaustive]
pub enum AuditVerdict {
    /// A rule of the policy.
    Allowed {
        /// Its name.
        rule: String,
    },
    /// No rule. Under `audit` it is read all the same.
    Unmatched,
    /// Azure alone: the identity is the pod's own.
    Azure,
}
