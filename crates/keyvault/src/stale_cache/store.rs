//! Stores sealed entries in memory or in a directory.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::memory::{CacheMemory, CacheReserveError, UnlimitedMemory, saturating_u64};

use super::{
    ENTRY_FORMAT, EntryId, InvalidatedEntries, KEY_LENGTH, NONCE_LEN, StaleCacheError, parse_key,
};

/// A sealed entry. Only its read time is readable.
#[derive(Debug, Clone)]
pub(super) struct SealedEntry {
    pub(super) read_at: Timestamp,
    pub(super) nonce: [u8; NONCE_LEN],
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum SealedStore {
    Memory(SealedMemoryStore),
    Disk(Arc<SealedDiskStore>),
}

/// Sealed entries in memory, by id.
#[derive(Debug)]
pub(super) struct SealedMemoryStore {
    entries: Mutex<HashMap<EntryId, SealedEntry>>,
    /// The memory account from which entries are reserved; it limits their total size.
    cache_memory: Arc<dyn CacheMemory>,
    /// The number of writes, which determines when expired entries are removed.
    writes_since_start: AtomicU32,
}

/// Sealed entries in files of one directory, with the read times of the entries that this process knows.
#[derive(Debug)]
pub(super) struct SealedDiskStore {
    directory: PathBuf,
    read_times: Mutex<HashMap<EntryId, Timestamp>>,
    /// Locks that serialize writes and removals of a file, so that the check and the write are atomic. The
    /// first byte of the id selects the lock.
    write_locks: [Mutex<()>; WRITE_LOCK_COUNT],
    /// The number of writes, which determines when expired entries are removed.
    writes_since_start: AtomicU32,
}

impl SealedMemoryStore {
    /// Sets the memory account of an empty store.
    pub(super) fn set_cache_memory(&mut self, cache_memory: Arc<dyn CacheMemory>) {
        self.cache_memory = cache_memory;
    }

    /// Stores an entry, unless a newer one is present, the entry was invalidated since its read, or the memory
    /// account has no room for it. Every `CLEANUP_INTERVAL_WRITES` writes it first removes expired entries.
    fn put(&self, id: EntryId, sealed: SealedEntry, invalidated: &InvalidatedEntries) {
        let mut entries = self.entries.lock();
        let existing = entries.get(&id).map(|entry| entry.read_at);
        if existing.is_some_and(|read_at| read_at >= sealed.read_at)
            || invalidated.was_invalidated_after(&id, sealed.read_at)
        {
            return;
        }
        if is_cleanup_due(&self.writes_since_start) {
            let oldest = oldest_readable(sealed.read_at);
            let old = entries.extract_if(|_, entry| entry.read_at < oldest);
            let bytes = old.map(|(_, entry)| entry.memory_bytes()).fold(0, u64::saturating_add);
            self.cache_memory.release_cache_memory(bytes);
        }
        // The replaced entry stays until there is memory, and its bytes are reused.
        let replaced = entries.get(&id).map(SealedEntry::memory_bytes);
        if !self.reserve_for_entry(&mut entries, &id, replaced, sealed.memory_bytes()) {
            return;
        }
        entries.insert(id, sealed);
    }

    /// Reserves memory for an entry of `weight` bytes, which replaces one of `replaced` bytes. Drops the
    /// oldest other entries only if the cache itself is full. Returns whether the memory was reserved.
    fn reserve_for_entry(
        &self,
        entries: &mut HashMap<EntryId, SealedEntry>,
        id: &EntryId,
        replaced: Option<u64>,
        weight: u64,
    ) -> bool {
        if weight > self.cache_memory.limit_bytes() {
            return false;
        }
        let old = replaced.unwrap_or(0);
        if weight <= old {
            self.cache_memory.release_cache_memory(old - weight);
            return true;
        }
        loop {
            let reserve_error = if replaced.is_none() && entries.len() >= MAX_ENTRIES {
                CacheReserveError::CacheFull
            } else {
                match self.cache_memory.reserve_cache_memory(weight - old) {
                    Ok(()) => return true,
                    Err(reserve_error) => reserve_error,
                }
            };
            let dropped = match reserve_error {
                CacheReserveError::CacheFull => {
                    remove_oldest(entries, Some(id), |entry| entry.read_at)
                }
                CacheReserveError::NodeFull => None,
            };
            let Some((_, dropped)) = dropped else { return false };
            self.cache_memory.release_cache_memory(dropped.memory_bytes());
        }
    }

    fn remove(&self, id: &EntryId) {
        if let Some(entry) = self.entries.lock().remove(id) {
            self.cache_memory.release_cache_memory(entry.memory_bytes());
        }
    }
}

impl Default for SealedMemoryStore {
    fn default() -> Self {
        let (entries, writes_since_start) = (Mutex::default(), AtomicU32::default());
        Self { entries, cache_memory: Arc::new(UnlimitedMemory), writes_since_start }
    }
}

impl SealedEntry {
    /// The memory of the entry in bytes.
    fn memory_bytes(&self) -> u64 {
        saturating_u64(self.bytes.capacity()).saturating_add(ENTRY_OVERHEAD_BYTES)
    }
}

impl SealedStore {
    /// Opens a store in a directory and removes its expired entries.
    pub(super) fn open_directory(path: &Path, now: Timestamp) -> Result<Self, StaleCacheError> {
        let failed = |source| StaleCacheError::Directory { path: path.to_owned(), source };
        match DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        // Other users with write permission could remove entries, and with read permission count them.
        if !metadata.is_dir() || metadata.mode() & 0o022 != 0 {
            return Err(failed(io::ErrorKind::PermissionDenied.into()));
        }
        remove_expired_files(path, now).map_err(failed)?;
        let (directory, read_times, write_locks) =
            (path.to_owned(), Mutex::default(), Default::default());
        let writes_since_start = AtomicU32::new(0);
        Ok(Self::Disk(Arc::new(SealedDiskStore {
            directory,
            read_times,
            write_locks,
            writes_since_start,
        })))
    }

    /// When the entry was read, as far as known without disk access.
    pub(super) fn read_at(&self, id: &EntryId) -> Option<Timestamp> {
        match self {
            Self::Memory(memory) => memory.entries.lock().get(id).map(|sealed| sealed.read_at),
            Self::Disk(disk) => disk.read_times.lock().get(id).copied(),
        }
    }

    /// Stores an entry, unless a newer one is present or the entry was invalidated since its read.
    pub(super) async fn put(
        &self,
        id: EntryId,
        sealed: SealedEntry,
        invalidated: &Arc<InvalidatedEntries>,
    ) -> io::Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.put(id, sealed, invalidated);
                Ok(())
            }
            Self::Disk(disk) => {
                // Complete the write even if the caller is dropped.
                let (disk, invalidated) = (Arc::clone(disk), Arc::clone(invalidated));
                run_blocking(move || disk.put(id, &sealed, &invalidated)).await
            }
        }
    }

    pub(super) async fn load(&self, id: &EntryId) -> Option<SealedEntry> {
        match self {
            Self::Memory(memory) => memory.entries.lock().get(id).cloned(),
            Self::Disk(disk) => {
                let path = disk.entry_path(id);
                match run_blocking(move || read_entry_file(&path)).await {
                    Ok(sealed) => Some(sealed),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => {
                        tracing::error!(%error, "an entry of the sealed cache cannot be read, and is dropped");
                        self.remove(id).await;
                        None
                    }
                }
            }
        }
    }

    pub(super) async fn remove(&self, id: &EntryId) {
        match self {
            Self::Memory(memory) => memory.remove(id),
            Self::Disk(disk) => {
                let (disk, id) = (Arc::clone(disk), *id);
                if let Err(error) = run_blocking(move || disk.remove(&id)).await {
                    tracing::warn!(%error, "an entry of the sealed cache cannot be removed");
                }
            }
        }
    }
}

impl SealedDiskStore {
    fn entry_path(&self, id: &EntryId) -> PathBuf {
        self.directory.join(format!("{}{SUFFIX}", hex::encode(id.0)))
    }

    /// The lock for writes and removals of the file of this entry.
    fn write_lock(&self, id: &EntryId) -> &Mutex<()> {
        &self.write_locks[usize::from(id.0[0]) % WRITE_LOCK_COUNT]
    }

    /// Writes the file of an entry, unless a newer one is present or the entry was invalidated since its read.
    /// Then removes the oldest entry if there are too many, and every `CLEANUP_INTERVAL_WRITES` writes the
    /// expired ones.
    fn put(
        &self,
        id: EntryId,
        sealed: &SealedEntry,
        invalidated: &InvalidatedEntries,
    ) -> io::Result<()> {
        let read_at = sealed.read_at;
        let dropped = {
            let _lock = self.write_lock(&id).lock();
            let existing = self.read_times.lock().get(&id).copied();
            if existing.is_some_and(|existing| existing >= read_at)
                || invalidated.was_invalidated_after(&id, read_at)
            {
                return Ok(());
            }
            write_entry_file(&self.entry_path(&id), sealed)?;
            let mut read_times = self.read_times.lock();
            read_times.insert(id, read_at);
            let is_full = read_times.len() > MAX_ENTRIES;
            is_full.then(|| remove_oldest(&mut read_times, None, |read_at| *read_at)).flatten()
        };
        if let Some((dropped, _)) = dropped {
            self.remove(&dropped)?;
        }
        if is_cleanup_due(&self.writes_since_start) {
            remove_expired_files(&self.directory, read_at)?;
        }
        Ok(())
    }

    fn remove(&self, id: &EntryId) -> io::Result<()> {
        let _lock = self.write_lock(id).lock();
        self.read_times.lock().remove(id);
        match fs::remove_file(self.entry_path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reads the key from a file that only its owner may read.
pub(super) fn read_key_file(path: &Path) -> Result<Zeroizing<[u8; KEY_LENGTH]>, StaleCacheError> {
    let failed = |source| StaleCacheError::KeyFile { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(StaleCacheError::KeyFileReadableByOthers { path: path.to_owned(), mode });
    }
    let mut content = Zeroizing::new(Vec::with_capacity(MAX_KEY_FILE_BYTES));
    file.take(128).read_to_end(&mut content).map_err(failed)?;
    parse_key(&content).ok_or_else(|| StaleCacheError::InvalidKey { path: path.to_owned() })
}

/// The age in seconds after which a temporary file is a leftover.
const TEMPORARY_FILE_SECONDS: i64 = 600;

/// Counts a write, and returns whether a clean-up is due.
fn is_cleanup_due(written: &AtomicU32) -> bool {
    written.fetch_add(1, Ordering::Relaxed).wrapping_add(1).is_multiple_of(CLEANUP_INTERVAL_WRITES)
}

/// The read time of the oldest entry that a class may request.
fn oldest_readable(now: Timestamp) -> Timestamp {
    now.saturating_sub(MAX_ENTRY_AGE).unwrap_or(Timestamp::MIN)
}

/// Removes expired and excess entries, which earlier processes may have left, and temporary files of a crash.
fn remove_expired_files(directory: &Path, now: Timestamp) -> io::Result<()> {
    let oldest = oldest_readable(now);
    let mut entries = Vec::new();
    for file in fs::read_dir(directory)? {
        let file = file?;
        let name = file.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_entry = name.ends_with(SUFFIX);
        let is_partly = name.ends_with(TEMPORARY);
        // Only removes files that this program wrote and that are not being written.
        let limit =
            if is_partly { now.as_second() - TEMPORARY_FILE_SECONDS } else { oldest.as_second() };
        // The file may have been removed meanwhile.
        let changed = file.metadata().map_or(i64::MAX, |metadata| metadata.mtime());
        if (is_entry || is_partly) && changed < limit {
            fs::remove_file(file.path())?;
        } else if is_entry {
            entries.push((changed, file.path()));
        }
    }
    entries.sort_unstable();
    let surplus = entries.len().saturating_sub(MAX_ENTRIES);
    for (_, path) in entries.into_iter().take(surplus) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Writes the file atomically.
fn write_entry_file(path: &Path, sealed: &SealedEntry) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}{TEMPORARY}", fastrand::u64(..)));
    let written = write_new_file(&temporary, sealed).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written
}

fn write_new_file(path: &Path, sealed: &SealedEntry) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(ENTRY_FORMAT)?;
    file.write_all(&sealed.read_at.as_second().to_be_bytes())?;
    file.write_all(&sealed.nonce)?;
    file.write_all(&sealed.bytes)?;
    file.sync_all()
}

fn read_entry_file(path: &Path) -> io::Result<SealedEntry> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut content = Vec::new();
    file.take(MAX_ENTRY_FILE_BYTES).read_to_end(&mut content)?;
    parse_entry_file(&content).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_entry_file(content: &[u8]) -> Option<SealedEntry> {
    let rest = content.strip_prefix(ENTRY_FORMAT)?;
    let (second, rest) = rest.split_first_chunk::<8>()?;
    let (nonce, bytes) = rest.split_first_chunk::<NONCE_LEN>()?;
    let read_at = Timestamp::from_second(i64::from_be_bytes(*second)).ok()?;
    Some(SealedEntry { read_at, nonce: *nonce, bytes: bytes.to_vec() })
}

/// Removes the oldest entry other than `spared`.
fn remove_oldest<T>(
    entries: &mut HashMap<EntryId, T>,
    spared: Option<&EntryId>,
    read_at: impl Fn(&T) -> Timestamp,
) -> Option<(EntryId, T)> {
    let others = entries.iter().filter(|(id, _)| Some(*id) != spared);
    let oldest = others.min_by_key(|(_, entry)| read_at(entry));
    let oldest = oldest.map(|(id, _)| *id)?;
    entries.remove_entry(&oldest)
}

/// Runs `work` on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

const SUFFIX: &str = ".sealed";
const TEMPORARY: &str = ".partly";
/// A secret has at most 25 KB, and a node a few hundred secrets.
pub(super) const MAX_ENTRIES: usize = 2_048;
/// The maximum number of concurrent file writes.
const WRITE_LOCK_COUNT: usize = 16;
/// The number of writes between clean-ups.
const CLEANUP_INTERVAL_WRITES: u32 = 256;
/// The memory of an entry besides its bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 128;
/// Twice the largest secret, and its metadata.
const MAX_ENTRY_FILE_BYTES: u64 = 128 * 1024;
/// The maximum plain text, so that the entry stays within the file limit.
pub(super) const MAX_SEALED_BYTES: usize = 128 * 1024 - ENTRY_FORMAT.len() - 8 - NONCE_LEN;
/// Longer than base64 of a key.
const MAX_KEY_FILE_BYTES: usize = 160;
/// No class may request older entries.
pub(super) const MAX_ENTRY_AGE: SignedDuration = SignedDuration::from_hours(7 * 24);
