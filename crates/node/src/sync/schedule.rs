//! What is looked at when. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kubernetes::call::backoff;

/// A pod status: its namespace and its name.
pub(super) type StatusKey = (String, String);

/// When each pod status is looked at again.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    items: BTreeMap<StatusKey, Item>,
}

#[derive(Debug, Default)]
struct Item {
    due: Duration,
    failures: u32,
}

impl Schedule {
    /// Something changed: it is looked at at once.
    pub(super) fn hasten(&mut self, key: StatusKey, now: Duration) {
        let item = self.items.entry(key).or_default();
        item.due = now;
        item.failures = 0;
    }

    /// There is nothing to look at any more.
    pub(super) fn remove(&mut self, key: &StatusKey) {
        self.items.remove(key);
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.items.values().map(|item| item.due).min()
    }

    /// The one that is due for longest.
    pub(super) fn due(&self, now: Duration) -> Option<StatusKey> {
        let due = self.items.iter().filter(|(_, item)| item.due <= now);
        due.min_by_key(|(_, item)| item.due).map(|(key, _)| key.clone())
    }

    /// All is well: it is looked at again in five minutes, as upstream does, in case somebody
    /// changed the Secret.
    pub(super) fn settle(&mut self, key: &StatusKey, now: Duration, chance: f64) {
        if let Some(item) = self.items.get_mut(key) {
            *item = Item { due: now + backoff(1, RECHECK, RECHECK, chance / 4.0), failures: 0 };
        }
    }

    /// It did not work: it is tried again after five seconds, then ever more rarely. Returns how
    /// often it failed in a row.
    pub(super) fn retry(&mut self, key: &StatusKey, now: Duration, chance: f64) -> u32 {
        let Some(item) = self.items.get_mut(key) else { return 0 };
        item.failures = item.failures.saturating_add(1);
        item.due = now + backoff(item.failures, FIRST_RETRY, RECHECK, chance);
        item.failures
    }
}

const RECHECK: Duration = Duration::from_mins(5);
const FIRST_RETRY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> StatusKey {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn what_is_due_for_longest_comes_first() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next_due(), None);
        schedule.hasten(key("b"), 2 * SECOND);
        schedule.hasten(key("a"), 3 * SECOND);
        assert_eq!(schedule.next_due(), Some(2 * SECOND));
        assert_eq!(schedule.due(SECOND), None);
        assert_eq!(schedule.due(5 * SECOND), Some(key("b")));
        schedule.settle(&key("b"), 5 * SECOND, 0.0);
        assert_eq!(schedule.due(5 * SECOND), Some(key("a")));
        schedule.remove(&key("a"));
        assert_eq!(schedule.next_due(), Some(305 * SECOND));
    }

    #[test]
    fn retries_become_rare_and_a_change_ends_the_wait() {
        let mut schedule = Schedule::default();
        schedule.hasten(key("a"), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            schedule.retry(&key("a"), Duration::ZERO, 0.0);
            pauses.push(schedule.next_due().unwrap().as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        schedule.hasten(key("a"), SECOND);
        assert_eq!(schedule.next_due(), Some(SECOND));
        assert_eq!(schedule.retry(&key("a"), SECOND, 0.0), 1);
    }

    #[test]
    fn what_is_gone_stays_gone() {
        let mut schedule = Schedule::default();
        schedule.settle(&key("a"), SECOND, 0.5);
        assert_eq!(schedule.retry(&key("a"), SECOND, 0.5), 0);
        assert_eq!(schedule.next_due(), None);
    }
}
