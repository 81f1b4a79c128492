//! How long this process may write about which shard.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::key::ClusterKey;

/// The shards that this process leads. Clones share it.
#[derive(Clone)]
pub(crate) struct Tenures {
    shards: Arc<Mutex<Vec<Tenure>>>,
    /// Tells of every shard that was won or lost.
    changes: watch::Sender<u64>,
    /// Whether it was found out once who leads what.
    is_decided: Arc<AtomicBool>,
    clock: SharedClock,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tenure {
    /// Until when, on this process' clock; nothing while it is somebody else's.
    until: Option<Duration>,
    writes: usize,
}

/// The right to write about one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    tenures: Tenures,
    shard: u32,
}

/// A write that has begun.
#[derive(Debug)]
pub(crate) struct Writing {
    fence: Fence,
    /// How long it may take.
    pub(crate) deadline: Duration,
}

impl Tenures {
    /// None of so many shards is led yet.
    pub(crate) fn none(shards: u32, clock: SharedClock) -> Self {
        let count = usize::try_from(shards).unwrap_or(1).max(1);
        let shards = Arc::new(Mutex::new(vec![Tenure::default(); count]));
        let is_decided = Arc::new(AtomicBool::new(false));
        Self { shards, changes: watch::Sender::new(0), is_decided, clock }
    }

    /// The only shard is led for ever: there is no other replica.
    pub(crate) fn for_ever(clock: SharedClock) -> Self {
        let tenures = Self::none(1, clock);
        tenures.extend(0, Duration::MAX);
        tenures
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> u32 {
        u32::try_from(self.shards.lock().len()).unwrap_or(1)
    }

    /// How many shards are led.
    pub(crate) fn led(&self) -> usize {
        (0..self.shards()).filter(|shard| self.leads(*shard)).count()
    }

    /// Leads a shard until then. Tells whether that is news.
    pub(crate) fn extend(&self, shard: u32, until: Duration) {
        let now = self.clock.monotonic();
        let is_news = self.at(shard, |tenure| {
            let before = tenure.until.replace(until);
            // Whatever came in the last second was left, though the lease had not ended.
            before.is_none_or(|before| before <= now.saturating_add(SHORTEST_WRITE))
        });
        if is_news == Some(true) {
            tracing::info!(shard, "leading the shard");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Leads a shard no more: no write begins from now on.
    pub(crate) fn end(&self, shard: u32) {
        if self.at(shard, |tenure| tenure.until.take()).flatten().is_some() {
            tracing::info!(shard, "leading the shard no more");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// It was found out who leads what: what is not led here is led by others.
    pub(crate) fn decided(&self) {
        if !self.is_decided.swap(true, Ordering::SeqCst) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Whether a cluster is led here, or nobody knows yet who leads it. A lease whose time is short
    /// is not somebody else's.
    pub(crate) fn may_lead(&self, key: &ClusterKey) -> bool {
        let until = self.at(key.shard(self.shards()), |tenure| tenure.until).flatten();
        until.is_some() || !self.is_decided.load(Ordering::SeqCst)
    }

    /// Whether a shard is led now.
    pub(crate) fn leads(&self, shard: u32) -> bool {
        let now = self.clock.monotonic();
        self.at(shard, |tenure| tenure.until).flatten().is_some_and(|until| now < until)
    }

    /// The shards that are led here. A lease whose time is short is not somebody else's.
    pub(crate) fn held(&self) -> BTreeSet<u32> {
        let shards = self.shards.lock();
        (0..).zip(shards.iter()).filter(|(_, it)| it.until.is_some()).map(|(it, _)| it).collect()
    }

    /// How many writes about a shard are on their way.
    pub(crate) fn writes(&self, shard: u32) -> usize {
        self.at(shard, |tenure| tenure.writes).unwrap_or_default()
    }

    /// The right to write about a cluster, while its shard is led.
    pub(crate) fn fence(&self, key: &ClusterKey) -> Option<Fence> {
        let fence = Fence { tenures: self.clone(), shard: key.shard(self.shards()) };
        fence.remaining().is_some().then_some(fence)
    }

    /// Ready after each change of what is led.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn at<T>(&self, shard: u32, change: impl FnOnce(&mut Tenure) -> T) -> Option<T> {
        let place = usize::try_from(shard).ok()?;
        self.shards.lock().get_mut(place).map(change)
    }
}

impl Fence {
    /// How long the shard is led from now; nothing once it is not.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let now = self.tenures.clock.monotonic();
        let until = self.tenures.at(self.shard, |tenure| tenure.until).flatten()?;
        until.checked_sub(now).filter(|left| *left > SHORTEST_WRITE)
    }

    /// Begins a write, which ends in time: nobody else leads the shard before that. Nothing where
    /// there is no time left.
    pub(crate) fn begin(&self) -> Option<Writing> {
        let left = self.remaining()?;
        self.tenures.at(self.shard, |tenure| tenure.writes += 1)?;
        Some(Writing { fence: self.clone(), deadline: left.min(LONGEST_WRITE) })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let end = |tenure: &mut Tenure| tenure.writes = tenure.writes.saturating_sub(1);
        self.fence.tenures.at(self.fence.shard, end);
    }
}

impl fmt::Debug for Tenures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tenures").field("led", &self.led()).finish_non_exhaustive()
    }
}

/// How long one write may take.
const LONGEST_WRITE: Duration = Duration::from_secs(10);
/// What is left for less than this is as good as lost.
const SHORTEST_WRITE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use lanyard_clock::{Clock as _, ManualClock};

    use super::*;

    fn key() -> ClusterKey {
        ClusterKey::of("clusters", "harbour")
    }

    fn tenures() -> (Tenures, ManualClock) {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        (Tenures::none(1, Arc::new(clock.clone())), clock)
    }

    #[test]
    fn no_write_begins_or_ends_after_the_lease() {
        let (tenures, clock) = tenures();
        assert!(tenures.fence(&key()).is_none());
        let until = clock.monotonic() + Duration::from_secs(15);
        tenures.extend(0, until);
        let fence = tenures.fence(&key()).unwrap();
        assert_eq!(fence.begin().unwrap().deadline, LONGEST_WRITE);
        clock.advance(Duration::from_secs(12));
        let writing = fence.begin().unwrap();
        assert!(clock.monotonic() + writing.deadline <= until);
        assert_eq!(tenures.writes(0), 1);
        drop(writing);
        assert_eq!(tenures.writes(0), 0);
        clock.advance(Duration::from_secs(2));
        assert!(fence.begin().is_none(), "one second is too little");
        assert!(tenures.fence(&key()).is_none());
    }

    #[test]
    fn what_is_given_back_begins_no_write_though_its_time_is_not_over() {
        let (tenures, clock) = tenures();
        tenures.extend(0, clock.monotonic() + Duration::from_secs(15));
        let fence = tenures.fence(&key()).unwrap();
        let writing = fence.begin();
        tenures.end(0);
        assert!(fence.begin().is_none());
        assert_eq!(tenures.writes(0), 1, "the write on its way is known");
        drop(writing);
    }

    #[test]
    fn winning_and_losing_is_news_and_renewing_is_not() {
        let (tenures, clock) = tenures();
        let mut changes = tenures.changes();
        changes.mark_unchanged();
        tenures.extend(0, clock.monotonic() + Duration::from_secs(15));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        tenures.extend(0, clock.monotonic() + Duration::from_secs(20));
        assert!(!changes.has_changed().unwrap());
        clock.advance(Duration::from_secs(30));
        tenures.extend(0, clock.monotonic() + Duration::from_secs(15));
        assert!(changes.has_changed().unwrap(), "it was lost in between");
    }

    #[test]
    fn a_renewal_in_the_last_second_is_news_because_nothing_was_written_in_it() {
        let (tenures, clock) = tenures();
        let until = clock.monotonic() + Duration::from_secs(15);
        tenures.extend(0, until);
        let mut changes = tenures.changes();
        for (left, is_news) in [(1_001, false), (1_000, true), (1, true)] {
            let lasts = until.saturating_sub(clock.monotonic());
            clock.advance(lasts.saturating_sub(Duration::from_millis(left)));
            changes.mark_unchanged();
            assert_eq!(tenures.fence(&key()).is_none(), is_news, "{left} ms");
            tenures.extend(0, until);
            assert_eq!(changes.has_changed().unwrap(), is_news, "{left} ms");
        }
    }

    #[test]
    fn before_the_first_election_anything_may_be_led_and_afterwards_what_is_held() {
        let (tenures, clock) = tenures();
        let mut changes = tenures.changes();
        changes.mark_unchanged();
        assert!(tenures.may_lead(&key()));
        tenures.decided();
        assert!(changes.has_changed().unwrap() && !tenures.may_lead(&key()));
        changes.mark_unchanged();
        tenures.decided();
        assert!(!changes.has_changed().unwrap(), "it is decided once");
        tenures.extend(0, clock.monotonic() + Duration::from_secs(15));
        clock.advance(Duration::from_secs(20));
        assert!(tenures.may_lead(&key()), "nobody else has been seen to hold it");
        tenures.end(0);
        assert!(!tenures.may_lead(&key()));
    }

    #[test]
    fn alone_the_right_never_ends() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let tenures = Tenures::for_ever(Arc::new(clock.clone()));
        clock.advance(Duration::from_hours(10_000));
        assert!(tenures.fence(&key()).unwrap().begin().is_some());
    }
}
