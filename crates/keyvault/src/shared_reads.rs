//! Coalesces reads: a request joins an equal read in flight, or gets a recent value that is fresh enough.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use lanyard_azure::RequestPriority;
use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::error::VaultReadError;
use crate::memory::{CacheMemory, CacheReserveError, MemoryFootprint, UnlimitedMemory};

/// The required freshness of a value, and the priority of the read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// The priority of the read in the vault's queue.
    pub priority: RequestPriority,
    /// The maximum age of a cached value, from the start of its read; zero requires a new read.
    pub max_age: Duration,
    /// The lower bound of the maximum age for an object with a known renewal or expiry time: close to that
    /// time, the maximum age shrinks to an eighth of the remaining time.
    pub max_age_near_renewal: Duration,
}

impl Freshness {
    /// A fixed maximum age, regardless of the object's renewal and expiry times.
    pub const fn with_max_age(priority: RequestPriority, max_age: Duration) -> Self {
        Self { priority, max_age, max_age_near_renewal: max_age }
    }

    /// The maximum age of a cached object: an eighth of the time to, or since, its nearest renewal or expiry, but
    /// at least `max_age_near_renewal` and at most `max_age`. Without such a time it is `max_age`.
    pub(crate) fn max_age_for(self, time_to_nearest_change: Option<Duration>) -> Duration {
        let near = time_to_nearest_change.map(|time| (time / 8).max(self.max_age_near_renewal));
        near.map_or(self.max_age, |near| near.min(self.max_age))
    }
}

/// A value, and when its read started.
#[derive(Debug)]
pub(crate) struct SharedRead<V> {
    pub(crate) value: Arc<V>,
    started: ReadStart,
}

impl<V> SharedRead<V> {
    /// When the read started; equal for all callers that share it.
    pub(crate) fn read_at(&self) -> Timestamp {
        self.started.wall_time
    }
}

/// The start of a read on both clocks.
#[derive(Debug, Clone, Copy)]
struct ReadStart {
    /// Monotonic time, for comparisons between reads.
    monotonic: Duration,
    /// Wall time, for records that outlive the process.
    wall_time: Timestamp,
}

/// Not derived, because that would require `V: Clone`.
impl<V> Clone for SharedRead<V> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), started: self.started }
    }
}

pub(crate) type SharedReadResult<V> = Result<SharedRead<V>, Arc<VaultReadError>>;

/// Shared reads by key. Clones share the state.
pub(crate) struct SharedReads<K, V> {
    clock: SharedClock,
    /// The minimum time for which a value is cached; longer if a caller accepts older values.
    retention: Duration,
    memory: Arc<dyn CacheMemory>,
    slots: Arc<ReadSlots<K, V>>,
    /// The number of the next read. The sequence spans all slots: a slot that was removed and recreated must
    /// not reuse the number of a finished read.
    next_read_number: AtomicU64,
}

type ReadSlots<K, V> = Mutex<HashMap<K, ReadSlot<V>>>;

/// The state of one key.
struct ReadSlot<V> {
    value: Option<CachedRead<V>>,
    last_failure: Option<FailedRead>,
    /// The start of the last denied read: values that were read before it must not be served.
    last_denied_at: Option<Duration>,
    in_flight: Vec<InFlightRead<V>>,
    /// How long the value is cached: the greatest maximum age that a caller accepted.
    retention: Duration,
}

/// A cached value, and its memory reservation.
struct CachedRead<V> {
    shared: SharedRead<V>,
    /// Released when the value is dropped.
    reservation: CacheReservation,
}

struct CacheReservation {
    memory: Arc<dyn CacheMemory>,
    bytes: u64,
}

impl Drop for CacheReservation {
    fn drop(&mut self) {
        self.memory.release_cache_memory(self.bytes);
    }
}

/// The last failed read.
struct FailedRead {
    failed_at: Duration,
    /// The priority of the failed read: a caller with a higher one might have succeeded.
    priority: RequestPriority,
    error: Arc<VaultReadError>,
}

struct InFlightRead<V> {
    number: u64,
    started: ReadStart,
    priority: RequestPriority,
    outcome: Arc<watch::Sender<Option<SharedReadResult<V>>>>,
    /// `None` until the task has been spawned.
    task: Option<AbortHandle>,
}

impl<V> Default for ReadSlot<V> {
    fn default() -> Self {
        let keep = Duration::ZERO;
        let (value, failure, refused_at, flights) = (None, None, None, Vec::new());
        Self {
            value,
            last_failure: failure,
            last_denied_at: refused_at,
            in_flight: flights,
            retention: keep,
        }
    }
}

impl<K, V> SharedReads<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: MemoryFootprint + Send + Sync + 'static,
{
    pub(crate) fn new(clock: SharedClock, retention: Duration) -> Self {
        let memory = Arc::new(UnlimitedMemory);
        Self {
            clock,
            retention,
            memory,
            slots: Arc::default(),
            next_read_number: AtomicU64::new(0),
        }
    }

    /// Sets the memory account of the cache.
    pub(crate) fn set_cache_memory(&mut self, memory: Arc<dyn CacheMemory>) {
        self.memory = memory;
    }

    /// Drops the oldest values until `bytes` are freed or the cache is empty. Returns the number of freed
    /// bytes.
    pub(crate) fn evict(&self, bytes: u64) -> u64 {
        evict_oldest(&mut self.slots.lock(), bytes)
    }

    /// Returns the value of `key`: a cached one that is fresh enough, or the result of `fetch`. The read
    /// continues after its first caller is dropped, as long as another caller waits. `distance` gives
    /// the distance of a value's next renewal or expiry.
    pub(crate) async fn read(
        &self,
        key: K,
        freshness: Freshness,
        distance: impl Fn(&V) -> Option<Duration>,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<V, VaultReadError>>,
    ) -> SharedReadResult<V> {
        let mut outcome = match self.join_or_start(key, freshness, distance, fetch) {
            JoinResult::Ready(outcome) => return outcome,
            JoinResult::Waiting(outcome) => outcome,
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => {
                outcome.clone().unwrap_or_else(|| Err(Arc::new(VaultReadError::Interrupted)))
            }
            Err(_closed) => Err(Arc::new(VaultReadError::Interrupted)),
        }
    }

    fn join_or_start(
        &self,
        key: K,
        freshness: Freshness,
        distance: impl Fn(&V) -> Option<Duration>,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<V, VaultReadError>>,
    ) -> JoinResult<V> {
        let now = self.clock.monotonic();
        let mut slots = self.slots.lock();
        let slot = slots.entry(key.clone()).or_default();
        if let Some(outcome) = slot.fresh_outcome(now, freshness, distance) {
            return JoinResult::Ready(outcome);
        }
        if let Some(read) = slot.in_flight.iter().find(|read| read.satisfies(now, freshness)) {
            return JoinResult::Waiting(read.outcome.subscribe());
        }
        slot.retention = slot.retention.max(self.retention).max(freshness.max_age);
        let number = self.next_read_number.fetch_add(1, Ordering::Relaxed);
        let (sender, outcome) = watch::channel(None);
        let sender = Arc::new(sender);
        let asked = ReadStart { monotonic: now, wall_time: self.clock.now() };
        let priority = freshness.priority;
        slot.in_flight.push(InFlightRead {
            number,
            started: asked,
            priority,
            outcome: Arc::clone(&sender),
            task: None,
        });
        let (slots, clock) = (Arc::clone(&self.slots), Arc::clone(&self.clock));
        let memory = Arc::clone(&self.memory);
        let completion =
            ReadCompletionGuard { key, number, started: asked, priority, slots, clock, memory };
        let (fetched, limit) = (fetch(), self.clock.sleep(READ_TIMEOUT));
        let task = tokio::spawn(async move {
            tokio::select! {
                outcome = fetched => completion.complete(outcome),
                () = limit => completion.complete(Err(VaultReadError::TimedOut { limit: READ_TIMEOUT })),
                // The memory for the value belonged to the callers.
                () = completion.wait_until_abandoned(&sender) => {}
            }
        });
        if let Some(read) = slot.in_flight.iter_mut().find(|read| read.number == number) {
            read.task = Some(task.abort_handle());
        }
        JoinResult::Waiting(outcome)
    }

    /// The number of cached values.
    #[cfg(test)]
    pub(crate) fn cached_value_count(&self) -> usize {
        self.slots.lock().values().filter(|slot| slot.value.is_some()).count()
    }
}

enum JoinResult<V> {
    Ready(SharedReadResult<V>),
    Waiting(watch::Receiver<Option<SharedReadResult<V>>>),
}

impl<V> ReadSlot<V> {
    fn fresh_outcome(
        &self,
        now: Duration,
        freshness: Freshness,
        distance: impl Fn(&V) -> Option<Duration>,
    ) -> Option<SharedReadResult<V>> {
        let within = |since: Duration, limit: Duration| {
            !limit.is_zero() && now.saturating_sub(since) <= limit
        };
        if let Some(CachedRead { shared, .. }) = &self.value
            && within(shared.started.monotonic, freshness.max_age_for(distance(&shared.value)))
        {
            return Some(Ok(shared.clone()));
        }
        let failure = self.last_failure.as_ref()?;
        if failure.priority > freshness.priority {
            return None;
        }
        let serves = within(failure.failed_at, freshness.max_age.min(FAILURE_MAX_AGE));
        serves.then(|| Err(Arc::clone(&failure.error)))
    }

    /// Stores the result of a read, unless a newer value is present. A value without a memory reservation is
    /// not cached.
    fn store_outcome(
        &mut self,
        now: Duration,
        read: (Duration, RequestPriority),
        outcome: &SharedReadResult<V>,
        taken: Option<CacheReservation>,
    ) {
        let (started_at, priority) = read;
        match outcome {
            Ok(value) => {
                let asked = self.value.as_ref().map(|old| old.shared.started.monotonic);
                let is_newest = asked.is_none_or(|asked| asked <= started_at);
                let is_refused = self.last_denied_at.is_some_and(|refused| started_at <= refused);
                if is_newest && !is_refused {
                    let cached = |taken| CachedRead { shared: value.clone(), reservation: taken };
                    (self.value, self.last_failure) = (taken.map(cached), None);
                }
            }
            Err(error) => {
                if error.is_denied() {
                    self.last_denied_at = self.last_denied_at.max(Some(started_at));
                    self.value.take_if(|value| value.shared.started.monotonic <= started_at);
                }
                // The credential caches its own failures, and clears them when it gets a newer token.
                if !matches!(**error, VaultReadError::Token { .. }) {
                    let error = Arc::clone(error);
                    self.last_failure = Some(FailedRead { failed_at: now, priority, error });
                }
            }
        }
    }

    /// Drops expired state; returns `true` if nothing is left.
    fn drop_expired(&mut self, now: Duration) -> bool {
        self.value
            .take_if(|value| now.saturating_sub(value.shared.started.monotonic) >= self.retention);
        self.last_failure
            .take_if(|failure| now.saturating_sub(failure.failed_at) > FAILURE_MAX_AGE);
        self.is_empty()
    }

    /// Whether the slot contains at most a denial.
    fn is_empty(&self) -> bool {
        self.value.is_none() && self.last_failure.is_none() && self.in_flight.is_empty()
    }
}

impl<V> InFlightRead<V> {
    /// Whether a caller may join this read: the read must not predate a caller that requires a new one, and
    /// must not have a lower priority than the caller.
    fn satisfies(&self, now: Duration, freshness: Freshness) -> bool {
        let new_enough = !freshness.max_age.is_zero() || self.started.monotonic >= now;
        new_enough && self.priority <= freshness.priority
    }
}

/// Completes a read. If it is dropped before that, it removes the read from its slot, so that no caller waits
/// for it.
struct ReadCompletionGuard<
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: MemoryFootprint + Send + Sync + 'static,
> {
    key: K,
    number: u64,
    started: ReadStart,
    priority: RequestPriority,
    slots: Arc<ReadSlots<K, V>>,
    clock: SharedClock,
    memory: Arc<dyn CacheMemory>,
}

impl<K, V> ReadCompletionGuard<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: MemoryFootprint + Send + Sync + 'static,
{
    /// Returns when no caller waits for the read. No caller joins it afterwards.
    async fn wait_until_abandoned(&self, outcome: &watch::Sender<Option<SharedReadResult<V>>>) {
        loop {
            outcome.closed().await;
            let mut slots = self.slots.lock();
            // Callers join under this lock.
            if outcome.receiver_count() == 0 {
                self.remove_in_flight(&mut slots);
                return;
            }
        }
    }

    /// Removes the read from its slot, and removes an empty slot, because tenants choose the keys.
    fn remove_in_flight(&self, slots: &mut HashMap<K, ReadSlot<V>>) {
        let Some(slot) = slots.get_mut(&self.key) else { return };
        slot.in_flight.retain(|read| read.number != self.number);
        if slot.is_empty() {
            slots.remove(&self.key);
        }
    }

    fn complete(&self, outcome: Result<V, VaultReadError>) {
        let started_at = self.started.monotonic;
        let outcome: SharedReadResult<V> = match outcome {
            Ok(value) => Ok(SharedRead { value: Arc::new(value), started: self.started }),
            Err(error) => Err(Arc::new(error)),
        };
        let finished_at = self.clock.monotonic();
        let (served, keep) = {
            let mut slots = self.slots.lock();
            let weight = outcome.as_ref().ok().map(|shared| shared.value.footprint_bytes());
            let taken = weight.and_then(|weight| self.reserve_cache_memory(&mut slots, weight));
            let Some(slot) = slots.get_mut(&self.key) else { return };
            slot.store_outcome(finished_at, (started_at, self.priority), &outcome, taken);
            // A newer value also serves earlier callers; a failure applies to its own callers only.
            let (served, others): (Vec<_>, Vec<_>) = slot.in_flight.drain(..).partition(|read| {
                read.number == self.number
                    || (outcome.is_ok() && read.started.monotonic <= started_at)
            });
            slot.in_flight = others;
            (served, slot.retention)
        };
        for read in served {
            read.outcome.send_replace(Some(outcome.clone()));
            if read.number != self.number
                && let Some(task) = read.task
            {
                task.abort();
            }
        }
        self.schedule_expiry(keep);
    }

    /// Reserves memory for a value, and evicts older values if necessary.
    fn reserve_cache_memory(
        &self,
        slots: &mut HashMap<K, ReadSlot<V>>,
        weight: u64,
    ) -> Option<CacheReservation> {
        if weight > self.memory.limit_bytes() {
            return None;
        }
        while let Err(reserve_error) = self.memory.reserve_cache_memory(weight) {
            // On a full node, a waiting read would take any freed memory.
            if reserve_error == CacheReserveError::NodeFull {
                return None;
            }
            // Evict more than is needed now, because an eviction scans all values.
            let bytes = weight.max(self.memory.limit_bytes() / EVICTION_DIVISOR);
            if evict_oldest(slots, bytes) == 0 {
                return None;
            }
        }
        Some(CacheReservation { memory: Arc::clone(&self.memory), bytes: weight })
    }

    /// Schedules a task that drops values when they expire.
    fn schedule_expiry(&self, keep: Duration) {
        let (key, clock) = (self.key.clone(), Arc::clone(&self.clock));
        let slots = Arc::downgrade(&self.slots);
        drop(tokio::spawn(async move {
            clock.sleep(keep.max(FAILURE_MAX_AGE)).await;
            let Some(slots) = slots.upgrade() else { return };
            let now = clock.monotonic();
            let mut slots = slots.lock();
            if slots.get_mut(&key).is_some_and(|slot| slot.drop_expired(now)) {
                slots.remove(&key);
            }
        }));
    }
}

impl<K, V> Drop for ReadCompletionGuard<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: MemoryFootprint + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.remove_in_flight(&mut self.slots.lock());
    }
}

impl<K, V> fmt::Debug for SharedReads<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedReads")
            .field("keys", &self.slots.lock().len())
            .finish_non_exhaustive()
    }
}

/// Drops the values with the oldest reads until `bytes` are freed or the cache is empty. Returns the number
/// of freed bytes.
fn evict_oldest<K, V>(slots: &mut HashMap<K, ReadSlot<V>>, bytes: u64) -> u64 {
    let mut cached: Vec<_> = slots.values_mut().filter(|slot| slot.value.is_some()).collect();
    cached.sort_by_key(|slot| slot.value.as_ref().map(|value| value.shared.started.monotonic));
    let mut evicted = 0_u64;
    for slot in cached {
        if evicted >= bytes {
            break;
        }
        let value = slot.value.take();
        evicted = evicted.saturating_add(value.map_or(0, |value| value.reservation.bytes));
    }
    slots.retain(|_, slot| !slot.is_empty());
    evicted
}

/// The fraction of a full cache that one eviction frees.
const EVICTION_DIVISOR: u64 = 8;
/// The timeout of a read with all its retries: shorter than the kubelet's, so that the waiting call reports
/// the cause, and a later call starts a new read.
const READ_TIMEOUT: Duration = Duration::from_secs(80);
/// How long a failure is cached. Short, because an operator may be fixing its cause.
const FAILURE_MAX_AGE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
