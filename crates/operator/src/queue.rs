//! The queue of clusters to reconcile.

mod schedule;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster_key::ClusterKey;
use schedule::ReconcileSchedule;
pub(crate) use schedule::{ReconcileId, ReconcileTrigger, Requeue};

/// The work queue of one process, shared by several workers. Clones share it.
#[derive(Clone)]
pub(crate) struct ReconcileQueue {
    schedule: Arc<Mutex<ReconcileSchedule<ClusterKey>>>,
    changed: Arc<Notify>,
    clock: SharedClock,
}

impl ReconcileQueue {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self {
            schedule: Arc::new(Mutex::new(ReconcileSchedule::default())),
            changed: Arc::new(Notify::new()),
            clock,
        }
    }

    /// Enqueues a cluster.
    pub(crate) fn enqueue(&self, key: &ClusterKey, trigger: ReconcileTrigger) {
        self.schedule.lock().trigger(key, trigger, self.clock.monotonic());
        self.changed.notify_one();
    }

    /// Removes a cluster, because it is deleted or another replica leads it.
    pub(crate) fn remove(&self, key: &ClusterKey) {
        self.schedule.lock().remove(key);
    }

    /// Waits for the next due cluster and takes the one that has been due longest. Cancel-safe.
    pub(crate) async fn take_next(&self) -> (ClusterKey, ReconcileId) {
        loop {
            let changed = self.changed.notified();
            let now = self.clock.monotonic();
            let (started, next) = {
                let mut schedule = self.schedule.lock();
                let started = schedule.start_next(now);
                (started, schedule.next_due())
            };
            if let Some(started) = started {
                // Another worker may take the next due cluster.
                if next.is_some_and(|due| due <= now) {
                    self.changed.notify_one();
                }
                return started;
            }
            match next {
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = self.clock.sleep(due.saturating_sub(now)) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Ends a reconciliation. Returns the number of consecutive failures.
    pub(crate) fn finish(
        &self,
        key: &ClusterKey,
        reconcile_id: ReconcileId,
        requeue: Requeue,
    ) -> u32 {
        let now = self.clock.monotonic();
        let failures =
            self.schedule.lock().finish(key, reconcile_id, requeue, now, fastrand::f64());
        self.changed.notify_one();
        failures
    }

    /// Moves the next reconciliation of a cluster forward to `due`, if it is scheduled later. A delay that the
    /// API server asked for still applies.
    pub(crate) fn requeue_by(&self, key: &ClusterKey, due: Duration) {
        self.schedule.lock().requeue_by(key, due);
        self.changed.notify_one();
    }

    /// The number of clusters that are due.
    pub(crate) fn due_count(&self) -> usize {
        self.schedule.lock().due_count(self.clock.monotonic())
    }
}

impl fmt::Debug for ReconcileQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReconcileQueue")
            .field("waiting", &self.due_count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::{Clock as _, ManualClock};

    use super::*;

    fn cluster_key(name: &str) -> ClusterKey {
        ClusterKey::of("clusters", name)
    }

    #[tokio::test]
    async fn workers_share_due_clusters_and_wait_for_others() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let queue = ReconcileQueue::new(Arc::new(clock.clone()));
        queue.enqueue(&cluster_key("a"), ReconcileTrigger::SpecChanged);
        queue.enqueue(&cluster_key("b"), ReconcileTrigger::SpecChanged);
        let ((first, reconcile_id), (second, _)) =
            tokio::join!(queue.take_next(), queue.take_next());
        assert_eq!((first.name(), second.name()), ("a", "b"));
        queue.finish(&first, reconcile_id, Requeue::After(Duration::from_secs(8)));
        let waiting = queue.clone();
        let third = tokio::spawn(async move { waiting.take_next().await.0 });
        while clock.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!third.is_finished());
        clock.advance(Duration::from_secs(8));
        assert_eq!(third.await.unwrap(), cluster_key("a"));
        assert!(clock.monotonic() >= Duration::from_secs(8));
    }
}
