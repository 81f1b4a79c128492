//! Reads the objects of one volume: equal reads are shared, and the sealed cache is the fallback during an
//! outage of the vault.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use lanyard_azure::RequestPriority;
use parking_lot::Mutex;

use super::{NodeVaults, VaultOutage, VolumeReadRequest};
use crate::error::VaultReadError;
use crate::fetch::{ObjectReference, ObjectSource, ReadError, fetch_object};
use crate::reader::VaultReader;
use crate::reader_sessions::ReaderSession;
use crate::shared_reads::Freshness;
use crate::source::{FetchedVaultObject, ListedVersion, VaultSource};
use crate::stale_cache::{EntryId, EntryRecord, EntryRecordRef, StaleCache};
use crate::vault::KeyVault;

/// The key of a shared read: an object of a vault, read by a reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SharedReadKey {
    pub(super) reader: Arc<VaultReader>,
    pub(super) host: Arc<str>,
    pub(super) object: ObjectReference,
}

/// The part of an object that the sealed cache stores.
#[derive(Debug, Clone, Copy)]
enum SealedPart {
    Object,
    Versions,
}

pub(super) struct VolumeRead<'a> {
    vaults: &'a NodeVaults,
    reader: Arc<VaultReader>,
    session: Arc<ReaderSession>,
    host: Arc<str>,
    freshness: Freshness,
    serve_stale: Option<Duration>,
    outage: Mutex<Option<VaultOutage>>,
}

impl<'a> VolumeRead<'a> {
    pub(super) fn new(
        vaults: &'a NodeVaults,
        order: &VolumeReadRequest<'_>,
        reader: VaultReader,
        session: Arc<ReaderSession>,
        host: String,
    ) -> Self {
        Self {
            vaults,
            reader: Arc::new(reader),
            session,
            host: host.into(),
            freshness: order.freshness,
            serve_stale: order.serve_stale,
            outage: Mutex::default(),
        }
    }

    /// The outage during which the sealed cache served a value, if it did.
    pub(super) fn into_outage(self) -> Option<VaultOutage> {
        self.outage.into_inner()
    }

    /// Records that the sealed cache served a value in place of an error.
    fn record_stale_response(
        &self,
        key: &SharedReadKey,
        part: SealedPart,
        since: Timestamp,
        source: Arc<VaultReadError>,
    ) {
        let object = key.object.clone();
        let error = match part {
            SealedPart::Object => ReadError::Object { object, source },
            SealedPart::Versions => ReadError::Versions { object, source },
        };
        let mut outage = self.outage.lock();
        let first = outage.get_or_insert(VaultOutage { since, error });
        first.since = first.since.min(since);
    }

    fn read_key(&self, object: &ObjectReference) -> SharedReadKey {
        let (reader, host) = (Arc::clone(&self.reader), Arc::clone(&self.host));
        SharedReadKey { reader, host, object: object.clone() }
    }

    fn open_vault(&self) -> Result<KeyVault, VaultReadError> {
        self.vaults.sessions.open_vault(&self.session, &self.host, self.freshness.priority)
    }

    /// Starts a read of the vault, unless the vault cannot be opened.
    fn start_read<T: Send + 'static>(
        &self,
        read: impl FnOnce(KeyVault) -> BoxFuture<'static, Result<T, VaultReadError>>,
    ) -> BoxFuture<'static, Result<T, VaultReadError>> {
        match self.open_vault() {
            Ok(vault) => read(vault),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    /// The sealed cache, if the class opts in.
    fn opted_in_cache(&self) -> Option<(&Arc<StaleCache>, Duration)> {
        Some((self.vaults.stale.as_ref()?, self.serve_stale?))
    }

    /// Stores a read value in the sealed cache, and ends the outage.
    async fn store_stale(
        &self,
        key: &SharedReadKey,
        part: SealedPart,
        record: EntryRecordRef<'_>,
        read_at: Timestamp,
    ) {
        if self.vaults.outages.record_success(&self.reader, &self.host, read_at) {
            tracing::info!(host = %self.host, "the vault is available again");
        }
        if let Some((stale, _)) = self.opted_in_cache() {
            stale.store_if_newer(entry_id(stale, key, part), record, read_at).await;
        }
    }

    /// Returns the entry of the sealed cache in place of an error; the error if there is no entry.
    async fn load_stale(
        &self,
        key: &SharedReadKey,
        part: SealedPart,
        error: Arc<VaultReadError>,
    ) -> Result<EntryRecord, Arc<VaultReadError>> {
        let now = self.vaults.clock.now();
        if error.is_denied()
            && let Some(stale) = &self.vaults.stale
        {
            // The read was denied, so the entry must not be served later either.
            stale.invalidate(entry_id(stale, key, part), now).await;
        }
        if !error.is_outage() {
            return Err(error);
        }
        let since = self.vaults.outages.record_failure(&self.reader, &self.host, now);
        // A running pod keeps its mounted files: the entry of the sealed cache may be older and never
        // replaces them.
        let is_starting = self.freshness.priority == RequestPriority::High;
        let Some((stale, max_age)) = self.opted_in_cache().filter(|_| is_starting) else {
            return Err(error);
        };
        let Some(entry) = stale.load(entry_id(stale, key, part), now, max_age).await else {
            return Err(error);
        };
        let (host, object, read_at) = (&self.host, &key.object, entry.read_at);
        if self.vaults.outages.record_stale_response(&self.reader, host) {
            tracing::warn!(%host, %object, %read_at, %error, "served from the sealed cache until the vault is available");
        } else {
            tracing::debug!(%host, %object, %read_at, %error, "served from the sealed cache");
        }
        self.record_stale_response(key, part, since, error);
        Ok(entry.record)
    }
}

#[async_trait]
impl ObjectSource for VolumeRead<'_> {
    async fn object(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<FetchedVaultObject>, Arc<VaultReadError>> {
        let key = self.read_key(object);
        let wanted = object.clone();
        let fetch =
            || self.start_read(|vault| async move { fetch_object(&wanted, &vault).await }.boxed());
        let now = self.vaults.clock.now();
        let distance =
            |object: &FetchedVaultObject| object.attributes().time_to_nearest_change(now);
        match self.vaults.objects.read(key.clone(), self.freshness, distance, fetch).await {
            Ok(read) => {
                let record = EntryRecordRef::Object(&read.value);
                self.store_stale(&key, SealedPart::Object, record, read.read_at()).await;
                Ok(read.value)
            }
            Err(error) => {
                match self.load_stale(&key, SealedPart::Object, Arc::clone(&error)).await? {
                    EntryRecord::Object(object) => Ok(Arc::new(object)),
                    EntryRecord::Versions(_) => Err(error),
                }
            }
        }
    }

    async fn versions(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultReadError>> {
        let key = self.read_key(object);
        let (kind, name) = (object.kind, object.name.clone());
        let fetch = || {
            self.start_read(|vault| async move { vault.fetch_versions(kind, &name).await }.boxed())
        };
        match self.vaults.version_lists.read(key.clone(), self.freshness, |_| None, fetch).await {
            Ok(read) => {
                let record = EntryRecordRef::Versions(&read.value);
                self.store_stale(&key, SealedPart::Versions, record, read.read_at()).await;
                Ok(read.value)
            }
            Err(error) => {
                match self.load_stale(&key, SealedPart::Versions, Arc::clone(&error)).await? {
                    EntryRecord::Versions(versions) => Ok(Arc::new(versions)),
                    EntryRecord::Object(_) => Err(error),
                }
            }
        }
    }
}

/// The id of the entry for a reader and an object. It covers everything that distinguishes readers, so that
/// no reader gets the entry of another.
fn entry_id(stale: &StaleCache, key: &SharedReadKey, part: SealedPart) -> EntryId {
    let ObjectReference { kind, name, version } = &key.object;
    let mut fields = key.reader.cache_key_fields();
    let part: &[u8] = match part {
        SealedPart::Object => b"object",
        SealedPart::Versions => b"versions",
    };
    fields.push(part.to_vec());
    fields.push(key.host.as_bytes().to_vec());
    fields.push(kind.to_string().into_bytes());
    fields.push(name.as_str().as_bytes().to_vec());
    // No version has this form: the entry of the current version has one field fewer.
    fields.extend(version.as_ref().map(|version| version.as_str().as_bytes().to_vec()));
    stale.entry_id(&fields)
}
