//! The memory of the node: what volumes hold, what is read for them, and what is cached.
//!
//! All of it is charged to the node plugin, so all of it has one limit. A fill takes memory before it
//! reads and gives it back when its volume is written. Where there is none, it waits; the oldest goes
//! first. Fills that hold memory and wait for more could wait for each other for ever: as soon as
//! all of them wait, the youngest of those that hold much is refused and gives back what it holds.

mod book;
mod cache;
mod fill;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::budget::{Growth, MemoryLimit, NoRoom};
use book::Book;

pub use cache::CacheShare;
pub use fill::FillMemory;

/// What is asked to evict so many bytes from the caches.
type Evictor = dyn Fn(u64) + Send + Sync;

/// The memory of the node. Clones share it.
#[derive(Clone)]
pub struct NodeMemory(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    limit: MemoryLimit,
    evictor: OnceLock<Box<Evictor>>,
}

impl NodeMemory {
    /// Memory of so many bytes.
    pub fn new(limit: u64) -> Self {
        let limit = MemoryLimit(limit);
        let book = Mutex::new(Book::new(limit));
        Self(Arc::new(Shared { book, limit, evictor: OnceLock::new() }))
    }

    /// How many bytes there are.
    pub fn limit(&self) -> u64 {
        self.0.limit.0
    }

    /// How many bytes volumes hold, are being read for them and are cached.
    pub fn used(&self) -> u64 {
        self.0.book.lock().used()
    }

    /// How many of them are no volume's: read and not written yet, or cached.
    pub fn read(&self) -> u64 {
        let book = self.0.book.lock();
        book.used().saturating_sub(book.volumes())
    }

    /// Memory for a cache: an eighth of the limit at most.
    pub fn cache(&self) -> CacheShare {
        CacheShare::new(self.clone(), self.0.limit.0 / CACHE_PART)
    }

    /// Calls `evict` where there is no room beside what is cached, with the bytes that are missing. A
    /// second one is not called.
    pub fn evict_with(&self, evict: impl Fn(u64) + Send + Sync + 'static) {
        drop(self.0.evictor.set(Box::new(evict)));
    }

    /// The share of a volume, which holds nothing yet.
    pub(crate) fn volume(&self) -> VolumeShare {
        VolumeShare { memory: self.clone(), bytes: Mutex::new(0) }
    }

    /// Does something about the book. What waits is looked at again after it.
    fn with<T>(&self, work: impl FnOnce(&mut Book) -> T) -> T {
        let (done, missing) = {
            let mut book = self.0.book.lock();
            let done = work(&mut book);
            (done, book.settle(true))
        };
        if missing > 0 {
            self.evict(missing);
            self.0.book.lock().settle(false);
        }
        done
    }

    /// Runs `work` on the account of the caches, then grants waiting reservations. It neither evicts nor
    /// refuses, because the caller holds the lock of a cache.
    fn with_cache<T>(&self, work: impl FnOnce(&mut Book) -> T) -> T {
        let mut book = self.0.book.lock();
        let done = work(&mut book);
        book.grant_waiting();
        done
    }

    /// Evicts what is cached. Never called with the book locked: caches give back what they drop.
    fn evict(&self, bytes: u64) {
        if bytes > 0
            && let Some(evict) = self.0.evictor.get()
        {
            evict(bytes);
        }
    }
}

impl fmt::Debug for NodeMemory {
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
pub(crate) struct VolumeShare {
    memory: NodeMemory,
    bytes: Mutex<u64>,
}

impl VolumeShare {
    /// Says what the volume holds, whether that is allowed or not.
    pub(crate) fn set(&self, bytes: u64) {
        let mut own = self.bytes.lock();
        self.memory.with(|book| book.exchange_volume(*own, bytes));
        *own = bytes;
    }

    /// Lets the volume grow, by what was kept for that while it was read and by what is free.
    ///
    /// # Errors
    ///
    /// Where there is no room. Then nothing was taken.
    pub(crate) fn claim(&self, growth: Growth, fill: &FillMemory) -> Result<(), NoRoom> {
        let mut own = self.bytes.lock();
        let claim = || self.memory.with(|book| book.claim(*own, growth, fill.id()));
        let claimed = claim().or_else(|(_, missing)| {
            self.memory.evict(missing);
            claim()
        });
        *own = claimed.map_err(|(refused, _)| refused)?;
        Ok(())
    }
}

impl Drop for VolumeShare {
    fn drop(&mut self) {
        let own = *self.bytes.get_mut();
        self.memory.with(|book| book.exchange_volume(own, 0));
    }
}

/// The part of the limit that a cache may hold.
const CACHE_PART: u64 = 8;
