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
use lanyard_azure::Priority;
use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::error::VaultError;
use crate::memory::{CacheMemory, CacheRefusal, UnlimitedMemory, Weigh};

/// How new an answer has to be, and who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Where the read stands among those that wait for the vault.
    pub priority: Priority,
    /// The greatest age of an answer that somebody else asked for; zero for one that nobody has
    /// asked for before.
    pub max_age: Duration,
    /// The least that this shrinks to, for an object that tells of a renewal or an expiry: an
    /// eighth of the time that lies between is old enough then.
    pub max_age_near_renewal: Duration,
}

impl Demand {
    /// What may be as old as `max_age`, whatever it tells about itself.
    pub const fn within(priority: Priority, max_age: Duration) -> Self {
        Self { priority, max_age, max_age_near_renewal: max_age }
    }

    /// The greatest age of an object whose next renewal or expiry is `distance` away, or was so
    /// long ago.
    pub(crate) fn max_age_at(self, distance: Option<Duration>) -> Duration {
        let near = distance.map(|distance| (distance / 8).max(self.max_age_near_renewal));
        near.map_or(self.max_age, |near| near.min(self.max_age))
    }
}

/// A value, and when it was asked for.
#[derive(Debug)]
pub(crate) struct Shared<V> {
    pub(crate) value: Arc<V>,
    asked: Asked,
}

impl<V> Shared<V> {
    /// When it was asked for: the same for everybody who takes it.
    pub(crate) fn read_at(&self) -> Timestamp {
        self.asked.read_at
    }
}

/// When a read began, by both clocks.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// In monotonic time, for whatever compares reads.
    at: Duration,
    /// In wall time, for whoever outlives the process.
    read_at: Timestamp,
}

/// By hand: a derived one would ask `V` for it.
impl<V> Clone for Shared<V> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), asked: self.asked }
    }
}

pub(crate) type Outcome<V> = Result<Shared<V>, Arc<VaultError>>;

/// Reads by key. Clones share them.
pub(crate) struct SharedReads<K, V> {
    clock: SharedClock,
    /// How long a value is kept at least; longer where somebody takes older ones.
    keep: Duration,
    memory: Arc<dyn CacheMemory>,
    slots: Arc<Slots<K, V>>,
    /// The number of the next flight. One sequence for all slots: a slot that was removed and made
    /// again must not give out a number that an ended flight still has.
    numbers: AtomicU64,
}

type Slots<K, V> = Mutex<HashMap<K, Slot<V>>>;

/// What is known for one key.
struct Slot<V> {
    value: Option<Cached<V>>,
    failure: Option<Failure>,
    /// When the last read that was refused was asked for: what was asked for before it may not be
    /// had any more.
    refused_at: Option<Duration>,
    flights: Vec<Flight<V>>,
    /// How long the value is kept: the greatest age that anybody took.
    keep: Duration,
}

/// A value that is kept, and the memory that was taken for it.
struct Cached<V> {
    shared: Shared<V>,
    /// Given back when the value is dropped.
    taken: TakenMemory,
}

struct TakenMemory {
    memory: Arc<dyn CacheMemory>,
    bytes: u64,
}

impl Drop for TakenMemory {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

/// The last read failed.
struct Failure {
    landed_at: Duration,
    /// Whose failure it is: who stands before them might have had an answer.
    priority: Priority,
    error: Arc<VaultError>,
}

/// A read under way.
struct Flight<V> {
    number: u64,
    asked: Asked,
    priority: Priority,
    outcome: Arc<watch::Sender<Option<Outcome<V>>>>,
    /// Nothing until the task has begun.
    task: Option<AbortHandle>,
}

impl<V> Default for Slot<V> {
    fn default() -> Self {
        let keep = Duration::ZERO;
        let (value, failure, refused_at, flights) = (None, None, None, Vec::new());
        Self { value, failure, refused_at, flights, keep }
    }
}

impl<K, V> SharedReads<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Weigh + Send + Sync + 'static,
{
    pub(crate) fn new(clock: SharedClock, keep: Duration) -> Self {
        let memory = Arc::new(UnlimitedMemory);
        Self { clock, keep, memory, slots: Arc::default(), numbers: AtomicU64::new(0) }
    }

    /// Keeps values only within this memory.
    pub(crate) fn cache_in(&mut self, memory: Arc<dyn CacheMemory>) {
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
        demand: Demand,
        distance: impl Fn(&V) -> Option<Duration>,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<V, VaultError>>,
    ) -> Outcome<V> {
        let mut outcome = match self.join(key, demand, distance, fetch) {
            Joined::Ready(outcome) => return outcome,
            Joined::Waiting(outcome) => outcome,
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => {
                outcome.clone().unwrap_or_else(|| Err(Arc::new(VaultError::Interrupted)))
            }
            Err(_closed) => Err(Arc::new(VaultError::Interrupted)),
        }
    }

    fn join(
        &self,
        key: K,
        demand: Demand,
        distance: impl Fn(&V) -> Option<Duration>,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<V, VaultError>>,
    ) -> Joined<V> {
        let now = self.clock.monotonic();
        let mut slots = self.slots.lock();
        let slot = slots.entry(key.clone()).or_default();
        if let Some(outcome) = slot.new_enough(now, demand, distance) {
            return Joined::Ready(outcome);
        }
        if let Some(flight) = slot.flights.iter().find(|flight| flight.serves(now, demand)) {
            return Joined::Waiting(flight.outcome.subscribe());
        }
        slot.keep = slot.keep.max(self.keep).max(demand.max_age);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, outcome) = watch::channel(None);
        let sender = Arc::new(sender);
        let asked = Asked { at: now, read_at: self.clock.now() };
        let priority = demand.priority;
        slot.flights.push(Flight {
            number,
            asked,
            priority,
            outcome: Arc::clone(&sender),
            task: None,
        });
        let (slots, clock) = (Arc::clone(&self.slots), Arc::clone(&self.clock));
        let memory = Arc::clone(&self.memory);
        let landing = Landing { key, number, asked, priority, slots, clock, memory };
        let (fetched, limit) = (fetch(), self.clock.sleep(FLIGHT_LIMIT));
        let task = tokio::spawn(async move {
            tokio::select! {
                outcome = fetched => landing.land(outcome),
                () = limit => landing.land(Err(VaultError::TimedOut { limit: FLIGHT_LIMIT })),
                // The memory for its answer belonged to those who waited.
                () = landing.deserted(&sender) => {}
            }
        });
        if let Some(flight) = slot.flights.iter_mut().find(|flight| flight.number == number) {
            flight.task = Some(task.abort_handle());
        }
        Joined::Waiting(outcome)
    }

    /// How many values are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.slots.lock().values().filter(|slot| slot.value.is_some()).count()
    }
}

enum Joined<V> {
    Ready(Outcome<V>),
    Waiting(watch::Receiver<Option<Outcome<V>>>),
}

impl<V> Slot<V> {
    fn new_enough(
        &self,
        now: Duration,
        demand: Demand,
        distance: impl Fn(&V) -> Option<Duration>,
    ) -> Option<Outcome<V>> {
        let within = |since: Duration, limit: Duration| {
            !limit.is_zero() && now.saturating_sub(since) <= limit
        };
        if let Some(Cached { shared, .. }) = &self.value
            && within(shared.asked.at, demand.max_age_at(distance(&shared.value)))
        {
            return Some(Ok(shared.clone()));
        }
        let failure = self.failure.as_ref()?;
        if failure.priority > demand.priority {
            return None;
        }
        let serves = within(failure.landed_at, demand.max_age.min(FAILURE_AGE));
        serves.then(|| Err(Arc::clone(&failure.error)))
    }

    /// Takes what a flight brought, unless something newer is there. A value for which no memory was
    /// taken is not kept.
    fn take(
        &mut self,
        now: Duration,
        flight: (Duration, Priority),
        outcome: &Outcome<V>,
        taken: Option<TakenMemory>,
    ) {
        let (asked_at, priority) = flight;
        match outcome {
            Ok(value) => {
                let asked = self.value.as_ref().map(|old| old.shared.asked.at);
                let is_newest = asked.is_none_or(|asked| asked <= asked_at);
                let is_refused = self.refused_at.is_some_and(|refused| asked_at <= refused);
                if is_newest && !is_refused {
                    let cached = |taken| Cached { shared: value.clone(), taken };
                    (self.value, self.failure) = (taken.map(cached), None);
                }
            }
            Err(error) => {
                if error.is_refusal() {
                    self.refused_at = self.refused_at.max(Some(asked_at));
                    self.value.take_if(|value| value.shared.asked.at <= asked_at);
                }
                // The credential remembers its own failures, and forgets them when somebody brings
                // it a better proof.
                if !matches!(**error, VaultError::Token { .. }) {
                    let error = Arc::clone(error);
                    self.failure = Some(Failure { landed_at: now, priority, error });
                }
            }
        }
    }

    /// Drops what is too old for anybody; true if nothing is left.
    fn sweep(&mut self, now: Duration) -> bool {
        self.value.take_if(|value| now.saturating_sub(value.shared.asked.at) >= self.keep);
        self.failure.take_if(|failure| now.saturating_sub(failure.landed_at) > FAILURE_AGE);
        self.is_empty()
    }

    /// Whether nothing is known but that something was refused.
    fn is_empty(&self) -> bool {
        self.value.is_none() && self.failure.is_none() && self.flights.is_empty()
    }
}

impl<V> Flight<V> {
    /// What is under way will be as new as anybody asks who takes what is not new; and it must not
    /// stand behind those whom the caller stands before.
    fn serves(&self, now: Duration, demand: Demand) -> bool {
        let new_enough = !demand.max_age.is_zero() || self.asked.at >= now;
        new_enough && self.priority <= demand.priority
    }
}

/// What becomes of a flight. Dropped without landing, it takes the flight out of its slot, so that
/// nobody waits for it.
struct Landing<K: Clone + Eq + Hash + Send + Sync + 'static, V: Weigh + Send + Sync + 'static> {
    key: K,
    number: u64,
    asked: Asked,
    priority: Priority,
    slots: Arc<Slots<K, V>>,
    clock: SharedClock,
    memory: Arc<dyn CacheMemory>,
}

impl<K, V> Landing<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Weigh + Send + Sync + 'static,
{
    /// Returns when no caller waits for the read any more. No caller joins it after that.
    async fn deserted(&self, outcome: &watch::Sender<Option<Outcome<V>>>) {
        loop {
            outcome.closed().await;
            let mut slots = self.slots.lock();
            // Who joins does so under this lock.
            if outcome.receiver_count() == 0 {
                self.leave(&mut slots);
                return;
            }
        }
    }

    /// Takes the flight out of its slot, and removes the slot if nothing is left in it: tenants
    /// choose the keys.
    fn leave(&self, slots: &mut HashMap<K, Slot<V>>) {
        let Some(slot) = slots.get_mut(&self.key) else { return };
        slot.flights.retain(|flight| flight.number != self.number);
        if slot.is_empty() {
            slots.remove(&self.key);
        }
    }

    fn land(&self, outcome: Result<V, VaultError>) {
        let asked_at = self.asked.at;
        let outcome: Outcome<V> = match outcome {
            Ok(value) => Ok(Shared { value: Arc::new(value), asked: self.asked }),
            Err(error) => Err(Arc::new(error)),
        };
        let landed_at = self.clock.monotonic();
        let (served, keep) = {
            let mut slots = self.slots.lock();
            let weight = outcome.as_ref().ok().map(|shared| shared.value.weight());
            let taken = weight.and_then(|weight| self.take_memory(&mut slots, weight));
            let Some(slot) = slots.get_mut(&self.key) else { return };
            slot.take(landed_at, (asked_at, self.priority), &outcome, taken);
            // A newer value serves those who asked before; a failure is one's own.
            let (served, others): (Vec<_>, Vec<_>) = slot.flights.drain(..).partition(|flight| {
                flight.number == self.number || (outcome.is_ok() && flight.asked.at <= asked_at)
            });
            slot.flights = others;
            (served, slot.keep)
        };
        for flight in served {
            flight.outcome.send_replace(Some(outcome.clone()));
            if flight.number != self.number
                && let Some(task) = flight.task
            {
                task.abort();
            }
        }
        self.sweep_later(keep);
    }

    /// Memory for a value that is to be kept, if need be that of older ones.
    fn take_memory(&self, slots: &mut HashMap<K, Slot<V>>, weight: u64) -> Option<TakenMemory> {
        if weight > self.memory.limit() {
            return None;
        }
        while let Err(refusal) = self.memory.take(weight) {
            // What the node refuses, a fill that waits would take.
            if refusal == CacheRefusal::NodeFull {
                return None;
            }
            // Some more than are needed now: it takes a look at all of them.
            let bytes = weight.max(self.memory.limit() / EVICTED_PART);
            if evict_oldest(slots, bytes) == 0 {
                return None;
            }
        }
        Some(TakenMemory { memory: Arc::clone(&self.memory), bytes: weight })
    }

    /// Drops values when they are too old for anybody, without anybody asking.
    fn sweep_later(&self, keep: Duration) {
        let (key, clock) = (self.key.clone(), Arc::clone(&self.clock));
        let slots = Arc::downgrade(&self.slots);
        drop(tokio::spawn(async move {
            clock.sleep(keep.max(FAILURE_AGE)).await;
            let Some(slots) = slots.upgrade() else { return };
            let now = clock.monotonic();
            let mut slots = slots.lock();
            if slots.get_mut(&key).is_some_and(|slot| slot.sweep(now)) {
                slots.remove(&key);
            }
        }));
    }
}

impl<K, V> Drop for Landing<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Weigh + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.leave(&mut self.slots.lock());
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
fn evict_oldest<K, V>(slots: &mut HashMap<K, Slot<V>>, bytes: u64) -> u64 {
    let mut cached: Vec<_> = slots.values_mut().filter(|slot| slot.value.is_some()).collect();
    cached.sort_by_key(|slot| slot.value.as_ref().map(|value| value.shared.asked.at));
    let mut evicted = 0_u64;
    for slot in cached {
        if evicted >= bytes {
            break;
        }
        let value = slot.value.take();
        evicted = evicted.saturating_add(value.map_or(0, |value| value.taken.bytes));
    }
    slots.retain(|_, slot| !slot.is_empty());
    evicted
}

/// The part of a full cache that is evicted at once.
const EVICTED_PART: u64 = 8;
/// How long a read may take with everything that is tried again: less than the kubelet waits, so
/// that who waits learns what the matter is, and who comes later begins anew.
const FLIGHT_LIMIT: Duration = Duration::from_secs(80);
/// How long a failure answers for those who ask again. Short: somebody may be mending it.
const FAILURE_AGE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
