//! Where a journal is, and how it is opened there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lanyard_clock::SharedClock;

use super::container::{ContainerAccess, JournalContainer, JournalHolder};
use super::container_url::{JournalContainerUrl, ParseJournalUrlError};
use super::directory::JournalDirectory;
use super::store::{JournalStore, JournalStoreError};
use super::{Journal, JournalCluster, JournalError, StackRule};

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

    pub(crate) async fn read_content(
        &self,
        access: &JournalAccess,
    ) -> Result<Option<String>, JournalError> {
        let content = match self {
            Self::Directory(path) => JournalDirectory::read(path).map_err(JournalStoreError::from),
            Self::Container(url) => {
                let content = JournalContainer::read(url, &access.container).await;
                content.map_err(JournalStoreError::from)
            }
        };
        content.map_err(|source| JournalError::Store { source })
    }

    pub(crate) async fn open_store(
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
