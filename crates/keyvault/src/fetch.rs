//! Fetches the objects that a class names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use lanyard_api::{ProviderParameters, VaultObjectEntry, VaultObjectKind, VaultObjectVersion};
use lanyard_clock::{ErrorHint, RetryClass};
use lanyard_vocabulary::{Hop, ObjectEncoding, SecretName};

use crate::error::VaultReadError;
use crate::history::{HistoryError, requested_version, select_history};
use crate::memory::{
    FILE_OVERHEAD_BYTES, MemoryExhausted, MemoryFootprint as _, OBJECT_READ_BYTES, ReadMemory,
    UnlimitedMemory, VERSION_LIST_BYTES, saturating_u64,
};
use crate::source::{FetchedVaultObject, ListedVersion, VaultSource};

/// The number of concurrent reads of a volume. The vault's limit applies to all of its clients.
const CONCURRENT_READS: usize = 8;

/// An object as the class names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// The value of `objectType`.
    pub kind: VaultObjectKind,
    /// The value of `objectName`.
    pub name: SecretName,
    /// The version; `None` for the current one.
    pub version: Option<VaultObjectVersion>,
}

impl fmt::Display for ObjectReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} `{}`", self.kind, self.name)?;
        match &self.version {
            Some(version) => write!(formatter, " version `{version}`"),
            None => Ok(()),
        }
    }
}

/// Errors of fetching the objects of a SecretProviderClass.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The vault did not return the object.
    #[error("could not read {object}")]
    Object {
        object: ObjectReference,
        /// The vault's error.
        #[source]
        source: Arc<VaultReadError>,
    },
    /// The vault did not list the versions of the object.
    #[error("could not list the versions of {object}")]
    Versions {
        object: ObjectReference,
        /// The vault's error.
        #[source]
        source: Arc<VaultReadError>,
    },
    /// The listed versions do not contain the requested history.
    #[error("could not choose the version history of {object}")]
    History {
        object: ObjectReference,
        /// The problem of the history.
        #[source]
        source: HistoryError,
    },
    /// The objects exceed the size limit of a volume; later objects were not read.
    #[error("with {object} the objects have more than the {limit} bytes that a volume takes")]
    VolumeTooLarge {
        /// The object that exceeded the limit.
        object: ObjectReference,
        /// The size limit of a volume, in bytes.
        limit: u64,
    },
    /// The node has no memory for the objects; later objects were not read.
    #[error("not enough memory for {object} and the objects before it")]
    NotEnoughMemory {
        /// The object that did not fit.
        object: ObjectReference,
        /// The required and the available memory.
        #[source]
        source: MemoryExhausted,
    },
}

impl ReadError {
    /// The affected object.
    pub fn object(&self) -> &ObjectReference {
        match self {
            Self::Object { object, .. }
            | Self::Versions { object, .. }
            | Self::History { object, .. }
            | Self::VolumeTooLarge { object, .. }
            | Self::NotEnoughMemory { object, .. } => object,
        }
    }

    /// The vault's error, if the vault is the cause.
    pub fn vault_error(&self) -> Option<&VaultReadError> {
        match self {
            Self::Object { source, .. } | Self::Versions { source, .. } => Some(source),
            Self::History { .. } | Self::VolumeTooLarge { .. } | Self::NotEnoughMemory { .. } => {
                None
            }
        }
    }

    /// Whether and when the read may succeed.
    pub fn retry(&self) -> RetryClass {
        match self {
            Self::NotEnoughMemory { source, .. } if !source.exceeds_node_capacity => {
                RetryClass::Transient
            }
            _ => self.vault_error().map_or(RetryClass::Invalid, VaultReadError::retry),
        }
    }

    /// How long the circuit breaker stays open, if it rejected the read:
    /// [`VaultReadError::circuit_open_for`].
    pub fn circuit_open_for(&self) -> Option<Duration> {
        self.vault_error().and_then(VaultReadError::circuit_open_for)
    }

    /// The hop that failed.
    pub fn hop(&self) -> Hop {
        self.vault_error().map_or(Hop::VaultRead, VaultReadError::hop)
    }
}

impl ErrorHint for ReadError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::History { .. } => Some("enable a version, or correct objectVersion".into()),
            Self::VolumeTooLarge { .. } => {
                Some("ask for fewer objects or versions in one SecretProviderClass".into())
            }
            Self::NotEnoughMemory { source, .. } => Some(source.hint.clone().into()),
            Self::Object { source, .. } | Self::Versions { source, .. } => source.hint(),
        }
    }
}

/// The object of one file of a class. Entries with the same version share it.
#[derive(Debug, Clone)]
pub struct FetchedEntryObject {
    /// The entry that names the object.
    pub entry: VaultObjectEntry,
    /// The index in the entry's version history, if it requests one.
    pub history_index: Option<usize>,
    pub object: Arc<FetchedVaultObject>,
}

impl FetchedEntryObject {
    /// The kind, name and version of the object.
    pub fn reference(&self) -> ObjectReference {
        let (kind, name) = (self.entry.kind, self.entry.name.clone());
        ObjectReference { kind, name, version: Some(self.object.version().clone()) }
    }
}

/// A source of a class's objects: a vault, or the shared reads of one.
#[async_trait]
pub(crate) trait ObjectSource: Send + Sync {
    /// Fetches an object.
    async fn object(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<FetchedVaultObject>, Arc<VaultReadError>>;

    /// Lists the versions of an object, regardless of the reference's version.
    async fn versions(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultReadError>>;
}

/// A vault without sharing.
struct DirectObjectSource<'a>(&'a dyn VaultSource);

#[async_trait]
impl ObjectSource for DirectObjectSource<'_> {
    async fn object(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<FetchedVaultObject>, Arc<VaultReadError>> {
        fetch_object(object, self.0).await.map(Arc::new).map_err(Arc::new)
    }

    async fn versions(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultReadError>> {
        let listed = self.0.fetch_versions(object.kind, &object.name).await;
        listed.map(Arc::new).map_err(Arc::new)
    }
}

/// Fetches one object from a vault.
pub(crate) async fn fetch_object(
    object: &ObjectReference,
    source: &dyn VaultSource,
) -> Result<FetchedVaultObject, VaultReadError> {
    let (name, version) = (&object.name, object.version.as_ref());
    match object.kind {
        VaultObjectKind::Secret => {
            source.fetch_secret(name, version).await.map(FetchedVaultObject::Secret)
        }
        VaultObjectKind::Key => source.fetch_key(name, version).await.map(FetchedVaultObject::Key),
        VaultObjectKind::Certificate => {
            source.fetch_certificate(name, version).await.map(FetchedVaultObject::Certificate)
        }
    }
}

/// Fetches all objects of a class in the order of its entries, with one read for each distinct object and
/// version and a limited number of concurrent reads. Returns the first failure in that order.
pub async fn fetch_objects(
    parameters: &ProviderParameters,
    source: &dyn VaultSource,
) -> Result<Vec<FetchedEntryObject>, ReadError> {
    let limits = VolumeReadLimits { max_content_bytes: u64::MAX, memory: &UnlimitedMemory };
    fetch_entries(&parameters.objects, &DirectObjectSource(source), limits).await
}

/// The limits of one volume's objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VolumeReadLimits<'a> {
    /// The maximum total size of the files, in bytes.
    pub(crate) max_content_bytes: u64,
    /// The memory account of the reads.
    pub(crate) memory: &'a dyn ReadMemory,
}

/// Like [`fetch_objects`], from any source and with limits.
///
/// The memory of each object is reserved before it is read. Reading stops as soon as the minimum size of the
/// files exceeds the limit, or could not be mounted on an empty node.
pub(crate) async fn fetch_entries(
    entries: &[VaultObjectEntry],
    source: &dyn ObjectSource,
    limits: VolumeReadLimits<'_>,
) -> Result<Vec<FetchedEntryObject>, ReadError> {
    let histories = fetch_histories(entries, source, limits.memory).await?;
    let requested: Vec<RequestedObject<'_>> = requested_objects(entries, &histories);
    let Some(first) = requested.first() else { return Ok(Vec::new()) };
    let room = saturating_u64(requested.len()).saturating_mul(FILE_OVERHEAD_BYTES);
    reserve_memory(&first.object, limits.memory, room).await?;
    limits.memory.finish_read(room, room);
    let mut distinct: Vec<(&ObjectReference, Vec<&VaultObjectEntry>)> = Vec::new();
    let mut places: HashMap<&ObjectReference, usize> = HashMap::new();
    for want in &requested {
        let place = *places.entry(&want.object).or_insert_with(|| {
            distinct.push((&want.object, Vec::new()));
            distinct.len() - 1
        });
        if let Some((_, entries)) = distinct.get_mut(place) {
            entries.push(want.entry);
        }
    }
    // Boxed one by one: a stream over a closure would make the callers' futures not `Send`.
    let mut reads = Vec::with_capacity(distinct.len());
    for (object, _) in &distinct {
        reads.push(read_object(object, source, limits.memory).boxed());
    }
    let mut reads = stream::iter(reads).buffered(CONCURRENT_READS);
    let mut objects: Vec<Arc<FetchedVaultObject>> = Vec::with_capacity(distinct.len());
    let (mut bytes, mut size) = (0_u64, 0_u64);
    for (object, entries) in &distinct {
        let Some(read) = reads.try_next().await? else { break };
        for entry in entries {
            let content = min_content_bytes(entry, &read);
            bytes = bytes.saturating_add(content);
            size = size.saturating_add(limits.memory.mounted_size(content));
        }
        if bytes > limits.max_content_bytes {
            let limit = limits.max_content_bytes;
            return Err(ReadError::VolumeTooLarge { object: (*object).clone(), limit });
        }
        let checked = limits.memory.check_volume_fits(size);
        checked
            .map_err(|source| ReadError::NotEnoughMemory { object: (*object).clone(), source })?;
        objects.push(read);
    }
    let fetched = requested.iter().filter_map(|want| {
        let object = Arc::clone(objects.get(*places.get(&want.object)?)?);
        Some(FetchedEntryObject {
            entry: want.entry.clone(),
            history_index: want.history_index,
            object,
        })
    });
    Ok(fetched.collect())
}

/// The minimum total size of an entry's files after decoding, in bytes: encoded values may shrink, and a
/// volume must not be rejected for its encoded size.
fn min_content_bytes(entry: &VaultObjectEntry, object: &FetchedVaultObject) -> u64 {
    let bytes = match object {
        FetchedVaultObject::Secret(secret) => {
            let length = secret.value.expose().len();
            let is_text = matches!(entry.encoding, None | Some(ObjectEncoding::Utf8));
            // Two hexadecimal digits are one byte, and the size of a PKCS#12 archive changes with its
            // conversion.
            if is_text && !secret.is_certificate_secret { length } else { length / 2 }
        }
        FetchedVaultObject::Certificate(certificate) => certificate.der.len(),
        FetchedVaultObject::Key(_) => 0,
    };
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The read for one file.
struct RequestedObject<'a> {
    entry: &'a VaultObjectEntry,
    history_index: Option<usize>,
    object: ObjectReference,
}

/// The versions of each entry with a history; `None` for the others.
async fn fetch_histories(
    entries: &[VaultObjectEntry],
    source: &dyn ObjectSource,
    memory: &dyn ReadMemory,
) -> Result<Vec<Vec<VaultObjectVersion>>, ReadError> {
    // The entries of each object, in the order in which the objects first occur.
    let mut distinct: Vec<(ObjectReference, Vec<usize>)> = Vec::new();
    let mut places: HashMap<ObjectReference, usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.history_length > 1) {
        let place = *places.entry(object_reference(entry, None)).or_insert_with_key(|object| {
            distinct.push((object.clone(), Vec::new()));
            distinct.len() - 1
        });
        if let Some((_, entries)) = distinct.get_mut(place) {
            entries.push(index);
        }
    }
    let mut lists = Vec::with_capacity(distinct.len());
    for (object, _) in &distinct {
        lists.push(fetch_version_list(object, source, memory).boxed());
    }
    let mut lists = stream::iter(lists).buffered(CONCURRENT_READS);
    let mut chosen = vec![Vec::new(); entries.len()];
    // Each list is dropped as soon as the history is selected.
    for (_, indices) in &distinct {
        let Some((listed, weight)) = lists.try_next().await? else { break };
        for index in indices {
            if let (Some(entry), Some(history)) = (entries.get(*index), chosen.get_mut(*index)) {
                *history = select_entry_history(entry, &listed)?;
            }
        }
        drop(listed);
        memory.finish_read(weight, 0);
    }
    Ok(chosen)
}

/// Lists the versions of an object, and returns the memory reserved for them.
async fn fetch_version_list(
    object: &ObjectReference,
    source: &dyn ObjectSource,
    memory: &dyn ReadMemory,
) -> Result<(Arc<Vec<ListedVersion>>, u64), ReadError> {
    reserve_memory(object, memory, VERSION_LIST_BYTES).await?;
    let listed = source.versions(object).await;
    let listed = listed.map_err(|source| ReadError::Versions { object: object.clone(), source })?;
    Ok((listed, VERSION_LIST_BYTES))
}

async fn reserve_memory(
    object: &ObjectReference,
    memory: &dyn ReadMemory,
    room: u64,
) -> Result<(), ReadError> {
    let taken = memory.reserve_read_memory(room).await;
    taken.map_err(|source| ReadError::NotEnoughMemory { object: object.clone(), source })
}

fn select_entry_history(
    entry: &VaultObjectEntry,
    listed: &[ListedVersion],
) -> Result<Vec<VaultObjectVersion>, ReadError> {
    select_history(listed, entry.version.as_ref(), entry.history_length).map_err(|source| {
        ReadError::History { object: object_reference(entry, entry.version.clone()), source }
    })
}

fn requested_objects<'a>(
    entries: &'a [VaultObjectEntry],
    histories: &[Vec<VaultObjectVersion>],
) -> Vec<RequestedObject<'a>> {
    let mut requested = Vec::new();
    for (entry, history) in entries.iter().zip(histories) {
        if entry.history_length <= 1 {
            let object =
                object_reference(entry, requested_version(entry.version.as_ref()).cloned());
            requested.push(RequestedObject { entry, history_index: None, object });
        }
        for (place, version) in history.iter().enumerate() {
            let object = object_reference(entry, Some(version.clone()));
            requested.push(RequestedObject { entry, history_index: Some(place), object });
        }
    }
    requested
}

fn object_reference(
    entry: &VaultObjectEntry,
    version: Option<VaultObjectVersion>,
) -> ObjectReference {
    ObjectReference { kind: entry.kind, name: entry.name.clone(), version }
}

async fn read_object(
    object: &ObjectReference,
    source: &dyn ObjectSource,
    memory: &dyn ReadMemory,
) -> Result<Arc<FetchedVaultObject>, ReadError> {
    reserve_memory(object, memory, OBJECT_READ_BYTES).await?;
    let read = source.object(object).await;
    let read = read.map_err(|source| ReadError::Object { object: object.clone(), source })?;
    memory.finish_read(OBJECT_READ_BYTES, read.footprint_bytes());
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::source::{FetchedSecret, ObjectAttributes};

    /// A vault with a value of a hundred bytes for every object, which counts reads.
    #[derive(Default)]
    struct HundredByteSource(AtomicUsize);

    #[async_trait]
    impl ObjectSource for HundredByteSource {
        async fn object(
            &self,
            _: &ObjectReference,
        ) -> Result<Arc<FetchedVaultObject>, Arc<VaultReadError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::new(FetchedVaultObject::Secret(FetchedSecret {
                version: "v1".parse().unwrap(),
                attributes: ObjectAttributes::default(),
                content_type: None,
                is_certificate_secret: false,
                value: "0".repeat(100).into(),
            })))
        }

        async fn versions(
            &self,
            _: &ObjectReference,
        ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultReadError>> {
            Ok(Arc::default())
        }
    }

    fn limits_with_content(content: u64) -> VolumeReadLimits<'static> {
        VolumeReadLimits { max_content_bytes: content, memory: &UnlimitedMemory }
    }

    fn secret_entries(count: usize, encoding: Option<ObjectEncoding>) -> Vec<VaultObjectEntry> {
        let name = |number| format!("n{number}").parse().unwrap();
        (0..count).map(|number| VaultObjectEntry::secret(name(number), encoding)).collect()
    }

    #[tokio::test]
    async fn reading_stops_when_the_volume_limit_is_exceeded() {
        let vault = HundredByteSource::default();
        let all = fetch_entries(&secret_entries(20, None), &vault, limits_with_content(2_000))
            .await
            .unwrap();
        assert_eq!((all.len(), vault.0.swap(0, Ordering::SeqCst)), (20, 20));
        let error = fetch_entries(&secret_entries(500, None), &vault, limits_with_content(1_999))
            .await
            .unwrap_err();
        assert_eq!(error.object().name.as_str(), "n19");
        assert!(error.to_string().contains("more than the 1999 bytes"), "{error}");
        assert!(error.hint().is_some() && error.retry() == RetryClass::Invalid);
        let read = vault.0.load(Ordering::SeqCst);
        assert!(read <= 20 + CONCURRENT_READS, "{read}");
    }

    #[tokio::test]
    async fn each_file_counts_with_its_minimum_size() {
        let vault = HundredByteSource::default();
        let twice = [secret_entries(1, None), secret_entries(1, None)].concat();
        assert!(fetch_entries(&twice, &vault, limits_with_content(199)).await.is_err());
        assert_eq!(fetch_entries(&twice, &vault, limits_with_content(200)).await.unwrap().len(), 2);
        let hex = secret_entries(2, Some(ObjectEncoding::Hex));
        assert_eq!(fetch_entries(&hex, &vault, limits_with_content(100)).await.unwrap().len(), 2);
    }
}
