//! The pure part of the memory account: the bytes of each fill, the waiting reservations and their order.
//! It reads no clock, and answers a waiting reservation through its channel.

use std::collections::BTreeMap;

use lanyard_keyvault::CacheRefusal;
use tokio::sync::oneshot;

use crate::budget::{Growth, MemoryLimit, NoRoom, Purpose};

/// Which fill; the order in which they began.
pub(super) type FillId = u64;
/// Which of those who wait: by fill, then in the order in which they asked.
pub(super) type WaitId = (FillId, u64);

#[derive(Debug)]
pub(super) struct Book {
    limit: MemoryLimit,
    volumes: u64,
    cached: u64,
    fills: BTreeMap<FillId, Fill>,
    /// What all fills hold together.
    filling: u64,
    waiting: BTreeMap<WaitId, Waiting>,
    begun: u64,
}

/// One volume that is being filled.
#[derive(Debug)]
struct Fill {
    purpose: Purpose,
    /// What it holds, in bytes, what is kept for its files included.
    held: u64,
    /// What is kept for its files.
    files: u64,
    /// How many of its reads were granted memory and have not ended.
    reads: usize,
    /// Whether it is to give back what it holds, so that others can go on.
    is_refused: bool,
}

#[derive(Debug)]
struct Waiting {
    room: Room,
    answer: oneshot::Sender<Result<(), NoRoom>>,
}

/// What a fill asks memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// For a read, which ends.
    Read(u64),
    /// For the files of its volume.
    Files(u64),
}

impl Room {
    const fn bytes(self) -> u64 {
        match self {
            Self::Read(bytes) | Self::Files(bytes) => bytes,
        }
    }
}

/// What a fill that asks for memory does next.
#[derive(Debug)]
pub(super) enum Asked {
    Granted,
    Refused(NoRoom),
    /// There would be room if so many bytes of what is cached were evicted.
    Evict(u64),
    Wait(WaitId, oneshot::Receiver<Result<(), NoRoom>>),
}

impl Book {
    pub(super) const fn new(limit: MemoryLimit) -> Self {
        Self {
            limit,
            volumes: 0,
            cached: 0,
            fills: BTreeMap::new(),
            filling: 0,
            waiting: BTreeMap::new(),
            begun: 0,
        }
    }

    pub(super) const fn volumes(&self) -> u64 {
        self.volumes
    }

    pub(super) const fn used(&self) -> u64 {
        self.volumes.saturating_add(self.filling).saturating_add(self.cached)
    }

    /// Whether there is neither a volume nor a fill.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.volumes == 0 && self.filling == 0 && self.fills.is_empty() && self.waiting.is_empty()
    }

    pub(super) const fn exchange_volume(&mut self, old: u64, new: u64) {
        self.volumes = self.volumes.saturating_sub(old).saturating_add(new);
    }

    /// Takes memory for a cache, if new volumes would be given as much. `has_share` says whether the
    /// cache stays within its own limit.
    pub(super) fn cache(&mut self, bytes: u64, has_share: bool) -> Result<(), CacheRefusal> {
        // Before the cache's own limit: a cache that evicts for that must have a chance to get the
        // memory, and a fill that waits takes precedence.
        if !self.waiting.is_empty() {
            return Err(CacheRefusal::NodeFull);
        }
        if !has_share {
            return Err(CacheRefusal::CacheFull);
        }
        if self.used().saturating_add(bytes) > self.limit.open(Purpose::Mount, false) {
            return Err(CacheRefusal::NodeFull);
        }
        self.cached = self.cached.saturating_add(bytes);
        Ok(())
    }

    pub(super) const fn uncache(&mut self, bytes: u64) {
        self.cached = self.cached.saturating_sub(bytes);
    }

    pub(super) fn begin(&mut self, purpose: Purpose) -> FillId {
        self.begun = self.begun.saturating_add(1);
        let fill = Fill { purpose, held: 0, files: 0, reads: 0, is_refused: false };
        self.fills.insert(self.begun, fill);
        self.begun
    }

    /// The fill is over: gives back what it holds.
    pub(super) fn end(&mut self, id: FillId) {
        if let Some(fill) = self.fills.remove(&id) {
            self.filling = self.filling.saturating_sub(fill.held);
        }
        self.waiting.retain(|(fill, _), _| *fill != id);
    }

    /// Asks for memory. `may_evict` is false once what is cached was evicted.
    pub(super) fn ask(&mut self, id: FillId, room: Room, may_evict: bool) -> Asked {
        // A fill that has ended holds nothing.
        let Some(fill) = self.fills.get(&id) else { return Asked::Granted };
        let (open, bytes) = (self.limit.open(fill.purpose, false), room.bytes());
        let own = fill.held.saturating_add(bytes);
        if fill.is_refused || own > open {
            return Asked::Refused(self.refusal(id, bytes));
        }
        if !self.is_blocked(id, bytes) {
            let missing = self.missing_for(id, bytes);
            if missing == 0 {
                self.grant(id, room);
                return Asked::Granted;
            }
            if may_evict && missing <= self.cached {
                return Asked::Evict(missing);
            }
        }
        self.begun = self.begun.saturating_add(1);
        let wait = (id, self.begun);
        let (answer, answered) = oneshot::channel();
        self.waiting.insert(wait, Waiting { room, answer });
        Asked::Wait(wait, answered)
    }

    /// How many bytes more the fill may hold at most, if all others gave back theirs.
    pub(super) fn largest(&self, id: FillId) -> u64 {
        let Some(fill) = self.fills.get(&id) else { return 0 };
        self.limit.open(fill.purpose, false).saturating_sub(fill.held)
    }

    /// Stops waiting; why there was no room.
    pub(super) fn give_up(&mut self, wait: WaitId) -> Option<NoRoom> {
        let waiting = self.waiting.remove(&wait)?;
        Some(self.refusal(wait.0, waiting.room.bytes()))
    }

    /// A read has ended: of its room it keeps so much.
    pub(super) fn end_read(&mut self, id: FillId, room: u64, kept: u64) {
        let Some(fill) = self.fills.get_mut(&id) else { return };
        fill.reads = fill.reads.saturating_sub(1);
        fill.held = fill.held.saturating_sub(room).saturating_add(kept);
        self.filling = self.filling.saturating_sub(room).saturating_add(kept);
    }

    /// Lets a volume that holds `own` grow. What was kept for its files is given back for it. Returns
    /// what the volume holds from now on; or why it may not, and how many cached bytes to evict before
    /// it asks once more.
    pub(super) fn claim(
        &mut self,
        own: u64,
        growth: Growth,
        id: FillId,
    ) -> Result<u64, (NoRoom, u64)> {
        let (files, reading) = self
            .fills
            .get(&id)
            .map_or((0, 0), |fill| (fill.files, fill.held.saturating_sub(fill.files)));
        let growth = Growth { reading, ..growth };
        let others = self.used().saturating_sub(own.saturating_add(files).saturating_add(reading));
        let claimed = if growth.needed <= files && self.limit.lets_keep(growth) {
            // Granted already, whatever rotations have taken of their part meanwhile.
            growth.held.saturating_add(growth.needed)
        } else {
            self.limit.admit(others, growth).map_err(|refused| {
                let missing =
                    refused.used.saturating_add(refused.needed).saturating_sub(refused.limit);
                let is_enough = !refused.is_hopeless && missing <= self.cached;
                (refused, if is_enough { missing } else { 0 })
            })?
        };
        if let Some(fill) = self.fills.get_mut(&id) {
            fill.held = reading;
            fill.files = 0;
            self.filling = self.filling.saturating_sub(files);
        }
        self.exchange_volume(own, claimed);
        Ok(claimed)
    }

    /// Grants what can be granted. If nothing will be given back by itself, refuses the youngest fill
    /// that holds much; or returns how many cached bytes have to be evicted for one that waits, if
    /// that is enough and `may_evict`.
    pub(super) fn settle(&mut self, may_evict: bool) -> u64 {
        self.grant_waiting();
        if !self.is_stuck() {
            return 0;
        }
        let missing = if may_evict { self.missing() } else { None };
        if missing.is_none() {
            self.refuse_stuck();
        }
        missing.unwrap_or(0)
    }

    /// Grants what can be granted, the oldest fill first.
    pub(super) fn grant_waiting(&mut self) {
        let waiting: Vec<WaitId> = self.waiting.keys().copied().collect();
        for wait in waiting {
            let Some(room) = self.waiting.get(&wait).map(|waiting| waiting.room) else { continue };
            let (id, bytes) = (wait.0, room.bytes());
            if self.missing_for(id, bytes) == 0 && !self.is_blocked(id, bytes) {
                self.grant(id, room);
                if self.answer(wait, Ok(())).is_err() {
                    // Who asked is gone.
                    self.take_back(id, room);
                }
            }
        }
    }

    /// How many cached bytes have to be evicted so that one of those who wait gets its memory.
    fn missing(&self) -> Option<u64> {
        self.waiting.iter().find_map(|((id, _), waiting)| {
            let bytes = waiting.room.bytes();
            let missing = self.missing_for(*id, bytes);
            let is_enough = missing > 0 && missing <= self.cached;
            (is_enough && !self.is_blocked(*id, bytes)).then_some(missing)
        })
    }

    fn grant(&mut self, id: FillId, room: Room) {
        let Some(fill) = self.fills.get_mut(&id) else { return };
        match room {
            Room::Read(_) => fill.reads = fill.reads.saturating_add(1),
            Room::Files(bytes) => fill.files = fill.files.saturating_add(bytes),
        }
        fill.held = fill.held.saturating_add(room.bytes());
        self.filling = self.filling.saturating_add(room.bytes());
    }

    fn take_back(&mut self, id: FillId, room: Room) {
        match room {
            Room::Read(bytes) => self.end_read(id, bytes, 0),
            Room::Files(bytes) => {
                let Some(fill) = self.fills.get_mut(&id) else { return };
                fill.files = fill.files.saturating_sub(bytes);
                fill.held = fill.held.saturating_sub(bytes);
                self.filling = self.filling.saturating_sub(bytes);
            }
        }
    }

    fn answer(&mut self, wait: WaitId, answer: Result<(), NoRoom>) -> Result<(), ()> {
        let Some(waiting) = self.waiting.remove(&wait) else { return Err(()) };
        waiting.answer.send(answer).or(Err(()))
    }

    /// How many bytes have to be released before a fill can have so many more.
    fn missing_for(&self, id: FillId, bytes: u64) -> u64 {
        let purpose = self.fills.get(&id).map_or(Purpose::Mount, |fill| fill.purpose);
        self.used().saturating_add(bytes).saturating_sub(self.limit.open(purpose, false))
    }

    /// Whether an older fill waits and is to go first. A small one passes: what it takes makes no
    /// difference to who waits for much. A rotation passes mounts, which may not have its part.
    fn is_blocked(&self, id: FillId, bytes: u64) -> bool {
        let Some(fill) = self.fills.get(&id) else { return false };
        if fill.held.saturating_add(bytes) <= self.limit.0 / SMALL_PART {
            return false;
        }
        let mut older = self.waiting.keys().filter(|(other, _)| *other < id);
        older.any(|(other, _)| {
            let purpose = self.fills.get(other).map(|other| other.purpose);
            fill.purpose == Purpose::Mount || purpose == Some(Purpose::Rotation)
        })
    }

    fn holders(&self) -> impl DoubleEndedIterator<Item = (&FillId, &Fill)> {
        self.fills.iter().filter(|(_, fill)| fill.held > 0)
    }

    /// Whether every fill that holds memory waits for more. A fill that does not wait, or has a read in
    /// progress, releases memory later.
    fn is_stuck(&self) -> bool {
        let waits = |id: FillId| self.waiting.range((id, 0)..=(id, u64::MAX)).next().is_some();
        !self.waiting.is_empty() && self.holders().all(|(id, fill)| fill.reads == 0 && waits(*id))
    }

    /// Refuses waiting reservations until the rest can proceed.
    fn refuse_stuck(&mut self) {
        let holders = || self.holders();
        // Who asks for little is not refused because others ask for much, and a pod that waits can be
        // tried again sooner than a rotation is missed.
        let is_large = |fill: &Fill| fill.held > self.limit.0 / SMALL_PART;
        let youngest = |large, purpose| {
            let alike =
                holders().filter(|(_, fill)| fill.purpose == purpose && is_large(fill) == large);
            alike.map(|(id, _)| *id).next_back()
        };
        let order = [true, false]
            .into_iter()
            .flat_map(|large| [Purpose::Mount, Purpose::Rotation].map(|purpose| (large, purpose)));
        let victim = order.map(|(large, purpose)| youngest(large, purpose)).find_map(|it| it);
        if let Some(fill) = victim.and_then(|id| self.fills.get_mut(&id)) {
            fill.is_refused = true;
        }
        // Where nobody holds anything, all that waits does so for what is mounted.
        let refused: Vec<WaitId> = self
            .waiting
            .keys()
            .filter(|(id, _)| victim.is_none_or(|victim| victim == *id))
            .copied()
            .collect();
        for wait in refused {
            let bytes = self.waiting.get(&wait).map_or(0, |waiting| waiting.room.bytes());
            let refusal = self.refusal(wait.0, bytes);
            // Whoever is gone does not have to be told.
            let _told = self.answer(wait, Err(refusal));
        }
    }

    fn refusal(&self, id: FillId, bytes: u64) -> NoRoom {
        let fill = self.fills.get(&id);
        let purpose = fill.map_or(Purpose::Mount, |fill| fill.purpose);
        let needed = fill.map_or(0, |fill| fill.held).saturating_add(bytes);
        let limit = self.limit.open(purpose, false);
        NoRoom {
            purpose,
            needed,
            used: self.used(),
            limit,
            is_hopeless: needed > limit,
            hoards: false,
            is_reading: true,
        }
    }
}

/// The part of the limit up to which a fill is small.
const SMALL_PART: u64 = 32;
