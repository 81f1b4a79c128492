//! The memory of one fill: what is read for a volume until it is written.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_clock::SharedClock;
use lanyard_keyvault::{MemoryExhausted, ReadMemory};

use super::MemoryAccount;
use super::account_state::{FetchId, Reservation, ReserveResult, WaiterId};
use crate::memory_limit::{GrowthRequest, MemoryLimitError, MemoryPurpose, min_file_size};
use crate::provider::Urgency;

/// What a fill holds of the node's memory. The last clone gives it back.
#[derive(Debug, Clone)]
pub struct FetchMemory(Arc<FetchMemoryShared>);

#[derive(Debug)]
struct FetchMemoryShared {
    memory: MemoryAccount,
    id: FetchId,
    clock: SharedClock,
    /// Until when it waits, in monotonic time.
    wait_deadline: Duration,
}

impl MemoryAccount {
    /// The memory of a fill that begins now and waits for memory no longer than `patience`.
    pub fn fetch_memory(
        &self,
        urgency: Urgency,
        patience: Duration,
        clock: &SharedClock,
    ) -> FetchMemory {
        let purpose = match urgency {
            Urgency::Mount => MemoryPurpose::Mount,
            Urgency::ForceRefresh | Urgency::Rotation => MemoryPurpose::Rotation,
        };
        let id = self.update(|book| book.begin_fetch(purpose));
        let until = clock.monotonic().saturating_add(patience);
        let (memory, clock) = (self.clone(), SharedClock::clone(clock));
        FetchMemory(Arc::new(FetchMemoryShared { memory, id, clock, wait_deadline: until }))
    }
}

impl FetchMemory {
    pub(super) fn id(&self) -> FetchId {
        self.0.id
    }

    /// Waits until there is room for the files of the volume beside what is read for it. That there
    /// is none is found out, and told, when the volume asks for it.
    pub(crate) async fn reserve_files(&self, bytes: u64) {
        if let Err(refused) = self.reserve(Reservation::Files(bytes)).await {
            tracing::debug!(%refused, "no room is kept for the files of the volume");
        }
    }

    async fn reserve(&self, room: Reservation) -> Result<(), MemoryLimitError> {
        let FetchMemoryShared { memory, id, clock, wait_deadline: until, .. } = &*self.0;
        let mut asked = memory.update(|book| book.reserve(*id, room, true));
        if let ReserveResult::EvictFirst(missing) = asked {
            memory.evict_cached(missing);
            asked = memory.update(|book| book.reserve(*id, room, false));
        }
        let (wait, mut answered) = match asked {
            ReserveResult::Pending(wait, answered) => (wait, answered),
            ReserveResult::Refused(refused) => return Err(refused),
            ReserveResult::Granted | ReserveResult::EvictFirst(_) => return Ok(()),
        };
        let mut place = CancelWaiterOnDrop { memory, waiter: wait, is_answered: false };
        let left = until.saturating_sub(clock.monotonic());
        let answer = tokio::select! {
            biased;
            answer = &mut answered => answer.ok(),
            () = clock.sleep(left) => None,
        };
        let answer = answer.unwrap_or_else(|| {
            let refused = memory.update(|book| book.cancel_waiter(wait));
            // What was answered in this very moment holds.
            refused.map_or_else(|| answered.try_recv().unwrap_or(Ok(())), Err)
        });
        place.is_answered = true;
        answer
    }
}

/// A place among those who wait, which is left when its owner goes.
struct CancelWaiterOnDrop<'a> {
    memory: &'a MemoryAccount,
    waiter: WaiterId,
    is_answered: bool,
}

impl Drop for CancelWaiterOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.memory.update(|book| book.cancel_waiter(self.waiter));
        }
    }
}

#[async_trait]
impl ReadMemory for FetchMemory {
    async fn reserve_read_memory(&self, room: u64) -> Result<(), MemoryExhausted> {
        self.reserve(Reservation::Read(room)).await.map_err(to_memory_exhausted)
    }

    fn finish_read(&self, room: u64, kept: u64) {
        self.0.memory.update(|book| book.end_read(self.0.id, room, kept));
    }

    fn max_read_reservation(&self) -> u64 {
        self.0.memory.0.state.lock().max_reservation(self.0.id)
    }

    fn mounted_size(&self, length: u64) -> u64 {
        min_file_size(length)
    }

    fn check_volume_fits(&self, size: u64) -> Result<(), MemoryExhausted> {
        let limit = self.0.memory.0.limit;
        // Beside a volume that is mounted its next content needs no more room than this.
        let purpose = MemoryPurpose::Mount;
        let growth =
            GrowthRequest { used: 0, used_after_scrub: 0, needed: size, read_bytes: 0, purpose };
        match limit.admit(0, growth) {
            Err(refused) if refused.can_never_fit => Err(to_memory_exhausted(refused)),
            _ => Ok(()),
        }
    }
}

impl Drop for FetchMemoryShared {
    fn drop(&mut self) {
        self.memory.update(|book| book.end_fetch(self.id));
    }
}

fn to_memory_exhausted(refused: MemoryLimitError) -> MemoryExhausted {
    MemoryExhausted {
        message: refused.to_string(),
        hint: refused.hint().to_owned(),
        exceeds_node_capacity: refused.can_never_fit,
    }
}
