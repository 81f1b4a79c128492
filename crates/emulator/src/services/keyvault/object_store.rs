//! Versioned objects with soft delete: the common store of secrets, keys and certificates.
//!
//! Names are case-insensitive and keep their original case.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::table::{StoredTable, Table};

/// The objects of one kind in all vaults.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
#[serde(bound = "T: Serialize + serde::de::DeserializeOwned")]
pub(crate) struct VersionedObjectStore<T> {
    objects: Table<VaultObjectKey, StoredVaultObject<T>>,
    /// The deleted objects by the time of their purge. Rebuilt when the state is loaded.
    #[serde(skip)]
    purges: BTreeSet<(Timestamp, VaultObjectKey)>,
}

/// The vault's host and the object's name, both in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VaultObjectKey {
    host: String,
    name: String,
}

impl VaultObjectKey {
    fn new(host: &str, name: &str) -> Self {
        Self { host: host.to_ascii_lowercase(), name: name.to_ascii_lowercase() }
    }
}

impl fmt::Display for VaultObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.name)
    }
}

impl FromStr for VaultObjectKey {
    type Err = InvalidVaultObjectKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, name) = text.split_once('/').ok_or(InvalidVaultObjectKey)?;
        Ok(Self::new(host, name))
    }
}

/// The text is not `host/name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidVaultObjectKey;

/// An object with its versions, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredVaultObject<T> {
    /// The name in its original case.
    pub(crate) name: String,
    /// The versions, never empty.
    pub(crate) versions: Vec<StoredObjectVersion<T>>,
    /// Set while the object is deleted and can be recovered.
    pub(crate) deletion: Option<SoftDeletion>,
}

/// The soft deletion of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SoftDeletion {
    /// When the object was deleted.
    pub(crate) at: Timestamp,
    /// When the object will be purged.
    pub(crate) purge_at: Timestamp,
}

/// One version of an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredObjectVersion<T> {
    /// 32 hexadecimal digits.
    pub(crate) id: String,
    pub(crate) attributes: StoredObjectAttributes,
    pub(crate) tags: BTreeMap<String, String>,
    /// The content of the version.
    pub(crate) content: T,
}

/// The attributes of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredObjectAttributes {
    /// Whether the version can be read.
    pub(crate) enabled: bool,
    /// `nbf`: informational, does not prevent reads.
    pub(crate) not_before: Option<Timestamp>,
    /// `exp`: informational, does not prevent reads.
    pub(crate) expires: Option<Timestamp>,
    /// When the version was created.
    pub(crate) created: Timestamp,
    /// When its attributes, tags or content type last changed.
    pub(crate) updated: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectStoreError {
    /// The object or version does not exist.
    NotFound,
    /// The name belongs to a deleted object that can be recovered.
    NameTaken,
}

/// The name belongs to a deleted object that can be recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeletedNameConflict;

impl From<DeletedNameConflict> for ObjectStoreError {
    fn from(DeletedNameConflict: DeletedNameConflict) -> Self {
        Self::NameTaken
    }
}

impl StoredObjectAttributes {
    /// Enabled, without `nbf` and `exp`.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { enabled: true, not_before: None, expires: None, created: now, updated: now }
    }
}

impl<T> Default for VersionedObjectStore<T> {
    fn default() -> Self {
        Self { objects: Table::default(), purges: BTreeSet::new() }
    }
}

impl<T> StoredVaultObject<T> {
    /// The current version.
    pub(crate) fn latest(&self) -> Option<&StoredObjectVersion<T>> {
        self.versions.last()
    }

    fn version_index(&self, version: Option<&str>) -> Option<usize> {
        match version {
            None => self.versions.len().checked_sub(1),
            Some(id) => self.versions.iter().position(|held| held.id.eq_ignore_ascii_case(id)),
        }
    }
}

impl<T> VersionedObjectStore<T> {
    /// Rebuilds the purge times after the objects were loaded.
    pub(crate) fn rebuild_index(&mut self) {
        let due = |(key, object): (&VaultObjectKey, &StoredVaultObject<T>)| {
            object.deletion.map(|deletion| (deletion.purge_at, key.clone()))
        };
        self.purges = self.objects.iter().filter_map(due).collect();
    }

    /// Adds a version, and creates the object if it does not exist.
    pub(crate) fn push_version(
        &mut self,
        host: &str,
        name: &str,
        version: StoredObjectVersion<T>,
    ) -> Result<(), DeletedNameConflict> {
        let key = VaultObjectKey::new(host, name);
        match self.objects.get_mut(&key) {
            Some(object) if object.deletion.is_some() => return Err(DeletedNameConflict),
            Some(object) => object.versions.push(version),
            None => {
                let versions = vec![version];
                let object = StoredVaultObject { name: name.to_owned(), versions, deletion: None };
                self.objects.insert(key, object);
            }
        }
        Ok(())
    }

    /// An object that is not deleted.
    pub(crate) fn object(
        &self,
        host: &str,
        name: &str,
    ) -> Result<&StoredVaultObject<T>, ObjectStoreError> {
        self.objects
            .get(&VaultObjectKey::new(host, name))
            .filter(|object| object.deletion.is_none())
            .ok_or(ObjectStoreError::NotFound)
    }

    /// Like [`Self::object`], mutable.
    pub(crate) fn object_mut(
        &mut self,
        host: &str,
        name: &str,
    ) -> Result<&mut StoredVaultObject<T>, ObjectStoreError> {
        self.objects
            .get_mut(&VaultObjectKey::new(host, name))
            .filter(|object| object.deletion.is_none())
            .ok_or(ObjectStoreError::NotFound)
    }

    /// A version of an object; the current one by default.
    pub(crate) fn version(
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

    /// Like [`Self::version`], mutable.
    pub(crate) fn version_mut(
        &mut self,
        host: &str,
        name: &str,
        version: Option<&str>,
    ) -> Result<&mut StoredObjectVersion<T>, ObjectStoreError> {
        let object = self.object_mut(host, name)?;
        let at = object.version_index(version).ok_or(ObjectStoreError::NotFound)?;
        object.versions.get_mut(at).ok_or(ObjectStoreError::NotFound)
    }

    /// The objects of a vault after `marker` that are (not) deleted, ordered by name.
    pub(crate) fn objects_after(
        &self,
        host: &str,
        marker: Option<&str>,
        deleted: bool,
    ) -> impl Iterator<Item = &StoredVaultObject<T>> {
        let host = host.to_ascii_lowercase();
        let from = match marker {
            None => Bound::Included(VaultObjectKey::new(&host, "")),
            Some(name) => Bound::Excluded(VaultObjectKey::new(&host, name)),
        };
        self.objects
            .range((from, Bound::Unbounded))
            .take_while(move |(key, _)| key.host == host)
            .map(|(_, object)| object)
            .filter(move |object| object.deletion.is_some() == deleted)
    }

    /// Soft-deletes an object for the `retention` period.
    pub(crate) fn soft_delete(
        &mut self,
        host: &str,
        name: &str,
        now: Timestamp,
        retention: SignedDuration,
    ) -> Result<(), ObjectStoreError> {
        let purge_at = now.checked_add(retention).unwrap_or(Timestamp::MAX);
        self.object_mut(host, name)?.deletion = Some(SoftDeletion { at: now, purge_at });
        self.purges.insert((purge_at, VaultObjectKey::new(host, name)));
        Ok(())
    }

    pub(crate) fn deleted_object(
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
    pub(crate) fn recover(&mut self, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        let key = VaultObjectKey::new(host, name);
        let object = self.objects.get_mut(&key).ok_or(ObjectStoreError::NotFound)?;
        let deletion = object.deletion.take().ok_or(ObjectStoreError::NotFound)?;
        self.purges.remove(&(deletion.purge_at, key));
        Ok(())
    }

    /// Purges a deleted object.
    pub(crate) fn purge(&mut self, host: &str, name: &str) -> Result<(), ObjectStoreError> {
        self.deleted_object(host, name)?;
        self.remove(host, name);
        Ok(())
    }

    /// Removes an object with all its versions, without soft delete.
    pub(crate) fn remove(&mut self, host: &str, name: &str) -> Option<StoredVaultObject<T>> {
        let key = VaultObjectKey::new(host, name);
        let removed = self.objects.remove(&key)?;
        if let Some(deletion) = removed.deletion {
            self.purges.remove(&(deletion.purge_at, key));
        }
        Some(removed)
    }

    /// Removes the objects of a vault, deleted ones included.
    pub(crate) fn remove_vault(&mut self, host: &str) {
        let names: Vec<_> = [false, true]
            .into_iter()
            .flat_map(|deleted| self.objects_after(host, None, deleted))
            .map(|object| object.name.clone())
            .collect();
        for name in names {
            self.remove(host, &name);
        }
    }

    /// Purges objects whose purge time has passed at `now`.
    pub(crate) fn purge_expired(&mut self, now: Timestamp) {
        while self.purges.first().is_some_and(|(purge_at, _)| *purge_at <= now) {
            if let Some((_, key)) = self.purges.pop_first() {
                self.objects.remove(&key);
            }
        }
    }
}

impl<T: Serialize + serde::de::DeserializeOwned> VersionedObjectStore<T> {
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

    fn version_with_id(id: &str) -> StoredObjectVersion<u8> {
        StoredObjectVersion {
            id: id.to_owned(),
            attributes: StoredObjectAttributes::new(Timestamp::UNIX_EPOCH),
            tags: BTreeMap::new(),
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
        let mut store = store_with_objects(&["c", "A", "b"]);
        store.soft_delete(HOST, "b", Timestamp::UNIX_EPOCH, SignedDuration::from_hours(1)).unwrap();
        let names = |marker, deleted| -> Vec<_> {
            store.objects_after(HOST, marker, deleted).map(|object| object.name.clone()).collect()
        };
        assert_eq!(names(None, false), ["A", "c"]);
        assert_eq!(names(Some("a"), false), ["c"]);
        assert_eq!(names(None, true), ["b"]);
    }

    #[test]
    fn vaults_have_their_own_objects() {
        let mut store = store_with_objects(&["a", "b"]);
        store.push_version("kv-2.vault.azure.net", "a", version_with_id("1")).unwrap();
        store.soft_delete(HOST, "b", Timestamp::UNIX_EPOCH, SignedDuration::from_hours(1)).unwrap();
        store.remove_vault(HOST);
        assert_eq!(store.objects_after(HOST, None, false).count(), 0);
        assert!(store.deleted_object(HOST, "b").is_err());
        assert!(store.object("KV-2.vault.azure.net", "A").is_ok());
        store.purge_expired(Timestamp::MAX);
    }
}
