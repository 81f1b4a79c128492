//! The memory of one fill: what is read for a volume until it is written.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_clock::SharedClock;
use lanyard_keyvault::{MemoryExhausted, ReadMemory};

use super::NodeMemory;
use super::book::{Asked, FillId, Room, WaitId};
use crate::budget::{Growth, NoRoom, Purpose, mounted_size};
use crate::provider::Urgency;

/// What a fill holds of the node's memory. The last clone gives it back.
#[derive(Debug, Clone)]
pub struct FillMemory(Arc<Held>);

#[derive(Debug)]
struct Held {
    memory: NodeMemory,
    id: FillId,
    clock: SharedClock,
    /// Until when it waits, in monotonic time.
    until: Duration,
}

impl NodeMemory {
    /// The memory of a fill that begins now and waits for memory no longer than `patience`.
    pub fn fill(&self, urgency: Urgency, patience: Duration, clock: &SharedClock) -> FillMemory {
        let purpose = match urgency {
            Urgency::Mount => Purpose::Mount,
            Urgency::Refresh | Urgency::Rotation => Purpose::Rotation,
        };
        let id = self.with(|book| book.begin(purpose));
        let until = clock.monotonic().saturating_add(patience);
        let (memory, clock) = (self.clone(), SharedClock::clone(clock));
        FillMemory(Arc::new(Held { memory, id, clock, until }))
    }
}

impl FillMemory {
    pub(super) fn id(&self) -> FillId {
        self.0.id
    }

    /// Waits until there is room for the files of the volume beside what is read for it. That there
    /// is none is found out, and told, when the volume asks for it.
    pub(crate) async fn wait_for_files(&self, bytes: u64) {
        if let Err(refused) = self.wait_for(Room::Files(bytes)).await {
            tracing::debug!(%refused, "no room is kept for the files of the volume");
        }
    }

    async fn wait_for(&self, room: Room) -> Result<(), NoRoom> {
        let Held { memory, id, clock, until, .. } = &*self.0;
        let mut asked = memory.with(|book| book.ask(*id, room, true));
        if let Asked::Evict(missing) = asked {
            memory.evict(missing);
            asked = memory.with(|book| book.ask(*id, room, false));
        }
        let (wait, mut answered) = match asked {
            Asked::Wait(wait, answered) => (wait, answered),
            Asked::Refused(refused) => return Err(refused),
            Asked::Granted | Asked::Evict(_) => return Ok(()),
        };
        let mut place = Queued { memory, wait, is_over: false };
        let left = until.saturating_sub(clock.monotonic());
        let answer = tokio::select! {
            biased;
            answer = &mut answered => answer.ok(),
            () = clock.sleep(left) => None,
        };
        let answer = answer.unwrap_or_else(|| {
            let refused = memory.with(|book| book.give_up(wait));
            // What was answered in this very moment holds.
            refused.map_or_else(|| answered.try_recv().unwrap_or(Ok(())), Err)
        });
        place.is_over = true;
        answer
    }
}

/// A place among those who wait, which is left when its owner goes.
struct Queued<'a> {
    memory: &'a NodeMemory,
    wait: WaitId,
    is_over: bool,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.memory.with(|book| book.give_up(self.wait));
        }
    }
}

#[async_trait]
impl ReadMemory for FillMemory {
    async fn begin(&self, room: u64) -> Result<(), MemoryExhausted> {
        self.wait_for(Room::Read(room)).await.map_err(exhausted)
    }

    fn end(&self, room: u64, kept: u64) {
        self.0.memory.with(|book| book.end_read(self.0.id, room, kept));
    }

    fn largest_read(&self) -> u64 {
        self.0.memory.0.book.lock().largest(self.0.id)
    }

    fn mounted_size(&self, length: u64) -> u64 {
        mounted_size(length)
    }

    fn check_volume(&self, size: u64) -> Result<(), MemoryExhausted> {
        let limit = self.0.memory.0.limit;
        // Beside a volume that is mounted its next content needs no more room than this.
        let purpose = Purpose::Mount;
        let growth = Growth { held: 0, lasting: 0, needed: size, reading: 0, purpose };
        match limit.admit(0, growth) {
            Err(refused) if refused.is_hopeless => Err(exhausted(refused)),
            _ => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.with(|book| book.end(self.id));
    }
}

fn exhausted(refused: NoRoom) -> MemoryExhausted {
    MemoryExhausted {
        message: refused.to_string(),
        hint: refused.hint().to_owned(),
        is_hopeless: refused.is_hopeless,
    }
}
