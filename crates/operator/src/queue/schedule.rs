//! When each cluster is looked at. Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use lanyard_kubernetes::backoff;

/// When each of many things is looked at next. None is looked at twice at once, and who is due for
/// longest comes first.
#[derive(Debug)]
pub(crate) struct ReconcileSchedule<K> {
    items: HashMap<K, ScheduleEntry>,
    /// Those that nobody looks at, by the time at which they are due.
    idle: BTreeSet<(Duration, u64, K)>,
    last_sequence: u64,
}

/// Why something is looked at sooner than planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconcileTrigger {
    /// What was asked for changed: at once, and what failed before is forgotten.
    SpecChanged,
    /// Something around it changed: at once, unless the last look failed, or there were many of late.
    /// Then some time after that, so that who changes it again and again does not keep everybody
    /// busy, and what cannot be written does not hide what is told meanwhile.
    RelatedChanged,
}

/// When to look again after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// At once: there is more to do.
    Now,
    /// All is well: after this long, more or less.
    After(Duration),
    /// All is well, and something changes by itself then.
    At(Duration),
    /// It failed and may pass by itself: after 1 s, then ever later, to 10 s.
    RetrySoon,
    /// The API asked to be left alone for this long.
    RetryAfter(Duration),
    /// It failed and somebody has to do something: after 30 s, then ever later, to 10 min.
    RetrySlowly,
    /// It cannot work until the wish changes: a long time, only in case that was missed.
    OnChange,
}

/// A look that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReconcileId(u64);

#[derive(Debug)]
struct ScheduleEntry {
    due: Duration,
    sequence: u64,
    failures: u32,
    /// What changes around it does not bring it up sooner than this.
    not_before: Duration,
    /// When as many looks were due as were begun, at the pace of [`RECONCILE_SPACING`].
    paced_until: Duration,
    running: Option<ReconcileId>,
    /// What came while somebody was looking.
    pending_trigger: Option<ReconcileTrigger>,
}

impl<K> Default for ReconcileSchedule<K> {
    fn default() -> Self {
        Self { items: HashMap::new(), idle: BTreeSet::new(), last_sequence: 0 }
    }
}

impl<K: Clone + Eq + Hash + Ord> ReconcileSchedule<K> {
    /// Something changed.
    pub(crate) fn trigger(&mut self, key: &K, wake: ReconcileTrigger, now: Duration) {
        let tick = self.next_sequence();
        let Some(item) = self.items.get_mut(key) else {
            self.items.insert(key.clone(), ScheduleEntry::new(now, tick));
            self.idle.insert((now, tick, key.clone()));
            return;
        };
        if item.running.is_some() {
            if item.pending_trigger != Some(ReconcileTrigger::SpecChanged) {
                item.pending_trigger = Some(wake);
            }
            return;
        }
        let soonest = match wake {
            ReconcileTrigger::SpecChanged => {
                item.failures = 0;
                now
            }
            ReconcileTrigger::RelatedChanged => now.max(item.not_before),
        };
        if soonest < item.due {
            self.reschedule(key, soonest);
        }
    }

    /// There is nothing to look at any more.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(item) = self.items.remove(key) {
            self.idle.remove(&(item.due, item.sequence, key.clone()));
        }
    }

    /// Begins a look at the one that is due for longest.
    pub(crate) fn start_next(&mut self, now: Duration) -> Option<(K, ReconcileId)> {
        let first = self.idle.first().filter(|(due, ..)| *due <= now)?.clone();
        self.idle.remove(&first);
        let (.., key) = first;
        let turn = ReconcileId(self.next_sequence());
        let item = self.items.get_mut(&key)?;
        (item.running, item.pending_trigger) = (Some(turn), None);
        item.paced_until = item.paced_until.max(now).saturating_add(RECONCILE_SPACING);
        Some((key, turn))
    }

    /// Ends a look; `chance` (0 to 1) spreads those that ended at one time. Returns how often it
    /// failed in a row.
    pub(crate) fn finish(
        &mut self,
        key: &K,
        turn: ReconcileId,
        again: Requeue,
        now: Duration,
        chance: f64,
    ) -> u32 {
        let Some(item) = self.items.get_mut(key).filter(|item| item.running == Some(turn)) else {
            return 0;
        };
        item.running = None;
        let failed = !matches!(again, Requeue::Now | Requeue::After(_) | Requeue::At(_));
        item.failures = if failed { item.failures.saturating_add(1) } else { 0 };
        let mut due = now.saturating_add(requeue_delay(again, item.failures, chance));
        let failures = item.failures;
        item.not_before = match again {
            _ if !failed => {
                now.max(item.paced_until.saturating_sub(RECONCILE_SPACING * UNSPACED_RECONCILES))
            }
            // Whatever changes: this was asked for.
            Requeue::RetryAfter(_) => due,
            _ => due.min(now.saturating_add(RELATED_CHANGE_DELAY)),
        };
        match item.pending_trigger.take() {
            Some(ReconcileTrigger::SpecChanged) => (due, item.failures) = (now, 0),
            Some(ReconcileTrigger::RelatedChanged) => due = due.min(item.not_before),
            None => {}
        }
        let tick = self.next_sequence();
        if let Some(item) = self.items.get_mut(key) {
            (item.due, item.sequence) = (due, tick);
            self.idle.insert((due, tick, key.clone()));
        }
        failures
    }

    /// Looks at one then, if not sooner. What an API asked for is obeyed all the same.
    pub(crate) fn requeue_by(&mut self, key: &K, then: Duration) {
        let Some(item) = self.items.get(key).filter(|item| item.running.is_none()) else { return };
        let soonest = then.max(item.not_before);
        if soonest < item.due {
            self.reschedule(key, soonest);
        }
    }

    /// When the next one is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.idle.first().map(|(due, ..)| *due)
    }

    /// How many are due and wait for somebody to look.
    pub(crate) fn due_count(&self, now: Duration) -> usize {
        self.idle.iter().take_while(|(due, ..)| *due <= now).count()
    }

    fn reschedule(&mut self, key: &K, due: Duration) {
        let tick = self.next_sequence();
        if let Some(item) = self.items.get_mut(key) {
            self.idle.remove(&(item.due, item.sequence, key.clone()));
            (item.due, item.sequence) = (due, tick);
            self.idle.insert((due, tick, key.clone()));
        }
    }

    const fn next_sequence(&mut self) -> u64 {
        self.last_sequence += 1;
        self.last_sequence
    }
}

impl ScheduleEntry {
    const fn new(now: Duration, sequence: u64) -> Self {
        Self {
            due: now,
            sequence,
            failures: 0,
            not_before: now,
            paced_until: Duration::ZERO,
            running: None,
            pending_trigger: None,
        }
    }
}

fn requeue_delay(again: Requeue, failures: u32, chance: f64) -> Duration {
    match again {
        Requeue::Now => Duration::ZERO,
        Requeue::At(pause) => pause.max(MIN_AT_DELAY),
        Requeue::After(pause) => backoff(1, pause, pause, chance / 4.0),
        Requeue::RetrySoon => backoff(failures, MIN_SOON_DELAY, MAX_SOON_DELAY, chance),
        // Never sooner than was asked, and not all at one time.
        Requeue::RetryAfter(pause) => pause.mul_f64(1.0 + chance.clamp(0.0, 1.0) / 4.0),
        Requeue::RetrySlowly => backoff(failures, MIN_SLOW_DELAY, MAX_SLOW_DELAY, chance),
        Requeue::OnChange => backoff(1, ON_CHANGE_RECHECK, ON_CHANGE_RECHECK, chance / 4.0),
    }
}

/// How many looks at one thing are made without a pause because of what is around it, and the pace
/// beyond.
const UNSPACED_RECONCILES: u32 = 20;
const RECONCILE_SPACING: Duration = Duration::from_millis(500);
/// A time that is given in whole seconds is over when the next one begins.
const MIN_AT_DELAY: Duration = Duration::from_secs(1);
/// The reference's limits for a failed look.
const MIN_SOON_DELAY: Duration = Duration::from_secs(1);
const MAX_SOON_DELAY: Duration = Duration::from_secs(10);
const MIN_SLOW_DELAY: Duration = Duration::from_secs(30);
const MAX_SLOW_DELAY: Duration = Duration::from_mins(10);
/// How long after a failed look what changes around it is looked at.
const RELATED_CHANGE_DELAY: Duration = Duration::from_secs(5);
const ON_CHANGE_RECHECK: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
