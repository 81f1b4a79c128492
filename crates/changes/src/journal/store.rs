//! The storage of a journal.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;

use super::container::JournalContainer;
use super::container_error::JournalContainerError;
use super::directory::{JournalDirectory, JournalDirectoryError};
use super::lease::LeaseStatus;

/// The storage of a journal that is open for writing.
#[derive(Debug)]
pub(crate) enum JournalStore {
    Directory(JournalDirectory),
    Container(Box<JournalContainer>),
}

/// The storage of a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalStoreError {
    /// The directory of the journal cannot be used.
    #[error(transparent)]
    Directory(#[from] JournalDirectoryError),
    /// The container of the journal cannot be used.
    #[error(transparent)]
    Container(#[from] JournalContainerError),
}

impl JournalStoreError {
    /// Whether another command uses the journal.
    pub const fn is_locked(&self) -> bool {
        matches!(
            self,
            Self::Directory(JournalDirectoryError::Locked { .. })
                | Self::Container(JournalContainerError::Held { .. })
        )
    }
}

impl ErrorHint for JournalStoreError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Directory(error) => error.hint(),
            Self::Container(error) => error.hint(),
        }
    }
}

impl JournalStore {
    /// Appends one line, which is durable when the call returns.
    pub(super) async fn append(&mut self, line: &str) -> Result<(), JournalStoreError> {
        match self {
            Self::Directory(directory) => directory.append(line)?,
            Self::Container(container) => container.append(line).await?,
        }
        Ok(())
    }

    /// The lease that the storage needs for writes.
    pub(super) fn lease(&self) -> Option<LeaseStatus> {
        match self {
            Self::Directory(_) => None,
            Self::Container(container) => Some(container.lease_status()),
        }
    }

    /// Lets other commands use the journal.
    pub(super) async fn release(self) -> Result<(), JournalStoreError> {
        match self {
            Self::Directory(_) => Ok(()),
            Self::Container(container) => container.release().await.map_err(Into::into),
        }
    }
}
