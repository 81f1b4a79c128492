//! When each cluster is looked at. Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use lanyard_kubernetes::backoff;

/// When each of many things is looked at next. None is looked at twice at once, and who is due for
/// longest comes first.
#[derive(Debug)]
pub(crate) struct Schedule<K> {
    items: HashMap<K, Item>,
    /// Those that nobody looks at, by the time at which they are due.
    idle: BTreeSet<(Duration, u64, K)>,
    ticks: u64,
}

/// Why something is looked at sooner than planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// What was asked for changed: at once, and what failed before is forgotten.
    Wish,
    /// Something around it changed: at once, unless the last look failed, or there were many of late.
    /// Then some time after that, so that who changes it again and again does not keep everybody
    /// busy, and what cannot be written does not hide what is told meanwhile.
    Surroundings,
}

/// When to look again after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// At once: there is more to do.
    Now,
    /// All is well: after this long, more or less.
    In(Duration),
    /// All is well, and something changes by itself then.
    At(Duration),
    /// It failed and may pass by itself: after 1 s, then ever later, to 10 s.
    Soon,
    /// The API asked to be left alone for this long.
    AfterAsked(Duration),
    /// It failed and somebody has to do something: after 30 s, then ever later, to 10 min.
    Slowly,
    /// It cannot work until the wish changes: a long time, only in case that was missed.
    OnChange,
}

/// A look that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(u64);

#[derive(Debug)]
struct Item {
    due: Duration,
    tick: u64,
    failures: u32,
    /// What changes around it does not bring it up sooner than this.
    not_before: Duration,
    /// When as many looks were due as were begun, at the pace of [`SPACING`].
    paced: Duration,
    turn: Option<Turn>,
    /// What came while somebody was looking.
    woken: Option<Wake>,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { items: HashMap::new(), idle: BTreeSet::new(), ticks: 0 }
    }
}

impl<K: Clone + Eq + Hash + Ord> Schedule<K> {
    /// Something changed.
    pub(crate) fn wake(&mut self, key: &K, wake: Wake, now: Duration) {
        let tick = self.tick();
        let Some(item) = self.items.get_mut(key) else {
            self.items.insert(key.clone(), Item::new(now, tick));
            self.idle.insert((now, tick, key.clone()));
            return;
        };
        if item.turn.is_some() {
            if item.woken != Some(Wake::Wish) {
                item.woken = Some(wake);
            }
            return;
        }
        let soonest = match wake {
            Wake::Wish => {
                item.failures = 0;
                now
            }
            Wake::Surroundings => now.max(item.not_before),
        };
        if soonest < item.due {
            self.move_to(key, soonest);
        }
    }

    /// There is nothing to look at any more.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(item) = self.items.remove(key) {
            self.idle.remove(&(item.due, item.tick, key.clone()));
        }
    }

    /// Begins a look at the one that is due for longest.
    pub(crate) fn begin(&mut self, now: Duration) -> Option<(K, Turn)> {
        let first = self.idle.first().filter(|(due, ..)| *due <= now)?.clone();
        self.idle.remove(&first);
        let (.., key) = first;
        let turn = Turn(self.tick());
        let item = self.items.get_mut(&key)?;
        (item.turn, item.woken) = (Some(turn), None);
        item.paced = item.paced.max(now).saturating_add(SPACING);
        Some((key, turn))
    }

    /// Ends a look; `chance` (0 to 1) spreads those that ended at one time. Returns how often it
    /// failed in a row.
    pub(crate) fn end(
        &mut self,
        key: &K,
        turn: Turn,
        again: Again,
        now: Duration,
        chance: f64,
    ) -> u32 {
        let Some(item) = self.items.get_mut(key).filter(|item| item.turn == Some(turn)) else {
            return 0;
        };
        item.turn = None;
        let failed = !matches!(again, Again::Now | Again::In(_) | Again::At(_));
        item.failures = if failed { item.failures.saturating_add(1) } else { 0 };
        let mut due = now.saturating_add(pause(again, item.failures, chance));
        let failures = item.failures;
        item.not_before = match again {
            _ if !failed => now.max(item.paced.saturating_sub(SPACING * UNSPACED)),
            // Whatever changes: this was asked for.
            Again::AfterAsked(_) => due,
            _ => due.min(now.saturating_add(AFTER_FAILURE)),
        };
        match item.woken.take() {
            Some(Wake::Wish) => (due, item.failures) = (now, 0),
            Some(Wake::Surroundings) => due = due.min(item.not_before),
            None => {}
        }
        let tick = self.tick();
        if let Some(item) = self.items.get_mut(key) {
            (item.due, item.tick) = (due, tick);
            self.idle.insert((due, tick, key.clone()));
        }
        failures
    }

    /// Looks at one then, if not sooner. What an API asked for is obeyed all the same.
    pub(crate) fn at_latest(&mut self, key: &K, then: Duration) {
        let Some(item) = self.items.get(key).filter(|item| item.turn.is_none()) else { return };
        let soonest = then.max(item.not_before);
        if soonest < item.due {
            self.move_to(key, soonest);
        }
    }

    /// When the next one is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.idle.first().map(|(due, ..)| *due)
    }

    /// How many are due and wait for somebody to look.
    pub(crate) fn waiting(&self, now: Duration) -> usize {
        self.idle.iter().take_while(|(due, ..)| *due <= now).count()
    }

    fn move_to(&mut self, key: &K, due: Duration) {
        let tick = self.tick();
        if let Some(item) = self.items.get_mut(key) {
            self.idle.remove(&(item.due, item.tick, key.clone()));
            (item.due, item.tick) = (due, tick);
            self.idle.insert((due, tick, key.clone()));
        }
    }

    const fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

impl Item {
    const fn new(now: Duration, tick: u64) -> Self {
        Self {
            due: now,
            tick,
            failures: 0,
            not_before: now,
            paced: Duration::ZERO,
            turn: None,
            woken: None,
        }
    }
}

fn pause(again: Again, failures: u32, chance: f64) -> Duration {
    match again {
        Again::Now => Duration::ZERO,
        Again::At(pause) => pause.max(SHORTEST_AT),
        Again::In(pause) => backoff(1, pause, pause, chance / 4.0),
        Again::Soon => backoff(failures, FIRST_SOON, LONGEST_SOON, chance),
        // Never sooner than was asked, and not all at one time.
        Again::AfterAsked(pause) => pause.mul_f64(1.0 + chance.clamp(0.0, 1.0) / 4.0),
        Again::Slowly => backoff(failures, FIRST_SLOWLY, LONGEST_SLOWLY, chance),
        Again::OnChange => backoff(1, ON_CHANGE, ON_CHANGE, chance / 4.0),
    }
}

/// How many looks at one thing are made without a pause because of what is around it, and the pace
/// beyond.
const UNSPACED: u32 = 20;
const SPACING: Duration = Duration::from_millis(500);
/// A time that is given in whole seconds is over when the next one begins.
const SHORTEST_AT: Duration = Duration::from_secs(1);
/// The reference's limits for a failed look.
const FIRST_SOON: Duration = Duration::from_secs(1);
const LONGEST_SOON: Duration = Duration::from_secs(10);
const FIRST_SLOWLY: Duration = Duration::from_secs(30);
const LONGEST_SLOWLY: Duration = Duration::from_mins(10);
/// How long after a failed look what changes around it is looked at.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
const ON_CHANGE: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
