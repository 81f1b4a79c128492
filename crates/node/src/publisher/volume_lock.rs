//! One lock per target: operations on one volume run one after the other, operations on different
//! volumes run concurrently.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lanyard_volume::{GrowthRequest, MemoryBudget, VolumesMemoryLimitError};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedMutexGuard, watch};

use super::mounted_volume::MountedVolume;
use super::state::VolumeSnapshot;
use crate::memory::{FetchMemory, MemoryAccount, VolumeMemory};

/// The locks of all targets that are in use or mounted.
#[derive(Debug, Clone)]
pub(super) struct VolumeLocks {
    entries: Arc<Mutex<HashMap<PathBuf, VolumeLockEntry>>>,
    memory: MemoryAccount,
}

/// A lock and the number of its handles.
#[derive(Debug)]
struct VolumeLockEntry {
    lock: Arc<VolumeLock>,
    holders: usize,
}

/// The lock of one target.
#[derive(Debug)]
pub(super) struct VolumeLock {
    volume: Arc<tokio::sync::Mutex<Option<MountedVolume>>>,
    /// The state of the volume when the last guard was dropped.
    state: RwLock<Option<Arc<VolumeSnapshot>>>,
    /// The memory of the volume when the last guard was dropped. Once the current operation has
    /// claimed memory for a write, the most that the volume may use after it.
    memory: VolumeMemory,
    /// The number of unpublish calls that wait for this lock or hold it.
    pending_unpublishes: watch::Sender<usize>,
}

/// Exclusive access to a target. No other operation on the target runs meanwhile.
#[derive(Debug)]
pub(super) struct VolumeLockGuard {
    // Fields drop in this order: the next waiter gets the lock before its entry may be removed.
    volume: OwnedMutexGuard<Option<MountedVolume>>,
    handle: VolumeLockHandle,
}

/// Announces an unpublish of the target until it is dropped.
#[derive(Debug)]
pub(super) struct UnpublishIntent(VolumeLockHandle);

/// A reference to a lock, held by each guard, waiter and unpublish intent. Dropping the last one
/// removes the lock unless a volume is mounted.
#[derive(Debug)]
struct VolumeLockHandle {
    locks: VolumeLocks,
    target: PathBuf,
    lock: Arc<VolumeLock>,
}

impl VolumeLocks {
    pub(super) fn new(memory: MemoryAccount) -> Self {
        Self { entries: Arc::default(), memory }
    }

    /// Waits for the lock of a target. A future that is dropped while it waits does not take the
    /// lock.
    pub(super) async fn lock(&self, target: &Path) -> VolumeLockGuard {
        let handle = self.handle(target);
        let mounted = Arc::clone(&handle.lock.volume).lock_owned().await;
        VolumeLockGuard { volume: mounted, handle }
    }

    /// Announces an unpublish, which cancels a fetch that is in progress for the volume.
    pub(super) fn begin_unpublish(&self, target: &Path) -> UnpublishIntent {
        let handle = self.handle(target);
        handle.lock.pending_unpublishes.send_modify(|count| *count = count.saturating_add(1));
        UnpublishIntent(handle)
    }

    /// The states of all mounted volumes, sorted by target.
    pub(super) fn states(&self) -> Vec<Arc<VolumeSnapshot>> {
        let entries = self.entries.lock();
        let states = entries.values().filter_map(|entry| entry.lock.state.read().clone());
        let mut states: Vec<Arc<VolumeSnapshot>> = states.collect();
        drop(entries);
        states.sort_by(|one, other| one.target.cmp(&other.target));
        states
    }

    pub(super) fn state(&self, target: &Path) -> Option<Arc<VolumeSnapshot>> {
        self.entries.lock().get(target).and_then(|entry| entry.lock.state.read().clone())
    }

    fn handle(&self, target: &Path) -> VolumeLockHandle {
        let mut entries = self.entries.lock();
        let new = || VolumeLockEntry { lock: Arc::new(VolumeLock::new(&self.memory)), holders: 0 };
        let entry = entries.entry(target.to_owned()).or_insert_with(new);
        entry.holders = entry.holders.saturating_add(1);
        let lock = Arc::clone(&entry.lock);
        VolumeLockHandle { locks: self.clone(), target: target.to_owned(), lock }
    }

    /// The number of locks, those of unmounted volumes included.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.entries.lock().len()
    }
}

impl VolumeLock {
    fn new(memory: &MemoryAccount) -> Self {
        Self {
            volume: Arc::default(),
            state: RwLock::default(),
            memory: memory.volume_memory(),
            pending_unpublishes: watch::Sender::default(),
        }
    }
}

impl VolumeLockGuard {
    pub(super) fn volume_mut(&mut self) -> &mut Option<MountedVolume> {
        &mut self.volume
    }

    /// Resolves when an unpublish is announced while this guard is held.
    pub(super) fn unpublish_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut pending = self.handle.lock.pending_unpublishes.subscribe();
        async move {
            if pending.wait_for(|count| *count > 0).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl VolumeLockGuard {
    /// The memory budget of the volume, with the memory that `fetch_memory` has reserved.
    pub(super) fn memory_budget(&self, fetch_memory: FetchMemory) -> VolumeMemoryBudget {
        VolumeMemoryBudget { lock: Arc::clone(&self.handle.lock), fetch_memory }
    }
}

/// The memory of one volume within the node's memory account.
#[derive(Debug)]
pub(super) struct VolumeMemoryBudget {
    lock: Arc<VolumeLock>,
    fetch_memory: FetchMemory,
}

impl MemoryBudget for VolumeMemoryBudget {
    fn claim(&self, growth: GrowthRequest) -> Result<(), VolumesMemoryLimitError> {
        self.lock.memory.claim(growth, &self.fetch_memory)
    }
}

impl Drop for VolumeLockGuard {
    fn drop(&mut self) {
        let state = self.volume.as_ref().map(|mounted| Arc::new(mounted.state()));
        let memory = state.as_ref().map_or(0, |state| state.memory);
        self.handle.lock.memory.set_used(memory);
        *self.handle.lock.state.write() = state;
    }
}

impl Drop for UnpublishIntent {
    fn drop(&mut self) {
        self.0.lock.pending_unpublishes.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Drop for VolumeLockHandle {
    fn drop(&mut self) {
        let mut entries = self.locks.entries.lock();
        let Some(entry) = entries.get_mut(&self.target) else { return };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders == 0 && entry.lock.state.read().is_none() {
            entries.remove(&self.target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lock_of_an_unmounted_volume_is_removed_by_the_last_waiter() {
        let locks = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let first = locks.lock(target).await;
        let second = locks.lock(target);
        tokio::pin!(second);
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(locks.count(), 1);
        drop(second.await);
        assert_eq!(locks.count(), 0);
    }

    #[tokio::test]
    async fn cancelled_waiter_does_not_acquire_the_lock() {
        let locks = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let first = locks.lock(target).await;
        {
            let second = locks.lock(target);
            tokio::pin!(second);
            assert!(futures::poll!(&mut second).is_pending());
        }
        drop(first);
        drop(locks.lock(target).await);
        assert_eq!(locks.count(), 0);
    }

    #[tokio::test]
    async fn cancelled_last_waiter_removes_the_lock() {
        let locks = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let first = locks.lock(target).await;
        let mut second = Box::pin(locks.lock(target));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(locks.count(), 1);
        drop(second);
        assert_eq!(locks.count(), 0);
    }

    #[tokio::test]
    async fn unpublish_intent_removes_the_lock_after_the_guard_was_dropped() {
        let locks = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let intent = locks.begin_unpublish(target);
        drop(locks.lock(target).await);
        assert_eq!(locks.count(), 1);
        drop(intent);
        assert_eq!(locks.count(), 0);
    }

    #[tokio::test]
    async fn lock_guard_is_notified_of_a_pending_unpublish() {
        let locks = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let guard = locks.lock(target).await;
        let unpublished = guard.unpublish_requested();
        tokio::pin!(unpublished);
        assert!(futures::poll!(&mut unpublished).is_pending());
        let intent = locks.begin_unpublish(target);
        unpublished.await;
        drop(intent);
        assert!(futures::poll!(Box::pin(guard.unpublish_requested())).is_pending());
    }
}
