//! The journal of a cluster: what lanyard writes to Azure, recorded before each write.
//!
//! The journal is a list of entries, one JSON document per line. A command that was killed at any point is
//! continued from it: [`RecordedState`] tells which resources lanyard created, which writes have no known
//! result, which long-running operations may still be running, and what a run that has not ended changed.
//!
//! The journal is a file in a directory, or an append blob in a container, where one command at a time holds its
//! lease.

mod container;
mod container_error;
mod container_url;
mod directory;
mod entry;
mod lease;
mod location;
mod lock;
mod state;
mod store;
mod unfinished_run;

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::format_error_chain;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use container::{ContainerAccess, JournalHolder};
pub use container_error::JournalContainerError;
pub use container_url::{JournalContainerUrl, ParseJournalUrlError};
pub use directory::JournalDirectoryError;
pub use entry::RunCommand;
pub(crate) use entry::{FORMAT_VERSION, JournalEntry, WriteKind};
pub use location::{JournalAccess, JournalLocation, open_directory};
pub use lock::JournalLock;
pub use state::RecordedState;
pub use store::JournalStoreError;
pub(crate) use unfinished_run::{RunChange, UndoAction};

use self::lease::LeaseStatus;
pub(crate) use self::store::JournalStore;
use crate::resource_id::ResourceId;
use crate::resource_key::StackName;

/// Whether a stack of a journal can contain the resource; the last argument is the subscription of the journal. A
/// journal that another person changed could otherwise name any resource.
pub type StackRule = fn(&StackName, &ResourceId, &str) -> bool;

/// The journal of one cluster, open for writing.
#[derive(Debug)]
pub struct Journal {
    store: tokio::sync::Mutex<JournalStore>,
    state: Mutex<RecordedState>,
    lease: Option<LeaseStatus>,
    /// The error of an append. The journal then takes no further entries, because it is unknown what the storage
    /// has.
    failure: watch::Sender<Option<String>>,
}

/// The journal cannot be read or written, or is not a journal of this cluster and version.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The storage failed.
    #[error("the journal cannot be used")]
    Store {
        /// The error of the storage.
        #[source]
        source: JournalStoreError,
    },
    /// An earlier entry of this run could not be written.
    #[error("the run has stopped, because the journal could not be written: {reason}")]
    Stopped {
        /// The error of the storage.
        reason: String,
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
    /// An entry names a resource that a stack of the journal cannot contain.
    #[error(
        "line {line} of the journal names `{id}`, which is no resource of the stack `{stack}` in the subscription of the journal"
    )]
    ForeignResource {
        /// The number of the line, from 1.
        line: usize,
        /// The stack.
        stack: StackName,
        /// The id of the resource.
        id: ResourceId,
    },
    /// The journal does not begin with its cluster.
    #[error("the journal does not begin with an entry `cluster`")]
    NoCluster,
}

impl ErrorHint for JournalError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Store { source } => return source.hint(),
            Self::Stopped { .. } => "run the command again",
            Self::ForeignResource { .. } => {
                "lanyard does not write such entries: check who can write to the journal, then restore it from a backup, or move it away and run `lanyard import azure`"
            }
            Self::InvalidLine { .. } | Self::NoCluster => {
                "restore the file from a backup, or move it away and run `lanyard import azure`"
            }
            Self::LaterVersion { .. } => {
                "use the version of lanyard that wrote the journal, or a later one"
            }
            Self::OtherCluster { .. } => "choose another directory or prefix with --state",
        }))
    }
}

/// The cluster of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalCluster {
    /// The name of the hosted cluster.
    pub name: String,
    /// The infrastructure id.
    pub infra_id: String,
    /// The id of the subscription.
    pub subscription: String,
}

impl JournalCluster {
    /// Whether both are the same cluster. Azure compares subscription ids without regard to case.
    fn is_same_cluster(&self, other: &Self) -> bool {
        let is_same_subscription = self.subscription.eq_ignore_ascii_case(&other.subscription);
        self.name == other.name && self.infra_id == other.infra_id && is_same_subscription
    }
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
    pub(crate) async fn open(
        content: &str,
        store: JournalStore,
        cluster: &JournalCluster,
        stack_rule: StackRule,
    ) -> Result<Self, JournalError> {
        let state = match parse_state(content, cluster, stack_rule) {
            Ok(state) => state,
            Err(error) => {
                // The first error is the one to report; the lease ends by itself.
                drop(store.release().await);
                return Err(error);
            }
        };
        let lease = store.lease();
        let journal = Self {
            store: tokio::sync::Mutex::new(store),
            state: Mutex::new(state),
            lease,
            failure: watch::Sender::default(),
        };
        if !content.contains('\n') {
            let JournalCluster { name, infra_id, subscription } = cluster.clone();
            let version = FORMAT_VERSION;
            let entry = JournalEntry::Cluster { version, name, infra_id, subscription };
            if let Err(error) = journal.record(&entry).await {
                drop(journal.close().await);
                return Err(error);
            }
        }
        Ok(journal)
    }

    /// The current state.
    pub fn state(&self) -> RecordedState {
        self.state.lock().clone()
    }

    /// Appends an entry, which is durable when the call returns, and applies it to the state.
    pub(crate) async fn record(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        let line = entry.to_line()?;
        let mut store = self.store.lock().await;
        if let Some(reason) = self.failure.borrow().clone() {
            return Err(JournalError::Stopped { reason });
        }
        if let Err(source) = store.append(&line).await {
            self.failure.send_replace(Some(format_error_chain(&source)));
            return Err(JournalError::Store { source });
        }
        self.state.lock().apply(entry);
        Ok(())
    }

    /// Records that a run begins, or continues an interrupted one.
    pub(crate) async fn start_run(
        &self,
        at: Timestamp,
        command: RunCommand,
        stacks: Vec<StackName>,
        caller: &[String],
    ) -> Result<(), JournalError> {
        let caller = caller.to_vec();
        self.record(&JournalEntry::RunStarted { at, command, stacks, caller }).await
    }

    /// Records that the runs of these stacks have ended successfully, unless no run of them has begun.
    pub(crate) async fn end_run(
        &self,
        at: Timestamp,
        stacks: &[StackName],
    ) -> Result<(), JournalError> {
        let stacks: Vec<_> = {
            let state = self.state.lock();
            stacks.iter().filter(|it| state.unfinished_run(it).is_some()).cloned().collect()
        };
        if stacks.is_empty() {
            return Ok(());
        }
        self.record(&JournalEntry::RunEnded { at, stacks }).await
    }

    /// Does work that sends writes while this command may write. Without the lease of the journal, or after an append
    /// that failed, the work is dropped, so that it sends no further request.
    pub(crate) async fn while_writable<T, E: From<JournalError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            biased;
            reason = self.failed() => Err(JournalError::Stopped { reason }.into()),
            lost = lost(self.lease.as_ref()) => Err(lost.into()),
            result = work => result,
        }
    }

    /// Waits until an append has failed, and returns the reason.
    async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        loop {
            if let Some(reason) = failure.borrow_and_update().clone() {
                return reason;
            }
            if failure.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Closes the journal, so that other commands can use it.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the lease of a container cannot be released. It then ends by itself.
    pub async fn close(self) -> Result<(), JournalError> {
        let released = self.store.into_inner().release().await;
        released.map_err(|source| JournalError::Store { source })
    }
}

/// Waits until the lease of the journal is lost; forever without one.
async fn lost(lease: Option<&LeaseStatus>) -> JournalError {
    match lease {
        Some(lease) => JournalError::Store { source: lease.lost().await.into() },
        None => std::future::pending().await,
    }
}

/// The largest journal in bytes: 1,000 for each of the 50,000 blocks that Azure permits an append blob. The creation of a
/// cluster writes about 150 entries, most of them with less than 500 bytes.
const MAX_JOURNAL_BYTES: usize = 50_000_000;

/// Fails if the journal is that of another cluster.
pub(crate) fn check_cluster(content: &str, cluster: &JournalCluster) -> Result<(), JournalError> {
    match parse_cluster(content)? {
        Some(found) if !found.is_same_cluster(cluster) => {
            let (found, wanted) = (found.to_string(), cluster.to_string());
            Err(JournalError::OtherCluster { found, wanted })
        }
        _ => Ok(()),
    }
}

/// The state that the complete lines of a journal describe.
///
/// # Errors
///
/// [`JournalError`] if the journal is invalid, or that of another cluster.
pub(crate) fn parse_state(
    content: &str,
    cluster: &JournalCluster,
    stack_rule: StackRule,
) -> Result<RecordedState, JournalError> {
    check_cluster(content, cluster)?;
    let mut state = RecordedState::default();
    let complete = content.rfind('\n').map_or("", |end| &content[..end]);
    for (position, line) in complete.lines().enumerate().skip(1) {
        let (line, entry) = (position + 1, JournalEntry::parse_line(position + 1, line)?);
        if let Some((stack, id)) = entry.own_resource()
            && !stack_rule(stack, id, &cluster.subscription)
        {
            let (stack, id) = (stack.clone(), id.clone());
            return Err(JournalError::ForeignResource { line, stack, id });
        }
        state.apply(&entry);
    }
    Ok(state)
}

/// The cluster in the first line of a journal; `None` if the journal has no complete line.
fn parse_cluster(content: &str) -> Result<Option<JournalCluster>, JournalError> {
    let Some((line, _)) = content.split_once('\n') else { return Ok(None) };
    match JournalEntry::parse_line(1, line)? {
        JournalEntry::Cluster { name, infra_id, subscription, .. } => {
            Ok(Some(JournalCluster { name, infra_id, subscription }))
        }
        _ => Err(JournalError::NoCluster),
    }
}

#[cfg(test)]
mod tests;
