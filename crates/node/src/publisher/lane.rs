//! One lane per target: what concerns one volume happens one after the other, what concerns
//! different ones at the same time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedMutexGuard, watch};

use super::mounted::Mounted;
use super::state::VolumeState;

/// The lanes of all targets that something is known about.
#[derive(Debug, Clone, Default)]
pub(super) struct Lanes(Arc<Mutex<HashMap<PathBuf, Arc<Lane>>>>);

/// The lane of one target.
#[derive(Debug, Default)]
pub(super) struct Lane {
    gate: Arc<tokio::sync::Mutex<Option<Mounted>>>,
    /// What was known when the last turn ended.
    state: RwLock<Option<Arc<VolumeState>>>,
    /// How many want to take the volume away.
    leaving: watch::Sender<usize>,
}

/// The right to do something about a target. Nobody else does anything about it meanwhile.
#[derive(Debug)]
pub(super) struct Turn {
    lanes: Lanes,
    target: PathBuf,
    lane: Arc<Lane>,
    mounted: OwnedMutexGuard<Option<Mounted>>,
}

/// The wish to take the volume of a lane away, while it lasts.
#[derive(Debug)]
pub(super) struct Leaving(Arc<Lane>);

impl Lanes {
    /// Waits until it is one's turn. Who stops waiting takes none.
    pub(super) async fn turn(&self, target: &Path) -> Turn {
        let lane = self.lane(target);
        let mounted = Arc::clone(&lane.gate).lock_owned().await;
        Turn { lanes: self.clone(), target: target.to_owned(), lane, mounted }
    }

    /// Says that the volume is to go: a source that is being asked for it is not waited for.
    pub(super) fn leave(&self, target: &Path) -> Leaving {
        let lane = self.lane(target);
        lane.leaving.send_modify(|count| *count = count.saturating_add(1));
        Leaving(lane)
    }

    /// What is known about every mounted volume, sorted by target.
    pub(super) fn states(&self) -> Vec<Arc<VolumeState>> {
        let states = self.0.lock().values().filter_map(|lane| lane.state.read().clone()).collect();
        let mut states: Vec<Arc<VolumeState>> = states;
        states.sort_by(|one, other| one.target.cmp(&other.target));
        states
    }

    pub(super) fn state(&self, target: &Path) -> Option<Arc<VolumeState>> {
        self.0.lock().get(target).and_then(|lane| lane.state.read().clone())
    }

    fn lane(&self, target: &Path) -> Arc<Lane> {
        Arc::clone(self.0.lock().entry(target.to_owned()).or_default())
    }
}

impl Turn {
    pub(super) fn mounted(&mut self) -> &mut Option<Mounted> {
        &mut self.mounted
    }

    /// Comes back when somebody wants to take the volume away.
    pub(super) fn left(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut leaving = self.lane.leaving.subscribe();
        let lane = Arc::clone(&self.lane);
        async move {
            // The sender lives as long as the lane.
            let _lane = lane;
            if leaving.wait_for(|count| *count > 0).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let state = self.mounted.as_ref().map(|mounted| Arc::new(mounted.state()));
        let is_empty = state.is_none();
        *self.lane.state.write() = state;
        let mut lanes = self.lanes.0.lock();
        // Whoever waits for a turn holds the lane too, and forgets it in its place.
        if is_empty && Arc::strong_count(&self.lane) == 2 {
            lanes.remove(&self.target);
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leaving.send_modify(|count| *count = count.saturating_sub(1));
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
        assert_eq!(lanes.0.lock().len(), 1);
        drop(second.await);
        assert_eq!(lanes.0.lock().len(), 0);
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
        assert_eq!(lanes.0.lock().len(), 0);
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
