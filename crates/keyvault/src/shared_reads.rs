//! One read for everybody who asks for the same: what is under way is joined, and what was read a
//! moment ago is good enough for who says so.

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

/// How new an answer has to be, and who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// Where the read stands among those that wait for the vault.
    pub priority: RequestPriority,
    /// The greatest age of an answer that somebody else asked for; zero for one that nobody has
    /// asked for before.
    pub max_age: Duration,
    /// The least that this shrinks to, for an object that tells of a renewal or an expiry: an
    /// eighth of the time that lies between is old enough then.
    pub max_age_near_renewal: Duration,
}

impl Freshness {
    /// What may be as old as `max_age`, whatever it tells about itself.
    pub const fn with_max_age(priority: RequestPriority, max_age: Duration) -> Self {
        Self { priority, max_age, max_age_near_renewal: max_age }
    }

    /// The greatest age of an object whose next renewal or expiry is `distance` away, or was so
    /// long ago.
    pub(crate) fn max_age_before_change(self, distance: Option<Duration>) -> Duration {
        let near = distance.map(|distance| (distance / 8).max(self.max_age_near_renewal));
        near.map_or(self.max_age, |near| near.min(self.max_age))
    }
}

/// A value, and when it was asked for.
#[derive(Debug)]
pub(crate) struct SharedRead<V> {
    pub(crate) value: Arc<V>,
    started: ReadStart,
}

impl<V> SharedRead<V> {
    /// When it was asked for: the same for everybody who takes it.
    pub(crate) fn read_at(&self) -> Timestamp {
        self.started.wall_time
    }
}

/// When a read began, by both clocks.
#[derive(Debug, Clone, Copy)]
struct ReadStart {
    /// In monotonic time, for whatever compares reads.
    monotonic: Duration,
    /// In wall time, for whoever outlives the process.
    wall_time: Timestamp,
}

/// By hand: a derived one would ask `V` for it.
impl<V> Clone for SharedRead<V> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), started: self.started }
    }
}

pub(crate) type SharedReadResult<V> = Result<SharedRead<V>, Arc<VaultReadError>>;

/// Reads by key. Clones share them.
pub(crate) struct SharedReads<K, V> {
    clock: SharedClock,
    /// How long a value is kept at least; longer where somebody takes older ones.
    retention: Duration,
    memory: Arc<dyn CacheMemory>,
    slots: Arc<ReadSlots<K, V>>,
    /// The number of the next flight. One sequence for all slots: a slot that was removed and made
    /// again must not give out a number that an ended flight still has.
    next_read_number: AtomicU64,
}

type ReadSlots<K, V> = Mutex<HashMap<K, ReadSlot<V>>>;

/// What is known for one key.
struct ReadSlot<V> {
    value: Option<CachedRead<V>>,
    last_failure: Option<FailedRead>,
    /// When the last read that was refused was asked for: what was asked for before it may not be
    /// had any more.
    last_denied_at: Option<Duration>,
    in_flight: Vec<InFlightRead<V>>,
    /// How long the value is kept: the greatest age that anybody took.
    retention: Duration,
}

/// A value that is kept, and the memory that was taken for it.
struct CachedRead<V> {
    shared: SharedRead<V>,
    /// Given back when the value is dropped.
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

/// The last read failed.
struct FailedRead {
    failed_at: Duration,
    /// Whose failure it is: who stands before them might have had an answer.
    priority: RequestPriority,
    error: Arc<VaultReadError>,
}

/// A read under way.
struct InFlightRead<V> {
    number: u64,
    started: ReadStart,
    priority: RequestPriority,
    outcome: Arc<watch::Sender<Option<SharedReadResult<V>>>>,
    /// Nothing until the task has begun.
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

    /// Keeps values only within this memory.
    pub(crate) fn set_cache_memory(&mut self, memory: Arc<dyn CacheMemory>) {
        self.memory = memory;
    }

    /// Drops the oldest values until they take `bytes` less or there are none. Returns how many
    /// bytes they took.
    pub(crate) fn evict(&self, bytes: u64) -> u64 {
        evict_oldest(&mut self.slots.lock(), bytes)
    }

    /// The value of `key`: one that is new enough, or what `fetch` gives. The read goes on when its
    /// first caller has gone, as long as another caller waits. How far away its next change is, a value itself
    /// tells.
    pub(crate) async fn read(
        &self,
        key: K,
        demand: Freshness,
        distance: impl Fn(&V) -> Option<Duration>,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<V, VaultReadError>>,
    ) -> SharedReadResult<V> {
        let mut outcome = match self.join_or_start(key, demand, distance, fetch) {
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
        demand: Freshness,
        distance: impl Fn(&V) -> Option<Duration>,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<V, VaultReadError>>,
    ) -> JoinResult<V> {
        let now = self.clock.monotonic();
        let mut slots = self.slots.lock();
        let slot = slots.entry(key.clone()).or_default();
        if let Some(outcome) = slot.fresh_outcome(now, demand, distance) {
            return JoinResult::Ready(outcome);
        }
        if let Some(flight) = slot.in_flight.iter().find(|flight| flight.satisfies(now, demand)) {
            return JoinResult::Waiting(flight.outcome.subscribe());
        }
        slot.retention = slot.retention.max(self.retention).max(demand.max_age);
        let number = self.next_read_number.fetch_add(1, Ordering::Relaxed);
        let (sender, outcome) = watch::channel(None);
        let sender = Arc::new(sender);
        let asked = ReadStart { monotonic: now, wall_time: self.clock.now() };
        let priority = demand.priority;
        slot.in_flight.push(InFlightRead {
            number,
            started: asked,
            priority,
            outcome: Arc::clone(&sender),
            task: None,
        });
        let (slots, clock) = (Arc::clone(&self.slots), Arc::clone(&self.clock));
        let memory = Arc::clone(&self.memory);
        let landing =
            ReadCompletionGuard { key, number, started: asked, priority, slots, clock, memory };
        let (fetched, limit) = (fetch(), self.clock.sleep(READ_TIMEOUT));
        let task = tokio::spawn(async move {
            tokio::select! {
                outcome = fetched => landing.complete(outcome),
                () = limit => landing.complete(Err(VaultReadError::TimedOut { limit: READ_TIMEOUT })),
                // The memory for its answer belonged to those who waited.
                () = landing.wait_until_abandoned(&sender) => {}
            }
        });
        if let Some(flight) = slot.in_flight.iter_mut().find(|flight| flight.number == number) {
            flight.task = Some(task.abort_handle());
        }
        JoinResult::Waiting(outcome)
    }

    /// How many values are held.
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
        demand: Freshness,
        distance: impl Fn(&V) -> Option<Duration>,
    ) -> Option<SharedReadResult<V>> {
        let within = |since: Duration, limit: Duration| {
            !limit.is_zero() && now.saturating_sub(since) <= limit
        };
        if let Some(CachedRead { shared, .. }) = &self.value
            && within(
                shared.started.monotonic,
                demand.max_age_before_change(distance(&shared.value)),
            )
        {
            return Some(Ok(shared.clone()));
        }
        let failure = self.last_failure.as_ref()?;
        if failure.priority > demand.priority {
            return None;
        }
        let serves = within(failure.failed_at, demand.max_age.min(FAILURE_MAX_AGE));
        serves.then(|| Err(Arc::clone(&failure.error)))
    }

    /// Takes what a flight brought, unless something newer is there. A value for which no memory was
    /// taken is not kept.
    fn store_outcome(
        &mut self,
        now: Duration,
        flight: (Duration, RequestPriority),
        outcome: &SharedReadResult<V>,
        taken: Option<CacheReservation>,
    ) {
        let (asked_at, priority) = flight;
        match outcome {
            Ok(value) => {
                let asked = self.value.as_ref().map(|old| old.shared.started.monotonic);
                let is_newest = asked.is_none_or(|asked| asked <= asked_at);
                let is_refused = self.last_denied_at.is_some_and(|refused| asked_at <= refused);
                if is_newest && !is_refused {
                    let cached = |taken| CachedRead { shared: value.clone(), reservation: taken };
                    (self.value, self.last_failure) = (taken.map(cached), None);
                }
            }
            Err(error) => {
                if error.is_denied() {
                    self.last_denied_at = self.last_denied_at.max(Some(asked_at));
                    self.value.take_if(|value| value.shared.started.monotonic <= asked_at);
                }
                // The credential remembers its own failures, and forgets them when somebody brings
                // it a better proof.
                if !matches!(**error, VaultReadError::Token { .. }) {
                    let error = Arc::clone(error);
                    self.last_failure = Some(FailedRead { failed_at: now, priority, error });
                }
            }
        }
    }

    /// Drops what is too old for anybody; true if nothing is left.
    fn drop_expired(&mut self, now: Duration) -> bool {
        self.value
            .take_if(|value| now.saturating_sub(value.shared.started.monotonic) >= self.retention);
        self.last_failure
            .take_if(|failure| now.saturating_sub(failure.failed_at) > FAILURE_MAX_AGE);
        self.is_empty()
    }

    /// Whether nothing is known but that something was refused.
    fn is_empty(&self) -> bool {
        self.value.is_none() && self.last_failure.is_none() && self.in_flight.is_empty()
    }
}

impl<V> InFlightRead<V> {
    /// What is under way will be as new as anybody asks who takes what is not new; and it must not
    /// stand behind those whom the caller stands before.
    fn satisfies(&self, now: Duration, demand: Freshness) -> bool {
        let new_enough = !demand.max_age.is_zero() || self.started.monotonic >= now;
        new_enough && self.priority <= demand.priority
    }
}

/// What becomes of a flight. Dropped without landing, it takes the flight out of its slot, so that
/// nobody waits for it.
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
    /// Returns when no caller waits for the read any more. No caller joins it after that.
    async fn wait_until_abandoned(&self, outcome: &watch::Sender<Option<SharedReadResult<V>>>) {
        loop {
            outcome.closed().await;
            let mut slots = self.slots.lock();
            // Who joins does so under this lock.
            if outcome.receiver_count() == 0 {
                self.remove_in_flight(&mut slots);
                return;
            }
        }
    }

    /// Takes the flight out of its slot, and removes the slot if nothing is left in it: tenants
    /// choose the keys.
    fn remove_in_flight(&self, slots: &mut HashMap<K, ReadSlot<V>>) {
        let Some(slot) = slots.get_mut(&self.key) else { return };
        slot.in_flight.retain(|flight| flight.number != self.number);
        if slot.is_empty() {
            slots.remove(&self.key);
        }
    }

    fn complete(&self, outcome: Result<V, VaultReadError>) {
        let asked_at = self.started.monotonic;
        let outcome: SharedReadResult<V> = match outcome {
            Ok(value) => Ok(SharedRead { value: Arc::new(value), started: self.started }),
            Err(error) => Err(Arc::new(error)),
        };
        let landed_at = self.clock.monotonic();
        let (served, keep) = {
            let mut slots = self.slots.lock();
            let weight = outcome.as_ref().ok().map(|shared| shared.value.footprint_bytes());
            let taken = weight.and_then(|weight| self.reserve_cache_memory(&mut slots, weight));
            let Some(slot) = slots.get_mut(&self.key) else { return };
            slot.store_outcome(landed_at, (asked_at, self.priority), &outcome, taken);
            // A newer value serves those who asked before; a failure is one's own.
            let (served, others): (Vec<_>, Vec<_>) = slot.in_flight.drain(..).partition(|flight| {
                flight.number == self.number
                    || (outcome.is_ok() && flight.started.monotonic <= asked_at)
            });
            slot.in_flight = others;
            (served, slot.retention)
        };
        for flight in served {
            flight.outcome.send_replace(Some(outcome.clone()));
            if flight.number != self.number
                && let Some(task) = flight.task
            {
                task.abort();
            }
        }
        self.schedule_expiry(keep);
    }

    /// Memory for a value that is to be kept, if need be that of older ones.
    fn reserve_cache_memory(
        &self,
        slots: &mut HashMap<K, ReadSlot<V>>,
        weight: u64,
    ) -> Option<CacheReservation> {
        if weight > self.memory.limit_bytes() {
            return None;
        }
        while let Err(refusal) = self.memory.reserve_cache_memory(weight) {
            // What the node refuses, a fill that waits would take.
            if refusal == CacheReserveError::NodeFull {
                return None;
            }
            // Some more than are needed now: it takes a look at all of them.
            let bytes = weight.max(self.memory.limit_bytes() / EVICTION_DIVISOR);
            if evict_oldest(slots, bytes) == 0 {
                return None;
            }
        }
        Some(CacheReservation { memory: Arc::clone(&self.memory), bytes: weight })
    }

    /// Drops values when they are too old for anybody, without anybody asking.
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

/// Drops the values that were asked for first until they take `bytes` less or there are none. Returns
/// how many bytes they took.
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

/// The part of a full cache that is evicted at once.
const EVICTION_DIVISOR: u64 = 8;
/// How long a read may take with everything that is tried again: less than the kubelet waits, so
/// that who waits learns what the matter is, and who comes later begins anew.
const READ_TIMEOUT: Duration = Duration::from_secs(80);
/// How long a failure answers for those who ask again. Short: somebody may be mending it.
const FAILURE_MAX_AGE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
