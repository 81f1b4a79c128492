//! Where sealed entries are: in memory, or in a directory of their own.

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

use crate::memory::{CacheMemory, CacheRefusal, UnlimitedMemory, length_of};

use super::{EntryId, FORMAT, Forgotten, KEY_LENGTH, NONCE_LEN, StaleCacheError, parse_key};

/// A sealed entry. Only its time can be read.
#[derive(Debug, Clone)]
pub(super) struct Sealed {
    pub(super) read_at: Timestamp,
    pub(super) nonce: [u8; NONCE_LEN],
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Store {
    Memory(Memory),
    Disk(Arc<Disk>),
}

/// The entries themselves.
#[derive(Debug)]
pub(super) struct Memory {
    entries: Mutex<HashMap<EntryId, Sealed>>,
    /// What the entries are accounted in.
    room: Arc<dyn CacheMemory>,
    /// How many entries were put in.
    written: AtomicU32,
}

/// Entries in files, and when what this process knows of was read.
#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
    known: Mutex<HashMap<EntryId, Timestamp>>,
    /// Who writes or removes a file has the turn of its entry, so that what is decided about it is
    /// still true when it is done. An entry has the turn of its first byte.
    turns: [Mutex<()>; TURNS],
    /// How many entries were written.
    written: AtomicU32,
}

impl Memory {
    /// Counts the entries here from now on. There are none yet.
    pub(super) fn seal_in(&mut self, room: Arc<dyn CacheMemory>) {
        self.room = room;
    }

    fn put(&self, id: EntryId, sealed: Sealed, forgotten: &Forgotten) {
        let mut entries = self.entries.lock();
        let there = entries.get(&id).map(|entry| entry.read_at);
        if there.is_some_and(|there| there >= sealed.read_at)
            || forgotten.covers(&id, sealed.read_at)
        {
            return;
        }
        if is_clearing(&self.written) {
            let oldest = oldest_of(sealed.read_at);
            let old = entries.extract_if(|_, entry| entry.read_at < oldest);
            let bytes = old.map(|(_, entry)| entry.weight()).fold(0, u64::saturating_add);
            self.room.give_back(bytes);
        }
        // The entry that this one replaces stays until there is room, and its bytes are reused.
        let replaced = entries.get(&id).map(Sealed::weight);
        if !self.make_room(&mut entries, &id, replaced, sealed.weight()) {
            return;
        }
        entries.insert(id, sealed);
    }

    /// Takes memory for an entry of `weight` bytes, which replaces one of `replaced` bytes if there is
    /// one. Drops the oldest other entries only if the cache itself is full. Returns whether there is
    /// room.
    fn make_room(
        &self,
        entries: &mut HashMap<EntryId, Sealed>,
        id: &EntryId,
        replaced: Option<u64>,
        weight: u64,
    ) -> bool {
        if weight > self.room.limit() {
            return false;
        }
        let old = replaced.unwrap_or(0);
        if weight <= old {
            self.room.give_back(old - weight);
            return true;
        }
        loop {
            let refusal = if replaced.is_none() && entries.len() >= MOST_ENTRIES {
                CacheRefusal::CacheFull
            } else {
                match self.room.take(weight - old) {
                    Ok(()) => return true,
                    Err(refusal) => refusal,
                }
            };
            let dropped = match refusal {
                CacheRefusal::CacheFull => drop_oldest(entries, Some(id), |entry| entry.read_at),
                CacheRefusal::NodeFull => None,
            };
            let Some((_, dropped)) = dropped else { return false };
            self.room.give_back(dropped.weight());
        }
    }

    fn remove(&self, id: &EntryId) {
        if let Some(entry) = self.entries.lock().remove(id) {
            self.room.give_back(entry.weight());
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        let (entries, written) = (Mutex::default(), AtomicU32::default());
        Self { entries, room: Arc::new(UnlimitedMemory), written }
    }
}

impl Sealed {
    /// What the entry takes in memory, in bytes.
    fn weight(&self) -> u64 {
        length_of(self.bytes.capacity()).saturating_add(ENTRY)
    }
}

impl Store {
    /// Opens a directory, and drops what is too old for anybody.
    pub(super) fn on_disk(path: &Path, now: Timestamp) -> Result<Self, StaleCacheError> {
        let failed = |source| StaleCacheError::Directory { path: path.to_owned(), source };
        match DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        // Whoever may write there can take entries away, and who may read can count them.
        if !metadata.is_dir() || metadata.mode() & 0o022 != 0 {
            return Err(failed(io::ErrorKind::PermissionDenied.into()));
        }
        clear_old(path, now).map_err(failed)?;
        let (directory, known, turns) = (path.to_owned(), Mutex::default(), Default::default());
        let written = AtomicU32::new(0);
        Ok(Self::Disk(Arc::new(Disk { directory, known, turns, written })))
    }

    /// When the entry was read, as far as is known without looking at the disk.
    pub(super) fn read_at(&self, id: &EntryId) -> Option<Timestamp> {
        match self {
            Self::Memory(memory) => memory.entries.lock().get(id).map(|sealed| sealed.read_at),
            Self::Disk(disk) => disk.known.lock().get(id).copied(),
        }
    }

    /// Puts an entry in, unless something as new is there or it was forgotten since it was read.
    pub(super) async fn put(
        &self,
        id: EntryId,
        sealed: Sealed,
        forgotten: &Arc<Forgotten>,
    ) -> io::Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.put(id, sealed, forgotten);
                Ok(())
            }
            Self::Disk(disk) => {
                // Whole, also where the caller does not wait for it.
                let (disk, forgotten) = (Arc::clone(disk), Arc::clone(forgotten));
                blocking(move || disk.put(id, &sealed, &forgotten)).await
            }
        }
    }

    pub(super) async fn load(&self, id: &EntryId) -> Option<Sealed> {
        match self {
            Self::Memory(memory) => memory.entries.lock().get(id).cloned(),
            Self::Disk(disk) => {
                let path = disk.path(id);
                match blocking(move || read_file(&path)).await {
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
                if let Err(error) = blocking(move || disk.remove(&id)).await {
                    tracing::warn!(%error, "an entry of the sealed cache cannot be removed");
                }
            }
        }
    }
}

impl Disk {
    fn path(&self, id: &EntryId) -> PathBuf {
        self.directory.join(format!("{}{SUFFIX}", hex::encode(id.0)))
    }

    fn turn(&self, id: &EntryId) -> &Mutex<()> {
        &self.turns[usize::from(id.0[0]) % TURNS]
    }

    fn put(&self, id: EntryId, sealed: &Sealed, forgotten: &Forgotten) -> io::Result<()> {
        let read_at = sealed.read_at;
        let dropped = {
            let _turn = self.turn(&id).lock();
            let there = self.known.lock().get(&id).copied();
            if there.is_some_and(|there| there >= read_at) || forgotten.covers(&id, read_at) {
                return Ok(());
            }
            write_file(&self.path(&id), sealed)?;
            let mut known = self.known.lock();
            known.insert(id, read_at);
            let is_full = known.len() > MOST_ENTRIES;
            is_full.then(|| drop_oldest(&mut known, None, |read_at| *read_at)).flatten()
        };
        if let Some((dropped, _)) = dropped {
            self.remove(&dropped)?;
        }
        if is_clearing(&self.written) {
            clear_old(&self.directory, read_at)?;
        }
        Ok(())
    }

    fn remove(&self, id: &EntryId) -> io::Result<()> {
        let _turn = self.turn(id).lock();
        self.known.lock().remove(id);
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reads the key, which nobody but its owner may read.
pub(super) fn load_key(path: &Path) -> Result<Zeroizing<[u8; KEY_LENGTH]>, StaleCacheError> {
    let failed = |source| StaleCacheError::KeyFile { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(StaleCacheError::KeyMode { path: path.to_owned(), mode });
    }
    let mut content = Zeroizing::new(Vec::with_capacity(LONGEST_KEY_FILE));
    file.take(128).read_to_end(&mut content).map_err(failed)?;
    parse_key(&content).ok_or_else(|| StaleCacheError::Key { path: path.to_owned() })
}

/// For how many seconds a file may be half written.
const PARTLY_LIFE: i64 = 600;

/// Whether it is time to look for what is too old.
fn is_clearing(written: &AtomicU32) -> bool {
    written.fetch_add(1, Ordering::Relaxed).wrapping_add(1).is_multiple_of(CLEARING)
}

/// When the oldest entry was read that somebody may ask for.
fn oldest_of(now: Timestamp) -> Timestamp {
    now.saturating_sub(LONGEST_LIFE).unwrap_or(Timestamp::MIN)
}

/// Removes entries that are older than anybody may ask for or more than are kept, as those of
/// earlier processes may be, and what a crash left half written.
fn clear_old(directory: &Path, now: Timestamp) -> io::Result<()> {
    let oldest = oldest_of(now);
    let mut entries = Vec::new();
    for file in fs::read_dir(directory)? {
        let file = file?;
        let name = file.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_entry = name.ends_with(SUFFIX);
        let is_partly = name.ends_with(TEMPORARY);
        // Nothing is touched that this program did not write, and not what is being written.
        let limit = if is_partly { now.as_second() - PARTLY_LIFE } else { oldest.as_second() };
        // It may be gone meanwhile.
        let changed = file.metadata().map_or(i64::MAX, |metadata| metadata.mtime());
        if (is_entry || is_partly) && changed < limit {
            fs::remove_file(file.path())?;
        } else if is_entry {
            entries.push((changed, file.path()));
        }
    }
    entries.sort_unstable();
    let surplus = entries.len().saturating_sub(MOST_ENTRIES);
    for (_, path) in entries.into_iter().take(surplus) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Writes the file whole or not at all.
fn write_file(path: &Path, sealed: &Sealed) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}{TEMPORARY}", fastrand::u64(..)));
    let written = write_new(&temporary, sealed).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written
}

fn write_new(path: &Path, sealed: &Sealed) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(FORMAT)?;
    file.write_all(&sealed.read_at.as_second().to_be_bytes())?;
    file.write_all(&sealed.nonce)?;
    file.write_all(&sealed.bytes)?;
    file.sync_all()
}

fn read_file(path: &Path) -> io::Result<Sealed> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut content = Vec::new();
    file.take(LARGEST_ENTRY).read_to_end(&mut content)?;
    parse_file(&content).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_file(content: &[u8]) -> Option<Sealed> {
    let rest = content.strip_prefix(FORMAT)?;
    let (second, rest) = rest.split_first_chunk::<8>()?;
    let (nonce, bytes) = rest.split_first_chunk::<NONCE_LEN>()?;
    let read_at = Timestamp::from_second(i64::from_be_bytes(*second)).ok()?;
    Some(Sealed { read_at, nonce: *nonce, bytes: bytes.to_vec() })
}

/// Takes the oldest entry out, but not that of `spared`.
fn drop_oldest<T>(
    entries: &mut HashMap<EntryId, T>,
    spared: Option<&EntryId>,
    read_at: impl Fn(&T) -> Timestamp,
) -> Option<(EntryId, T)> {
    let others = entries.iter().filter(|(id, _)| Some(*id) != spared);
    let oldest = others.min_by_key(|(_, entry)| read_at(entry));
    let oldest = oldest.map(|(id, _)| *id)?;
    entries.remove_entry(&oldest)
}

/// Does `work` where it keeps nobody waiting.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

const SUFFIX: &str = ".sealed";
const TEMPORARY: &str = ".partly";
/// A secret has 25 KB at most, and a node some hundreds of them.
pub(super) const MOST_ENTRIES: usize = 2_048;
/// How many files may be written at once.
const TURNS: usize = 16;
/// After how many entries those are looked for that are too old for anybody.
const CLEARING: u32 = 256;
/// What an entry takes in memory beside its bytes.
const ENTRY: u64 = 128;
/// Twice the largest secret, and what is told about it.
const LARGEST_ENTRY: u64 = 128 * 1024;
/// The most that can be sealed so that the entry is no larger.
pub(super) const LARGEST_CONTENT: usize = 128 * 1024 - FORMAT.len() - 8 - NONCE_LEN;
/// Longer than base64 of a key.
const LONGEST_KEY_FILE: usize = 160;
/// No class may ask for older entries.
pub(super) const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(7 * 24);
