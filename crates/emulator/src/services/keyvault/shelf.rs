//! Versioned objects with soft delete: what secrets, keys and certificates have in common.
//!
//! Names compare without case and keep the case of their creator.

use std::collections::BTreeMap;
use std::ops::Bound;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The objects of one kind in a vault.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Shelf<T> {
    objects: BTreeMap<String, VaultObject<T>>,
}

/// An object with its versions, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct VaultObject<T> {
    /// The name as its creator wrote it.
    pub(crate) name: String,
    /// The versions, never empty.
    pub(crate) versions: Vec<Version<T>>,
    /// Set while the object is deleted and can be recovered.
    pub(crate) deletion: Option<Deletion>,
}

/// When an object was deleted, and when it is gone for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deletion {
    /// When it was deleted.
    pub(crate) at: Timestamp,
    /// When it is purged.
    pub(crate) purge_at: Timestamp,
}

/// One version of an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Version<T> {
    /// 32 hexadecimal digits.
    pub(crate) id: String,
    /// Attributes.
    pub(crate) attributes: Attributes,
    /// Tags.
    pub(crate) tags: BTreeMap<String, String>,
    /// What the version holds.
    pub(crate) content: T,
}

/// The attributes of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    /// Whether reads are answered.
    pub(crate) enabled: bool,
    /// `nbf`: informational, it blocks no read.
    pub(crate) not_before: Option<Timestamp>,
    /// `exp`: informational, it blocks no read.
    pub(crate) expires: Option<Timestamp>,
    /// When the version was made.
    pub(crate) created: Timestamp,
    /// When its attributes, tags or content type changed last.
    pub(crate) updated: Timestamp,
}

/// Why a shelf did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShelfProblem {
    /// No such object or version.
    Missing,
    /// The name belongs to a deleted object that can be recovered.
    Recoverable,
}

/// A name cannot be used: it belongs to a deleted object that can be recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recoverable;

impl From<Recoverable> for ShelfProblem {
    fn from(Recoverable: Recoverable) -> Self {
        Self::Recoverable
    }
}

impl Attributes {
    /// Enabled, without `nbf` and `exp`.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { enabled: true, not_before: None, expires: None, created: now, updated: now }
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<T> VaultObject<T> {
    /// The current version.
    pub(crate) fn latest(&self) -> Option<&Version<T>> {
        self.versions.last()
    }

    fn place(&self, version: Option<&str>) -> Option<usize> {
        match version {
            None => self.versions.len().checked_sub(1),
            Some(id) => self.versions.iter().position(|held| held.id.eq_ignore_ascii_case(id)),
        }
    }
}

impl<T> Shelf<T> {
    /// Adds a version, with a new object if there is none of the name.
    pub(crate) fn push(&mut self, name: &str, version: Version<T>) -> Result<(), Recoverable> {
        let object = self.objects.entry(name.to_ascii_lowercase()).or_insert_with(|| VaultObject {
            name: name.to_owned(),
            versions: Vec::new(),
            deletion: None,
        });
        if object.deletion.is_some() {
            return Err(Recoverable);
        }
        object.versions.push(version);
        Ok(())
    }

    /// An object that is not deleted.
    pub(crate) fn object(&self, name: &str) -> Result<&VaultObject<T>, ShelfProblem> {
        self.objects
            .get(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_none())
            .ok_or(ShelfProblem::Missing)
    }

    /// A version of an object, or its current one.
    pub(crate) fn version(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<(&VaultObject<T>, &Version<T>), ShelfProblem> {
        let object = self.object(name)?;
        object
            .place(version)
            .and_then(|at| object.versions.get(at))
            .map(|version| (object, version))
            .ok_or(ShelfProblem::Missing)
    }

    /// A version of an object to change, or its current one.
    pub(crate) fn version_mut(
        &mut self,
        name: &str,
        version: Option<&str>,
    ) -> Result<&mut Version<T>, ShelfProblem> {
        let object = self
            .objects
            .get_mut(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_none())
            .ok_or(ShelfProblem::Missing)?;
        let at = object.place(version).ok_or(ShelfProblem::Missing)?;
        object.versions.get_mut(at).ok_or(ShelfProblem::Missing)
    }

    /// The objects that are (not) deleted and come after `marker`, in the order of their names.
    pub(crate) fn after(
        &self,
        marker: Option<&str>,
        deleted: bool,
    ) -> impl Iterator<Item = &VaultObject<T>> {
        let from =
            marker.map_or(Bound::Unbounded, |name| Bound::Excluded(name.to_ascii_lowercase()));
        self.objects
            .range((from, Bound::Unbounded))
            .map(|(_, object)| object)
            .filter(move |object| object.deletion.is_some() == deleted)
    }

    /// Deletes an object so that it can be recovered until `retention` has passed.
    pub(crate) fn delete(
        &mut self,
        name: &str,
        now: Timestamp,
        retention: SignedDuration,
    ) -> Result<(), ShelfProblem> {
        let object = self
            .objects
            .get_mut(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_none())
            .ok_or(ShelfProblem::Missing)?;
        let purge_at = now.checked_add(retention).unwrap_or(Timestamp::MAX);
        object.deletion = Some(Deletion { at: now, purge_at });
        Ok(())
    }

    /// A deleted object.
    pub(crate) fn deleted(&self, name: &str) -> Result<&VaultObject<T>, ShelfProblem> {
        self.objects
            .get(&name.to_ascii_lowercase())
            .filter(|object| object.deletion.is_some())
            .ok_or(ShelfProblem::Missing)
    }

    /// Takes a deletion back.
    pub(crate) fn recover(&mut self, name: &str) -> Result<(), ShelfProblem> {
        self.deleted(name)?;
        let object =
            self.objects.get_mut(&name.to_ascii_lowercase()).ok_or(ShelfProblem::Missing)?;
        object.deletion = None;
        Ok(())
    }

    /// Removes a deleted object for good.
    pub(crate) fn purge(&mut self, name: &str) -> Result<(), ShelfProblem> {
        self.deleted(name)?;
        self.objects.remove(&name.to_ascii_lowercase());
        Ok(())
    }

    /// Removes an object with all its versions, as if it had never been there.
    pub(crate) fn remove(&mut self, name: &str) -> Option<VaultObject<T>> {
        self.objects.remove(&name.to_ascii_lowercase())
    }

    /// Removes what was to be purged by `now`.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        self.objects
            .retain(|_, object| object.deletion.is_none_or(|deletion| now < deletion.purge_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(id: &str) -> Version<u8> {
        Version {
            id: id.to_owned(),
            attributes: Attributes::new(Timestamp::UNIX_EPOCH),
            tags: BTreeMap::new(),
            content: 0,
        }
    }

    fn shelf(names: &[&str]) -> Shelf<u8> {
        let mut shelf = Shelf::default();
        for name in names {
            shelf.push(name, version("1")).unwrap();
        }
        shelf
    }

    #[test]
    fn the_latest_version_is_the_one_that_was_pushed_last() {
        let mut shelf = shelf(&["Name"]);
        shelf.push("NAME", version("2")).unwrap();
        let (object, latest) = shelf.version("name", None).unwrap();
        assert_eq!((object.name.as_str(), latest.id.as_str()), ("Name", "2"));
        assert_eq!(shelf.version("name", Some("1")).unwrap().1.id, "1");
        assert_eq!(shelf.version("name", Some("3")).unwrap_err(), ShelfProblem::Missing);
    }

    #[test]
    fn a_deleted_object_keeps_its_name_until_it_is_purged() {
        let mut shelf = shelf(&["a"]);
        let retention = SignedDuration::from_hours(24);
        shelf.delete("a", Timestamp::UNIX_EPOCH, retention).unwrap();
        assert_eq!(shelf.object("a").unwrap_err(), ShelfProblem::Missing);
        assert_eq!(shelf.push("a", version("2")), Err(Recoverable));
        shelf.recover("a").unwrap();
        shelf.push("a", version("2")).unwrap();
        assert_eq!(shelf.purge("a"), Err(ShelfProblem::Missing));
        shelf.delete("a", Timestamp::UNIX_EPOCH, retention).unwrap();
        shelf.sweep(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(23));
        assert!(shelf.deleted("a").is_ok());
        shelf.sweep(Timestamp::UNIX_EPOCH + retention);
        assert!(shelf.deleted("a").is_err());
        shelf.push("a", version("3")).unwrap();
    }

    #[test]
    fn pages_follow_the_names_and_tell_the_deleted_apart() {
        let mut shelf = shelf(&["c", "A", "b"]);
        shelf.delete("b", Timestamp::UNIX_EPOCH, SignedDuration::from_hours(1)).unwrap();
        let names = |marker, deleted| -> Vec<_> {
            shelf.after(marker, deleted).map(|object| object.name.clone()).collect()
        };
        assert_eq!(names(None, false), ["A", "c"]);
        assert_eq!(names(Some("a"), false), ["c"]);
        assert_eq!(names(None, true), ["b"]);
    }
}
