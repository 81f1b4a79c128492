//! One lane per target: what concerns one volume happens one after the other, what concerns
//! different ones at the same time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedMutexGuard, watch};

use super::mounted_volume::MountedVolume;
use super::state::VolumeState;
use crate::memory::{FetchMemory, MemoryAccount, VolumeMemory};
use crate::memory_limit::{GrowthRequest, MemoryBudget, MemoryLimitError};

/// The lanes of all targets that something is known about.
#[derive(Debug, Clone)]
pub(super) struct VolumeLocks {
    entries: Arc<Mutex<HashMap<PathBuf, VolumeLockEntry>>>,
    memory: MemoryAccount,
}

/// A lane, and how many hold it.
#[derive(Debug)]
struct VolumeLockEntry {
    lock: Arc<VolumeLock>,
    holders: usize,
}

/// The lane of one target.
#[derive(Debug)]
pub(super) struct VolumeLock {
    volume: Arc<tokio::sync::Mutex<Option<MountedVolume>>>,
    /// What was known when the last turn ended.
    state: RwLock<Option<Arc<VolumeState>>>,
    /// What the volume held when the last turn ended, and from the moment on that the present one
    /// was allowed to write, what it may come to hold.
    memory: VolumeMemory,
    /// How many want to take the volume away.
    pending_unpublishes: watch::Sender<usize>,
}

/// The right to do something about a target. Nobody else does anything about it meanwhile.
#[derive(Debug)]
pub(super) struct VolumeLockGuard {
    // Dropped in this order: whoever is next has the lane before it may be forgotten.
    volume: OwnedMutexGuard<Option<MountedVolume>>,
    handle: VolumeLockHandle,
}

/// The wish to take the volume of a lane away, while it lasts.
#[derive(Debug)]
pub(super) struct UnpublishIntent(VolumeLockHandle);

/// A lane, as somebody holds it who has a turn, waits for one or wants the volume away. The last
/// one of them forgets it, unless something is mounted.
#[derive(Debug)]
struct VolumeLockHandle {
    locks: VolumeLocks,
    target: PathBuf,
    lock: Arc<VolumeLock>,
}

impl VolumeLocks {
    /// No lanes yet, for volumes in this memory.
    pub(super) fn new(memory: MemoryAccount) -> Self {
        Self { entries: Arc::default(), memory }
    }

    /// Waits until it is one's turn. Who stops waiting takes none.
    pub(super) async fn lock(&self, target: &Path) -> VolumeLockGuard {
        let held = self.handle(target);
        let mounted = Arc::clone(&held.lock.volume).lock_owned().await;
        VolumeLockGuard { volume: mounted, handle: held }
    }

    /// Says that the volume is to go: a source that is being asked for it is not waited for.
    pub(super) fn begin_unpublish(&self, target: &Path) -> UnpublishIntent {
        let held = self.handle(target);
        held.lock.pending_unpublishes.send_modify(|count| *count = count.saturating_add(1));
        UnpublishIntent(held)
    }

    /// What is known about every mounted volume, sorted by target.
    pub(super) fn states(&self) -> Vec<Arc<VolumeState>> {
        let entries = self.entries.lock();
        let states = entries.values().filter_map(|entry| entry.lock.state.read().clone());
        let mut states: Vec<Arc<VolumeState>> = states.collect();
        drop(entries);
        states.sort_by(|one, other| one.target.cmp(&other.target));
        states
    }

    pub(super) fn state(&self, target: &Path) -> Option<Arc<VolumeState>> {
        self.entries.lock().get(target).and_then(|entry| entry.lock.state.read().clone())
    }

    fn handle(&self, target: &Path) -> VolumeLockHandle {
        let mut entries = self.entries.lock();
        let new = || VolumeLockEntry { lock: Arc::new(VolumeLock::new(&self.memory)), holders: 0 };
        let entry = entries.entry(target.to_owned()).or_insert_with(new);
        entry.holders = entry.holders.saturating_add(1);
        let lane = Arc::clone(&entry.lock);
        VolumeLockHandle { locks: self.clone(), target: target.to_owned(), lock: lane }
    }

    /// How many lanes there are, those of volumes that are not mounted included.
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

    /// Comes back when somebody wants to take the volume away while the turn lasts.
    pub(super) fn unpublish_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut leaving = self.handle.lock.pending_unpublishes.subscribe();
        async move {
            if leaving.wait_for(|count| *count > 0).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl VolumeLockGuard {
    /// The account of the volume, for as long as the turn lasts, with what was read for it.
    pub(super) fn memory_budget(&self, fill: FetchMemory) -> VolumeMemoryBudget {
        VolumeMemoryBudget { lock: Arc::clone(&self.handle.lock), fetch_memory: fill }
    }
}

/// One volume among all that share the memory of the node.
#[derive(Debug)]
pub(super) struct VolumeMemoryBudget {
    lock: Arc<VolumeLock>,
    fetch_memory: FetchMemory,
}

impl MemoryBudget for VolumeMemoryBudget {
    fn claim(&self, growth: GrowthRequest) -> Result<(), MemoryLimitError> {
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
        let lanes = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let first = lanes.lock(target).await;
        let second = lanes.lock(target);
        tokio::pin!(second);
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(lanes.count(), 1);
        drop(second.await);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn cancelled_waiter_does_not_acquire_the_lock() {
        let lanes = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let first = lanes.lock(target).await;
        {
            let second = lanes.lock(target);
            tokio::pin!(second);
            assert!(futures::poll!(&mut second).is_pending());
        }
        drop(first);
        drop(lanes.lock(target).await);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn cancelled_last_waiter_removes_the_lock() {
        let lanes = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let first = lanes.lock(target).await;
        let mut second = Box::pin(lanes.lock(target));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(lanes.count(), 1);
        drop(second);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn unpublish_intent_removes_the_lock_after_the_guard_was_dropped() {
        let lanes = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let leaving = lanes.begin_unpublish(target);
        drop(lanes.lock(target).await);
        assert_eq!(lanes.count(), 1);
        drop(leaving);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn lock_guard_is_notified_of_a_pending_unpublish() {
        let lanes = VolumeLocks::new(MemoryAccount::new(1 << 20));
        let target = Path::new("/a");
        let turn = lanes.lock(target).await;
        let left = turn.unpublish_requested();
        tokio::pin!(left);
        assert!(futures::poll!(&mut left).is_pending());
        let leaving = lanes.begin_unpublish(target);
        left.await;
        drop(leaving);
        assert!(futures::poll!(Box::pin(turn.unpublish_requested())).is_pending());
    }
}
