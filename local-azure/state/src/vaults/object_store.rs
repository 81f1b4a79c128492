//! Versioned objects with soft delete: the common store of secrets, keys and certificates.
//!
//! Names are case-insensitive and keep their original case.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::vault_object_key::VaultObjectKey;
use crate::table::{StoredTable, Table};

/// The content of the versions of one kind of object.
pub trait VersionContent: Sized {
    /// What the versions of an object share.
    type Details: fmt::Debug + Clone + Default + Serialize + DeserializeOwned;

    /// When the vault creates the next version by itself; `None` if it never does.
    fn next_renewal(_object: &StoredVaultObject<Self>) -> Option<Timestamp> {
        None
    }
}

/// The objects of one kind in all vaults.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
#[serde(bound = "T: Serialize + DeserializeOwned")]
pub struct VersionedObjectStore<T: VersionContent> {
    objects: Table<VaultObjectKey, StoredVaultObject<T>>,
    /// Rebuilt when the state is loaded.
    #[serde(skip)]
    index: ObjectIndex,
}

/// The objects by their deletion and renewal.
#[derive(Debug, Clone, Default)]
struct ObjectIndex {
    deleted: BTreeSet<VaultObjectKey>,
    /// The deleted objects by the time of their purge.
    purges: BTreeSet<(Timestamp, VaultObjectKey)>,
    /// The next renewal of the objects that the vault renews.
    renewals: BTreeMap<VaultObjectKey, Timestamp>,
    /// The time and the name of these objects, by the host of their vault.
    renewals_by_host: BTreeMap<String, BTreeSet<(Timestamp, String)>>,
}

impl ObjectIndex {
    fn insert<T: VersionContent>(&mut self, key: &VaultObjectKey, object: &StoredVaultObject<T>) {
        self.remove(key, object.deletion);
        if let Some(deletion) = object.deletion {
            self.deleted.insert(key.clone());
            self.purges.insert((deletion.purge_at, key.clone()));
        } else if let Some(time) = T::next_renewal(object) {
            self.renewals.insert(key.clone(), time);
            let of_vault = self.renewals_by_host.entry(key.host().to_owned()).or_default();
            of_vault.insert((time, key.name().to_owned()));
        }
    }

    /// Removes an object that has the given deletion, or that is not deleted.
    fn remove(&mut self, key: &VaultObjectKey, deletion: Option<SoftDeletion>) {
        self.deleted.remove(key);
        if let Some(deletion) = deletion {
            self.purges.remove(&(deletion.purge_at, key.clone()));
        }
        if let Some(time) = self.renewals.remove(key)
            && let Some(of_vault) = self.renewals_by_host.get_mut(key.host())
        {
            of_vault.remove(&(time, key.name().to_owned()));
            if of_vault.is_empty() {
                self.renewals_by_host.remove(key.host());
            }
        }
    }
}

/// An object with its versions, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "T: Serialize + DeserializeOwned")]
pub struct StoredVaultObject<T: VersionContent> {
    /// The name in its original case.
    pub name: String,
    /// The versions, never empty.
    pub versions: Vec<StoredObjectVersion<T>>,
    #[serde(default)]
    pub details: T::Details,
    /// Set while the object is deleted and can be recovered.
    pub deletion: Option<SoftDeletion>,
}

/// The soft deletion of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftDeletion {
    /// When the object was deleted.
    pub at: Timestamp,
    /// When the object will be purged.
    pub purge_at: Timestamp,
}

/// One version of an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredObjectVersion<T> {
    /// 32 hexadecimal digits.
    pub id: String,
    pub attributes: StoredObjectAttributes,
    /// The tags; `None` if no request set them, so that replies have no `tags`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// The content of the version.
    pub content: T,
}

/// The attributes of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredObjectAttributes {
    /// Whether the version can be read.
    pub enabled: bool,
    /// `nbf`: informational, does not prevent reads.
    pub not_before: Option<Timestamp>,
    /// `exp`: informational, does not prevent reads.
    pub expires: Option<Timestamp>,
    /// When the version was created.
    pub created: Timestamp,
    /// When its attributes, tags or content type last changed.
    pub updated: Timestamp,
}

/// An object of a vault does not exist, or cannot have the name of another object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectStoreError {
    /// The object or version does not exist.
    NotFound,
    /// The name belongs to a deleted object that can be recovered.
    NameTaken,
    /// An object of this name exists.
    AlreadyExists,
}

/// The name belongs to a deleted object that can be recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedNameConflict;

impl From<DeletedNameConflict> for ObjectStoreError {
    fn from(DeletedNameConflict: DeletedNameConflict) -> Self {
        Self::NameTaken
    }
}

impl StoredObjectAttributes {
    /// The attributes of a version that is created at `now`: enabled, without `nbf` and `exp`.
    pub fn new(now: Timestamp) -> Self {
        Self { enabled: true, not_before: None, expires: None, created: now, updated: now }
    }
}

impl<T: VersionContent> Default for VersionedObjectStore<T> {
    fn default() -> Self {
        Self { objects: Table::default(), index: ObjectIndex::default() }
    }
}

impl<T: VersionContent> StoredVaultObject<T> {
    /// The current version.
    pub fn latest(&self) -> Option<&StoredObjectVersion<T>> {
        self.versions.last()
    }

    fn version_index(&self, version: Option<&str>) -> Option<usize> {
        match version {
            None => self.versions.len().checked_sub(1),
            Some(id) => self.versions.iter().position(|known| known.id.eq_ignore_ascii_case(id)),
        }
    }
}

impl<T: VersionContent> VersionedObjectStore<T> {
    /// Rebuilds the index after the objects were loaded.
    pub(crate) fn rebuild_index(&mut self) {
        let mut index = ObjectIndex::default();
        for (key, object) in self.objects.iter() {
            index.insert(key, object);
        }
        self.index = index;
    }

    /// Adds a version, and creates the object if it does not exist.
    pub fn push_version(
        &mut self,
        host: &str,
        name: &str,
        version: StoredObjectVersion<T>,
    ) -> Result<(), DeletedNameConflict> {
        self.require_not_deleted(host, name)?;
        let key = VaultObjectKey::new(host, name);
        if self.objects.get(&key).is_some() {
            self.change(&key, |object| object.versions.push(version));
        } else {
            let details = T::Details::default();
            let (name, versions) = (name.to_owned(), vec![version]);
            self.put(key, StoredVaultObject { name, versions, details, deletion: None });
        }
        Ok(())
    }

    /// Rejects the name of a deleted object.
    pub fn require_not_deleted(&self, host: &str, name: &str) -> Result<(), DeletedNameConflict> {
        match self.deleted_object(host, name) {
            Ok(_) => Err(DeletedNameConflict),
            Err(_) => Ok(()),
        }
    }

    /// Adds an object with all its versions, unless the name is taken.
    pub fn insert_object(
        &mut self,
        host: &str,
        object: StoredVaultObject<T>,
    ) -> Result<(), ObjectStoreError> {
        self.require_free_name(host, &object.name)?;
        self.put(VaultObjectKey::new(host, &object.name), object);
        Ok(())
    }

    /// Rejects the name of an existing or deleted object.
    pub fn require_free_name(&self, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        match self.objects.get(&VaultObjectKey::new(host, name)) {
            None => Ok(()),
            Some(known) if known.deletion.is_some() => Err(ObjectStoreError::NameTaken),
            Some(_) => Err(ObjectStoreError::AlreadyExists),
        }
    }

    fn put(&mut self, key: VaultObjectKey, object: StoredVaultObject<T>) {
        self.index.insert(&key, &object);
        self.objects.insert(key, object);
    }

    /// Changes an object, and updates its index.
    fn change<R>(
        &mut self,
        key: &VaultObjectKey,
        change: impl FnOnce(&mut StoredVaultObject<T>) -> R,
    ) -> Option<R> {
        let object = self.objects.get_mut(key)?;
        self.index.remove(key, object.deletion);
        let result = change(object);
        self.index.insert(key, object);
        Some(result)
    }

    /// An object that is not deleted.
    pub fn object(
        &self,
        host: &str,
        name: &str,
    ) -> Result<&StoredVaultObject<T>, ObjectStoreError> {
        self.objects
            .get(&VaultObjectKey::new(host, name))
            .filter(|object| object.deletion.is_none())
            .ok_or(ObjectStoreError::NotFound)
    }

    /// Changes an object that is not deleted.
    pub fn change_object<R>(
        &mut self,
        host: &str,
        name: &str,
        change: impl FnOnce(&mut StoredVaultObject<T>) -> R,
    ) -> Result<R, ObjectStoreError> {
        self.object(host, name)?;
        self.change(&VaultObjectKey::new(host, name), change).ok_or(ObjectStoreError::NotFound)
    }

    /// An object and one of its versions: the current one if `version` is `None`.
    pub fn version(
        &self,
        host: &str,
        name: &str,
        version: Option<&str>,
    ) -> Result<(&StoredVaultObject<T>, &StoredObjectVersion<T>), ObjectStoreError> {
        let object = self.object(host, name)?;
        object
            .version_index(version)
            .and_then(|at| object.versions.get(at))
            .map(|version| (object, version))
            .ok_or(ObjectStoreError::NotFound)
    }

    /// Changes a version of an object: the current one if `version` is `None`.
    pub fn change_version<R>(
        &mut self,
        host: &str,
        name: &str,
        version: Option<&str>,
        change: impl FnOnce(&mut StoredObjectVersion<T>) -> R,
    ) -> Result<R, ObjectStoreError> {
        let at = self.object(host, name)?.version_index(version);
        let at = at.ok_or(ObjectStoreError::NotFound)?;
        self.change_object(host, name, |object| object.versions.get_mut(at).map(change))?
            .ok_or(ObjectStoreError::NotFound)
    }

    /// The objects of a vault that are not deleted, ordered by name, after the name `marker`.
    pub fn objects_after(
        &self,
        host: &str,
        marker: Option<&str>,
    ) -> impl Iterator<Item = &StoredVaultObject<T>> {
        let host = host.to_ascii_lowercase();
        self.objects
            .range((VaultObjectKey::first_after(&host, marker), Bound::Unbounded))
            .take_while(move |(key, _)| key.host() == host)
            .map(|(_, object)| object)
            .filter(|object| object.deletion.is_none())
    }

    /// The deleted objects of a vault, ordered by name, after the name `marker`.
    pub fn deleted_objects_after(
        &self,
        host: &str,
        marker: Option<&str>,
    ) -> impl Iterator<Item = &StoredVaultObject<T>> {
        let host = host.to_ascii_lowercase();
        self.index
            .deleted
            .range((VaultObjectKey::first_after(&host, marker), Bound::Unbounded))
            .take_while(move |key| key.host() == host)
            .filter_map(|key| self.objects.get(key))
    }

    /// Soft-deletes an object for the `retention` period.
    pub fn soft_delete(
        &mut self,
        host: &str,
        name: &str,
        now: Timestamp,
        retention: SignedDuration,
    ) -> Result<(), ObjectStoreError> {
        let purge_at = now.checked_add(retention).unwrap_or(Timestamp::MAX);
        let deletion = Some(SoftDeletion { at: now, purge_at });
        self.change_object(host, name, |object| object.deletion = deletion)
    }

    pub fn deleted_object(
        &self,
        host: &str,
        name: &str,
    ) -> Result<&StoredVaultObject<T>, ObjectStoreError> {
        self.objects
            .get(&VaultObjectKey::new(host, name))
            .filter(|object| object.deletion.is_some())
            .ok_or(ObjectStoreError::NotFound)
    }

    /// Recovers a deleted object.
    pub fn recover(&mut self, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        self.deleted_object(host, name)?;
        self.change(&VaultObjectKey::new(host, name), |object| object.deletion = None)
            .ok_or(ObjectStoreError::NotFound)
    }

    /// Purges a deleted object.
    pub fn purge(&mut self, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        self.deleted_object(host, name)?;
        self.remove(host, name);
        Ok(())
    }

    /// Removes an object with all its versions, without soft delete.
    pub fn remove(&mut self, host: &str, name: &str) -> Option<StoredVaultObject<T>> {
        let key = VaultObjectKey::new(host, name);
        let removed = self.objects.remove(&key)?;
        self.index.remove(&key, removed.deletion);
        Some(removed)
    }

    /// Removes the objects of a vault, deleted ones included.
    pub(crate) fn remove_vault(&mut self, host: &str) {
        let names: Vec<_> = self
            .objects_after(host, None)
            .chain(self.deleted_objects_after(host, None))
            .map(|object| object.name.clone())
            .collect();
        for name in names {
            self.remove(host, &name);
        }
    }

    /// Purges objects whose purge time has passed at `now`.
    pub fn purge_expired(&mut self, now: Timestamp) {
        while let Some((purge_at, key)) = self.index.purges.first().cloned() {
            if purge_at > now {
                return;
            }
            self.remove(key.host(), key.name());
        }
    }

    /// The names of the objects of a vault, by its lower-case host, whose renewal is due at `now`.
    pub fn due_renewals(&self, host: &str, now: Timestamp) -> impl Iterator<Item = &str> {
        let of_vault = self.index.renewals_by_host.get(host).into_iter().flatten();
        of_vault.take_while(move |(time, _)| *time <= now).map(|(_, name)| name.as_str())
    }
}

impl<T: VersionContent + Serialize + DeserializeOwned> VersionedObjectStore<T> {
    /// The objects in the form of the state file.
    pub(crate) fn stored_table(&mut self) -> &mut dyn StoredTable
    where
        T: 'static,
    {
        &mut self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "kv.vault.azure.net";

    /// Renewed after as many seconds as the content of the latest version.
    impl VersionContent for u8 {
        type Details = ();

        fn next_renewal(object: &StoredVaultObject<Self>) -> Option<Timestamp> {
            let seconds = object.latest()?.content;
            (seconds > 0).then(|| Timestamp::new(i64::from(seconds), 0).unwrap())
        }
    }

    fn version_with_id(id: &str) -> StoredObjectVersion<u8> {
        StoredObjectVersion {
            id: id.to_owned(),
            attributes: StoredObjectAttributes::new(Timestamp::UNIX_EPOCH),
            tags: None,
            content: 0,
        }
    }

    fn store_with_objects(names: &[&str]) -> VersionedObjectStore<u8> {
        let mut store = VersionedObjectStore::default();
        for name in names {
            store.push_version(HOST, name, version_with_id("1")).unwrap();
        }
        store
    }

    #[test]
    fn stored_versions_keep_absent_and_empty_tags_apart() {
        let tags = [None, Some(BTreeMap::new())];
        for (tags, member) in tags.into_iter().zip([None, Some(serde_json::json!({}))]) {
            let version = StoredObjectVersion { tags: tags.clone(), ..version_with_id("1") };
            let stored = serde_json::to_value(version).unwrap();
            assert_eq!(stored.get("tags").cloned(), member);
            let read: StoredObjectVersion<u8> = serde_json::from_value(stored).unwrap();
            assert_eq!(read.tags, tags);
        }
    }

    #[test]
    fn latest_version_is_the_last_one_pushed() {
        let mut store = store_with_objects(&["Name"]);
        store.push_version(HOST, "NAME", version_with_id("2")).unwrap();
        let (object, latest) = store.version(HOST, "name", None).unwrap();
        assert_eq!((object.name.as_str(), latest.id.as_str()), ("Name", "2"));
        assert_eq!(store.version(HOST, "name", Some("1")).unwrap().1.id, "1");
        assert_eq!(store.version(HOST, "name", Some("3")).unwrap_err(), ObjectStoreError::NotFound);
    }

    #[test]
    fn a_deleted_object_keeps_its_name_until_it_is_purged() {
        let mut store = store_with_objects(&["a"]);
        let retention = SignedDuration::from_hours(24);
        store.soft_delete(HOST, "a", Timestamp::UNIX_EPOCH, retention).unwrap();
        assert_eq!(store.object(HOST, "a").unwrap_err(), ObjectStoreError::NotFound);
        assert_eq!(store.push_version(HOST, "a", version_with_id("2")), Err(DeletedNameConflict));
        store.recover(HOST, "a").unwrap();
        store.push_version(HOST, "a", version_with_id("2")).unwrap();
        assert_eq!(store.purge(HOST, "a"), Err(ObjectStoreError::NotFound));
        store.soft_delete(HOST, "a", Timestamp::UNIX_EPOCH, retention).unwrap();
        store.purge_expired(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(23));
        assert!(store.deleted_object(HOST, "a").is_ok());
        store.purge_expired(Timestamp::UNIX_EPOCH + retention);
        assert!(store.deleted_object(HOST, "a").is_err());
        store.push_version(HOST, "a", version_with_id("3")).unwrap();
    }

    #[test]
    fn objects_are_listed_by_name_and_by_deletion_state() {
        fn names<'a>(objects: impl Iterator<Item = &'a StoredVaultObject<u8>>) -> Vec<&'a str> {
            objects.map(|object| object.name.as_str()).collect()
        }
        let mut store = store_with_objects(&["c", "A", "b"]);
        store.soft_delete(HOST, "b", Timestamp::UNIX_EPOCH, SignedDuration::from_hours(1)).unwrap();
        assert_eq!(names(store.objects_after(HOST, None)), ["A", "c"]);
        assert_eq!(names(store.objects_after(HOST, Some("a"))), ["c"]);
        assert_eq!(names(store.deleted_objects_after(HOST, None)), ["b"]);
        assert_eq!(names(store.deleted_objects_after(HOST, Some("B"))), [""; 0]);
        let stored = serde_json::to_string(&store).unwrap();
        let mut read: VersionedObjectStore<u8> = serde_json::from_str(&stored).unwrap();
        assert_eq!(names(read.deleted_objects_after(HOST, None)), [""; 0]);
        read.rebuild_index();
        assert_eq!(names(read.deleted_objects_after(HOST, None)), ["b"]);
    }

    #[test]
    fn renewals_follow_the_latest_version_and_stop_with_deletion() {
        let mut store = store_with_objects(&["a", "b", "never"]);
        let change = |store: &mut VersionedObjectStore<u8>, name: &str, seconds| {
            store.change_version(HOST, name, None, |version| version.content = seconds).unwrap();
        };
        change(&mut store, "a", 30);
        change(&mut store, "b", 20);
        let due = |store: &VersionedObjectStore<u8>, seconds| -> Vec<_> {
            let now = Timestamp::new(seconds, 0).unwrap();
            store.due_renewals(HOST, now).map(ToOwned::to_owned).collect()
        };
        assert_eq!(due(&store, 19), [""; 0]);
        assert_eq!(due(&store, 20), ["b"]);
        assert_eq!(due(&store, 30), ["b", "a"]);
        change(&mut store, "b", 40);
        assert_eq!(due(&store, 30), ["a"]);
        let hour = SignedDuration::from_hours(1);
        store.soft_delete(HOST, "a", Timestamp::UNIX_EPOCH, hour).unwrap();
        assert_eq!(due(&store, 99), ["b"]);
        store.recover(HOST, "a").unwrap();
        store.remove(HOST, "b");
        assert_eq!(due(&store, 99), ["a"]);
        assert_eq!(store.due_renewals("kv-2.vault.azure.net", Timestamp::MAX).count(), 0);
    }

    #[test]
    fn vaults_have_their_own_objects() {
        let mut store = store_with_objects(&["a", "b"]);
        store.push_version("kv-2.vault.azure.net", "a", version_with_id("1")).unwrap();
        store.soft_delete(HOST, "b", Timestamp::UNIX_EPOCH, SignedDuration::from_hours(1)).unwrap();
        store.remove_vault(HOST);
        assert_eq!(store.objects_after(HOST, None).count(), 0);
        assert!(store.deleted_object(HOST, "b").is_err());
        assert!(store.object("KV-2.vault.azure.net", "A").is_ok());
        store.purge_expired(Timestamp::MAX);
    }
}
