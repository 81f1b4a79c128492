//! The share of a cache in the node's memory.

use lanyard_keyvault::{CacheMemory, CacheReserveError};
use parking_lot::Mutex;

use super::MemoryAccount;

/// What a cache holds of the node's memory.
#[derive(Debug)]
pub struct NodeCacheMemory {
    memory: MemoryAccount,
    limit: u64,
    used: Mutex<u64>,
}

impl NodeCacheMemory {
    pub(super) const fn new(memory: MemoryAccount, limit: u64) -> Self {
        Self { memory, limit, used: Mutex::new(0) }
    }
}

impl CacheMemory for NodeCacheMemory {
    fn limit_bytes(&self) -> u64 {
        self.limit
    }

    fn reserve_cache_memory(&self, bytes: u64) -> Result<(), CacheReserveError> {
        let mut held = self.used.lock();
        let wanted = held.saturating_add(bytes);
        let has_share = wanted <= self.limit;
        self.memory.update_cached(|book| book.reserve_cached(bytes, has_share))?;
        *held = wanted;
        Ok(())
    }

    fn release_cache_memory(&self, bytes: u64) {
        let mut held = self.used.lock();
        let bytes = bytes.min(*held);
        *held -= bytes;
        self.memory.update_cached(|book| book.release_cached(bytes));
    }
}

impl Drop for NodeCacheMemory {
    fn drop(&mut self) {
        let held = *self.used.get_mut();
        self.memory.update_cached(|book| book.release_cached(held));
    }
}
