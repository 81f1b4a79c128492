//! The memory account of the node: volumes, fetches in progress and caches.
//!
//! The kernel charges all of this memory to the node plugin, so all of it has one limit. A fetch
//! reserves memory before it reads and releases it when its volume is written. If no memory is
//! free, it waits; the oldest fetch goes first. Fetches that hold memory and wait for more can
//! deadlock: as soon as all of them wait, the account refuses the youngest of the large ones, which
//! releases its memory.

mod account_state;
mod cache;
mod fetch_memory;
mod memory_limit;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use lanyard_volume::{GrowthRequest, VolumesMemoryLimitError};
use parking_lot::Mutex;

use account_state::MemoryAccountState;
use memory_limit::MemoryLimit;

pub use cache::CacheMemoryShare;
pub use fetch_memory::FetchMemory;

/// Evicts at least this many bytes from the caches.
type CacheEvictor = dyn Fn(u64) + Send + Sync;

/// The memory account of the node. Clones share it.
#[derive(Clone)]
pub struct MemoryAccount(Arc<MemoryAccountShared>);

struct MemoryAccountShared {
    state: Mutex<MemoryAccountState>,
    limit: MemoryLimit,
    evictor: OnceLock<Box<CacheEvictor>>,
}

impl MemoryAccount {
    /// Creates an account with a limit in bytes.
    pub fn new(limit: u64) -> Self {
        let limit = MemoryLimit(limit);
        let state = Mutex::new(MemoryAccountState::new(limit));
        Self(Arc::new(MemoryAccountShared { state, limit, evictor: OnceLock::new() }))
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit.0
    }

    /// The bytes in volumes, in fetches and in caches.
    pub fn used(&self) -> u64 {
        self.0.state.lock().used()
    }

    /// The bytes that are not in a volume: fetched but not written yet, or cached.
    pub fn read_or_cached(&self) -> u64 {
        let state = self.0.state.lock();
        state.used().saturating_sub(state.volume_bytes())
    }

    /// A memory share for a cache: at most an eighth of the limit.
    pub fn cache_memory(&self) -> CacheMemoryShare {
        CacheMemoryShare::new(self.clone(), self.0.limit.0 / CACHE_DIVISOR)
    }

    /// Sets the function that evicts cached bytes when memory is short. Only the first call has an
    /// effect.
    pub fn set_evictor(&self, evict: impl Fn(u64) + Send + Sync + 'static) {
        drop(self.0.evictor.set(Box::new(evict)));
    }

    /// A memory share for a volume, initially empty.
    pub(crate) fn volume_memory(&self) -> VolumeMemory {
        VolumeMemory { memory: self.clone(), bytes: Mutex::new(0) }
    }

    /// Runs `work` on the account, then resolves waiting reservations.
    fn update<T>(&self, work: impl FnOnce(&mut MemoryAccountState) -> T) -> T {
        let (done, missing) = {
            let mut state = self.0.state.lock();
            let done = work(&mut state);
            (done, state.resolve_waiters(true))
        };
        if missing > 0 {
            self.evict_cached(missing);
            self.0.state.lock().resolve_waiters(false);
        }
        done
    }

    /// Runs `work` on the account, then grants waiting reservations. It neither evicts nor refuses,
    /// because the caller holds the lock of a cache.
    fn update_cached<T>(&self, work: impl FnOnce(&mut MemoryAccountState) -> T) -> T {
        let mut state = self.0.state.lock();
        let done = work(&mut state);
        state.grant_pending();
        done
    }

    /// Evicts cached bytes. The account must not be locked: caches release their memory meanwhile.
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
            .debug_struct("MemoryAccount")
            .field("limit", &shared.limit.0)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// The memory of one volume. Dropping it releases the memory.
#[derive(Debug)]
pub(crate) struct VolumeMemory {
    memory: MemoryAccount,
    bytes: Mutex<u64>,
}

impl VolumeMemory {
    /// Sets the memory of the volume, without checking the limit.
    pub(crate) fn set_used(&self, bytes: u64) {
        let mut own = self.bytes.lock();
        self.memory.update(|state| state.replace_volume_bytes(*own, bytes));
        *own = bytes;
    }

    /// Claims memory for a growth of the volume: first the bytes that the fetch reserved for its
    /// files, then free memory.
    ///
    /// # Errors
    ///
    /// Fails if the memory is not free. Then nothing was claimed.
    pub(crate) fn claim(
        &self,
        growth: GrowthRequest,
        fetch: &FetchMemory,
    ) -> Result<(), VolumesMemoryLimitError> {
        let mut own = self.bytes.lock();
        let claim = || self.memory.update(|state| state.claim_for_volume(*own, growth, fetch.id()));
        let claimed = claim().or_else(|(_, missing)| {
            self.memory.evict_cached(missing);
            claim()
        });
        *own = claimed.map_err(|(error, _)| error)?;
        Ok(())
    }
}

impl Drop for VolumeMemory {
    fn drop(&mut self) {
        let own = *self.bytes.get_mut();
        self.memory.update(|state| state.replace_volume_bytes(own, 0));
    }
}

/// The divisor of the limit for the maximum of a cache.
const CACHE_DIVISOR: u64 = 8;
