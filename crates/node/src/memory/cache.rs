//! The memory of a cache within the node's memory account.

use lanyard_keyvault::{CacheMemory, CacheReserveError};
use parking_lot::Mutex;

use super::MemoryAccount;

/// The share of one cache (the shared vault reads, or the sealed cache) in the memory account of the node.
/// Dropping it releases the share.
#[derive(Debug)]
pub struct CacheMemoryShare {
    memory: MemoryAccount,
    limit: u64,
    used: Mutex<u64>,
}

impl CacheMemoryShare {
    pub(super) const fn new(memory: MemoryAccount, limit: u64) -> Self {
        Self { memory, limit, used: Mutex::new(0) }
    }
}

impl CacheMemory for CacheMemoryShare {
    fn limit_bytes(&self) -> u64 {
        self.limit
    }

    fn reserve_cache_memory(&self, bytes: u64) -> Result<(), CacheReserveError> {
        let mut used = self.used.lock();
        let wanted = used.saturating_add(bytes);
        let has_share = wanted <= self.limit;
        self.memory.update_cached(|state| state.reserve_cached(bytes, has_share))?;
        *used = wanted;
        Ok(())
    }

    fn release_cache_memory(&self, bytes: u64) {
        let mut used = self.used.lock();
        let bytes = bytes.min(*used);
        *used -= bytes;
        self.memory.update_cached(|state| state.release_cached(bytes));
    }
}

impl Drop for CacheMemoryShare {
    fn drop(&mut self) {
        let used = *self.used.get_mut();
        self.memory.update_cached(|state| state.release_cached(used));
    }
}
