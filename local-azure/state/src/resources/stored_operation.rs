//! Operations of Azure Resource Manager that clients poll.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::long_running_rule::LongRunningRule;
use crate::authorization::AccessScope;

/// The change that completes with the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PendingChange {
    Write,
    Delete,
}

/// A stored operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOperation {
    pub resource: AccessScope,
    pub namespace: String,
    pub region: String,
    pub change: PendingChange,
    pub rule: LongRunningRule,
    pub polls_left: u32,
    /// The number of polls so far.
    #[serde(default)]
    pub polls: u32,
    /// The number of reads of the resource that still return 404.
    #[serde(default)]
    pub missing_reads_left: u32,
    /// Whether the operation stays in progress until [`ArmResourceStore::end_held_operations`], however often
    /// clients poll.
    ///
    /// [`ArmResourceStore::end_held_operations`]: super::resource_store::ArmResourceStore::end_held_operations
    #[serde(default)]
    pub is_held: bool,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
}
