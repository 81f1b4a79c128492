//! Where a journal is, and how it is opened there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lanyard_clock::SharedClock;

use super::container::{ContainerAccess, JournalContainer, JournalHolder};
use super::container_url::{JournalContainerUrl, ParseJournalUrlError};
use super::directory::JournalDirectory;
use super::lock::JournalLock;
use super::store::{JournalStore, JournalStoreError};
use super::{Journal, JournalCluster, JournalError, RecordedState, StackRule};

/// Where a journal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalLocation {
    /// A directory of the local file system.
    Directory(PathBuf),
    /// A blob container, or a prefix in it.
    Container(JournalContainerUrl),
}

/// What opening a journal needs.
#[derive(Debug, Clone)]
pub struct JournalAccess {
    /// How to sign in to a container.
    pub container: ContainerAccess,
    /// The command that opens the journal.
    pub holder: JournalHolder,
    /// The clock of the lease and of pauses.
    pub clock: SharedClock,
    /// Which resources the stacks of the journal can contain.
    pub stack_rule: StackRule,
    /// How long to wait for another command that uses the journal; `None` for the default of the location.
    pub lock_timeout: Option<Duration>,
}

/// The pause between two attempts to open a journal that another command uses.
const LOCK_PAUSE: Duration = Duration::from_secs(5);
/// How long to wait for the lease of another command: longer than the lease of a killed command lasts.
const LEASE_TIMEOUT: Duration = Duration::from_secs(75);

impl FromStr for JournalLocation {
    type Err = ParseJournalUrlError;

    /// Text with a scheme is a URL, other text a path.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("://") {
            Ok(Self::Container(text.parse()?))
        } else {
            Ok(Self::Directory(PathBuf::from(text)))
        }
    }
}

impl fmt::Display for JournalLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(formatter),
            Self::Container(url) => url.fmt(formatter),
        }
    }
}

impl JournalLocation {
    /// The location below this one.
    #[must_use]
    pub fn join(&self, segments: &[&str]) -> Self {
        match self {
            Self::Directory(path) => {
                Self::Directory(path.join(segments.iter().collect::<PathBuf>()))
            }
            Self::Container(url) => Self::Container(url.join(segments)),
        }
    }

    /// Reads the journal without locking it; `None` if there is none, or an empty one.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the journal cannot be read, or is invalid.
    pub async fn read(
        &self,
        access: &JournalAccess,
        cluster: &JournalCluster,
    ) -> Result<Option<RecordedState>, JournalError> {
        let content = self.read_content(access).await?;
        // A command that only locks the journal leaves an empty one.
        let content = content.filter(|content| content.contains('\n'));
        let parse = |content: String| super::parse_state(&content, cluster, access.stack_rule);
        content.map(parse).transpose()
    }

    /// Reads the cluster of the journal without locking it; `None` if there is no journal, or an empty one.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the journal cannot be read, or is invalid.
    pub async fn read_cluster(
        &self,
        access: &JournalAccess,
    ) -> Result<Option<JournalCluster>, JournalError> {
        let content = self.read_content(access).await?;
        super::parse_cluster(&content.unwrap_or_default())
    }

    async fn read_content(&self, access: &JournalAccess) -> Result<Option<String>, JournalError> {
        let content = match self {
            Self::Directory(path) => JournalDirectory::read(path).map_err(JournalStoreError::from),
            Self::Container(url) => {
                let content = JournalContainer::read(url, &access.container).await;
                content.map_err(JournalStoreError::from)
            }
        };
        content.map_err(|source| JournalError::Store { source })
    }

    /// Opens the journal for writing. While another command uses it, waits for that command, and calls
    /// `on_wait` once with the error.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the journal cannot be used, or is invalid.
    pub async fn open(
        &self,
        access: &JournalAccess,
        cluster: &JournalCluster,
        on_wait: &(dyn Fn(&JournalStoreError, Duration) + Sync),
    ) -> Result<Journal, JournalError> {
        let (store, content) = self.wait_for_store(access, on_wait).await?;
        Journal::open(&content, store, cluster, access.stack_rule).await
    }

    /// Locks the journal for a command that writes no entries. Waits for another command as [`open`](Self::open) does.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the journal cannot be used, or belongs to another cluster.
    pub async fn lock(
        &self,
        access: &JournalAccess,
        cluster: &JournalCluster,
        on_wait: &(dyn Fn(&JournalStoreError, Duration) + Sync),
    ) -> Result<JournalLock, JournalError> {
        let (store, content) = self.wait_for_store(access, on_wait).await?;
        let lock = JournalLock::new(store);
        if let Err(error) = super::check_cluster(&content, cluster) {
            // The first error is the one to report; the lease ends by itself.
            drop(lock.release().await);
            return Err(error);
        }
        Ok(lock)
    }

    async fn wait_for_store(
        &self,
        access: &JournalAccess,
        on_wait: &(dyn Fn(&JournalStoreError, Duration) + Sync),
    ) -> Result<(JournalStore, String), JournalError> {
        let timeout = access.lock_timeout.unwrap_or(match self {
            Self::Directory(_) => Duration::ZERO,
            Self::Container(_) => LEASE_TIMEOUT,
        });
        let end = access.clock.monotonic().saturating_add(timeout);
        let mut waits = false;
        loop {
            let error = match self.open_store(access).await {
                Err(error) if error.is_locked() => error,
                opened => return opened.map_err(|source| JournalError::Store { source }),
            };
            let left = end.saturating_sub(access.clock.monotonic());
            if left.is_zero() {
                return Err(JournalError::Store { source: error });
            }
            if !waits {
                on_wait(&error, timeout);
                waits = true;
            }
            access.clock.sleep(left.min(LOCK_PAUSE)).await;
        }
    }

    async fn open_store(
        &self,
        access: &JournalAccess,
    ) -> Result<(JournalStore, String), JournalStoreError> {
        Ok(match self {
            Self::Directory(path) => {
                let (directory, content) = JournalDirectory::open(path.clone())?;
                (JournalStore::Directory(directory), content)
            }
            Self::Container(url) => {
                let JournalAccess { container, holder, clock, .. } = access;
                let opened = JournalContainer::open(url, container, holder, clock).await?;
                let (container, content) = opened;
                (JournalStore::Container(Box::new(container)), content)
            }
        })
    }
}

/// Opens the journal in a directory.
///
/// # Errors
///
/// [`JournalError`] if another command uses the journal, or it cannot be used or is invalid.
pub async fn open_directory(
    directory: PathBuf,
    cluster: &JournalCluster,
    stack_rule: StackRule,
) -> Result<Journal, JournalError> {
    let (store, content) = JournalDirectory::open(directory)
        .map_err(|source| JournalError::Store { source: source.into() })?;
    Journal::open(&content, JournalStore::Directory(store), cluster, stack_rule).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_a_scheme_is_a_container() {
        let directory = "state/dir".parse::<JournalLocation>().unwrap();
        assert_eq!(directory.join(&["s", "n"]), JournalLocation::Directory("state/dir/s/n".into()));
        let container = "https://a.example.com/con".parse::<JournalLocation>().unwrap();
        assert_eq!(container.join(&["s", "n"]).to_string(), "https://a.example.com/con/s/n");
        assert!("http://a.example.com/con".parse::<JournalLocation>().is_err());
    }
}
