//! What is looked at when. Pure.

use lanyard_kubernetes::backoff;
use std::collections::BTreeMap;
use std::time::Duration;

/// A pod status: its namespace and its name.
pub(super) type StatusKey = (String, String);

/// When each pod status is looked at again.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    items: BTreeMap<StatusKey, Item>,
    turns: u64,
}

/// A look that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) key: StatusKey,
    /// Tells it from one at another status of the same name.
    turn: u64,
}

#[derive(Debug, Default)]
struct Item {
    due: Duration,
    failures: u32,
    /// The look that has begun and not ended.
    turn: Option<u64>,
    /// Whether something changed since that began.
    changed: bool,
}

impl Schedule {
    /// Something changed: it is looked at at once, or as soon as the look has ended that has begun.
    pub(super) fn hasten(&mut self, key: StatusKey, now: Duration) {
        let item = self.items.entry(key).or_default();
        item.due = now;
        item.failures = 0;
        item.changed = true;
    }

    /// There is nothing to look at any more.
    pub(super) fn remove(&mut self, key: &StatusKey) {
        self.items.remove(key);
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.idle().map(|(_, item)| item.due).min()
    }

    /// Begins a look at the one that is due for longest. None is looked at twice at once.
    pub(super) fn begin(&mut self, now: Duration) -> Option<Look> {
        let due = self.idle().filter(|(_, item)| item.due <= now);
        let key = due.min_by_key(|(_, item)| item.due)?.0.clone();
        self.turns += 1;
        let item = self.items.get_mut(&key)?;
        item.turn = Some(self.turns);
        item.changed = false;
        Some(Look { key, turn: self.turns })
    }

    /// All is well: it is looked at again in five minutes, as upstream does, in case somebody
    /// changed the Secret.
    pub(super) fn settle(&mut self, look: &Look, now: Duration, chance: f64) {
        let Some(item) = self.end(look) else { return };
        item.failures = 0;
        if !item.changed {
            item.due = now + backoff(1, RECHECK, RECHECK, chance / 4.0);
        }
    }

    /// It did not work: it is tried again after five seconds, then ever more rarely. Returns how
    /// often it failed in a row.
    pub(super) fn retry(&mut self, look: &Look, now: Duration, chance: f64) -> u32 {
        let Some(item) = self.end(look) else { return 0 };
        item.failures = item.failures.saturating_add(1);
        if !item.changed {
            item.due = now + backoff(item.failures, FIRST_RETRY, RECHECK, chance);
        }
        item.failures
    }

    fn idle(&self) -> impl Iterator<Item = (&StatusKey, &Item)> {
        self.items.iter().filter(|(_, item)| item.turn.is_none())
    }

    fn end(&mut self, look: &Look) -> Option<&mut Item> {
        let item = self.items.get_mut(&look.key).filter(|item| item.turn == Some(look.turn))?;
        item.turn = None;
        Some(item)
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
        assert_eq!(schedule.begin(SECOND), None);
        let first = schedule.begin(5 * SECOND).unwrap();
        assert_eq!(first.key, key("b"));
        assert_eq!(schedule.begin(5 * SECOND).unwrap().key, key("a"));
        assert_eq!((schedule.next_due(), schedule.begin(5 * SECOND)), (None, None));
        schedule.settle(&first, 5 * SECOND, 0.0);
        assert_eq!(schedule.next_due(), Some(305 * SECOND));
    }

    #[test]
    fn retries_become_rare_and_a_change_ends_the_wait() {
        let mut schedule = Schedule::default();
        schedule.hasten(key("a"), Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let look = schedule.begin(now).unwrap();
            schedule.retry(&look, now, 0.0);
            let due = schedule.next_due().unwrap();
            pauses.push(due.saturating_sub(now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        schedule.hasten(key("a"), SECOND);
        assert_eq!(schedule.next_due(), Some(SECOND));
        let look = schedule.begin(SECOND).unwrap();
        assert_eq!(schedule.retry(&look, SECOND, 0.0), 1);
    }

    #[test]
    fn what_changes_while_it_is_looked_at_is_looked_at_once_more() {
        let mut schedule = Schedule::default();
        schedule.hasten(key("a"), SECOND);
        let look = schedule.begin(SECOND).unwrap();
        schedule.hasten(key("a"), 2 * SECOND);
        assert_eq!(schedule.begin(2 * SECOND), None, "one look at a time");
        schedule.settle(&look, 3 * SECOND, 0.0);
        assert_eq!(schedule.next_due(), Some(2 * SECOND));
    }

    #[test]
    fn a_look_at_what_is_gone_says_nothing_about_its_successor() {
        let mut schedule = Schedule::default();
        schedule.hasten(key("a"), SECOND);
        let look = schedule.begin(SECOND).unwrap();
        schedule.remove(&key("a"));
        assert_eq!(schedule.retry(&look, SECOND, 0.5), 0);
        assert_eq!(schedule.next_due(), None);
        schedule.hasten(key("a"), 2 * SECOND);
        schedule.settle(&look, 2 * SECOND, 0.0);
        assert_eq!(schedule.next_due(), Some(2 * SECOND));
    }
}
