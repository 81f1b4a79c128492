//! The pure part of the memory account: the bytes of each fetch, the waiting reservations and their
//! order. It reads no clock and replies to a waiting reservation through its channel.

use std::collections::BTreeMap;

use lanyard_keyvault::CacheReserveError;
use lanyard_volume::{GrowthRequest, MemoryPurpose, VolumesMemoryLimitError};
use tokio::sync::oneshot;

use super::memory_limit::MemoryLimit;

/// The sequence number of a fetch, in the order in which fetches began.
pub(super) type FetchId = u64;
/// A waiting reservation: its fetch, then its sequence number.
pub(super) type WaiterId = (FetchId, u64);

#[derive(Debug)]
pub(super) struct MemoryAccountState {
    limit: MemoryLimit,
    volume_bytes: u64,
    cached_bytes: u64,
    fetches: BTreeMap<FetchId, FetchReservations>,
    /// The bytes of all fetches.
    fetch_bytes: u64,
    pending: BTreeMap<WaiterId, PendingReservation>,
    last_sequence: u64,
}

/// The reservations of one fetch.
#[derive(Debug)]
struct FetchReservations {
    purpose: MemoryPurpose,
    /// The reserved bytes, including those for files.
    reserved: u64,
    /// The bytes that are reserved for files.
    reserved_for_files: u64,
    /// The number of granted reads that have not ended.
    active_reads: usize,
    /// Whether the fetch must release its memory so that others can proceed.
    is_refused: bool,
}

#[derive(Debug)]
struct PendingReservation {
    reservation: Reservation,
    reply: oneshot::Sender<Result<(), VolumesMemoryLimitError>>,
}

/// A reservation of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reservation {
    /// For a read; released when the read ends.
    Read(u64),
    /// For the files of the volume.
    Files(u64),
}

impl Reservation {
    const fn bytes(self) -> u64 {
        match self {
            Self::Read(bytes) | Self::Files(bytes) => bytes,
        }
    }
}

/// The outcome of a reservation.
#[derive(Debug)]
pub(super) enum ReserveResult {
    Granted,
    Refused(VolumesMemoryLimitError),
    /// There would be enough memory if this many cached bytes were evicted.
    EvictFirst(u64),
    Pending(WaiterId, oneshot::Receiver<Result<(), VolumesMemoryLimitError>>),
}

impl MemoryAccountState {
    pub(super) const fn new(limit: MemoryLimit) -> Self {
        Self {
            limit,
            volume_bytes: 0,
            cached_bytes: 0,
            fetches: BTreeMap::new(),
            fetch_bytes: 0,
            pending: BTreeMap::new(),
            last_sequence: 0,
        }
    }

    pub(super) const fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    pub(super) const fn used(&self) -> u64 {
        self.volume_bytes.saturating_add(self.fetch_bytes).saturating_add(self.cached_bytes)
    }

    /// Whether there is neither a volume nor a fetch.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.volume_bytes == 0
            && self.fetch_bytes == 0
            && self.fetches.is_empty()
            && self.pending.is_empty()
    }

    pub(super) const fn replace_volume_bytes(&mut self, old: u64, new: u64) {
        self.volume_bytes = self.volume_bytes.saturating_sub(old).saturating_add(new);
    }

    /// Reserves memory for a cache, within the limit for new volumes. `has_share` says whether the
    /// cache stays within its own limit.
    pub(super) fn reserve_cached(
        &mut self,
        bytes: u64,
        has_share: bool,
    ) -> Result<(), CacheReserveError> {
        // This check precedes the cache's own limit: a cache that evicts because of its own limit
        // could then use the freed memory, but waiting fetches take precedence.
        if !self.pending.is_empty() {
            return Err(CacheReserveError::NodeFull);
        }
        if !has_share {
            return Err(CacheReserveError::CacheFull);
        }
        if self.used().saturating_add(bytes) > self.limit.limit_for(MemoryPurpose::Mount, false) {
            return Err(CacheReserveError::NodeFull);
        }
        self.cached_bytes = self.cached_bytes.saturating_add(bytes);
        Ok(())
    }

    pub(super) const fn release_cached(&mut self, bytes: u64) {
        self.cached_bytes = self.cached_bytes.saturating_sub(bytes);
    }

    pub(super) fn begin_fetch(&mut self, purpose: MemoryPurpose) -> FetchId {
        self.last_sequence = self.last_sequence.saturating_add(1);
        let fetch = FetchReservations {
            purpose,
            reserved: 0,
            reserved_for_files: 0,
            active_reads: 0,
            is_refused: false,
        };
        self.fetches.insert(self.last_sequence, fetch);
        self.last_sequence
    }

    /// Ends a fetch and releases its memory.
    pub(super) fn end_fetch(&mut self, id: FetchId) {
        if let Some(fetch) = self.fetches.remove(&id) {
            self.fetch_bytes = self.fetch_bytes.saturating_sub(fetch.reserved);
        }
        self.pending.retain(|(fetch, _), _| *fetch != id);
    }

    /// Reserves memory. `may_evict` is false once cached bytes were evicted.
    pub(super) fn reserve(
        &mut self,
        id: FetchId,
        reservation: Reservation,
        may_evict: bool,
    ) -> ReserveResult {
        // A fetch that has ended has no memory.
        let Some(fetch) = self.fetches.get(&id) else { return ReserveResult::Granted };
        let (limit, bytes) = (self.limit.limit_for(fetch.purpose, false), reservation.bytes());
        let own = fetch.reserved.saturating_add(bytes);
        if fetch.is_refused || own > limit {
            return ReserveResult::Refused(self.limit_error(id, bytes));
        }
        if !self.is_behind_older_fetch(id, bytes) {
            let missing = self.shortfall(id, bytes);
            if missing == 0 {
                self.grant(id, reservation);
                return ReserveResult::Granted;
            }
            if may_evict && missing <= self.cached_bytes {
                return ReserveResult::EvictFirst(missing);
            }
        }
        self.last_sequence = self.last_sequence.saturating_add(1);
        let waiter = (id, self.last_sequence);
        let (sender, receiver) = oneshot::channel();
        self.pending.insert(waiter, PendingReservation { reservation, reply: sender });
        ReserveResult::Pending(waiter, receiver)
    }

    /// The most bytes that the fetch could still reserve if all others released theirs.
    pub(super) fn max_reservation(&self, id: FetchId) -> u64 {
        let Some(fetch) = self.fetches.get(&id) else { return 0 };
        self.limit.limit_for(fetch.purpose, false).saturating_sub(fetch.reserved)
    }

    /// Cancels a waiting reservation. Returns the reason why the memory was not free.
    pub(super) fn cancel_waiter(&mut self, waiter: WaiterId) -> Option<VolumesMemoryLimitError> {
        let waiting = self.pending.remove(&waiter)?;
        Some(self.limit_error(waiter.0, waiting.reservation.bytes()))
    }

    /// Ends a read: of its reservation of `room` bytes, the fetch keeps `retained`.
    pub(super) fn end_read(&mut self, id: FetchId, room: u64, retained: u64) {
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        fetch.active_reads = fetch.active_reads.saturating_sub(1);
        fetch.reserved = fetch.reserved.saturating_sub(room).saturating_add(retained);
        self.fetch_bytes = self.fetch_bytes.saturating_sub(room).saturating_add(retained);
    }

    /// Claims the memory of a growing volume that uses `own` bytes. It replaces the bytes that the
    /// fetch reserved for files. Returns the new memory of the volume; or the error, and the number
    /// of cached bytes to evict before a retry.
    pub(super) fn claim_for_volume(
        &mut self,
        own: u64,
        growth: GrowthRequest,
        id: FetchId,
    ) -> Result<u64, (VolumesMemoryLimitError, u64)> {
        let (files, reading) = self.fetches.get(&id).map_or((0, 0), |fetch| {
            (fetch.reserved_for_files, fetch.reserved.saturating_sub(fetch.reserved_for_files))
        });
        let growth = GrowthRequest { read_bytes: reading, ..growth };
        let others = self.used().saturating_sub(own.saturating_add(files).saturating_add(reading));
        let claimed = if growth.needed <= files && self.limit.allows_reserved(growth) {
            // Granted already, whatever rotations have claimed of their share since.
            growth.used.saturating_add(growth.needed)
        } else {
            self.limit.admit(others, growth).map_err(|refused| {
                let missing =
                    refused.used.saturating_add(refused.needed).saturating_sub(refused.limit);
                let is_enough = !refused.can_never_fit && missing <= self.cached_bytes;
                (refused, if is_enough { missing } else { 0 })
            })?
        };
        if let Some(fetch) = self.fetches.get_mut(&id) {
            fetch.reserved = reading;
            fetch.reserved_for_files = 0;
            self.fetch_bytes = self.fetch_bytes.saturating_sub(files);
        }
        self.replace_volume_bytes(own, claimed);
        Ok(claimed)
    }

    /// Grants waiting reservations. On a deadlock, returns how many cached bytes to evict, if that
    /// resolves it and `may_evict` is set; otherwise refuses the youngest large fetch.
    pub(super) fn resolve_waiters(&mut self, may_evict: bool) -> u64 {
        self.grant_pending();
        if !self.is_deadlocked() {
            return 0;
        }
        let missing = if may_evict { self.bytes_to_evict() } else { None };
        if missing.is_none() {
            self.break_deadlock();
        }
        missing.unwrap_or(0)
    }

    /// Grants waiting reservations where possible, the oldest fetch first.
    pub(super) fn grant_pending(&mut self) {
        let waiting: Vec<WaiterId> = self.pending.keys().copied().collect();
        for waiter in waiting {
            let Some(reservation) = self.pending.get(&waiter).map(|waiting| waiting.reservation)
            else {
                continue;
            };
            let (id, bytes) = (waiter.0, reservation.bytes());
            if self.shortfall(id, bytes) == 0 && !self.is_behind_older_fetch(id, bytes) {
                self.grant(id, reservation);
                if self.reply_to(waiter, Ok(())).is_err() {
                    // The requester is gone.
                    self.revoke(id, reservation);
                }
            }
        }
    }

    /// How many cached bytes to evict so that one waiting reservation can be granted.
    fn bytes_to_evict(&self) -> Option<u64> {
        self.pending.iter().find_map(|((id, _), waiting)| {
            let bytes = waiting.reservation.bytes();
            let missing = self.shortfall(*id, bytes);
            let is_enough = missing > 0 && missing <= self.cached_bytes;
            (is_enough && !self.is_behind_older_fetch(*id, bytes)).then_some(missing)
        })
    }

    fn grant(&mut self, id: FetchId, reservation: Reservation) {
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        match reservation {
            Reservation::Read(_) => fetch.active_reads = fetch.active_reads.saturating_add(1),
            Reservation::Files(bytes) => {
                fetch.reserved_for_files = fetch.reserved_for_files.saturating_add(bytes);
            }
        }
        fetch.reserved = fetch.reserved.saturating_add(reservation.bytes());
        self.fetch_bytes = self.fetch_bytes.saturating_add(reservation.bytes());
    }

    fn revoke(&mut self, id: FetchId, reservation: Reservation) {
        match reservation {
            Reservation::Read(bytes) => self.end_read(id, bytes, 0),
            Reservation::Files(bytes) => {
                let Some(fetch) = self.fetches.get_mut(&id) else { return };
                fetch.reserved_for_files = fetch.reserved_for_files.saturating_sub(bytes);
                fetch.reserved = fetch.reserved.saturating_sub(bytes);
                self.fetch_bytes = self.fetch_bytes.saturating_sub(bytes);
            }
        }
    }

    fn reply_to(
        &mut self,
        waiter: WaiterId,
        reply: Result<(), VolumesMemoryLimitError>,
    ) -> Result<(), ()> {
        let Some(waiting) = self.pending.remove(&waiter) else { return Err(()) };
        waiting.reply.send(reply).or(Err(()))
    }

    /// How many bytes must be released before the fetch can reserve `bytes` more.
    fn shortfall(&self, id: FetchId, bytes: u64) -> u64 {
        let purpose = self.fetches.get(&id).map_or(MemoryPurpose::Mount, |fetch| fetch.purpose);
        self.used().saturating_add(bytes).saturating_sub(self.limit.limit_for(purpose, false))
    }

    /// Whether an older fetch waits and goes first. A small fetch overtakes: its memory makes no
    /// difference to a large one. A rotation overtakes mounts, which may not use the share of
    /// rotations.
    fn is_behind_older_fetch(&self, id: FetchId, bytes: u64) -> bool {
        let Some(fetch) = self.fetches.get(&id) else { return false };
        if fetch.reserved.saturating_add(bytes) <= self.limit.0 / SMALL_FETCH_DIVISOR {
            return false;
        }
        let mut older = self.pending.keys().filter(|(other, _)| *other < id);
        older.any(|(other, _)| {
            let purpose = self.fetches.get(other).map(|other| other.purpose);
            fetch.purpose == MemoryPurpose::Mount || purpose == Some(MemoryPurpose::Rotation)
        })
    }

    fn fetches_with_memory(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&FetchId, &FetchReservations)> {
        self.fetches.iter().filter(|(_, fetch)| fetch.reserved > 0)
    }

    /// Whether every fetch with memory waits for more. A fetch that does not wait, or has a read in
    /// progress, releases memory later.
    fn is_deadlocked(&self) -> bool {
        let waits = |id: FetchId| self.pending.range((id, 0)..=(id, u64::MAX)).next().is_some();
        !self.pending.is_empty()
            && self.fetches_with_memory().all(|(id, fetch)| fetch.active_reads == 0 && waits(*id))
    }

    /// Refuses waiting reservations until the rest can proceed.
    fn break_deadlock(&mut self) {
        let holders = || self.fetches_with_memory();
        // Small fetches are spared, because they did not cause the shortage. Mounts go before
        // rotations: the kubelet retries a waiting pod soon, but a missed rotation may go
        // unnoticed.
        let is_large =
            |fetch: &FetchReservations| fetch.reserved > self.limit.0 / SMALL_FETCH_DIVISOR;
        let youngest = |large, purpose| {
            let alike =
                holders().filter(|(_, fetch)| fetch.purpose == purpose && is_large(fetch) == large);
            alike.map(|(id, _)| *id).next_back()
        };
        let order = [true, false].into_iter().flat_map(|large| {
            [MemoryPurpose::Mount, MemoryPurpose::Rotation].map(|purpose| (large, purpose))
        });
        let victim = order.map(|(large, purpose)| youngest(large, purpose)).find_map(|it| it);
        if let Some(fetch) = victim.and_then(|id| self.fetches.get_mut(&id)) {
            fetch.is_refused = true;
        }
        // If no fetch has memory, all wait for the memory of mounted volumes.
        let refused: Vec<WaiterId> = self
            .pending
            .keys()
            .filter(|(id, _)| victim.is_none_or(|victim| victim == *id))
            .copied()
            .collect();
        for waiter in refused {
            let bytes = self.pending.get(&waiter).map_or(0, |waiting| waiting.reservation.bytes());
            let error = self.limit_error(waiter.0, bytes);
            // The requester may be gone.
            let _delivered = self.reply_to(waiter, Err(error));
        }
    }

    fn limit_error(&self, id: FetchId, bytes: u64) -> VolumesMemoryLimitError {
        let fetch = self.fetches.get(&id);
        let purpose = fetch.map_or(MemoryPurpose::Mount, |fetch| fetch.purpose);
        let needed = fetch.map_or(0, |fetch| fetch.reserved).saturating_add(bytes);
        let limit = self.limit.limit_for(purpose, false);
        VolumesMemoryLimitError {
            purpose,
            needed,
            used: self.used(),
            limit,
            can_never_fit: needed > limit,
            has_excess_generations: false,
            during_read: true,
        }
    }
}

/// A fetch is small up to this fraction of the limit.
const SMALL_FETCH_DIVISOR: u64 = 32;
