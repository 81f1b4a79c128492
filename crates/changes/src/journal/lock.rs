//! The lock of a journal, for commands that write no entries to it.

use super::JournalError;
use super::lease::LeaseStatus;
use super::store::JournalStore;

/// The lock of a journal: until it is released, no other command writes to the journal.
#[derive(Debug)]
pub struct JournalLock {
    store: JournalStore,
    lease: Option<LeaseStatus>,
}

impl JournalLock {
    pub(crate) fn new(store: JournalStore) -> Self {
        let lease = store.lease();
        Self { store, lease }
    }

    /// Does the work while this command has the lock. If the lease of a container is lost, the work is dropped, so
    /// that it sends no further request.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the lease is lost.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, JournalError> {
        tokio::select! {
            biased;
            lost = super::lost(self.lease.as_ref()) => Err(lost),
            result = work => Ok(result),
        }
    }

    /// Lets other commands use the journal.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if the lease of a container cannot be released. It then ends by itself.
    pub async fn release(self) -> Result<(), JournalError> {
        self.store.release().await.map_err(|source| JournalError::Store { source })
    }
}
