//! One lane per target: what concerns one volume happens one after the other, what concerns
//! different ones at the same time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedMutexGuard, watch};

use super::mounted::Mounted;
use super::state::VolumeState;
use crate::budget::{Allowance, Growth, MemoryLimit, NoRoom};

/// The lanes of all targets that something is known about.
#[derive(Debug, Clone, Default)]
pub(super) struct Lanes(Arc<Mutex<HashMap<PathBuf, Entry>>>);

/// A lane, and how many hold it.
#[derive(Debug, Default)]
struct Entry {
    lane: Arc<Lane>,
    holders: usize,
}

/// The lane of one target.
#[derive(Debug, Default)]
pub(super) struct Lane {
    gate: Arc<tokio::sync::Mutex<Option<Mounted>>>,
    /// What was known when the last turn ended.
    state: RwLock<Option<Arc<VolumeState>>>,
    /// What the volume held when the last turn ended, and from the moment on that the present one
    /// was allowed to write, what it may come to hold. What all volumes hold together is the sum
    /// over the lanes: there is no second book that could drift from this one.
    memory: AtomicU64,
    /// How many want to take the volume away.
    leaving: watch::Sender<usize>,
}

/// The right to do something about a target. Nobody else does anything about it meanwhile.
#[derive(Debug)]
pub(super) struct Turn {
    // Dropped in this order: whoever is next has the lane before it may be forgotten.
    mounted: OwnedMutexGuard<Option<Mounted>>,
    held: Held,
}

/// The wish to take the volume of a lane away, while it lasts.
#[derive(Debug)]
pub(super) struct Leaving(Held);

/// A lane, as somebody holds it who has a turn, waits for one or wants the volume away. The last
/// one of them forgets it, unless something is mounted.
#[derive(Debug)]
struct Held {
    lanes: Lanes,
    target: PathBuf,
    lane: Arc<Lane>,
}

impl Lanes {
    /// Waits until it is one's turn. Who stops waiting takes none.
    pub(super) async fn turn(&self, target: &Path) -> Turn {
        let held = self.held(target);
        let mounted = Arc::clone(&held.lane.gate).lock_owned().await;
        Turn { mounted, held }
    }

    /// Says that the volume is to go: a source that is being asked for it is not waited for.
    pub(super) fn leave(&self, target: &Path) -> Leaving {
        let held = self.held(target);
        held.lane.leaving.send_modify(|count| *count = count.saturating_add(1));
        Leaving(held)
    }

    /// What is known about every mounted volume, sorted by target.
    pub(super) fn states(&self) -> Vec<Arc<VolumeState>> {
        let entries = self.0.lock();
        let states = entries.values().filter_map(|entry| entry.lane.state.read().clone());
        let mut states: Vec<Arc<VolumeState>> = states.collect();
        drop(entries);
        states.sort_by(|one, other| one.target.cmp(&other.target));
        states
    }

    pub(super) fn state(&self, target: &Path) -> Option<Arc<VolumeState>> {
        self.0.lock().get(target).and_then(|entry| entry.lane.state.read().clone())
    }

    /// What all volumes hold together, and what is being written, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let entries = self.0.lock();
        let shares = entries.values().map(|entry| entry.lane.memory.load(Ordering::Relaxed));
        shares.fold(0, u64::saturating_add)
    }

    fn held(&self, target: &Path) -> Held {
        let mut entries = self.0.lock();
        let entry = entries.entry(target.to_owned()).or_default();
        entry.holders = entry.holders.saturating_add(1);
        let lane = Arc::clone(&entry.lane);
        Held { lanes: self.clone(), target: target.to_owned(), lane }
    }

    /// How many lanes there are, those of volumes that are not mounted included.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl Turn {
    pub(super) fn mounted(&mut self) -> &mut Option<Mounted> {
        &mut self.mounted
    }

    /// Comes back when somebody wants to take the volume away while the turn lasts.
    pub(super) fn left(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut leaving = self.held.lane.leaving.subscribe();
        async move {
            if leaving.wait_for(|count| *count > 0).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Turn {
    /// The account of the volume, for as long as the turn lasts.
    pub(super) fn account(&self, limit: MemoryLimit) -> Account {
        Account { lanes: self.held.lanes.clone(), lane: Arc::clone(&self.held.lane), limit }
    }
}

/// One volume among all that share the memory of the node.
#[derive(Debug)]
pub(super) struct Account {
    lanes: Lanes,
    lane: Arc<Lane>,
    limit: MemoryLimit,
}

impl Allowance for Account {
    fn claim(&self, growth: Growth) -> Result<(), NoRoom> {
        // Nobody else is admitted between the sum and the claim.
        let entries = self.lanes.0.lock();
        let others = entries
            .values()
            .filter(|entry| !Arc::ptr_eq(&entry.lane, &self.lane))
            .map(|entry| entry.lane.memory.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add);
        self.lane.memory.store(self.limit.admit(others, growth)?, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let state = self.mounted.as_ref().map(|mounted| Arc::new(mounted.state()));
        let memory = state.as_ref().map_or(0, |state| state.memory);
        self.held.lane.memory.store(memory, Ordering::Relaxed);
        *self.held.lane.state.write() = state;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.lane.leaving.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut entries = self.lanes.0.lock();
        let Some(entry) = entries.get_mut(&self.target) else { return };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders == 0 && entry.lane.state.read().is_none() {
            entries.remove(&self.target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lane_in_which_nothing_is_mounted_is_forgotten_by_the_last_who_waits() {
        let lanes = Lanes::default();
        let target = Path::new("/a");
        let first = lanes.turn(target).await;
        let second = lanes.turn(target);
        tokio::pin!(second);
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(lanes.count(), 1);
        drop(second.await);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn who_stops_waiting_takes_no_turn() {
        let lanes = Lanes::default();
        let target = Path::new("/a");
        let first = lanes.turn(target).await;
        {
            let second = lanes.turn(target);
            tokio::pin!(second);
            assert!(futures::poll!(&mut second).is_pending());
        }
        drop(first);
        drop(lanes.turn(target).await);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn a_lane_is_forgotten_by_who_stops_waiting_last() {
        let lanes = Lanes::default();
        let target = Path::new("/a");
        let first = lanes.turn(target).await;
        let mut second = Box::pin(lanes.turn(target));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(lanes.count(), 1);
        drop(second);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn a_lane_is_forgotten_by_who_wanted_the_volume_away_if_the_turn_ended_before() {
        let lanes = Lanes::default();
        let target = Path::new("/a");
        let leaving = lanes.leave(target);
        drop(lanes.turn(target).await);
        assert_eq!(lanes.count(), 1);
        drop(leaving);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn a_turn_hears_that_the_volume_is_to_go() {
        let lanes = Lanes::default();
        let target = Path::new("/a");
        let turn = lanes.turn(target).await;
        let left = turn.left();
        tokio::pin!(left);
        assert!(futures::poll!(&mut left).is_pending());
        let leaving = lanes.leave(target);
        left.await;
        drop(leaving);
        assert!(futures::poll!(Box::pin(turn.left())).is_pending());
    }
}
