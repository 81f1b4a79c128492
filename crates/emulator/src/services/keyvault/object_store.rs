//! Versioned objects with soft delete: the common store of secrets, keys and certificates.
//!
//! Names are case-insensitive and keep their original case.

use std::collections::BTreeMap;
use std::ops::Bound;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The objects of one kind in a vault.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct VersionedObjectStore<T> {
    objects: BTreeMap<String, StoredVaultObject<T>>,
}

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
        Self { objects: BTreeMap::new() }
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
    /// Adds a version, and creates the object if it does not exist.
    pub(crate) fn push_version(
        &mut self,
        name: &str,
        version: StoredObjectVersion<T>,
    ) -> Result<(), DeletedNameConflict> {
        let object = self.objects.entry(name.to_ascii_lowercase()).or_insert_with(|| {
            StoredVaultObject { name: name.to_owned(), versions: Vec::new(), deletion: None }
        });
        if object.deletion.is_some() {
            return Err(DeletedNameConflict);
        }
        object.versions.push(version);
        Ok(())
    }

    /// An object that is not deleted.
    pub(crate) fn object(&self, name: &str) -> Result<&StoredVaultObject<T>, ObjectStoreError> {
        self.objects
            .get(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_none())
            .ok_or(ObjectStoreError::NotFound)
    }

    /// A version of an object; the current one by default.
    pub(crate) fn version(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<(&StoredVaultObject<T>, &StoredObjectVersion<T>), ObjectStoreError> {
        let object = self.object(name)?;
        object
            .version_index(version)
            .and_then(|at| object.versions.get(at))
            .map(|version| (object, version))
            .ok_or(ObjectStoreError::NotFound)
    }

    /// Like [`Self::version`], mutable.
    pub(crate) fn version_mut(
        &mut self,
        name: &str,
        version: Option<&str>,
    ) -> Result<&mut StoredObjectVersion<T>, ObjectStoreError> {
        let object = self
            .objects
            .get_mut(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_none())
            .ok_or(ObjectStoreError::NotFound)?;
        let at = object.version_index(version).ok_or(ObjectStoreError::NotFound)?;
        object.versions.get_mut(at).ok_or(ObjectStoreError::NotFound)
    }

    /// The objects after `marker` that are (not) deleted, ordered by name.
    pub(crate) fn objects_after(
        &self,
        marker: Option<&str>,
        deleted: bool,
    ) -> impl Iterator<Item = &StoredVaultObject<T>> {
        let from =
            marker.map_or(Bound::Unbounded, |name| Bound::Excluded(name.to_ascii_lowercase()));
        self.objects
            .range((from, Bound::Unbounded))
            .map(|(_, object)| object)
            .filter(move |object| object.deletion.is_some() == deleted)
    }

    /// Soft-deletes an object for the `retention` period.
    pub(crate) fn soft_delete(
        &mut self,
        name: &str,
        now: Timestamp,
        retention: SignedDuration,
    ) -> Result<(), ObjectStoreError> {
        let object = self
            .objects
            .get_mut(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_none())
            .ok_or(ObjectStoreError::NotFound)?;
        let purge_at = now.checked_add(retention).unwrap_or(Timestamp::MAX);
        object.deletion = Some(SoftDeletion { at: now, purge_at });
        Ok(())
    }

    pub(crate) fn deleted_object(
        &self,
        name: &str,
    ) -> Result<&StoredVaultObject<T>, ObjectStoreError> {
        self.objects
            .get(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_some())
            .ok_or(ObjectStoreError::NotFound)
    }

    /// Recovers a deleted object.
    pub(crate) fn recover(&mut self, name: &str) -> Result<(), ObjectStoreError> {
        self.deleted_object(name)?;
        let object =
            self.objects.get_mut(&name.to_ascii_lowercase()).ok_or(ObjectStoreError::NotFound)?;
        object.deletion = None;
        Ok(())
    }

    /// Purges a deleted object.
    pub(crate) fn purge(&mut self, name: &str) -> Result<(), ObjectStoreError> {
        self.deleted_object(name)?;
        self.objects.remove(&name.to_ascii_lowercase());
        Ok(())
    }

    /// Removes an object with all its versions, without soft delete.
    pub(crate) fn remove(&mut self, name: &str) -> Option<StoredVaultObject<T>> {
        self.objects.remove(&name.to_ascii_lowercase())
    }

    /// Purges objects whose purge time has passed at `now`.
    pub(crate) fn purge_expired(&mut self, now: Timestamp) {
        self.objects
            .retain(|_, object| object.deletion.is_none_or(|deletion| now < deletion.purge_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            store.push_version(name, version_with_id("1")).unwrap();
        }
        store
    }

    #[test]
    fn latest_version_is_the_last_one_pushed() {
        let mut store = store_with_objects(&["Name"]);
        store.push_version("NAME", version_with_id("2")).unwrap();
        let (object, latest) = store.version("name", None).unwrap();
        assert_eq!((object.name.as_str(), latest.id.as_str()), ("Name", "2"));
        assert_eq!(store.version("name", Some("1")).unwrap().1.id, "1");
        assert_eq!(store.version("name", Some("3")).unwrap_err(), ObjectStoreError::NotFound);
    }

    #[test]
    fn a_deleted_object_keeps_its_name_until_it_is_purged() {
        let mut store = store_with_objects(&["a"]);
        let retention = SignedDuration::from_hours(24);
        store.soft_delete("a", Timestamp::UNIX_EPOCH, retention).unwrap();
        assert_eq!(store.object("a").unwrap_err(), ObjectStoreError::NotFound);
        assert_eq!(store.push_version("a", version_with_id("2")), Err(DeletedNameConflict));
        store.recover("a").unwrap();
        store.push_version("a", version_with_id("2")).unwrap();
        assert_eq!(store.purge("a"), Err(ObjectStoreError::NotFound));
        store.soft_delete("a", Timestamp::UNIX_EPOCH, retention).unwrap();
        store.purge_expired(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(23));
        assert!(store.deleted_object("a").is_ok());
        store.purge_expired(Timestamp::UNIX_EPOCH + retention);
        assert!(store.deleted_object("a").is_err());
        store.push_version("a", version_with_id("3")).unwrap();
    }

    #[test]
    fn objects_are_listed_by_name_and_by_deletion_state() {
        let mut store = store_with_objects(&["c", "A", "b"]);
        store.soft_delete("b", Timestamp::UNIX_EPOCH, SignedDuration::from_hours(1)).unwrap();
        let names = |marker, deleted| -> Vec<_> {
            store.objects_after(marker, deleted).map(|object| object.name.clone()).collect()
        };
        assert_eq!(names(None, false), ["A", "c"]);
        assert_eq!(names(Some("a"), false), ["c"]);
        assert_eq!(names(None, true), ["b"]);
    }
}
