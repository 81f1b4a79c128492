//! The clusters that wait for somebody to look at them.

mod schedule;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::ClusterKey;
use schedule::Schedule;
pub(crate) use schedule::{Again, Turn, Wake};

/// The queue of one process: several workers take from it. Clones share it.
#[derive(Clone)]
pub(crate) struct Queue {
    schedule: Arc<Mutex<Schedule<ClusterKey>>>,
    changed: Arc<Notify>,
    clock: SharedClock,
}

impl Queue {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self {
            schedule: Arc::new(Mutex::new(Schedule::default())),
            changed: Arc::new(Notify::new()),
            clock,
        }
    }

    /// Something changed about a cluster.
    pub(crate) fn wake(&self, key: &ClusterKey, wake: Wake) {
        self.schedule.lock().wake(key, wake, self.clock.monotonic());
        self.changed.notify_one();
    }

    /// There is no such cluster for this process any more.
    pub(crate) fn remove(&self, key: &ClusterKey) {
        self.schedule.lock().remove(key);
    }

    /// The cluster that is due for longest, as soon as there is one. Nothing is lost if this is
    /// dropped.
    pub(crate) async fn take(&self) -> (ClusterKey, Turn) {
        loop {
            let changed = self.changed.notified();
            let now = self.clock.monotonic();
            let (begun, next) = {
                let mut schedule = self.schedule.lock();
                let begun = schedule.begin(now);
                (begun, schedule.next_due())
            };
            if let Some(begun) = begun {
                // Somebody else may take what is due besides.
                if next.is_some_and(|due| due <= now) {
                    self.changed.notify_one();
                }
                return begun;
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

    /// Ends a look. Returns how often it failed in a row.
    pub(crate) fn end(&self, key: &ClusterKey, turn: Turn, again: Again) -> u32 {
        let now = self.clock.monotonic();
        let failures = self.schedule.lock().end(key, turn, again, now, fastrand::f64());
        self.changed.notify_one();
        failures
    }

    /// Looks at a cluster then, if not sooner.
    pub(crate) fn at_latest(&self, key: &ClusterKey, then: Duration) {
        self.schedule.lock().at_latest(key, then);
        self.changed.notify_one();
    }

    /// How many clusters are due and wait.
    pub(crate) fn waiting(&self) -> usize {
        self.schedule.lock().waiting(self.clock.monotonic())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Queue").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::{Clock as _, ManualClock};

    use super::*;

    fn key(name: &str) -> ClusterKey {
        ClusterKey::of("clusters", name)
    }

    #[tokio::test]
    async fn workers_share_what_is_due_and_wait_for_what_is_not() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let queue = Queue::new(Arc::new(clock.clone()));
        queue.wake(&key("a"), Wake::Wish);
        queue.wake(&key("b"), Wake::Wish);
        let ((first, turn), (second, _)) = tokio::join!(queue.take(), queue.take());
        assert_eq!((first.name(), second.name()), ("a", "b"));
        queue.end(&first, turn, Again::In(Duration::from_secs(8)));
        let waiting = queue.clone();
        let third = tokio::spawn(async move { waiting.take().await.0 });
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!third.is_finished());
        clock.advance(Duration::from_secs(8));
        assert_eq!(third.await.unwrap(), key("a"));
        assert!(clock.monotonic() >= Duration::from_secs(8));
    }
}
