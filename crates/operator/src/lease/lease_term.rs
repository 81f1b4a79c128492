//! The terms of the leases that this process holds: until when it may write for which shard.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cluster_key::ClusterKey;

/// The lease terms of this process, by shard. Clones share them.
#[derive(Clone)]
pub(crate) struct LeaseTerms {
    shards: Arc<Mutex<Vec<LeaseTerm>>>,
    /// Notifies subscribers of every acquired or lost shard.
    changes: watch::Sender<u64>,
    /// Whether a first election round has completed, so that unled shards are known to be led elsewhere.
    is_election_complete: Arc<AtomicBool>,
    clock: SharedClock,
}

#[derive(Debug, Clone, Copy, Default)]
struct LeaseTerm {
    /// The end of the term, on this process's clock; `None` if the shard is not led here.
    until: Option<Duration>,
    pending_writes: usize,
}

/// The permission to write for one cluster while its lease is valid.
#[derive(Debug, Clone)]
pub(crate) struct FencingToken {
    lease_terms: LeaseTerms,
    shard: u32,
}

/// A write in progress.
#[derive(Debug)]
pub(crate) struct FencedWrite {
    fencing_token: FencingToken,
    /// The timeout of the write.
    pub(crate) deadline: Duration,
}

impl LeaseTerms {
    /// Lease terms for this number of shards, none of which is led yet.
    pub(crate) fn without_shards(shards: u32, clock: SharedClock) -> Self {
        let count = usize::try_from(shards).unwrap_or(1).max(1);
        let shards = Arc::new(Mutex::new(vec![LeaseTerm::default(); count]));
        let is_election_complete = Arc::new(AtomicBool::new(false));
        Self { shards, changes: watch::Sender::new(0), is_election_complete, clock }
    }

    /// A single shard with a lease term that never ends, for an operator without other replicas.
    pub(crate) fn permanent(clock: SharedClock) -> Self {
        let lease_terms = Self::without_shards(1, clock);
        lease_terms.lead_until(0, Duration::MAX);
        lease_terms
    }

    /// The number of shards.
    pub(crate) fn shards(&self) -> u32 {
        u32::try_from(self.shards.lock().len()).unwrap_or(1)
    }

    /// The number of led shards.
    pub(crate) fn led_count(&self) -> usize {
        (0..self.shards()).filter(|shard| self.is_leading(*shard)).count()
    }

    /// Leads a shard until this time. Notifies subscribers if the shard was not led before.
    pub(crate) fn lead_until(&self, shard: u32, until: Duration) {
        let now = self.clock.monotonic();
        let is_change = self.with_term(shard, |term| {
            let before = term.until.replace(until);
            // In its last second a term permits no write, so clusters triggered then were skipped.
            before.is_none_or(|before| before <= now.saturating_add(MIN_WRITE_DURATION))
        });
        if is_change == Some(true) {
            tracing::info!(shard, "started leading the shard");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Stops leading a shard: no write starts from now on.
    pub(crate) fn stop_leading(&self, shard: u32) {
        if self.with_term(shard, |term| term.until.take()).flatten().is_some() {
            tracing::info!(shard, "stopped leading the shard");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Records that an election round has completed: shards not led here are led elsewhere.
    pub(crate) fn mark_election_complete(&self) {
        if !self.is_election_complete.swap(true, Ordering::SeqCst) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Whether this process leads a cluster, or may do so because no election has completed yet. A term that
    /// is about to end still counts.
    pub(crate) fn may_lead(&self, key: &ClusterKey) -> bool {
        let until = self.with_term(key.shard(self.shards()), |term| term.until).flatten();
        until.is_some() || !self.is_election_complete.load(Ordering::SeqCst)
    }

    /// Whether a shard is led now.
    pub(crate) fn is_leading(&self, shard: u32) -> bool {
        let now = self.clock.monotonic();
        self.with_term(shard, |term| term.until).flatten().is_some_and(|until| now < until)
    }

    /// The shards that are led here. A term that is about to end still counts.
    pub(crate) fn led_shards(&self) -> BTreeSet<u32> {
        let shards = self.shards.lock();
        (0..).zip(shards.iter()).filter(|(_, it)| it.until.is_some()).map(|(it, _)| it).collect()
    }

    /// The number of pending writes for a shard.
    pub(crate) fn pending_write_count(&self, shard: u32) -> usize {
        self.with_term(shard, |term| term.pending_writes).unwrap_or_default()
    }

    /// The fencing token for a cluster; `None` if its shard is not led here.
    pub(crate) fn fencing_token(&self, key: &ClusterKey) -> Option<FencingToken> {
        let token = FencingToken { lease_terms: self.clone(), shard: key.shard(self.shards()) };
        token.remaining().is_some().then_some(token)
    }

    /// Subscribes to changes of the led shards.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn with_term<T>(&self, shard: u32, change: impl FnOnce(&mut LeaseTerm) -> T) -> Option<T> {
        let place = usize::try_from(shard).ok()?;
        self.shards.lock().get_mut(place).map(change)
    }
}

impl FencingToken {
    /// The remaining time of the lease term; `None` once it is too short for a write.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let now = self.lease_terms.clock.monotonic();
        let until = self.lease_terms.with_term(self.shard, |term| term.until).flatten()?;
        until.checked_sub(now).filter(|remaining| *remaining > MIN_WRITE_DURATION)
    }

    /// Starts a write whose timeout ends within the lease term; `None` if the remaining time is too short.
    pub(crate) fn begin_write(&self) -> Option<FencedWrite> {
        let remaining = self.remaining()?;
        self.lease_terms.with_term(self.shard, |term| term.pending_writes += 1)?;
        Some(FencedWrite {
            fencing_token: self.clone(),
            deadline: remaining.min(MAX_WRITE_DURATION),
        })
    }
}

impl Drop for FencedWrite {
    fn drop(&mut self) {
        let end =
            |term: &mut LeaseTerm| term.pending_writes = term.pending_writes.saturating_sub(1);
        self.fencing_token.lease_terms.with_term(self.fencing_token.shard, end);
    }
}

impl fmt::Debug for LeaseTerms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LeaseTerms").field("led", &self.led_count()).finish_non_exhaustive()
    }
}

/// The maximum timeout of one write.
const MAX_WRITE_DURATION: Duration = Duration::from_secs(10);
/// A shorter remaining time permits no write.
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
        let (lease_terms, clock) = lease_terms_with_clock();
        assert!(lease_terms.fencing_token(&harbour_key()).is_none());
        let until = clock.monotonic() + Duration::from_secs(15);
        lease_terms.lead_until(0, until);
        let token = lease_terms.fencing_token(&harbour_key()).unwrap();
        assert_eq!(token.begin_write().unwrap().deadline, MAX_WRITE_DURATION);
        clock.advance(Duration::from_secs(12));
        let write = token.begin_write().unwrap();
        assert!(clock.monotonic() + write.deadline <= until);
        assert_eq!(lease_terms.pending_write_count(0), 1);
        drop(write);
        assert_eq!(lease_terms.pending_write_count(0), 0);
        clock.advance(Duration::from_secs(2));
        assert!(token.begin_write().is_none(), "one second is too short for a write");
        assert!(lease_terms.fencing_token(&harbour_key()).is_none());
    }

    #[test]
    fn released_shard_starts_no_write_before_expiry() {
        let (lease_terms, clock) = lease_terms_with_clock();
        lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        let token = lease_terms.fencing_token(&harbour_key()).unwrap();
        let write = token.begin_write();
        lease_terms.stop_leading(0);
        assert!(token.begin_write().is_none());
        assert_eq!(lease_terms.pending_write_count(0), 1, "the pending write counts");
        drop(write);
    }

    #[test]
    fn acquiring_and_losing_notify_but_renewing_does_not() {
        let (lease_terms, clock) = lease_terms_with_clock();
        let mut changes = lease_terms.subscribe_changes();
        changes.mark_unchanged();
        lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(20));
        assert!(!changes.has_changed().unwrap());
        clock.advance(Duration::from_secs(30));
        lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        assert!(changes.has_changed().unwrap(), "the shard was lost in between");
    }

    #[test]
    fn renewal_in_last_second_notifies_subscribers() {
        let (lease_terms, clock) = lease_terms_with_clock();
        let until = clock.monotonic() + Duration::from_secs(15);
        lease_terms.lead_until(0, until);
        let mut changes = lease_terms.subscribe_changes();
        for (remaining_millis, is_change) in [(1_001, false), (1_000, true), (1, true)] {
            let lasts = until.saturating_sub(clock.monotonic());
            clock.advance(lasts.saturating_sub(Duration::from_millis(remaining_millis)));
            changes.mark_unchanged();
            assert_eq!(
                lease_terms.fencing_token(&harbour_key()).is_none(),
                is_change,
                "{remaining_millis} ms"
            );
            lease_terms.lead_until(0, until);
            assert_eq!(changes.has_changed().unwrap(), is_change, "{remaining_millis} ms");
        }
    }

    #[test]
    fn before_first_election_any_cluster_may_be_led() {
        let (lease_terms, clock) = lease_terms_with_clock();
        let mut changes = lease_terms.subscribe_changes();
        changes.mark_unchanged();
        assert!(lease_terms.may_lead(&harbour_key()));
        lease_terms.mark_election_complete();
        assert!(changes.has_changed().unwrap() && !lease_terms.may_lead(&harbour_key()));
        changes.mark_unchanged();
        lease_terms.mark_election_complete();
        assert!(!changes.has_changed().unwrap(), "the election completes once");
        lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
        clock.advance(Duration::from_secs(20));
        assert!(lease_terms.may_lead(&harbour_key()), "no other holder was observed");
        lease_terms.stop_leading(0);
        assert!(!lease_terms.may_lead(&harbour_key()));
    }

    #[test]
    fn permanent_term_never_expires() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let lease_terms = LeaseTerms::permanent(Arc::new(clock.clone()));
        clock.advance(Duration::from_hours(10_000));
        assert!(lease_terms.fencing_token(&harbour_key()).unwrap().begin_write().is_some());
    }
}
