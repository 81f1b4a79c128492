//! How long this process may write about which shard.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cluster_key::ClusterKey;

/// The shards that this process leads. Clones share it.
#[derive(Clone)]
pub(crate) struct LeaseTerms {
    shards: Arc<Mutex<Vec<LeaseTerm>>>,
    /// Tells of every shard that was won or lost.
    changes: watch::Sender<u64>,
    /// Whether it was found out once who leads what.
    is_election_complete: Arc<AtomicBool>,
    clock: SharedClock,
}

#[derive(Debug, Clone, Copy, Default)]
struct LeaseTerm {
    /// Until when, on this process' clock; nothing while it is somebody else's.
    until: Option<Duration>,
    pending_writes: usize,
}

/// The right to write about one cluster.
#[derive(Debug, Clone)]
pub(crate) struct FencingToken {
    lease_terms: LeaseTerms,
    shard: u32,
}

/// A write that has begun.
#[derive(Debug)]
pub(crate) struct FencedWrite {
    fencing_token: FencingToken,
    /// How long it may take.
    pub(crate) deadline: Duration,
}

impl LeaseTerms {
    /// None of so many shards is led yet.
    pub(crate) fn without_shards(shards: u32, clock: SharedClock) -> Self {
        let count = usize::try_from(shards).unwrap_or(1).max(1);
        let shards = Arc::new(Mutex::new(vec![LeaseTerm::default(); count]));
        let is_election_complete = Arc::new(AtomicBool::new(false));
        Self { shards, changes: watch::Sender::new(0), is_election_complete, clock }
    }

    /// The only shard is led for ever: there is no other replica.
    pub(crate) fn permanent(clock: SharedClock) -> Self {
        let tenures = Self::without_shards(1, clock);
        tenures.lead_until(0, Duration::MAX);
        tenures
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> u32 {
        u32::try_from(self.shards.lock().len()).unwrap_or(1)
    }

    /// How many shards are led.
    pub(crate) fn led_count(&self) -> usize {
        (0..self.shards()).filter(|shard| self.is_leading(*shard)).count()
    }

    /// Leads a shard until then. Tells whether that is news.
    pub(crate) fn lead_until(&self, shard: u32, until: Duration) {
        let now = self.clock.monotonic();
        let is_news = self.with_term(shard, |tenure| {
            let before = tenure.until.replace(until);
            // Whatever came in the last second was left, though the lease had not ended.
            before.is_none_or(|before| before <= now.saturating_add(MIN_WRITE_DURATION))
        });
        if is_news == Some(true) {
            tracing::info!(shard, "leading the shard");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Leads a shard no more: no write begins from now on.
    pub(crate) fn stop_leading(&self, shard: u32) {
        if self.with_term(shard, |tenure| tenure.until.take()).flatten().is_some() {
            tracing::info!(shard, "leading the shard no more");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// It was found out who leads what: what is not led here is led by others.
    pub(crate) fn mark_election_complete(&self) {
        if !self.is_election_complete.swap(true, Ordering::SeqCst) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Whether a cluster is led here, or nobody knows yet who leads it. A lease whose time is short
    /// is not somebody else's.
    pub(crate) fn may_lead(&self, key: &ClusterKey) -> bool {
        let until = self.with_term(key.shard(self.shards()), |tenure| tenure.until).flatten();
        until.is_some() || !self.is_election_complete.load(Ordering::SeqCst)
    }

    /// Whether a shard is led now.
    pub(crate) fn is_leading(&self, shard: u32) -> bool {
        let now = self.clock.monotonic();
        self.with_term(shard, |tenure| tenure.until).flatten().is_some_and(|until| now < until)
    }

    /// The shards that are led here. A lease whose time is short is not somebody else's.
    pub(crate) fn led_shards(&self) -> BTreeSet<u32> {
        let shards = self.shards.lock();
        (0..).zip(shards.iter()).filter(|(_, it)| it.until.is_some()).map(|(it, _)| it).collect()
    }

    /// How many writes about a shard are on their way.
    pub(crate) fn pending_write_count(&self, shard: u32) -> usize {
        self.with_term(shard, |tenure| tenure.pending_writes).unwrap_or_default()
    }

    /// The right to write about a cluster, while its shard is led.
    pub(crate) fn fencing_token(&self, key: &ClusterKey) -> Option<FencingToken> {
        let fence = FencingToken { lease_terms: self.clone(), shard: key.shard(self.shards()) };
        fence.remaining().is_some().then_some(fence)
    }

    /// Ready after each change of what is led.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn with_term<T>(&self, shard: u32, change: impl FnOnce(&mut LeaseTerm) -> T) -> Option<T> {
        let place = usize::try_from(shard).ok()?;
        self.shards.lock().get_mut(place).map(change)
    }
}

impl FencingToken {
    /// How long the shard is led from now; nothing once it is not.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let now = self.lease_terms.clock.monotonic();
        let until = self.lease_terms.with_term(self.shard, |tenure| tenure.until).flatten()?;
        until.checked_sub(now).filter(|left| *left > MIN_WRITE_DURATION)
    }

    /// Begins a write, which ends in time: nobody else leads the shard before that. Nothing where
    /// there is no time left.
    pub(crate) fn begin_write(&self) -> Option<FencedWrite> {
        let left = self.remaining()?;
        self.lease_terms.with_term(self.shard, |tenure| tenure.pending_writes += 1)?;
        Some(FencedWrite { fencing_token: self.clone(), deadline: left.min(MAX_WRITE_DURATION) })
    }
}

impl Drop for FencedWrite {
    fn drop(&mut self) {
        let end = |tenure: &mut LeaseTerm| {
            tenure.pending_writes = tenure.pending_writes.saturating_sub(1)
        };
        self.fencing_token.lease_terms.with_term(self.fencing_token.shard, end);
    }
}

impl fmt::Debug for LeaseTerms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tenures").field("led", &self.led_count()).finish_non_exhaustive()
    }
}

/// How long one write may take.
const MAX_WRITE_DURATION: Duration = Duration::from_secs(10);
/// What is left for less than this is as good as lost.
const MIN_WRITE_DURATION: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use lanyard_clock::{Clock as _, ManualClock};

    use super::*;

    fn harbour_key() -> ClusterKey {
        ClusterKey::of("clusters", "harbour")
    }

    fn lease_terms_with_clock() -> (LeaseTerms, ManualClock) {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        (LeaseTerms::without_shards(1, Arc::new(clock.clone())), clock)
    }

    #[test]
    fn no_write_starts_or_ends_after_lease_expiry() {
        let (tenures, clock) = lease_terms_with_clock();
        assert!(tenures.fencing_token(&harbour_key()).is_none());
        let until = clock.monotonic() + Duration::from_secs(15);
        tenures.lead_until(0, until);
        let fence = tenures.fencing_token(&harbour_key()).unwrap();
        assert_eq!(fence.begin_write().unwrap().deadline, MAX_WRITE_DURATION);
        clock.advance(Duration::from_secs(12));
        let writing = fence.begin_write().unwrap();
        assert!(clock.monotonic() + writing.deadline <= until);
        assert_eq!(tenures.pending_write_count(0), 1);
        drop(writing);
        assert_eq!(tenures.pending_write_count(0), 0);
        clock.advance(Duration::from_secs(2));
        assert!(fence.begin_write().is_none(), "one second is too little");
        assert!(tenures.fencing_token(&harbour_key()).is_none());
    }

    #[test]
    fn released_shard_starts_no_write_before_expiry() {
        let (tenures, clock) = lease_terms_with_clock();
        tenures.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        let fence = tenures.fencing_token(&harbour_key()).unwrap();
        let writing = fence.begin_write();
        tenures.stop_leading(0);
        assert!(fence.begin_write().is_none());
        assert_eq!(tenures.pending_write_count(0), 1, "the write on its way is known");
        drop(writing);
    }

    #[test]
    fn acquiring_and_losing_notify_but_renewing_does_not() {
        let (tenures, clock) = lease_terms_with_clock();
        let mut changes = tenures.subscribe_changes();
        changes.mark_unchanged();
        tenures.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        tenures.lead_until(0, clock.monotonic() + Duration::from_secs(20));
        assert!(!changes.has_changed().unwrap());
        clock.advance(Duration::from_secs(30));
        tenures.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        assert!(changes.has_changed().unwrap(), "it was lost in between");
    }

    #[test]
    fn renewal_in_last_second_notifies_subscribers() {
        let (tenures, clock) = lease_terms_with_clock();
        let until = clock.monotonic() + Duration::from_secs(15);
        tenures.lead_until(0, until);
        let mut changes = tenures.subscribe_changes();
        for (left, is_news) in [(1_001, false), (1_000, true), (1, true)] {
            let lasts = until.saturating_sub(clock.monotonic());
            clock.advance(lasts.saturating_sub(Duration::from_millis(left)));
            changes.mark_unchanged();
            assert_eq!(tenures.fencing_token(&harbour_key()).is_none(), is_news, "{left} ms");
            tenures.lead_until(0, until);
            assert_eq!(changes.has_changed().unwrap(), is_news, "{left} ms");
        }
    }

    #[test]
    fn before_first_election_any_cluster_may_be_led() {
        let (tenures, clock) = lease_terms_with_clock();
        let mut changes = tenures.subscribe_changes();
        changes.mark_unchanged();
        assert!(tenures.may_lead(&harbour_key()));
        tenures.mark_election_complete();
        assert!(changes.has_changed().unwrap() && !tenures.may_lead(&harbour_key()));
        changes.mark_unchanged();
        tenures.mark_election_complete();
        assert!(!changes.has_changed().unwrap(), "it is decided once");
        tenures.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        clock.advance(Duration::from_secs(20));
        assert!(tenures.may_lead(&harbour_key()), "nobody else has been seen to hold it");
        tenures.stop_leading(0);
        assert!(!tenures.may_lead(&harbour_key()));
    }

    #[test]
    fn permanent_term_never_expires() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let tenures = LeaseTerms::permanent(Arc::new(clock.clone()));
        clock.advance(Duration::from_hours(10_000));
        assert!(tenures.fencing_token(&harbour_key()).unwrap().begin_write().is_some());
    }
}
