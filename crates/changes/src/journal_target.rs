//! The journal of one command, with what opening it needs.

use std::time::Duration;

use crate::journal::{
    Journal, JournalAccess, JournalCluster, JournalError, JournalLocation, JournalLock,
    JournalStore, JournalStoreError, RecordedState, check_cluster, parse_state,
};
use crate::stack_error::StackError;

/// The journal of one command.
#[derive(Debug, Clone)]
pub struct JournalTarget {
    /// Where the journal is.
    pub location: JournalLocation,
    /// The cluster or stack whose resources it records.
    pub cluster: JournalCluster,
    /// How it is opened.
    pub access: JournalAccess,
    /// Reports events to the user.
    pub on_event: fn(JournalEvent<'_>),
}

/// What a command reports while it opens or closes its journal.
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

/// The pause between two attempts to open a journal that another command uses.
const LOCK_PAUSE: Duration = Duration::from_secs(5);
/// How long to wait for the lease of another command: longer than the lease of a killed command lasts.
const LEASE_TIMEOUT: Duration = Duration::from_secs(75);

impl JournalTarget {
    /// What the journal records; `None` if there is none, or an empty one. Does not lock it.
    ///
    /// # Errors
    ///
    /// [`StackError::Journal`] if the journal cannot be read, or is invalid.
    pub async fn read(&self) -> Result<Option<RecordedState>, StackError> {
        let content = self.location.read_content(&self.access).await?;
        // A command that only locks the journal leaves an empty one.
        let content = content.filter(|content| content.contains('\n'));
        let parse = |content: String| parse_state(&content, &self.cluster, self.access.stack_rule);
        Ok(content.map(parse).transpose()?)
    }

    /// Does the work with the journal open for writing. Waits for another command that uses it.
    ///
    /// # Errors
    ///
    /// [`StackError::Journal`] if the journal cannot be used, or is invalid; the error of the work.
    pub async fn write<T, E: From<StackError>>(
        &self,
        work: impl AsyncFnOnce(&Journal) -> Result<T, E>,
    ) -> Result<T, E> {
        let journal = self.open().await?;
        let result = work(&journal).await;
        self.report_release(journal.close().await);
        result
    }

    /// Opens the journal for writing; it must be closed.
    ///
    /// # Errors
    ///
    /// [`StackError::Journal`] if the journal cannot be used, or is invalid.
    pub async fn open(&self) -> Result<Journal, StackError> {
        let (store, content) = self.wait_for_store().await?;
        Ok(Journal::open(&content, store, &self.cluster, self.access.stack_rule).await?)
    }

    /// Does work that writes no entries while no other command writes to the journal.
    ///
    /// # Errors
    ///
    /// [`StackError::Journal`] if the journal cannot be used, belongs to another cluster, or the lock was lost.
    pub async fn with_lock<T>(&self, work: impl Future<Output = T>) -> Result<T, StackError> {
        let lock = self.lock().await?;
        let result = lock.while_held(work).await;
        self.report_release(lock.release().await);
        Ok(result?)
    }

    /// Locks the journal; it must be released.
    ///
    /// # Errors
    ///
    /// As those of [`with_lock`](Self::with_lock).
    pub async fn lock(&self) -> Result<JournalLock, StackError> {
        let (store, content) = self.wait_for_store().await?;
        let lock = JournalLock::new(store);
        if let Err(error) = check_cluster(&content, &self.cluster) {
            // The first error is the one to report; the lease ends by itself.
            drop(lock.release().await);
            return Err(error.into());
        }
        Ok(lock)
    }

    async fn wait_for_store(&self) -> Result<(JournalStore, String), JournalError> {
        let clock = &self.access.clock;
        let timeout = self.access.lock_timeout.unwrap_or(match self.location {
            JournalLocation::Directory(_) => Duration::ZERO,
            JournalLocation::Container(_) => LEASE_TIMEOUT,
        });
        let end = clock.monotonic().saturating_add(timeout);
        let mut waits = false;
        loop {
            let reason = match self.location.open_store(&self.access).await {
                Err(error) if error.is_locked() => error,
                opened => return opened.map_err(|source| JournalError::Store { source }),
            };
            let left = end.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return Err(JournalError::Store { source: reason });
            }
            if !waits {
                (self.on_event)(JournalEvent::Waiting { reason: &reason, timeout });
                waits = true;
            }
            clock.sleep(left.min(LOCK_PAUSE)).await;
        }
    }

    fn report_release(&self, released: Result<(), JournalError>) {
        if let Err(error) = &released {
            (self.on_event)(JournalEvent::NotReleased(error));
        }
    }
}
