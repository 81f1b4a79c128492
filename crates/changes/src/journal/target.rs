//! The journal of one command, with what opening it needs.

use std::time::Duration;

use super::{
    Journal, JournalAccess, JournalCluster, JournalError, JournalLocation, JournalStoreError,
    RecordedState,
};

/// The journal of one command.
#[derive(Debug, Clone)]
pub struct JournalTarget {
    /// Where the journal is.
    pub location: JournalLocation,
    /// The cluster or stack whose resources it records.
    pub cluster: JournalCluster,
    /// How it is opened.
    pub access: JournalAccess,
    /// Tells the user of events.
    pub on_event: fn(JournalEvent<'_>),
}

/// What the user should know of a journal that can be used.
#[derive(Debug, Clone, Copy)]
pub enum JournalEvent<'a> {
    /// Another command uses the journal. The error says which.
    Waiting {
        /// Why the journal cannot be opened yet.
        reason: &'a JournalStoreError,
        /// The longest wait.
        timeout: Duration,
    },
    /// The lease cannot be released. It ends by itself.
    NotReleased(&'a JournalError),
}

impl JournalTarget {
    /// What the journal records; `None` if there is no journal. Does not lock it.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the journal cannot be read, or is invalid.
    pub async fn read(&self) -> Result<Option<RecordedState>, JournalError> {
        self.location.read(&self.access, &self.cluster).await
    }

    /// Does the work with the journal open for writing.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the journal cannot be opened; that of the work.
    pub async fn write<T, E: From<JournalError>>(
        &self,
        work: impl AsyncFnOnce(&Journal) -> Result<T, E>,
    ) -> Result<T, E> {
        let journal = self.location.open(&self.access, &self.cluster, &self.on_wait()).await?;
        let result = work(&journal).await;
        self.report_release(journal.close().await);
        result
    }

    /// Does work that writes no entries while no other command writes to the journal.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the journal cannot be locked, or the lock was lost.
    pub async fn with_lock<T>(&self, work: impl Future<Output = T>) -> Result<T, JournalError> {
        let lock = self.location.lock(&self.access, &self.cluster, &self.on_wait()).await?;
        let result = lock.while_held(work).await;
        self.report_release(lock.release().await);
        result
    }

    fn on_wait(&self) -> impl Fn(&JournalStoreError, Duration) + Sync + use<> {
        let on_event = self.on_event;
        move |reason, timeout| on_event(JournalEvent::Waiting { reason, timeout })
    }

    fn report_release(&self, released: Result<(), JournalError>) {
        if let Err(error) = &released {
            (self.on_event)(JournalEvent::NotReleased(error));
        }
    }
}
