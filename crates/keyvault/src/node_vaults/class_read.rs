//! Reading for one volume: what is shared is shared, and what is sealed helps while the vault is
//! not there.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use lanyard_azure::Priority;
use parking_lot::Mutex;

use super::{NodeVaults, ReadOrder, VaultOutage};
use crate::error::VaultError;
use crate::fetch::{ObjectReference, ObjectSource, ReadError, VaultObject, fetch_object};
use crate::reader::Reader;
use crate::readers::OpenReader;
use crate::shared::Demand;
use crate::source::{ListedVersion, SecretSource};
use crate::stale::{EntryId, Record, RecordRef, StaleCache};
use crate::vault::KeyVault;

/// What may be shared: the same object of the same vault, read by the same reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ReadKey {
    pub(super) reader: Arc<Reader>,
    pub(super) host: Arc<str>,
    pub(super) object: ObjectReference,
}

/// What of an object is kept in the sealed cache.
#[derive(Debug, Clone, Copy)]
enum Part {
    Object,
    Versions,
}

pub(super) struct ClassRead<'a> {
    vaults: &'a NodeVaults,
    reader: Arc<Reader>,
    open: Arc<OpenReader>,
    host: Arc<str>,
    demand: Demand,
    serve_stale: Option<Duration>,
    outage: Mutex<Option<VaultOutage>>,
}

impl<'a> ClassRead<'a> {
    pub(super) fn new(
        vaults: &'a NodeVaults,
        order: &ReadOrder<'_>,
        reader: Reader,
        open: Arc<OpenReader>,
        host: String,
    ) -> Self {
        Self {
            vaults,
            reader: Arc::new(reader),
            open,
            host: host.into(),
            demand: order.demand,
            serve_stale: order.serve_stale,
            outage: Mutex::default(),
        }
    }

    /// The outage in which the sealed cache had to help, if it had to.
    pub(super) fn into_outage(self) -> Option<VaultOutage> {
        self.outage.into_inner()
    }

    /// Notes that the sealed cache helped because of an error.
    fn note_help(&self, key: &ReadKey, part: Part, since: Timestamp, source: Arc<VaultError>) {
        let object = key.object.clone();
        let error = match part {
            Part::Object => ReadError::Object { object, source },
            Part::Versions => ReadError::Versions { object, source },
        };
        let mut outage = self.outage.lock();
        let first = outage.get_or_insert(VaultOutage { since, error });
        first.since = first.since.min(since);
    }

    fn key(&self, object: &ObjectReference) -> ReadKey {
        let (reader, host) = (Arc::clone(&self.reader), Arc::clone(&self.host));
        ReadKey { reader, host, object: object.clone() }
    }

    fn vault(&self) -> Result<KeyVault, VaultError> {
        self.vaults.readers.vault(&self.open, &self.host, self.demand.priority)
    }

    /// A read of the vault, if there is a way to it.
    fn asked<T: Send + 'static>(
        &self,
        read: impl FnOnce(KeyVault) -> BoxFuture<'static, Result<T, VaultError>>,
    ) -> BoxFuture<'static, Result<T, VaultError>> {
        match self.vault() {
            Ok(vault) => read(vault),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    /// The sealed cache, if the class opts in.
    fn stale(&self) -> Option<(&Arc<StaleCache>, Duration)> {
        Some((self.vaults.stale.as_ref()?, self.serve_stale?))
    }

    /// The vault gave it: the outage is over, and it is kept for the next one.
    async fn keep(&self, key: &ReadKey, part: Part, record: RecordRef<'_>, read_at: Timestamp) {
        if self.vaults.outages.end(&self.reader, &self.host, read_at) {
            tracing::info!(host = %self.host, "the vault is there again");
        }
        if let Some((stale, _)) = self.stale() {
            stale.keep(entry_id(stale, key, part), record, read_at).await;
        }
    }

    /// What the sealed cache has instead of an error; the error where it has nothing.
    async fn recover(
        &self,
        key: &ReadKey,
        part: Part,
        error: Arc<VaultError>,
    ) -> Result<Record, Arc<VaultError>> {
        let now = self.vaults.clock.now();
        if error.is_refusal()
            && let Some(stale) = &self.vaults.stale
        {
            // Nobody may read it any more, whatever happens to the vault later.
            stale.forget(entry_id(stale, key, part), now).await;
        }
        if !error.is_outage() {
            return Err(error);
        }
        let since = self.vaults.outages.meet(&self.reader, &self.host, now);
        // Whoever does not wait for a pod to start has what is mounted, which is as good: what is
        // sealed may be older, and never takes its place.
        let is_starting = self.demand.priority == Priority::High;
        let Some((stale, max_age)) = self.stale().filter(|_| is_starting) else {
            return Err(error);
        };
        let Some(entry) = stale.load(entry_id(stale, key, part), now, max_age).await else {
            return Err(error);
        };
        let (host, object, read_at) = (&self.host, &key.object, entry.read_at);
        if self.vaults.outages.help(&self.reader, host) {
            tracing::warn!(%host, %object, %read_at, %error, "served from the sealed cache until the vault is there");
        } else {
            tracing::debug!(%host, %object, %read_at, %error, "served from the sealed cache");
        }
        self.note_help(key, part, since, error);
        Ok(entry.record)
    }
}

#[async_trait]
impl ObjectSource for ClassRead<'_> {
    async fn object(&self, object: &ObjectReference) -> Result<Arc<VaultObject>, Arc<VaultError>> {
        let key = self.key(object);
        let wanted = object.clone();
        let fetch =
            || self.asked(|vault| async move { fetch_object(&wanted, &vault).await }.boxed());
        let now = self.vaults.clock.now();
        let distance = |object: &VaultObject| object.attributes().distance_to_change(now);
        match self.vaults.objects.read(key.clone(), self.demand, distance, fetch).await {
            Ok(read) => {
                let record = RecordRef::Object(&read.value);
                self.keep(&key, Part::Object, record, read.read_at()).await;
                Ok(read.value)
            }
            Err(error) => match self.recover(&key, Part::Object, Arc::clone(&error)).await? {
                Record::Object(object) => Ok(Arc::new(object)),
                Record::Versions(_) => Err(error),
            },
        }
    }

    async fn versions(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultError>> {
        let key = self.key(object);
        let (kind, name) = (object.kind, object.name.clone());
        let fetch =
            || self.asked(|vault| async move { vault.fetch_versions(kind, &name).await }.boxed());
        match self.vaults.lists.read(key.clone(), self.demand, |_| None, fetch).await {
            Ok(read) => {
                let record = RecordRef::Versions(&read.value);
                self.keep(&key, Part::Versions, record, read.read_at()).await;
                Ok(read.value)
            }
            Err(error) => match self.recover(&key, Part::Versions, Arc::clone(&error)).await? {
                Record::Versions(versions) => Ok(Arc::new(versions)),
                Record::Object(_) => Err(error),
            },
        }
    }
}

/// The entry of what a reader read. Everything that tells readers apart goes into it, so that
/// nobody is served what somebody else was allowed to read.
fn entry_id(stale: &StaleCache, key: &ReadKey, part: Part) -> EntryId {
    let ObjectReference { kind, name, version } = &key.object;
    let mut fields = key.reader.fields();
    let part: &[u8] = match part {
        Part::Object => b"object",
        Part::Versions => b"versions",
    };
    fields.push(part.to_vec());
    fields.push(key.host.as_bytes().to_vec());
    fields.push(kind.to_string().into_bytes());
    fields.push(name.as_str().as_bytes().to_vec());
    // No version is called like that: the current one is told apart by a field that is not there.
    fields.extend(version.as_ref().map(|version| version.as_str().as_bytes().to_vec()));
    stale.entry_id(&fields)
}
