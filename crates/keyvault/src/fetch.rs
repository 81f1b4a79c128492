//! Reading the objects that a class asks for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use lanyard_api::{ObjectEntry, ObjectKind, ObjectVersion, ProviderParameters};
use lanyard_credential::RetryClass;
use lanyard_vocabulary::{Hop, ObjectEncoding, SecretName};

use crate::error::VaultError;
use crate::history::{HistoryError, asked_version, select_history};
use crate::memory::{
    FILE_ROOM, LIST_ROOM, MemoryExhausted, READ_ROOM, ReadMemory, UnlimitedMemory, Weigh as _,
    length_of,
};
use crate::source::{
    ListedVersion, ObjectAttributes, SecretSource, VaultCertificate, VaultKey, VaultSecret,
};

/// How many reads are under way at once. A vault's limit is for all of its clients.
const CONCURRENT_READS: usize = 8;

/// An object as a class names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// `objectType`.
    pub kind: ObjectKind,
    /// `objectName`.
    pub name: SecretName,
    /// The version; nothing for the current one.
    pub version: Option<ObjectVersion>,
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

/// An object could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The vault did not give the object.
    #[error("could not read {object}")]
    Object {
        /// What was to be read.
        object: ObjectReference,
        /// What came back.
        #[source]
        source: Arc<VaultError>,
    },
    /// The vault did not list the versions of an object.
    #[error("could not list the versions of {object}")]
    Versions {
        /// Whose versions.
        object: ObjectReference,
        /// What came back.
        #[source]
        source: Arc<VaultError>,
    },
    /// The listed versions are not what the history needs.
    #[error("could not choose the version history of {object}")]
    History {
        /// Whose history.
        object: ObjectReference,
        /// What is wrong.
        #[source]
        source: HistoryError,
    },
    /// The objects are more than a volume takes; those after it were not read.
    #[error("with {object} the objects have more than the {limit} bytes that a volume takes")]
    TooMuch {
        /// The object with which it became too much.
        object: ObjectReference,
        /// What a volume takes, in bytes.
        limit: u64,
    },
    /// The node has no memory for the objects; those after it were not read.
    #[error("there is no room for {object} and what is read before it")]
    NoRoom {
        /// The object for which there was no room.
        object: ObjectReference,
        /// What was needed and what there is.
        #[source]
        source: MemoryExhausted,
    },
}

impl ReadError {
    /// Which object it is about.
    pub fn object(&self) -> &ObjectReference {
        match self {
            Self::Object { object, .. }
            | Self::Versions { object, .. }
            | Self::History { object, .. }
            | Self::TooMuch { object, .. }
            | Self::NoRoom { object, .. } => object,
        }
    }

    /// The vault's error, if the vault is to blame.
    pub fn vault(&self) -> Option<&VaultError> {
        match self {
            Self::Object { source, .. } | Self::Versions { source, .. } => Some(source),
            Self::History { .. } | Self::TooMuch { .. } | Self::NoRoom { .. } => None,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::History { .. } => Some("enable a version, or correct objectVersion".to_owned()),
            Self::TooMuch { .. } => {
                Some("ask for fewer objects or versions in one SecretProviderClass".to_owned())
            }
            Self::NoRoom { source, .. } => Some(source.hint.clone()),
            Self::Object { source, .. } | Self::Versions { source, .. } => source.hint(),
        }
    }

    /// Whether and when the same read may succeed.
    pub fn retry(&self) -> RetryClass {
        match self {
            Self::NoRoom { source, .. } if !source.is_hopeless => RetryClass::Transient,
            _ => self.vault().map_or(RetryClass::Invalid, VaultError::retry),
        }
    }

    /// For how long nobody asks the vault, where it was not asked: [`VaultError::turned_away`].
    pub fn turned_away(&self) -> Option<Duration> {
        self.vault().and_then(VaultError::turned_away)
    }

    /// The hop that is broken.
    pub fn hop(&self) -> Hop {
        self.vault().map_or(Hop::VaultRead, VaultError::hop)
    }
}

/// What a vault gave for one object.
#[derive(Debug)]
#[non_exhaustive]
pub enum VaultObject {
    /// A secret.
    Secret(VaultSecret),
    /// The public part of a key.
    Key(VaultKey),
    /// A certificate without its private key.
    Certificate(VaultCertificate),
}

impl VaultObject {
    /// Which version it is.
    pub fn version(&self) -> &ObjectVersion {
        match self {
            Self::Secret(secret) => &secret.version,
            Self::Key(key) => &key.version,
            Self::Certificate(certificate) => &certificate.version,
        }
    }

    /// What the vault tells about it.
    pub fn attributes(&self) -> &ObjectAttributes {
        match self {
            Self::Secret(secret) => &secret.attributes,
            Self::Key(key) => &key.attributes,
            Self::Certificate(certificate) => &certificate.attributes,
        }
    }
}

/// One object for one file of a class. Entries that ask for the same version share it.
#[derive(Debug, Clone)]
pub struct FetchedObject {
    /// The entry that asked for it.
    pub entry: ObjectEntry,
    /// Its place in the entry's version history, if the entry asks for one.
    pub place: Option<usize>,
    /// The object.
    pub object: Arc<VaultObject>,
}

impl FetchedObject {
    /// What was read.
    pub fn reference(&self) -> ObjectReference {
        let (kind, name) = (self.entry.kind, self.entry.name.clone());
        ObjectReference { kind, name, version: Some(self.object.version().clone()) }
    }
}

/// Where objects are read for a class: a vault itself, or what is shared of it.
#[async_trait]
pub(crate) trait ObjectSource: Send + Sync {
    /// Reads an object.
    async fn object(&self, object: &ObjectReference) -> Result<Arc<VaultObject>, Arc<VaultError>>;

    /// Lists the versions of an object; that of the reference does not count.
    async fn versions(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultError>>;
}

/// A vault itself.
struct Unshared<'a>(&'a dyn SecretSource);

#[async_trait]
impl ObjectSource for Unshared<'_> {
    async fn object(&self, object: &ObjectReference) -> Result<Arc<VaultObject>, Arc<VaultError>> {
        fetch_object(object, self.0).await.map(Arc::new).map_err(Arc::new)
    }

    async fn versions(
        &self,
        object: &ObjectReference,
    ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultError>> {
        let listed = self.0.fetch_versions(object.kind, &object.name).await;
        listed.map(Arc::new).map_err(Arc::new)
    }
}

/// Reads one object from a vault.
pub(crate) async fn fetch_object(
    object: &ObjectReference,
    source: &dyn SecretSource,
) -> Result<VaultObject, VaultError> {
    let (name, version) = (&object.name, object.version.as_ref());
    match object.kind {
        ObjectKind::Secret => source.fetch_secret(name, version).await.map(VaultObject::Secret),
        ObjectKind::Key => source.fetch_key(name, version).await.map(VaultObject::Key),
        ObjectKind::Certificate => {
            source.fetch_certificate(name, version).await.map(VaultObject::Certificate)
        }
    }
}

/// Reads every object that a class asks for, in the order of its entries: one read for each
/// distinct object and version, a bounded number of them at once. The first failure in that order
/// is the one that is told.
pub async fn fetch_objects(
    parameters: &ProviderParameters,
    source: &dyn SecretSource,
) -> Result<Vec<FetchedObject>, ReadError> {
    let limits = ReadLimits { content: u64::MAX, memory: &UnlimitedMemory };
    fetch_entries(&parameters.objects, &Unshared(source), limits).await
}

/// What the objects of one volume may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLimits<'a> {
    /// How many bytes the files may have together.
    pub(crate) content: u64,
    /// The memory that what is read takes.
    pub(crate) memory: &'a dyn ReadMemory,
}

/// The same from any source of objects, for a volume whose files may have so much together.
///
/// The memory of each object is asked for before it is read. Once the files cannot have less than
/// they may, or could not be mounted on an empty node, nothing more is read.
pub(crate) async fn fetch_entries(
    entries: &[ObjectEntry],
    source: &dyn ObjectSource,
    limits: ReadLimits<'_>,
) -> Result<Vec<FetchedObject>, ReadError> {
    let histories = fetch_histories(entries, source, limits.memory).await?;
    let wanted: Vec<Wanted<'_>> = wanted_objects(entries, &histories);
    let Some(first) = wanted.first() else { return Ok(Vec::new()) };
    let room = length_of(wanted.len()).saturating_mul(FILE_ROOM);
    take_room(&first.object, limits.memory, room).await?;
    limits.memory.end(room, room);
    let mut distinct: Vec<(&ObjectReference, Vec<&ObjectEntry>)> = Vec::new();
    let mut places: HashMap<&ObjectReference, usize> = HashMap::new();
    for want in &wanted {
        let place = *places.entry(&want.object).or_insert_with(|| {
            distinct.push((&want.object, Vec::new()));
            distinct.len() - 1
        });
        if let Some((_, entries)) = distinct.get_mut(place) {
            entries.push(want.entry);
        }
    }
    // Boxed one by one: a stream over a closure would keep callers from being `Send`.
    let mut reads = Vec::with_capacity(distinct.len());
    for (object, _) in &distinct {
        reads.push(read_object(object, source, limits.memory).boxed());
    }
    let mut reads = stream::iter(reads).buffered(CONCURRENT_READS);
    let mut objects: Vec<Arc<VaultObject>> = Vec::with_capacity(distinct.len());
    let (mut bytes, mut size) = (0_u64, 0_u64);
    for (object, entries) in &distinct {
        let Some(read) = reads.try_next().await? else { break };
        for entry in entries {
            let content = least_content(entry, &read);
            bytes = bytes.saturating_add(content);
            size = size.saturating_add(limits.memory.mounted_size(content));
        }
        if bytes > limits.content {
            let limit = limits.content;
            return Err(ReadError::TooMuch { object: (*object).clone(), limit });
        }
        let checked = limits.memory.check_volume(size);
        checked.map_err(|source| ReadError::NoRoom { object: (*object).clone(), source })?;
        objects.push(read);
    }
    let fetched = wanted.iter().filter_map(|want| {
        let object = Arc::clone(objects.get(*places.get(&want.object)?)?);
        Some(FetchedObject { entry: want.entry.clone(), place: want.place, object })
    });
    Ok(fetched.collect())
}

/// How many bytes the files of an entry have at least, once the object is decoded: nobody is refused
/// for what only looks large.
fn least_content(entry: &ObjectEntry, object: &VaultObject) -> u64 {
    let bytes = match object {
        VaultObject::Secret(secret) => {
            let length = secret.value.expose().len();
            let is_text = matches!(entry.encoding, None | Some(ObjectEncoding::Utf8));
            // Two digits of hexadecimal are a byte, and a PKCS#12 comes out in other clothes.
            if is_text && !secret.of_certificate { length } else { length / 2 }
        }
        VaultObject::Certificate(certificate) => certificate.der.len(),
        VaultObject::Key(_) => 0,
    };
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// One file's worth of reading.
struct Wanted<'a> {
    entry: &'a ObjectEntry,
    place: Option<usize>,
    object: ObjectReference,
}

/// The versions of each entry that asks for a history; none for the others.
async fn fetch_histories(
    entries: &[ObjectEntry],
    source: &dyn ObjectSource,
    memory: &dyn ReadMemory,
) -> Result<Vec<Vec<ObjectVersion>>, ReadError> {
    // The entries of each object, in the order in which the objects come first.
    let mut distinct: Vec<(ObjectReference, Vec<usize>)> = Vec::new();
    let mut places: HashMap<ObjectReference, usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.history > 1) {
        let place = *places.entry(reference(entry, None)).or_insert_with_key(|object| {
            distinct.push((object.clone(), Vec::new()));
            distinct.len() - 1
        });
        if let Some((_, entries)) = distinct.get_mut(place) {
            entries.push(index);
        }
    }
    let mut lists = Vec::with_capacity(distinct.len());
    for (object, _) in &distinct {
        lists.push(fetch_list(object, source, memory).boxed());
    }
    let mut lists = stream::iter(lists).buffered(CONCURRENT_READS);
    let mut chosen = vec![Vec::new(); entries.len()];
    // A list is dropped as soon as it was chosen from.
    for (_, indices) in &distinct {
        let Some((listed, weight)) = lists.try_next().await? else { break };
        for index in indices {
            if let (Some(entry), Some(history)) = (entries.get(*index), chosen.get_mut(*index)) {
                *history = choose_history(entry, &listed)?;
            }
        }
        drop(listed);
        memory.end(weight, 0);
    }
    Ok(chosen)
}

/// The versions of an object, and how much memory was taken for them.
async fn fetch_list(
    object: &ObjectReference,
    source: &dyn ObjectSource,
    memory: &dyn ReadMemory,
) -> Result<(Arc<Vec<ListedVersion>>, u64), ReadError> {
    take_room(object, memory, LIST_ROOM).await?;
    let listed = source.versions(object).await;
    let listed = listed.map_err(|source| ReadError::Versions { object: object.clone(), source })?;
    Ok((listed, LIST_ROOM))
}

async fn take_room(
    object: &ObjectReference,
    memory: &dyn ReadMemory,
    room: u64,
) -> Result<(), ReadError> {
    let taken = memory.begin(room).await;
    taken.map_err(|source| ReadError::NoRoom { object: object.clone(), source })
}

fn choose_history(
    entry: &ObjectEntry,
    listed: &[ListedVersion],
) -> Result<Vec<ObjectVersion>, ReadError> {
    select_history(listed, entry.version.as_ref(), entry.history).map_err(|source| {
        ReadError::History { object: reference(entry, entry.version.clone()), source }
    })
}

fn wanted_objects<'a>(
    entries: &'a [ObjectEntry],
    histories: &[Vec<ObjectVersion>],
) -> Vec<Wanted<'a>> {
    let mut wanted = Vec::new();
    for (entry, history) in entries.iter().zip(histories) {
        if entry.history <= 1 {
            let object = reference(entry, asked_version(entry.version.as_ref()).cloned());
            wanted.push(Wanted { entry, place: None, object });
        }
        for (place, version) in history.iter().enumerate() {
            let object = reference(entry, Some(version.clone()));
            wanted.push(Wanted { entry, place: Some(place), object });
        }
    }
    wanted
}

fn reference(entry: &ObjectEntry, version: Option<ObjectVersion>) -> ObjectReference {
    ObjectReference { kind: entry.kind, name: entry.name.clone(), version }
}

async fn read_object(
    object: &ObjectReference,
    source: &dyn ObjectSource,
    memory: &dyn ReadMemory,
) -> Result<Arc<VaultObject>, ReadError> {
    take_room(object, memory, READ_ROOM).await?;
    let read = source.object(object).await;
    let read = read.map_err(|source| ReadError::Object { object: object.clone(), source })?;
    memory.end(READ_ROOM, read.weight());
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A vault that gives a hundred bytes for every object, and counts.
    #[derive(Default)]
    struct Hundreds(AtomicUsize);

    #[async_trait]
    impl ObjectSource for Hundreds {
        async fn object(&self, _: &ObjectReference) -> Result<Arc<VaultObject>, Arc<VaultError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::new(VaultObject::Secret(VaultSecret {
                version: "v1".parse().unwrap(),
                attributes: ObjectAttributes::default(),
                content_type: None,
                of_certificate: false,
                value: "0".repeat(100).into(),
            })))
        }

        async fn versions(
            &self,
            _: &ObjectReference,
        ) -> Result<Arc<Vec<ListedVersion>>, Arc<VaultError>> {
            Ok(Arc::default())
        }
    }

    fn within(content: u64) -> ReadLimits<'static> {
        ReadLimits { content, memory: &UnlimitedMemory }
    }

    fn entries(count: usize, encoding: Option<ObjectEncoding>) -> Vec<ObjectEntry> {
        let name = |number| format!("n{number}").parse().unwrap();
        (0..count).map(|number| ObjectEntry::secret(name(number), encoding)).collect()
    }

    #[tokio::test]
    async fn what_is_more_than_a_volume_takes_is_not_read_to_its_end() {
        let vault = Hundreds::default();
        let all = fetch_entries(&entries(20, None), &vault, within(2_000)).await.unwrap();
        assert_eq!((all.len(), vault.0.swap(0, Ordering::SeqCst)), (20, 20));
        let error = fetch_entries(&entries(500, None), &vault, within(1_999)).await.unwrap_err();
        assert_eq!(error.object().name.as_str(), "n19");
        assert!(error.to_string().contains("more than the 1999 bytes"), "{error}");
        assert!(error.hint().is_some() && error.retry() == RetryClass::Invalid);
        let read = vault.0.load(Ordering::SeqCst);
        assert!(read <= 20 + CONCURRENT_READS, "{read}");
    }

    #[tokio::test]
    async fn each_file_counts_and_only_what_it_has_at_least() {
        let vault = Hundreds::default();
        let twice = [entries(1, None), entries(1, None)].concat();
        assert!(fetch_entries(&twice, &vault, within(199)).await.is_err());
        assert_eq!(fetch_entries(&twice, &vault, within(200)).await.unwrap().len(), 2);
        let hex = entries(2, Some(ObjectEncoding::Hex));
        assert_eq!(fetch_entries(&hex, &vault, within(100)).await.unwrap().len(), 2);
    }
}
