//! The entries of a journal, one JSON document per line.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::JournalError;
use crate::accepted_write::AcceptedWrite;
use crate::creation_evidence::CreationMark;
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey, StackName};

/// The version of the format. A program does not read the journal of a later version. Version 2 added the entries
/// of runs, and the bodies of resources before a write; version 3 the creators of resources.
pub(crate) const FORMAT_VERSION: u32 = 3;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "entry",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(crate) enum JournalEntry {
    /// The first line.
    Cluster { version: u32, name: String, infra_id: String, subscription: String },
    /// A run begins to write resources of these stacks, or continues an interrupted run.
    RunStarted {
        at: Timestamp,
        command: RunCommand,
        stacks: Vec<StackName>,
        /// The names under which Azure may record the signed-in identity as a creator.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        caller: Vec<String>,
    },
    /// All writes to these stacks succeeded, or an interrupted run was rolled back.
    RunEnded { at: Timestamp, stacks: Vec<StackName> },
    /// A write of this resource begins. The resource did not exist if the write creates it.
    Writing {
        at: Timestamp,
        key: ResourceKey,
        stack: StackName,
        id: ResourceId,
        write: WriteKind,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<ResourceKey>,
        /// The resource before an apply command changes or deletes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
        /// The properties that an update by an apply command sets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        desired: Option<Value>,
    },
    /// The service accepted the write, and works on it.
    Accepted { at: Timestamp, key: ResourceKey, operation: AcceptedWrite },
    /// The resource exists.
    Recorded {
        at: Timestamp,
        key: ResourceKey,
        stack: StackName,
        id: ResourceId,
        ownership: Ownership,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<ResourceKey>,
        /// Who created the resource, and when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        created: Option<CreationMark>,
    },
    /// The resource does not exist any more, or it is a shared group that stays.
    Removed { at: Timestamp, key: ResourceKey },
}

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WriteKind {
    Create,
    Update,
    Delete,
    /// Changes a resource that belongs to the user. The entry makes the resource never lanyard's.
    Adjust,
}

/// What a run does with its stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunCommand {
    /// Creates and repairs resources.
    Apply,
    /// Removes resources.
    Destroy,
}

impl JournalEntry {
    /// The line of the entry, without a line break.
    pub(super) fn to_line(&self) -> Result<String, JournalError> {
        // Entries contain no maps with keys other than strings, so they always serialize.
        serde_json::to_string(self).map_err(|source| JournalError::InvalidLine { line: 0, source })
    }

    /// The stack and the id of a resource that the entry records as lanyard's, or that it writes.
    pub(super) const fn own_resource(&self) -> Option<(&StackName, &ResourceId)> {
        match self {
            Self::Writing { write: WriteKind::Adjust, .. } => None,
            Self::Writing { stack, id, .. } => Some((stack, id)),
            Self::Recorded { stack, id, ownership, .. } if ownership.is_ours() => Some((stack, id)),
            _ => None,
        }
    }

    /// Parses a line. The version is read first, because entries of a later version may not parse.
    pub(super) fn parse_line(line: usize, text: &str) -> Result<Self, JournalError> {
        #[derive(Deserialize)]
        struct VersionOnly {
            version: Option<u32>,
        }
        let invalid = |source| JournalError::InvalidLine { line, source };
        if line == 1 {
            let VersionOnly { version } = serde_json::from_str(text).map_err(invalid)?;
            if let Some(found) = version.filter(|version| *version > FORMAT_VERSION) {
                return Err(JournalError::LaterVersion { found });
            }
        }
        serde_json::from_str(text).map_err(invalid)
    }
}
