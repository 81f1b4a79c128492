//! One lane per target: what concerns one volume happens one after the other, what concerns
//! different ones at the same time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedMutexGuard, watch};

use super::mounted::Mounted;
use super::state::VolumeState;
use crate::budget::{Allowance, Growth, NoRoom};
use crate::memory::{FillMemory, NodeMemory, VolumeShare};

/// The lanes of all targets that something is known about.
#[derive(Debug, Clone)]
pub(super) struct Lanes {
    entries: Arc<Mutex<HashMap<PathBuf, Entry>>>,
    memory: NodeMemory,
}

/// A lane, and how many hold it.
#[derive(Debug)]
struct Entry {
    lane: Arc<Lane>,
    holders: usize,
}

/// The lane of one target.
#[derive(Debug)]
pub(super) struct Lane {
    gate: Arc<tokio::sync::Mutex<Option<Mounted>>>,
    /// What was known when the last turn ended.
    state: RwLock<Option<Arc<VolumeState>>>,
    /// What the volume held when the last turn ended, and from the moment on that the present one
    /// was allowed to write, what it may come to hold.
    memory: VolumeShare,
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
    /// No lanes yet, for volumes in this memory.
    pub(super) fn new(memory: NodeMemory) -> Self {
        Self { entries: Arc::default(), memory }
    }

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
        let entries = self.entries.lock();
        let states = entries.values().filter_map(|entry| entry.lane.state.read().clone());
        let mut states: Vec<Arc<VolumeState>> = states.collect();
        drop(entries);
        states.sort_by(|one, other| one.target.cmp(&other.target));
        states
    }

    pub(super) fn state(&self, target: &Path) -> Option<Arc<VolumeState>> {
        self.entries.lock().get(target).and_then(|entry| entry.lane.state.read().clone())
    }

    fn held(&self, target: &Path) -> Held {
        let mut entries = self.entries.lock();
        let new = || Entry { lane: Arc::new(Lane::new(&self.memory)), holders: 0 };
        let entry = entries.entry(target.to_owned()).or_insert_with(new);
        entry.holders = entry.holders.saturating_add(1);
        let lane = Arc::clone(&entry.lane);
        Held { lanes: self.clone(), target: target.to_owned(), lane }
    }

    /// How many lanes there are, those of volumes that are not mounted included.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.entries.lock().len()
    }
}

impl Lane {
    fn new(memory: &NodeMemory) -> Self {
        Self {
            gate: Arc::default(),
            state: RwLock::default(),
            memory: memory.volume(),
            leaving: watch::Sender::default(),
        }
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
    /// The account of the volume, for as long as the turn lasts, with what was read for it.
    pub(super) fn account(&self, fill: FillMemory) -> Account {
        Account { lane: Arc::clone(&self.held.lane), fill }
    }
}

/// One volume among all that share the memory of the node.
#[derive(Debug)]
pub(super) struct Account {
    lane: Arc<Lane>,
    fill: FillMemory,
}

impl Allowance for Account {
    fn claim(&self, growth: Growth) -> Result<(), NoRoom> {
        self.lane.memory.claim(growth, &self.fill)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let state = self.mounted.as_ref().map(|mounted| Arc::new(mounted.state()));
        let memory = state.as_ref().map_or(0, |state| state.memory);
        self.held.lane.memory.set(memory);
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
        let mut entries = self.lanes.entries.lock();
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
        let lanes = Lanes::new(NodeMemory::new(1 << 20));
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
        let lanes = Lanes::new(NodeMemory::new(1 << 20));
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
        let lanes = Lanes::new(NodeMemory::new(1 << 20));
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
        let lanes = Lanes::new(NodeMemory::new(1 << 20));
        let target = Path::new("/a");
        let leaving = lanes.leave(target);
        drop(lanes.turn(target).await);
        assert_eq!(lanes.count(), 1);
        drop(leaving);
        assert_eq!(lanes.count(), 0);
    }

    #[tokio::test]
    async fn a_turn_hears_that_the_volume_is_to_go() {
        let lanes = Lanes::new(NodeMemory::new(1 << 20));
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
