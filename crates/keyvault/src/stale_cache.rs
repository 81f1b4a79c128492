//! The sealed cache: encrypted vault values for outages of the vault.
//!
//! Entries are sealed with AES-256-GCM. The entry's id and read time are bound to it as additional data, so
//! that no entry can replace another or appear newer. The id is a keyed digest of everything that
//! distinguishes readers and objects: only the same reader finds an entry, and file names reveal nothing.

mod record;
mod store;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use lanyard_clock::{ErrorHint, SharedClock};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::memory::CacheMemory;

pub(crate) use self::record::{EntryRecord, EntryRecordRef};
use self::store::{
    MAX_ENTRIES, MAX_ENTRY_AGE, MAX_SEALED_BYTES, SealedEntry, SealedMemoryStore, SealedStore,
};

/// The id of an entry: a keyed digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EntryId([u8; 32]);

/// A decrypted entry.
#[derive(Debug)]
pub(crate) struct StaleEntry {
    pub(crate) record: EntryRecord,
    /// When the read from the vault started.
    pub(crate) read_at: Timestamp,
}

/// The sealed cache of a node.
pub struct StaleCache {
    encryption_key: RandomizedNonceKey,
    id_key: hmac::Key,
    store: Arc<SealedStore>,
    invalidated: Arc<InvalidatedEntries>,
    /// Recent objects that exceeded the size limit, and when they were read.
    oversized: Mutex<HashMap<EntryId, Timestamp>>,
}

/// Recently invalidated entries and the time of invalidation: values that were read earlier are not stored.
#[derive(Debug, Default)]
struct InvalidatedEntries(Mutex<HashMap<EntryId, Timestamp>>);

/// Errors of opening the sealed cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StaleCacheError {
    /// The operating system returned no random key.
    #[error("the system gave no random numbers")]
    RandomUnavailable,
    /// The key file cannot be read.
    #[error("cannot read the key of the sealed cache in {}", path.display())]
    KeyFile {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The key file does not contain a valid key.
    #[error("{} does not hold {KEY_LENGTH} bytes, as they are or in base64", path.display())]
    InvalidKey {
        /// The path of the file.
        path: PathBuf,
    },
    /// Other users than the owner may read the key file.
    #[error("{} may be read by others: its mode is {mode:#o}", path.display())]
    KeyFileReadableByOthers {
        /// The path of the file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The cache directory cannot be used.
    #[error("the directory {} of the sealed cache cannot be used", path.display())]
    Directory {
        /// The path of the directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
}

impl ErrorHint for StaleCacheError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::RandomUnavailable => "restart the program",
            Self::KeyFile { .. } | Self::InvalidKey { .. } => {
                "make one: head -c 32 /dev/urandom > file; chmod 600 file"
            }
            Self::KeyFileReadableByOthers { .. } => "chmod 600 the file",
            Self::Directory { .. } => {
                "give --stale-cache-dir a directory of the node plugin's own, which others cannot \
                 write"
            }
        }))
    }
}

impl StaleCache {
    /// Creates a cache in memory, whose key is lost with the process.
    ///
    /// # Errors
    ///
    /// Returns [`StaleCacheError::RandomUnavailable`] without a random key.
    pub fn in_memory() -> Result<Self, StaleCacheError> {
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        rand::fill(&mut *key).or(Err(StaleCacheError::RandomUnavailable))?;
        Self::with_key(&key, SealedStore::Memory(SealedMemoryStore::default()))
    }

    /// Opens a cache in `directory` with the key in `key_file`, which survives a restart. The directory is
    /// created if it does not exist. Keep the key outside of the directory; otherwise sealing protects
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns a [`StaleCacheError`] if the key or the directory cannot be used, or other users may read the
    /// key.
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
        // Two keys, so that sealed values reveal nothing about ids.
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

    /// Sets the memory account of a cache in memory that is still empty.
    pub(crate) fn set_cache_memory(&mut self, memory: Arc<dyn CacheMemory>) {
        if let Some(SealedStore::Memory(entries)) = Arc::get_mut(&mut self.store) {
            entries.set_cache_memory(memory);
        }
    }

    /// The id of the entry for these fields.
    pub(crate) fn entry_id(&self, fields: &[Vec<u8>]) -> EntryId {
        let mut context = hmac::Context::with_key(&self.id_key);
        for field in fields {
            // With its length, so that different lists of fields never collide.
            context.update(&u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            context.update(field);
        }
        let mut id = [0; 32];
        id.copy_from_slice(context.sign().as_ref());
        EntryId(id)
    }

    /// Seals and stores a record, unless a newer one is present or the entry was invalidated since. A failure
    /// is only logged: the volume has its files.
    pub(crate) async fn store_if_newer(
        &self,
        id: EntryId,
        record: EntryRecordRef<'_>,
        read_at: Timestamp,
    ) {
        if self.store.read_at(&id).is_some_and(|known| known >= read_at)
            || self.oversized.lock().get(&id).is_some_and(|known| *known >= read_at)
            || self.invalidated.was_invalidated_after(&id, read_at)
        {
            return;
        }
        // Include the tag in the capacity: a buffer that grows leaves a copy behind.
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

    /// Records an object that exceeded the size limit. Returns whether it was not recorded before.
    fn record_oversized(&self, id: EntryId, read_at: Timestamp) -> bool {
        let mut too_large = self.oversized.lock();
        if too_large.len() >= MAX_ENTRIES {
            too_large.clear();
        }
        too_large.insert(id, read_at).is_none()
    }

    /// Opens the entry of `id` if it was read at most `max_age` before `now`. An entry that was tampered with
    /// is dropped and logged.
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
        // An entry from the future is as invalid as an expired one.
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

    /// Drops the entry of `id`, and prevents pending writes of values that were read before `now`.
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

    fn unseal_entry(&self, id: EntryId, sealed: SealedEntry) -> Option<EntryRecord> {
        let SealedEntry { read_at, nonce, bytes } = sealed;
        let mut bytes = Zeroizing::new(bytes);
        let aad = Aad::from(additional_data(&id, read_at));
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.encryption_key.open_in_place(nonce, aad, &mut bytes).ok()?;
        EntryRecord::decode(opened)
    }
}

impl InvalidatedEntries {
    fn record_invalidation(&self, id: EntryId, now: Timestamp) {
        let mut invalidated = self.0.lock();
        invalidated.retain(|_, at| now.duration_since(*at).abs() < INVALIDATION_RETENTION);
        invalidated.insert(id, now);
    }

    /// Whether the entry was invalidated after `read_at`.
    fn was_invalidated_after(&self, id: &EntryId, read_at: Timestamp) -> bool {
        self.0.lock().get(id).is_some_and(|invalidated_at| *invalidated_at >= read_at)
    }
}

/// The additional data of an entry: its id, its read time and the format version.
fn additional_data(id: &EntryId, read_at: Timestamp) -> [u8; 48] {
    let mut data = [0; 48];
    data[..8].copy_from_slice(ENTRY_FORMAT);
    data[8..40].copy_from_slice(&id.0);
    data[40..].copy_from_slice(&read_at.as_second().to_be_bytes());
    data
}

lanyard_vocabulary::debug_fields!(StaleCache { store });

/// The key length of AES-256.
const KEY_LENGTH: usize = 32;
/// The first bytes of every entry.
const ENTRY_FORMAT: &[u8; 8] = b"lanyard1";
/// How long an invalidation is remembered: longer than any read takes.
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
