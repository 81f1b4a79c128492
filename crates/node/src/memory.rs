//! The memory of the node: what volumes hold, what is read for them, and what is cached.
//!
//! All of it is charged to the node plugin, so all of it has one limit. A fill takes memory before it
//! reads and gives it back when its volume is written. Where there is none, it waits; the oldest goes
//! first. Fills that hold memory and wait for more could wait for each other for ever: as soon as
//! all of them wait, the youngest of those that hold much is refused and gives back what it holds.

mod account_state;
mod cache;
mod fetch_memory;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::memory_limit::{GrowthRequest, MemoryLimit, MemoryLimitError};
use account_state::MemoryAccountState;

pub use cache::NodeCacheMemory;
pub use fetch_memory::FetchMemory;

/// What is asked to evict so many bytes from the caches.
type CacheEvictor = dyn Fn(u64) + Send + Sync;

/// The memory of the node. Clones share it.
#[derive(Clone)]
pub struct MemoryAccount(Arc<MemoryAccountShared>);

struct MemoryAccountShared {
    state: Mutex<MemoryAccountState>,
    limit: MemoryLimit,
    evictor: OnceLock<Box<CacheEvictor>>,
}

impl MemoryAccount {
    /// Memory of so many bytes.
    pub fn new(limit: u64) -> Self {
        let limit = MemoryLimit(limit);
        let book = Mutex::new(MemoryAccountState::new(limit));
        Self(Arc::new(MemoryAccountShared { state: book, limit, evictor: OnceLock::new() }))
    }

    /// How many bytes there are.
    pub fn limit(&self) -> u64 {
        self.0.limit.0
    }

    /// How many bytes volumes hold, are being read for them and are cached.
    pub fn used(&self) -> u64 {
        self.0.state.lock().used()
    }

    /// How many of them are no volume's: read and not written yet, or cached.
    pub fn read_or_cached(&self) -> u64 {
        let book = self.0.state.lock();
        book.used().saturating_sub(book.volume_bytes())
    }

    /// Memory for a cache: an eighth of the limit at most.
    pub fn cache_memory(&self) -> NodeCacheMemory {
        NodeCacheMemory::new(self.clone(), self.0.limit.0 / CACHE_DIVISOR)
    }

    /// Calls `evict` where there is no room beside what is cached, with the bytes that are missing. A
    /// second one is not called.
    pub fn set_evictor(&self, evict: impl Fn(u64) + Send + Sync + 'static) {
        drop(self.0.evictor.set(Box::new(evict)));
    }

    /// The share of a volume, which holds nothing yet.
    pub(crate) fn volume_memory(&self) -> VolumeMemory {
        VolumeMemory { memory: self.clone(), bytes: Mutex::new(0) }
    }

    /// Does something about the book. What waits is looked at again after it.
    fn update<T>(&self, work: impl FnOnce(&mut MemoryAccountState) -> T) -> T {
        let (done, missing) = {
            let mut book = self.0.state.lock();
            let done = work(&mut book);
            (done, book.resolve_waiters(true))
        };
        if missing > 0 {
            self.evict_cached(missing);
            self.0.state.lock().resolve_waiters(false);
        }
        done
    }

    /// Runs `work` on the account of the caches, then grants waiting reservations. It neither evicts nor
    /// refuses, because the caller holds the lock of a cache.
    fn update_cached<T>(&self, work: impl FnOnce(&mut MemoryAccountState) -> T) -> T {
        let mut book = self.0.state.lock();
        let done = work(&mut book);
        book.grant_pending();
        done
    }

    /// Evicts what is cached. Never called with the book locked: caches give back what they drop.
    fn evict_cached(&self, bytes: u64) {
        if bytes > 0
            && let Some(evict) = self.0.evictor.get()
        {
            evict(bytes);
        }
    }
}

impl fmt::Debug for MemoryAccount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(shared) = self;
        formatter
            .debug_struct("NodeMemory")
            .field("limit", &shared.limit.0)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// What one volume holds of the node's memory, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct VolumeMemory {
    memory: MemoryAccount,
    bytes: Mutex<u64>,
}

impl VolumeMemory {
    /// Says what the volume holds, whether that is allowed or not.
    pub(crate) fn set_used(&self, bytes: u64) {
        let mut own = self.bytes.lock();
        self.memory.update(|book| book.replace_volume_bytes(*own, bytes));
        *own = bytes;
    }

    /// Lets the volume grow, by what was kept for that while it was read and by what is free.
    ///
    /// # Errors
    ///
    /// Where there is no room. Then nothing was taken.
    pub(crate) fn claim(
        &self,
        growth: GrowthRequest,
        fill: &FetchMemory,
    ) -> Result<(), MemoryLimitError> {
        let mut own = self.bytes.lock();
        let claim = || self.memory.update(|book| book.claim_for_volume(*own, growth, fill.id()));
        let claimed = claim().or_else(|(_, missing)| {
            self.memory.evict_cached(missing);
            claim()
        });
        *own = claimed.map_err(|(refused, _)| refused)?;
        Ok(())
    }
}

impl Drop for VolumeMemory {
    fn drop(&mut self) {
        let own = *self.bytes.get_mut();
        self.memory.update(|book| book.replace_volume_bytes(own, 0));
    }
}

/// The part of the limit that a cache may hold.
const CACHE_DIVISOR: u64 = 8;
