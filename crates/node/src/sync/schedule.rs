//! Schedules reconciles. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use lanyard_clock::{Backoff, period_with_jitter};

/// The namespace and name of a pod status.
pub(super) type PodStatusKey = (String, String);

/// The time of the next reconcile of each pod status.
#[derive(Debug, Default)]
pub(super) struct SecretSyncSchedule {
    items: BTreeMap<PodStatusKey, ScheduledPodStatus>,
    last_attempt_id: u64,
}

/// A running reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretSyncAttempt {
    pub(super) key: PodStatusKey,
    /// Distinguishes it from a reconcile of an earlier status with the same name.
    id: u64,
}

#[derive(Debug, Default)]
struct ScheduledPodStatus {
    due: Duration,
    failures: u32,
    /// The running reconcile, if there is one.
    running_attempt: Option<u64>,
    /// Whether something changed since the reconcile started.
    changed_since_start: bool,
}

impl SecretSyncSchedule {
    /// Schedules a reconcile after a change: now, or as soon as the running reconcile has finished.
    pub(super) fn schedule_now(&mut self, key: PodStatusKey, now: Duration) {
        let item = self.items.entry(key).or_default();
        item.due = now;
        item.failures = 0;
        item.changed_since_start = true;
    }

    /// Removes a pod status.
    pub(super) fn remove(&mut self, key: &PodStatusKey) {
        self.items.remove(key);
    }

    /// Returns when the next reconcile is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.idle().map(|(_, item)| item.due).min()
    }

    /// Starts the reconcile that has been due the longest. A pod status has at most one running reconcile.
    pub(super) fn start_due(&mut self, now: Duration) -> Option<SecretSyncAttempt> {
        let due = self.idle().filter(|(_, item)| item.due <= now);
        let key = due.min_by_key(|(_, item)| item.due)?.0.clone();
        self.last_attempt_id += 1;
        let item = self.items.get_mut(&key)?;
        item.running_attempt = Some(self.last_attempt_id);
        item.changed_since_start = false;
        Some(SecretSyncAttempt { key, id: self.last_attempt_id })
    }

    /// Records a success: the next reconcile is in five minutes, as upstream, in case another client changed
    /// the Secret.
    pub(super) fn record_success(
        &mut self,
        attempt: &SecretSyncAttempt,
        now: Duration,
        chance: f64,
    ) {
        let Some(item) = self.finish_attempt(attempt) else { return };
        item.failures = 0;
        if !item.changed_since_start {
            item.due = now + period_with_jitter(RECONCILE_INTERVAL, chance);
        }
    }

    /// Records a failure: the next attempt is in five seconds, with a growing back-off. Returns the number of
    /// failures in a row.
    pub(super) fn record_failure(
        &mut self,
        attempt: &SecretSyncAttempt,
        now: Duration,
        chance: f64,
    ) -> u32 {
        let Some(item) = self.finish_attempt(attempt) else { return 0 };
        item.failures = item.failures.saturating_add(1);
        if !item.changed_since_start {
            item.due = now + BACKOFF.delay_with_jitter(item.failures, chance);
        }
        item.failures
    }

    fn idle(&self) -> impl Iterator<Item = (&PodStatusKey, &ScheduledPodStatus)> {
        self.items.iter().filter(|(_, item)| item.running_attempt.is_none())
    }

    fn finish_attempt(&mut self, attempt: &SecretSyncAttempt) -> Option<&mut ScheduledPodStatus> {
        let item = self
            .items
            .get_mut(&attempt.key)
            .filter(|item| item.running_attempt == Some(attempt.id))?;
        item.running_attempt = None;
        Some(item)
    }
}

const RECONCILE_INTERVAL: Duration = Duration::from_mins(5);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), RECONCILE_INTERVAL);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> PodStatusKey {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn longest_due_status_comes_first() {
        let mut schedule = SecretSyncSchedule::default();
        assert_eq!(schedule.next_due(), None);
        schedule.schedule_now(key("b"), 2 * SECOND);
        schedule.schedule_now(key("a"), 3 * SECOND);
        assert_eq!(schedule.next_due(), Some(2 * SECOND));
        assert_eq!(schedule.start_due(SECOND), None);
        let first = schedule.start_due(5 * SECOND).unwrap();
        assert_eq!(first.key, key("b"));
        assert_eq!(schedule.start_due(5 * SECOND).unwrap().key, key("a"));
        assert_eq!((schedule.next_due(), schedule.start_due(5 * SECOND)), (None, None));
        schedule.record_success(&first, 5 * SECOND, 0.0);
        assert_eq!(schedule.next_due(), Some(305 * SECOND));
    }

    #[test]
    fn retries_back_off_until_a_change() {
        let mut schedule = SecretSyncSchedule::default();
        schedule.schedule_now(key("a"), Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let attempt = schedule.start_due(now).unwrap();
            schedule.record_failure(&attempt, now, 0.0);
            let due = schedule.next_due().unwrap();
            pauses.push(due.saturating_sub(now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        schedule.schedule_now(key("a"), SECOND);
        assert_eq!(schedule.next_due(), Some(SECOND));
        let attempt = schedule.start_due(SECOND).unwrap();
        assert_eq!(schedule.record_failure(&attempt, SECOND, 0.0), 1);
    }

    #[test]
    fn change_during_a_reconcile_requeues_the_status() {
        let mut schedule = SecretSyncSchedule::default();
        schedule.schedule_now(key("a"), SECOND);
        let attempt = schedule.start_due(SECOND).unwrap();
        schedule.schedule_now(key("a"), 2 * SECOND);
        assert_eq!(schedule.start_due(2 * SECOND), None, "one reconcile at a time");
        schedule.record_success(&attempt, 3 * SECOND, 0.0);
        assert_eq!(schedule.next_due(), Some(2 * SECOND));
    }

    #[test]
    fn attempt_of_a_removed_status_does_not_affect_its_successor() {
        let mut schedule = SecretSyncSchedule::default();
        schedule.schedule_now(key("a"), SECOND);
        let attempt = schedule.start_due(SECOND).unwrap();
        schedule.remove(&key("a"));
        assert_eq!(schedule.record_failure(&attempt, SECOND, 0.5), 0);
        assert_eq!(schedule.next_due(), None);
        schedule.schedule_now(key("a"), 2 * SECOND);
        schedule.record_success(&attempt, 2 * SECOND, 0.0);
        assert_eq!(schedule.next_due(), Some(2 * SECOND));
    }
}
