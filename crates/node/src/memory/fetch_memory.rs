//! The memory of one fetch, until its volume is written.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_clock::{ErrorHint as _, SharedClock};
use lanyard_keyvault::{MemoryExhausted, ReadMemory};
use lanyard_provider::Urgency;
use lanyard_volume::{GrowthRequest, MemoryPurpose, VolumesMemoryLimitError, min_file_size};

use super::MemoryAccount;
use super::account_state::{FetchId, Reservation, ReserveResult, WaiterId};

/// The memory that a fetch has reserved. Dropping the last clone releases it.
#[derive(Debug, Clone)]
pub struct FetchMemory(Arc<FetchMemoryShared>);

#[derive(Debug)]
struct FetchMemoryShared {
    memory: MemoryAccount,
    id: FetchId,
    clock: SharedClock,
    /// How long it may wait for memory, as a monotonic time.
    wait_deadline: Duration,
}

impl MemoryAccount {
    /// Begins a fetch, which may wait for memory for at most `max_wait` in total.
    pub fn fetch_memory(
        &self,
        urgency: Urgency,
        max_wait: Duration,
        clock: &SharedClock,
    ) -> FetchMemory {
        let purpose = match urgency {
            Urgency::Mount => MemoryPurpose::Mount,
            Urgency::ForceRefresh | Urgency::Rotation => MemoryPurpose::Rotation,
        };
        let id = self.update(|state| state.begin_fetch(purpose));
        let until = clock.monotonic().saturating_add(max_wait);
        let (memory, clock) = (self.clone(), SharedClock::clone(clock));
        FetchMemory(Arc::new(FetchMemoryShared { memory, id, clock, wait_deadline: until }))
    }
}

impl FetchMemory {
    pub(super) fn id(&self) -> FetchId {
        self.0.id
    }

    /// Reserves memory for the files of the volume, waiting if necessary. A failure is only logged:
    /// the later claim of the volume reports it.
    pub(crate) async fn reserve_files(&self, bytes: u64) {
        if let Err(refused) = self.reserve(Reservation::Files(bytes)).await {
            tracing::debug!(%refused, "could not reserve memory for the files of the volume");
        }
    }

    async fn reserve(&self, reservation: Reservation) -> Result<(), VolumesMemoryLimitError> {
        let FetchMemoryShared { memory, id, clock, wait_deadline: until, .. } = &*self.0;
        let mut result = memory.update(|state| state.reserve(*id, reservation, true));
        if let ReserveResult::EvictFirst(missing) = result {
            memory.evict_cached(missing);
            result = memory.update(|state| state.reserve(*id, reservation, false));
        }
        let (wait, mut reply_receiver) = match result {
            ReserveResult::Pending(wait, reply_receiver) => (wait, reply_receiver),
            ReserveResult::Refused(error) => return Err(error),
            ReserveResult::Granted | ReserveResult::EvictFirst(_) => return Ok(()),
        };
        let mut waiter_guard = CancelWaiterOnDrop { memory, waiter: wait, is_answered: false };
        let left = until.saturating_sub(clock.monotonic());
        let reply = tokio::select! {
            biased;
            reply = &mut reply_receiver => reply.ok(),
            () = clock.sleep(left) => None,
        };
        let reply = reply.unwrap_or_else(|| {
            let error = memory.update(|state| state.cancel_waiter(wait));
            // A reply that arrived at this very moment counts.
            error.map_or_else(|| reply_receiver.try_recv().unwrap_or(Ok(())), Err)
        });
        waiter_guard.is_answered = true;
        reply
    }
}

/// Removes a waiting reservation when it is dropped before the reply.
struct CancelWaiterOnDrop<'a> {
    memory: &'a MemoryAccount,
    waiter: WaiterId,
    is_answered: bool,
}

impl Drop for CancelWaiterOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.memory.update(|state| state.cancel_waiter(self.waiter));
        }
    }
}

#[async_trait]
impl ReadMemory for FetchMemory {
    async fn reserve_read_memory(&self, bytes: u64) -> Result<(), MemoryExhausted> {
        self.reserve(Reservation::Read(bytes)).await.map_err(to_memory_exhausted)
    }

    fn finish_read(&self, bytes: u64, retained: u64) {
        self.0.memory.update(|state| state.end_read(self.0.id, bytes, retained));
    }

    fn hold_reservations(&self) -> Box<dyn Send> {
        Box::new(self.clone())
    }

    fn max_read_reservation(&self) -> u64 {
        self.0.memory.0.state.lock().max_reservation(self.0.id)
    }

    fn mounted_size(&self, length: u64) -> u64 {
        min_file_size(length)
    }

    fn check_volume_fits(&self, size: u64) -> Result<(), MemoryExhausted> {
        let limit = self.0.memory.0.limit;
        // The next content of a mounted volume never needs more than this.
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
        self.memory.update(|state| state.end_fetch(self.id));
    }
}

fn to_memory_exhausted(refused: VolumesMemoryLimitError) -> MemoryExhausted {
    MemoryExhausted {
        message: refused.to_string(),
        hint: refused.hint().unwrap_or_default().into_owned(),
        exceeds_node_capacity: refused.can_never_fit,
    }
}
