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

pub(crate) use self::record::{SealedRecord, SealedRecordRef};
use self::store::{
    MAX_ENTRIES, MAX_ENTRY_AGE, MAX_SEALED_BYTES, SealedEntry, SealedMemoryStore, SealedStore,
};

/// What an entry is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EntryId([u8; 32]);

/// An entry, opened.
#[derive(Debug)]
pub(crate) struct StaleEntry {
    pub(crate) record: SealedRecord,
    /// When the vault was asked for it.
    pub(crate) read_at: Timestamp,
}

/// The sealed cache of a node.
pub struct StaleCache {
    encryption_key: RandomizedNonceKey,
    id_key: hmac::Key,
    store: Arc<SealedStore>,
    invalidated: Arc<InvalidatedEntries>,
    /// What did not fit lately, and when that was read.
    oversized: Mutex<HashMap<EntryId, Timestamp>>,
}

/// What was forgotten lately, and when: what was read before that is not kept any more.
#[derive(Debug, Default)]
struct InvalidatedEntries(Mutex<HashMap<EntryId, Timestamp>>);

/// The sealed cache cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StaleCacheError {
    /// The system gave no random key.
    #[error("the system gave no random numbers")]
    RandomUnavailable,
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
    InvalidKey {
        /// The file.
        path: PathBuf,
    },
    /// Others than the owner may read the file with the key.
    #[error("{} may be read by others: its mode is {mode:#o}", path.display())]
    KeyFileReadableByOthers {
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
            Self::RandomUnavailable => "restart the program",
            Self::KeyFile { .. } | Self::InvalidKey { .. } => {
                "make one: head -c 32 /dev/urandom > file; chmod 600 file"
            }
            Self::KeyFileReadableByOthers { .. } => "chmod 600 the file",
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
    /// [`StaleCacheError::RandomUnavailable`].
    pub fn in_memory() -> Result<Self, StaleCacheError> {
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        rand::fill(&mut *key).or(Err(StaleCacheError::RandomUnavailable))?;
        Self::with_key(&key, SealedStore::Memory(SealedMemoryStore::default()))
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
        let key = store::read_key_file(key_file)?;
        let store = SealedStore::open_directory(directory, clock.now())?;
        Self::with_key(&key, store)
    }

    fn with_key(key: &[u8; KEY_LENGTH], store: SealedStore) -> Result<Self, StaleCacheError> {
        // Two keys, so that what is sealed says nothing about names.
        let root = hmac::Key::new(hmac::HMAC_SHA256, key);
        let seal = hmac::sign(&root, b"lanyard sealed cache: entries");
        let names = hmac::sign(&root, b"lanyard sealed cache: names");
        Ok(Self {
            encryption_key: RandomizedNonceKey::new(&AES_256_GCM, seal.as_ref())
                .or(Err(StaleCacheError::RandomUnavailable))?,
            id_key: hmac::Key::new(hmac::HMAC_SHA256, names.as_ref()),
            store: Arc::new(store),
            invalidated: Arc::default(),
            oversized: Mutex::default(),
        })
    }

    /// Counts what is sealed in memory here. Nothing was sealed yet.
    pub(crate) fn set_cache_memory(&mut self, memory: Arc<dyn CacheMemory>) {
        if let Some(SealedStore::Memory(entries)) = Arc::get_mut(&mut self.store) {
            entries.set_cache_memory(memory);
        }
    }

    /// The id of the entry that these fields are about.
    pub(crate) fn entry_id(&self, fields: &[Vec<u8>]) -> EntryId {
        let mut context = hmac::Context::with_key(&self.id_key);
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
    pub(crate) async fn store_if_newer(
        &self,
        id: EntryId,
        record: SealedRecordRef<'_>,
        read_at: Timestamp,
    ) {
        if self.store.read_at(&id).is_some_and(|known| known >= read_at)
            || self.oversized.lock().get(&id).is_some_and(|known| *known >= read_at)
            || self.invalidated.was_invalidated_after(&id, read_at)
        {
            return;
        }
        // Room for the tag as well: a buffer that grows leaves a copy behind.
        let Some(encoded) = record.encode(AES_256_GCM.tag_len()) else {
            tracing::warn!("an entry of the sealed cache could not be encoded");
            return;
        };
        let bytes = encoded.len() + AES_256_GCM.tag_len();
        if bytes > MAX_SEALED_BYTES {
            if self.record_oversized(id, read_at) {
                tracing::warn!(bytes, "an entry is too large for the sealed cache");
            }
            return;
        }
        self.oversized.lock().remove(&id);
        let Some(sealed) = self.seal_entry(id, encoded, read_at) else {
            tracing::warn!("an entry of the sealed cache could not be sealed");
            return;
        };
        if let Err(error) = self.store.put(id, sealed, &self.invalidated).await {
            tracing::warn!(%error, "an entry of the sealed cache could not be kept");
        }
    }

    /// Whether that is news.
    fn record_oversized(&self, id: EntryId, read_at: Timestamp) -> bool {
        let mut too_large = self.oversized.lock();
        if too_large.len() >= MAX_ENTRIES {
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
    ) -> Option<StaleEntry> {
        let sealed = self.store.load(&id).await?;
        let read_at = sealed.read_at;
        let age = now.duration_since(read_at);
        let max_age = SignedDuration::try_from(max_age).unwrap_or(SignedDuration::MAX);
        // An entry of tomorrow is as wrong as one of last year.
        if age > max_age || age < -MAX_CLOCK_STEP_BACK {
            tracing::info!(%read_at, "an entry of the sealed cache is too old");
            if age > MAX_ENTRY_AGE {
                self.store.remove(&id).await;
            }
            return None;
        }
        let record = self.unseal_entry(id, sealed);
        if record.is_none() {
            tracing::error!("an entry of the sealed cache was tampered with, and is dropped");
            self.store.remove(&id).await;
        }
        Some(StaleEntry { record: record?, read_at })
    }

    /// Drops the entry of `id`, and what others have read before `now` and are about to keep.
    pub(crate) async fn invalidate(&self, id: EntryId, now: Timestamp) {
        self.invalidated.record_invalidation(id, now);
        self.store.remove(&id).await;
    }

    fn seal_entry(
        &self,
        id: EntryId,
        mut bytes: Zeroizing<Vec<u8>>,
        read_at: Timestamp,
    ) -> Option<SealedEntry> {
        let aad = Aad::from(additional_data(&id, read_at));
        let nonce = self.encryption_key.seal_in_place_append_tag(aad, &mut *bytes).ok()?;
        Some(SealedEntry { read_at, nonce: *nonce.as_ref(), bytes: std::mem::take(&mut *bytes) })
    }

    fn unseal_entry(&self, id: EntryId, sealed: SealedEntry) -> Option<SealedRecord> {
        let SealedEntry { read_at, nonce, bytes } = sealed;
        let mut bytes = Zeroizing::new(bytes);
        let aad = Aad::from(additional_data(&id, read_at));
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.encryption_key.open_in_place(nonce, aad, &mut bytes).ok()?;
        SealedRecord::decode(opened)
    }
}

impl InvalidatedEntries {
    fn record_invalidation(&self, id: EntryId, now: Timestamp) {
        let mut forgotten = self.0.lock();
        forgotten.retain(|_, at| now.duration_since(*at).abs() < INVALIDATION_RETENTION);
        forgotten.insert(id, now);
    }

    /// Whether what was read at `read_at` was forgotten since.
    fn was_invalidated_after(&self, id: &EntryId, read_at: Timestamp) -> bool {
        self.0.lock().get(id).is_some_and(|forgotten| *forgotten >= read_at)
    }
}

/// What is bound to an entry without being hidden: what it is about, when it was read, and the
/// version of the format.
fn additional_data(id: &EntryId, read_at: Timestamp) -> [u8; 48] {
    let mut data = [0; 48];
    data[..8].copy_from_slice(ENTRY_FORMAT);
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
const ENTRY_FORMAT: &[u8; 8] = b"lanyard1";
/// For how long it is remembered that an entry was forgotten: longer than any read is under way.
const INVALIDATION_RETENTION: SignedDuration = SignedDuration::from_mins(10);
/// How far the wall clock may have been set back.
const MAX_CLOCK_STEP_BACK: SignedDuration = SignedDuration::from_mins(5);

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
