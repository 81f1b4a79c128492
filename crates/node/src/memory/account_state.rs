//! The pure part of the memory account: the bytes of each fill, the waiting reservations and their order.
//! It reads no clock, and answers a waiting reservation through its channel.

use std::collections::BTreeMap;

use lanyard_keyvault::CacheReserveError;
use tokio::sync::oneshot;

use crate::memory_limit::{GrowthRequest, MemoryLimit, MemoryLimitError, MemoryPurpose};

/// Which fill; the order in which they began.
pub(super) type FetchId = u64;
/// Which of those who wait: by fill, then in the order in which they asked.
pub(super) type WaiterId = (FetchId, u64);

#[derive(Debug)]
pub(super) struct MemoryAccountState {
    limit: MemoryLimit,
    volume_bytes: u64,
    cached_bytes: u64,
    fetches: BTreeMap<FetchId, FetchReservations>,
    /// What all fills hold together.
    fetch_bytes: u64,
    pending: BTreeMap<WaiterId, PendingReservation>,
    last_sequence: u64,
}

/// One volume that is being filled.
#[derive(Debug)]
struct FetchReservations {
    purpose: MemoryPurpose,
    /// What it holds, in bytes, what is kept for its files included.
    reserved: u64,
    /// What is kept for its files.
    reserved_for_files: u64,
    /// How many of its reads were granted memory and have not ended.
    active_reads: usize,
    /// Whether it is to give back what it holds, so that others can go on.
    is_refused: bool,
}

#[derive(Debug)]
struct PendingReservation {
    reservation: Reservation,
    reply: oneshot::Sender<Result<(), MemoryLimitError>>,
}

/// What a fill asks memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reservation {
    /// For a read, which ends.
    Read(u64),
    /// For the files of its volume.
    Files(u64),
}

impl Reservation {
    const fn bytes(self) -> u64 {
        match self {
            Self::Read(bytes) | Self::Files(bytes) => bytes,
        }
    }
}

/// What a fill that asks for memory does next.
#[derive(Debug)]
pub(super) enum ReserveResult {
    Granted,
    Refused(MemoryLimitError),
    /// There would be room if so many bytes of what is cached were evicted.
    EvictFirst(u64),
    Pending(WaiterId, oneshot::Receiver<Result<(), MemoryLimitError>>),
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

    /// Whether there is neither a volume nor a fill.
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

    /// Takes memory for a cache, if new volumes would be given as much. `has_share` says whether the
    /// cache stays within its own limit.
    pub(super) fn reserve_cached(
        &mut self,
        bytes: u64,
        has_share: bool,
    ) -> Result<(), CacheReserveError> {
        // Before the cache's own limit: a cache that evicts for that must have a chance to get the
        // memory, and a fill that waits takes precedence.
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
        let fill = FetchReservations {
            purpose,
            reserved: 0,
            reserved_for_files: 0,
            active_reads: 0,
            is_refused: false,
        };
        self.fetches.insert(self.last_sequence, fill);
        self.last_sequence
    }

    /// The fill is over: gives back what it holds.
    pub(super) fn end_fetch(&mut self, id: FetchId) {
        if let Some(fill) = self.fetches.remove(&id) {
            self.fetch_bytes = self.fetch_bytes.saturating_sub(fill.reserved);
        }
        self.pending.retain(|(fill, _), _| *fill != id);
    }

    /// Asks for memory. `may_evict` is false once what is cached was evicted.
    pub(super) fn reserve(
        &mut self,
        id: FetchId,
        room: Reservation,
        may_evict: bool,
    ) -> ReserveResult {
        // A fill that has ended holds nothing.
        let Some(fill) = self.fetches.get(&id) else { return ReserveResult::Granted };
        let (open, bytes) = (self.limit.limit_for(fill.purpose, false), room.bytes());
        let own = fill.reserved.saturating_add(bytes);
        if fill.is_refused || own > open {
            return ReserveResult::Refused(self.limit_error(id, bytes));
        }
        if !self.is_behind_older_fetch(id, bytes) {
            let missing = self.shortfall(id, bytes);
            if missing == 0 {
                self.grant(id, room);
                return ReserveResult::Granted;
            }
            if may_evict && missing <= self.cached_bytes {
                return ReserveResult::EvictFirst(missing);
            }
        }
        self.last_sequence = self.last_sequence.saturating_add(1);
        let wait = (id, self.last_sequence);
        let (answer, answered) = oneshot::channel();
        self.pending.insert(wait, PendingReservation { reservation: room, reply: answer });
        ReserveResult::Pending(wait, answered)
    }

    /// How many bytes more the fill may hold at most, if all others gave back theirs.
    pub(super) fn max_reservation(&self, id: FetchId) -> u64 {
        let Some(fill) = self.fetches.get(&id) else { return 0 };
        self.limit.limit_for(fill.purpose, false).saturating_sub(fill.reserved)
    }

    /// Stops waiting; why there was no room.
    pub(super) fn cancel_waiter(&mut self, wait: WaiterId) -> Option<MemoryLimitError> {
        let waiting = self.pending.remove(&wait)?;
        Some(self.limit_error(wait.0, waiting.reservation.bytes()))
    }

    /// A read has ended: of its room it keeps so much.
    pub(super) fn end_read(&mut self, id: FetchId, room: u64, kept: u64) {
        let Some(fill) = self.fetches.get_mut(&id) else { return };
        fill.active_reads = fill.active_reads.saturating_sub(1);
        fill.reserved = fill.reserved.saturating_sub(room).saturating_add(kept);
        self.fetch_bytes = self.fetch_bytes.saturating_sub(room).saturating_add(kept);
    }

    /// Lets a volume that holds `own` grow. What was kept for its files is given back for it. Returns
    /// what the volume holds from now on; or why it may not, and how many cached bytes to evict before
    /// it asks once more.
    pub(super) fn claim_for_volume(
        &mut self,
        own: u64,
        growth: GrowthRequest,
        id: FetchId,
    ) -> Result<u64, (MemoryLimitError, u64)> {
        let (files, reading) = self.fetches.get(&id).map_or((0, 0), |fill| {
            (fill.reserved_for_files, fill.reserved.saturating_sub(fill.reserved_for_files))
        });
        let growth = GrowthRequest { read_bytes: reading, ..growth };
        let others = self.used().saturating_sub(own.saturating_add(files).saturating_add(reading));
        let claimed = if growth.needed <= files && self.limit.allows_reserved(growth) {
            // Granted already, whatever rotations have taken of their part meanwhile.
            growth.used.saturating_add(growth.needed)
        } else {
            self.limit.admit(others, growth).map_err(|refused| {
                let missing =
                    refused.used.saturating_add(refused.needed).saturating_sub(refused.limit);
                let is_enough = !refused.can_never_fit && missing <= self.cached_bytes;
                (refused, if is_enough { missing } else { 0 })
            })?
        };
        if let Some(fill) = self.fetches.get_mut(&id) {
            fill.reserved = reading;
            fill.reserved_for_files = 0;
            self.fetch_bytes = self.fetch_bytes.saturating_sub(files);
        }
        self.replace_volume_bytes(own, claimed);
        Ok(claimed)
    }

    /// Grants what can be granted. If nothing will be given back by itself, refuses the youngest fill
    /// that holds much; or returns how many cached bytes have to be evicted for one that waits, if
    /// that is enough and `may_evict`.
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

    /// Grants what can be granted, the oldest fill first.
    pub(super) fn grant_pending(&mut self) {
        let waiting: Vec<WaiterId> = self.pending.keys().copied().collect();
        for wait in waiting {
            let Some(room) = self.pending.get(&wait).map(|waiting| waiting.reservation) else {
                continue;
            };
            let (id, bytes) = (wait.0, room.bytes());
            if self.shortfall(id, bytes) == 0 && !self.is_behind_older_fetch(id, bytes) {
                self.grant(id, room);
                if self.reply_to(wait, Ok(())).is_err() {
                    // Who asked is gone.
                    self.revoke(id, room);
                }
            }
        }
    }

    /// How many cached bytes have to be evicted so that one of those who wait gets its memory.
    fn bytes_to_evict(&self) -> Option<u64> {
        self.pending.iter().find_map(|((id, _), waiting)| {
            let bytes = waiting.reservation.bytes();
            let missing = self.shortfall(*id, bytes);
            let is_enough = missing > 0 && missing <= self.cached_bytes;
            (is_enough && !self.is_behind_older_fetch(*id, bytes)).then_some(missing)
        })
    }

    fn grant(&mut self, id: FetchId, room: Reservation) {
        let Some(fill) = self.fetches.get_mut(&id) else { return };
        match room {
            Reservation::Read(_) => fill.active_reads = fill.active_reads.saturating_add(1),
            Reservation::Files(bytes) => {
                fill.reserved_for_files = fill.reserved_for_files.saturating_add(bytes)
            }
        }
        fill.reserved = fill.reserved.saturating_add(room.bytes());
        self.fetch_bytes = self.fetch_bytes.saturating_add(room.bytes());
    }

    fn revoke(&mut self, id: FetchId, room: Reservation) {
        match room {
            Reservation::Read(bytes) => self.end_read(id, bytes, 0),
            Reservation::Files(bytes) => {
                let Some(fill) = self.fetches.get_mut(&id) else { return };
                fill.reserved_for_files = fill.reserved_for_files.saturating_sub(bytes);
                fill.reserved = fill.reserved.saturating_sub(bytes);
                self.fetch_bytes = self.fetch_bytes.saturating_sub(bytes);
            }
        }
    }

    fn reply_to(&mut self, wait: WaiterId, answer: Result<(), MemoryLimitError>) -> Result<(), ()> {
        let Some(waiting) = self.pending.remove(&wait) else { return Err(()) };
        waiting.reply.send(answer).or(Err(()))
    }

    /// How many bytes have to be released before a fill can have so many more.
    fn shortfall(&self, id: FetchId, bytes: u64) -> u64 {
        let purpose = self.fetches.get(&id).map_or(MemoryPurpose::Mount, |fill| fill.purpose);
        self.used().saturating_add(bytes).saturating_sub(self.limit.limit_for(purpose, false))
    }

    /// Whether an older fill waits and is to go first. A small one passes: what it takes makes no
    /// difference to who waits for much. A rotation passes mounts, which may not have its part.
    fn is_behind_older_fetch(&self, id: FetchId, bytes: u64) -> bool {
        let Some(fill) = self.fetches.get(&id) else { return false };
        if fill.reserved.saturating_add(bytes) <= self.limit.0 / SMALL_FETCH_DIVISOR {
            return false;
        }
        let mut older = self.pending.keys().filter(|(other, _)| *other < id);
        older.any(|(other, _)| {
            let purpose = self.fetches.get(other).map(|other| other.purpose);
            fill.purpose == MemoryPurpose::Mount || purpose == Some(MemoryPurpose::Rotation)
        })
    }

    fn fetches_with_memory(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&FetchId, &FetchReservations)> {
        self.fetches.iter().filter(|(_, fill)| fill.reserved > 0)
    }

    /// Whether every fill that holds memory waits for more. A fill that does not wait, or has a read in
    /// progress, releases memory later.
    fn is_deadlocked(&self) -> bool {
        let waits = |id: FetchId| self.pending.range((id, 0)..=(id, u64::MAX)).next().is_some();
        !self.pending.is_empty()
            && self.fetches_with_memory().all(|(id, fill)| fill.active_reads == 0 && waits(*id))
    }

    /// Refuses waiting reservations until the rest can proceed.
    fn break_deadlock(&mut self) {
        let holders = || self.fetches_with_memory();
        // Who asks for little is not refused because others ask for much, and a pod that waits can be
        // tried again sooner than a rotation is missed.
        let is_large =
            |fill: &FetchReservations| fill.reserved > self.limit.0 / SMALL_FETCH_DIVISOR;
        let youngest = |large, purpose| {
            let alike =
                holders().filter(|(_, fill)| fill.purpose == purpose && is_large(fill) == large);
            alike.map(|(id, _)| *id).next_back()
        };
        let order = [true, false].into_iter().flat_map(|large| {
            [MemoryPurpose::Mount, MemoryPurpose::Rotation].map(|purpose| (large, purpose))
        });
        let victim = order.map(|(large, purpose)| youngest(large, purpose)).find_map(|it| it);
        if let Some(fill) = victim.and_then(|id| self.fetches.get_mut(&id)) {
            fill.is_refused = true;
        }
        // Where nobody holds anything, all that waits does so for what is mounted.
        let refused: Vec<WaiterId> = self
            .pending
            .keys()
            .filter(|(id, _)| victim.is_none_or(|victim| victim == *id))
            .copied()
            .collect();
        for wait in refused {
            let bytes = self.pending.get(&wait).map_or(0, |waiting| waiting.reservation.bytes());
            let refusal = self.limit_error(wait.0, bytes);
            // Whoever is gone does not have to be told.
            let _told = self.reply_to(wait, Err(refusal));
        }
    }

    fn limit_error(&self, id: FetchId, bytes: u64) -> MemoryLimitError {
        let fill = self.fetches.get(&id);
        let purpose = fill.map_or(MemoryPurpose::Mount, |fill| fill.purpose);
        let needed = fill.map_or(0, |fill| fill.reserved).saturating_add(bytes);
        let limit = self.limit.limit_for(purpose, false);
        MemoryLimitError {
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

/// The part of the limit up to which a fill is small.
const SMALL_FETCH_DIVISOR: u64 = 32;
