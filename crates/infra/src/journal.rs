//! The journal of a cluster: what lanyard writes to Azure, recorded before each write.
//!
//! The journal is a list of entries, one JSON document per line. A command that was killed at any point is
//! continued from it: [`RecordedState`] tells which resources lanyard created, which writes have no known
//! result, and which long-running operations may still be running.

mod directory;
mod state;

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lanyard_azure::PendingOperation;
use lanyard_vocabulary::ArmResourceId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use directory::{JournalDirectory, JournalDirectoryError};
pub use state::{RecordedResource, RecordedState, WritePhase};

use lanyard_vocabulary::InfraId;

use crate::cluster_identifiers::ClusterName;
use crate::resource::{Ownership, ResourceKey, ResourceStack};

/// The version of the format. A program does not read the journal of a later version.
pub(crate) const FORMAT_VERSION: u32 = 1;

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
    Cluster { version: u32, name: ClusterName, infra_id: InfraId, subscription: String },
    /// A write of this resource begins. The resource did not exist if the write creates it.
    Writing {
        at: Timestamp,
        key: ResourceKey,
        stack: ResourceStack,
        id: ArmResourceId,
        write: WriteKind,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<ResourceKey>,
    },
    /// Azure accepted the write as a long-running operation.
    Accepted { at: Timestamp, key: ResourceKey, operation: PendingOperation },
    /// The resource exists.
    Recorded {
        at: Timestamp,
        key: ResourceKey,
        stack: ResourceStack,
        id: ArmResourceId,
        ownership: Ownership,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<ResourceKey>,
    },
    /// The resource does not exist any more.
    Removed { at: Timestamp, key: ResourceKey },
}

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WriteKind {
    Create,
    Update,
    Delete,
}

/// The storage of a journal.
pub trait JournalStore: fmt::Debug + Send {
    /// Appends one line, which is durable when the call returns.
    ///
    /// # Errors
    ///
    /// The error of the storage. The write to Azure that the line announces is then not sent.
    fn append(&mut self, line: &str) -> Result<(), JournalDirectoryError>;
}

/// The journal of one cluster, open for writing.
#[derive(Debug)]
pub struct Journal {
    inner: Mutex<JournalInner>,
}

#[derive(Debug)]
struct JournalInner {
    store: Box<dyn JournalStore>,
    state: RecordedState,
}

/// The journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The storage failed.
    #[error("the journal cannot be written")]
    Store {
        /// The error of the storage.
        #[source]
        source: JournalDirectoryError,
    },
    /// A line is not an entry of a journal.
    #[error("line {line} of the journal is invalid")]
    InvalidLine {
        /// The number of the line, from 1.
        line: usize,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// The journal belongs to a later version of lanyard.
    #[error(
        "the journal has format {found}; this version of lanyard reads format {FORMAT_VERSION}"
    )]
    LaterVersion {
        /// The format of the journal.
        found: u32,
    },
    /// The journal belongs to another cluster.
    #[error("the journal belongs to the cluster `{found}`, not to `{wanted}`")]
    OtherCluster {
        /// Name, infrastructure id and subscription in the journal.
        found: String,
        /// Name, infrastructure id and subscription of the command.
        wanted: String,
    },
    /// The journal does not begin with its cluster.
    #[error("the journal does not begin with an entry `cluster`")]
    NoCluster,
}

impl JournalError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Store { source } => source.hint(),
            Self::InvalidLine { .. } | Self::NoCluster => {
                "restore the file from a backup, or move it away and run `lanyard import azure`"
            }
            Self::LaterVersion { .. } => {
                "use the version of lanyard that wrote the journal, or a later one"
            }
            Self::OtherCluster { .. } => "choose another directory with --state",
        }
    }
}

/// The cluster of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalCluster {
    /// The name of the hosted cluster.
    pub name: ClusterName,
    /// The infrastructure id.
    pub infra_id: InfraId,
    /// The id of the subscription.
    pub subscription: String,
}

impl fmt::Display for JournalCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}) in {}", self.name, self.infra_id, self.subscription)
    }
}

impl Journal {
    /// Opens the journal with this content for `cluster`; an empty journal is initialized.
    ///
    /// An incomplete last line is ignored: the process was killed while it wrote the line, so the write that
    /// the line announces was never sent.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the content is invalid or belongs to another cluster.
    pub fn open(
        content: &str,
        mut store: Box<dyn JournalStore>,
        cluster: &JournalCluster,
    ) -> Result<Self, JournalError> {
        if !content.contains('\n') {
            let JournalCluster { name, infra_id, subscription } = cluster.clone();
            let entry =
                JournalEntry::Cluster { version: FORMAT_VERSION, name, infra_id, subscription };
            append(store.as_mut(), &entry)?;
        }
        let state = parse_state(content, cluster)?;
        Ok(Self { inner: Mutex::new(JournalInner { store, state }) })
    }

    /// The current state.
    pub fn state(&self) -> RecordedState {
        self.inner.lock().state.clone()
    }

    /// Appends an entry and applies it to the state.
    pub(crate) fn record(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        let mut inner = self.inner.lock();
        append(inner.store.as_mut(), entry)?;
        inner.state.apply(entry);
        Ok(())
    }
}

/// The state that the complete lines of a journal describe.
fn parse_state(content: &str, cluster: &JournalCluster) -> Result<RecordedState, JournalError> {
    let mut state = RecordedState::default();
    let complete = content.rfind('\n').map_or("", |end| &content[..end]);
    for (position, line) in complete.lines().enumerate() {
        let entry = parse_line(position + 1, line)?;
        match (&entry, position) {
            (JournalEntry::Cluster { name, infra_id, subscription, .. }, 0) => {
                let found = JournalCluster {
                    name: name.clone(),
                    infra_id: infra_id.clone(),
                    subscription: subscription.clone(),
                };
                if found != *cluster {
                    let (found, wanted) = (found.to_string(), cluster.to_string());
                    return Err(JournalError::OtherCluster { found, wanted });
                }
            }
            (_, 0) => return Err(JournalError::NoCluster),
            _ => state.apply(&entry),
        }
    }
    Ok(state)
}

fn append(store: &mut dyn JournalStore, entry: &JournalEntry) -> Result<(), JournalError> {
    // Entries contain no maps with keys other than strings, so they always serialize.
    let line = serde_json::to_string(entry)
        .map_err(|source| JournalError::InvalidLine { line: 0, source })?;
    store.append(&line).map_err(|source| JournalError::Store { source })
}

/// The version is read first, because entries of a later version may not parse.
fn parse_line(line: usize, text: &str) -> Result<JournalEntry, JournalError> {
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

/// Opens the journal in a directory.
///
/// # Errors
///
/// [`JournalError`] if the directory cannot be used or its journal is invalid.
pub fn open_directory(
    directory: PathBuf,
    cluster: &JournalCluster,
) -> Result<Journal, JournalError> {
    let (store, content) =
        JournalDirectory::open(directory).map_err(|source| JournalError::Store { source })?;
    Journal::open(&content, Box::new(store), cluster)
}

/// Reads the journal in a directory without locking it. A journal that does not exist is empty.
///
/// # Errors
///
/// [`JournalError`] if the journal cannot be read, or is invalid.
pub fn read_directory(
    directory: &Path,
    cluster: &JournalCluster,
) -> Result<RecordedState, JournalError> {
    let content =
        JournalDirectory::read(directory).map_err(|source| JournalError::Store { source })?;
    parse_state(&content, cluster)
}
