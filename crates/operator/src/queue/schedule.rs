//! The schedule of reconciliations. Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use lanyard_clock::{Backoff, period_with_jitter, requested_delay_with_jitter};

/// Schedules reconciliations of many keys. No key runs twice at the same time, and the key that has been
/// due longest runs first.
#[derive(Debug)]
pub(crate) struct ReconcileSchedule<K> {
    items: HashMap<K, ScheduleEntry>,
    /// The keys that are not running, by due time.
    idle: BTreeSet<(Duration, u64, K)>,
    last_sequence: u64,
}

/// Why a key is reconciled sooner than planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconcileTrigger {
    /// The spec changed: reconcile immediately and reset the failure back-off.
    SpecChanged,
    /// A related object changed: reconcile immediately, unless the last reconciliation failed or there
    /// were many recently. Then a delay applies, so that a client that keeps changing an object does not
    /// keep the workers busy, while a failing write does not suppress status reports.
    RelatedChanged,
}

/// When to reconcile again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// Immediately: there is more to do.
    Now,
    /// Success: after this delay, with jitter.
    After(Duration),
    /// Success, with a known change after this delay.
    At(Duration),
    /// A transient failure: after 1 s, with exponential back-off up to 10 s.
    RetrySoon,
    /// The API server asked for this delay.
    RetryAfter(Duration),
    /// A failure that needs an administrator: after 30 s, with exponential back-off up to 10 min.
    RetrySlowly,
    /// Nothing to do until the spec changes: after an hour, in case a watch missed the change.
    OnChange,
}

/// The id of a running reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReconcileId(u64);

#[derive(Debug)]
struct ScheduleEntry {
    due: Duration,
    sequence: u64,
    failures: u32,
    /// A related change does not trigger a reconciliation before this time.
    not_before: Duration,
    /// The end of the started reconciliations at the pace of [`RECONCILE_SPACING`].
    paced_until: Duration,
    running: Option<ReconcileId>,
    /// The trigger that arrived during the running reconciliation.
    pending_trigger: Option<ReconcileTrigger>,
}

impl<K> Default for ReconcileSchedule<K> {
    fn default() -> Self {
        Self { items: HashMap::new(), idle: BTreeSet::new(), last_sequence: 0 }
    }
}

impl<K: Clone + Eq + Hash + Ord> ReconcileSchedule<K> {
    /// Reconciles the key sooner because of a trigger.
    pub(crate) fn trigger(&mut self, key: &K, trigger: ReconcileTrigger, now: Duration) {
        let tick = self.next_sequence();
        let Some(item) = self.items.get_mut(key) else {
            self.items.insert(key.clone(), ScheduleEntry::new(now, tick));
            self.idle.insert((now, tick, key.clone()));
            return;
        };
        if item.running.is_some() {
            if item.pending_trigger != Some(ReconcileTrigger::SpecChanged) {
                item.pending_trigger = Some(trigger);
            }
            return;
        }
        let soonest = match trigger {
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

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(item) = self.items.remove(key) {
            self.idle.remove(&(item.due, item.sequence, key.clone()));
        }
    }

    /// Starts the reconciliation of the key that has been due longest.
    pub(crate) fn start_next(&mut self, now: Duration) -> Option<(K, ReconcileId)> {
        let first = self.idle.first().filter(|(due, ..)| *due <= now)?.clone();
        self.idle.remove(&first);
        let (.., key) = first;
        let reconcile_id = ReconcileId(self.next_sequence());
        let item = self.items.get_mut(&key)?;
        (item.running, item.pending_trigger) = (Some(reconcile_id), None);
        item.paced_until = item.paced_until.max(now).saturating_add(RECONCILE_SPACING);
        Some((key, reconcile_id))
    }

    /// Ends a reconciliation and schedules the next one; `chance` (0 to 1) adds jitter. Returns the number
    /// of consecutive failures.
    pub(crate) fn finish(
        &mut self,
        key: &K,
        reconcile_id: ReconcileId,
        requeue: Requeue,
        now: Duration,
        chance: f64,
    ) -> u32 {
        let Some(item) = self.items.get_mut(key).filter(|item| item.running == Some(reconcile_id))
        else {
            return 0;
        };
        item.running = None;
        let failed = !matches!(requeue, Requeue::Now | Requeue::After(_) | Requeue::At(_));
        item.failures = if failed { item.failures.saturating_add(1) } else { 0 };
        let mut due = now.saturating_add(requeue_delay(requeue, item.failures, chance));
        let failures = item.failures;
        item.not_before = match requeue {
            _ if !failed => {
                now.max(item.paced_until.saturating_sub(RECONCILE_SPACING * UNSPACED_RECONCILES))
            }
            // A requested delay applies whatever changes.
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

    /// Moves the next reconciliation of a key forward to `due`, if it is scheduled later. A delay that the API
    /// server asked for still applies.
    pub(crate) fn requeue_by(&mut self, key: &K, due: Duration) {
        let Some(item) = self.items.get(key).filter(|item| item.running.is_none()) else { return };
        let soonest = due.max(item.not_before);
        if soonest < item.due {
            self.reschedule(key, soonest);
        }
    }

    /// When the next key is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.idle.first().map(|(due, ..)| *due)
    }

    /// The number of due keys.
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

fn requeue_delay(requeue: Requeue, failures: u32, chance: f64) -> Duration {
    match requeue {
        Requeue::Now => Duration::ZERO,
        Requeue::At(pause) => pause.max(MIN_AT_DELAY),
        Requeue::After(pause) => period_with_jitter(pause, chance),
        Requeue::RetrySoon => SOON_BACKOFF.delay_with_jitter(failures, chance),
        Requeue::RetryAfter(pause) => requested_delay_with_jitter(pause, chance),
        Requeue::RetrySlowly => SLOW_BACKOFF.delay_with_jitter(failures, chance),
        Requeue::OnChange => period_with_jitter(ON_CHANGE_RECHECK, chance),
    }
}

/// The number of reconciliations of one key that related changes may trigger without a delay, and the
/// spacing beyond.
const UNSPACED_RECONCILES: u32 = 20;
const RECONCILE_SPACING: Duration = Duration::from_millis(500);
/// Status times are whole seconds, so a time has passed only when the next second begins.
const MIN_AT_DELAY: Duration = Duration::from_secs(1);
/// The back-off limits of HyperShift's controllers.
const SOON_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
const SLOW_BACKOFF: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));
/// The delay of a related change after a failed reconciliation.
const RELATED_CHANGE_DELAY: Duration = Duration::from_secs(5);
const ON_CHANGE_RECHECK: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
