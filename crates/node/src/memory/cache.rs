//! The share of a cache in the node's memory.

use lanyard_keyvault::{CacheMemory, CacheRefusal};
use parking_lot::Mutex;

use super::NodeMemory;

/// What a cache holds of the node's memory.
#[derive(Debug)]
pub struct CacheShare {
    memory: NodeMemory,
    limit: u64,
    held: Mutex<u64>,
}

impl CacheShare {
    pub(super) const fn new(memory: NodeMemory, limit: u64) -> Self {
        Self { memory, limit, held: Mutex::new(0) }
    }
}

impl CacheMemory for CacheShare {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn take(&self, bytes: u64) -> Result<(), CacheRefusal> {
        let mut held = self.held.lock();
        let wanted = held.saturating_add(bytes);
        let has_share = wanted <= self.limit;
        self.memory.with_cache(|book| book.cache(bytes, has_share))?;
        *held = wanted;
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let mut held = self.held.lock();
        let bytes = bytes.min(*held);
        *held -= bytes;
        self.memory.with_cache(|book| book.uncache(bytes));
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        self.memory.with_cache(|book| book.uncache(held));
    }
}
