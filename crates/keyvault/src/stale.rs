//! What was read, sealed, for the time when the vault is not there.
//!
//! Entries are sealed with AES-256-GCM. What an entry is about and when it was read are bound to it
//! as additional data, so that no entry can be put in the place of another or be made younger. An
//! entry is found by a keyed digest of everything that tells readers and objects apart: who does
//! not ask as the same reader does not find it, and the names of files tell nothing.

mod record;
mod store;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::memory::CacheMemory;

pub(crate) use self::record::{Record, RecordRef};
use self::store::{LARGEST_CONTENT, LONGEST_LIFE, MOST_ENTRIES, Memory, Sealed, Store};

/// What an entry is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EntryId([u8; 32]);

/// An entry, opened.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    /// When the vault was asked for it.
    pub(crate) read_at: Timestamp,
}

/// The sealed cache of a node.
pub struct StaleCache {
    seal: RandomizedNonceKey,
    names: hmac::Key,
    store: Arc<Store>,
    forgotten: Arc<Forgotten>,
    /// What did not fit lately, and when that was read.
    too_large: Mutex<HashMap<EntryId, Timestamp>>,
}

/// What was forgotten lately, and when: what was read before that is not kept any more.
#[derive(Debug, Default)]
struct Forgotten(Mutex<HashMap<EntryId, Timestamp>>);

/// The sealed cache cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StaleCacheError {
    /// The system gave no random key.
    #[error("the system gave no random numbers")]
    Random,
    /// The file with the key cannot be read.
    #[error("cannot read the key of the sealed cache in {}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file does not hold a key.
    #[error("{} does not hold {KEY_LENGTH} bytes, as they are or in base64", path.display())]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// Others than the owner may read the file with the key.
    #[error("{} may be read by others: its mode is {mode:#o}", path.display())]
    KeyMode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The directory of the cache cannot be used.
    #[error("the directory {} of the sealed cache cannot be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl StaleCacheError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Random => "restart the program",
            Self::KeyFile { .. } | Self::Key { .. } => {
                "make one: head -c 32 /dev/urandom > file; chmod 600 file"
            }
            Self::KeyMode { .. } => "chmod 600 the file",
            Self::Directory { .. } => {
                "give --stale-cache-dir a directory of the node plugin's own, which others cannot \
                 write"
            }
        }
    }
}

impl StaleCache {
    /// A cache in memory, whose key dies with the process.
    ///
    /// # Errors
    ///
    /// [`StaleCacheError::Random`].
    pub fn in_memory() -> Result<Self, StaleCacheError> {
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        rand::fill(&mut *key).or(Err(StaleCacheError::Random))?;
        Self::with_key(&key, Store::Memory(Memory::default()))
    }

    /// A cache in `directory`, whose key is in `key_file`: it survives a restart. The directory is
    /// made if it is not there. Keep the key away from the directory, or the seal is worth nothing.
    ///
    /// # Errors
    ///
    /// [`StaleCacheError`] where key or directory cannot be used, or others may read the key.
    pub fn on_disk(
        key_file: &Path,
        directory: &Path,
        clock: &SharedClock,
    ) -> Result<Self, StaleCacheError> {
        let key = store::load_key(key_file)?;
        let store = Store::on_disk(directory, clock.now())?;
        Self::with_key(&key, store)
    }

    fn with_key(key: &[u8; KEY_LENGTH], store: Store) -> Result<Self, StaleCacheError> {
        // Two keys, so that what is sealed says nothing about names.
        let root = hmac::Key::new(hmac::HMAC_SHA256, key);
        let seal = hmac::sign(&root, b"lanyard sealed cache: entries");
        let names = hmac::sign(&root, b"lanyard sealed cache: names");
        Ok(Self {
            seal: RandomizedNonceKey::new(&AES_256_GCM, seal.as_ref())
                .or(Err(StaleCacheError::Random))?,
            names: hmac::Key::new(hmac::HMAC_SHA256, names.as_ref()),
            store: Arc::new(store),
            forgotten: Arc::default(),
            too_large: Mutex::default(),
        })
    }

    /// Counts what is sealed in memory here. Nothing was sealed yet.
    pub(crate) fn seal_in(&mut self, memory: Arc<dyn CacheMemory>) {
        if let Some(Store::Memory(entries)) = Arc::get_mut(&mut self.store) {
            entries.seal_in(memory);
        }
    }

    /// The id of the entry that these fields are about.
    pub(crate) fn entry_id(&self, fields: &[Vec<u8>]) -> EntryId {
        let mut context = hmac::Context::with_key(&self.names);
        for field in fields {
            // With its length: no two lists of fields look the same.
            context.update(&u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            context.update(field);
        }
        let mut id = [0; 32];
        id.copy_from_slice(context.sign().as_ref());
        EntryId(id)
    }

    /// Seals what was read, unless something as new is there or it was forgotten since. That it
    /// cannot be kept is logged: the volume has what it needs.
    pub(crate) async fn keep(&self, id: EntryId, record: RecordRef<'_>, read_at: Timestamp) {
        if self.store.read_at(&id).is_some_and(|known| known >= read_at)
            || self.too_large.lock().get(&id).is_some_and(|known| *known >= read_at)
            || self.forgotten.covers(&id, read_at)
        {
            return;
        }
        // Room for the tag as well: a buffer that grows leaves a copy behind.
        let Some(encoded) = record.encode(AES_256_GCM.tag_len()) else {
            tracing::warn!("an entry of the sealed cache could not be encoded");
            return;
        };
        let bytes = encoded.len() + AES_256_GCM.tag_len();
        if bytes > LARGEST_CONTENT {
            if self.note_too_large(id, read_at) {
                tracing::warn!(bytes, "an entry is too large for the sealed cache");
            }
            return;
        }
        self.too_large.lock().remove(&id);
        let Some(sealed) = self.seal(id, encoded, read_at) else {
            tracing::warn!("an entry of the sealed cache could not be sealed");
            return;
        };
        if let Err(error) = self.store.put(id, sealed, &self.forgotten).await {
            tracing::warn!(%error, "an entry of the sealed cache could not be kept");
        }
    }

    /// Whether that is news.
    fn note_too_large(&self, id: EntryId, read_at: Timestamp) -> bool {
        let mut too_large = self.too_large.lock();
        if too_large.len() >= MOST_ENTRIES {
            too_large.clear();
        }
        too_large.insert(id, read_at).is_none()
    }

    /// Opens the entry of `id`, if it is there and was read at most `max_age` before `now`. What
    /// was tampered with is dropped and logged.
    pub(crate) async fn load(
        &self,
        id: EntryId,
        now: Timestamp,
        max_age: Duration,
    ) -> Option<Entry> {
        let sealed = self.store.load(&id).await?;
        let read_at = sealed.read_at;
        let age = now.duration_since(read_at);
        let max_age = SignedDuration::try_from(max_age).unwrap_or(SignedDuration::MAX);
        // An entry of tomorrow is as wrong as one of last year.
        if age > max_age || age < -CLOCK_STEP {
            tracing::info!(%read_at, "an entry of the sealed cache is too old");
            if age > LONGEST_LIFE {
                self.store.remove(&id).await;
            }
            return None;
        }
        let record = self.unseal(id, sealed);
        if record.is_none() {
            tracing::error!("an entry of the sealed cache was tampered with, and is dropped");
            self.store.remove(&id).await;
        }
        Some(Entry { record: record?, read_at })
    }

    /// Drops the entry of `id`, and what others have read before `now` and are about to keep.
    pub(crate) async fn forget(&self, id: EntryId, now: Timestamp) {
        self.forgotten.note(id, now);
        self.store.remove(&id).await;
    }

    fn seal(
        &self,
        id: EntryId,
        mut bytes: Zeroizing<Vec<u8>>,
        read_at: Timestamp,
    ) -> Option<Sealed> {
        let aad = Aad::from(additional_data(&id, read_at));
        let nonce = self.seal.seal_in_place_append_tag(aad, &mut *bytes).ok()?;
        Some(Sealed { read_at, nonce: *nonce.as_ref(), bytes: std::mem::take(&mut *bytes) })
    }

    fn unseal(&self, id: EntryId, sealed: Sealed) -> Option<Record> {
        let Sealed { read_at, nonce, bytes } = sealed;
        let mut bytes = Zeroizing::new(bytes);
        let aad = Aad::from(additional_data(&id, read_at));
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.seal.open_in_place(nonce, aad, &mut bytes).ok()?;
        Record::decode(opened)
    }
}

impl Forgotten {
    fn note(&self, id: EntryId, now: Timestamp) {
        let mut forgotten = self.0.lock();
        forgotten.retain(|_, at| now.duration_since(*at).abs() < REMEMBERED);
        forgotten.insert(id, now);
    }

    /// Whether what was read at `read_at` was forgotten since.
    fn covers(&self, id: &EntryId, read_at: Timestamp) -> bool {
        self.0.lock().get(id).is_some_and(|forgotten| *forgotten >= read_at)
    }
}

/// What is bound to an entry without being hidden: what it is about, when it was read, and the
/// version of the format.
fn additional_data(id: &EntryId, read_at: Timestamp) -> [u8; 48] {
    let mut data = [0; 48];
    data[..8].copy_from_slice(FORMAT);
    data[8..40].copy_from_slice(&id.0);
    data[40..].copy_from_slice(&read_at.as_second().to_be_bytes());
    data
}

impl fmt::Debug for StaleCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StaleCache").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A key is as long as AES-256 wants it.
const KEY_LENGTH: usize = 32;
/// The first bytes of every entry.
const FORMAT: &[u8; 8] = b"lanyard1";
/// For how long it is remembered that an entry was forgotten: longer than any read is under way.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);
/// How far the wall clock may have been set back.
const CLOCK_STEP: SignedDuration = SignedDuration::from_mins(5);

fn parse_key(content: &[u8]) -> Option<Zeroizing<[u8; KEY_LENGTH]>> {
    let mut key = Zeroizing::new([0; KEY_LENGTH]);
    if content.len() == KEY_LENGTH {
        key.copy_from_slice(content);
        return Some(key);
    }
    let decoded = Zeroizing::new(STANDARD.decode(content.trim_ascii()).ok()?);
    (decoded.len() == KEY_LENGTH).then(|| key.copy_from_slice(&decoded))?;
    Some(key)
}

#[cfg(test)]
mod tests;
