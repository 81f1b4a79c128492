//! An ordered map that records which rows changed, so that only these are written to the state file.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A key of a [`Table`]. Its text form is the key in the state file.
pub trait TableKey: Ord + Clone + Display + FromStr {}

impl<K: Ord + Clone + Display + FromStr> TableKey for K {}

/// An ordered map that records changed keys.
///
/// Every operation is logarithmic in the number of rows.
#[derive(Debug, Clone)]
pub struct Table<K, V> {
    rows: BTreeMap<K, V>,
    changed: BTreeSet<K>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

impl<K: TableKey, V> Table<K, V> {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the table has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.rows.get(key)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.rows.contains_key(key)
    }

    /// The row, mutable; it is recorded as changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let this_row = (Bound::Included(key), Bound::Included(key));
        let (key, row) = self.rows.range_mut::<Q, _>(this_row).next()?;
        self.changed.insert(key.clone());
        Some(row)
    }

    /// Stores a row, and returns the one that it replaces.
    pub fn insert(&mut self, key: K, row: V) -> Option<V> {
        self.changed.insert(key.clone());
        self.rows.insert(key, row)
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (key, row) = self.rows.remove_entry(key)?;
        self.changed.insert(key);
        Some(row)
    }

    /// Removes the rows for which `condition` holds, and returns them. Visits every row of the table.
    pub(crate) fn extract_if(
        &mut self,
        mut condition: impl FnMut(&K, &mut V) -> bool,
    ) -> Vec<(K, V)> {
        let removed: Vec<_> = self.rows.extract_if(.., |key, row| condition(key, row)).collect();
        self.changed.extend(removed.iter().map(|(key, _)| key.clone()));
        removed
    }

    /// The rows, ordered by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    /// The rows, ordered by key, without their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.rows.values()
    }

    /// The rows within a range of keys, in order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range)
    }
}

impl<K: TableKey, V> FromIterator<(K, V)> for Table<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(rows: I) -> Self {
        let mut table = Self::default();
        for (key, row) in rows {
            table.insert(key, row);
        }
        table
    }
}

impl<K: TableKey, V: Serialize> Serialize for Table<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.rows.iter().map(|(key, row)| (key.to_string(), row)))
    }
}

impl<'de, K: TableKey, V: Deserialize<'de>> Deserialize<'de> for Table<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, V>::deserialize(deserializer)?
            .into_iter()
            .map(|(text, row)| match text.parse() {
                Ok(key) => Ok((key, row)),
                Err(_) => {
                    Err(serde::de::Error::custom(format_args!("`{text}` is no key of the table")))
                }
            })
            .collect()
    }
}

/// The change of one row in the form of the state file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The name of the table.
    pub table: &'static str,
    pub key: String,
    /// The row, as JSON unless the table is a [`BytesTable`]; `None` if it was removed.
    pub row: Option<Bytes>,
}

/// A table of any type, for reading and writing the state file.
pub trait StoredTable {
    /// Returns the changes since the last call.
    fn take_changes(&mut self, table: &'static str) -> Result<Vec<RowChange>, serde_json::Error>;

    /// Adds a row of the state file without recording a change.
    fn load_row(&mut self, key: &str, row: &[u8]) -> Result<(), serde_json::Error>;

    /// Records every row as changed.
    fn mark_all_changed(&mut self);

    /// Discards the changes since the last call of [`Self::take_changes`]. For an emulator without
    /// a state directory, which never takes them.
    fn discard_changes(&mut self);
}

impl<K: TableKey, V: Serialize + DeserializeOwned> StoredTable for Table<K, V> {
    fn take_changes(&mut self, table: &'static str) -> Result<Vec<RowChange>, serde_json::Error> {
        std::mem::take(&mut self.changed)
            .into_iter()
            .map(|key| {
                let row = self.rows.get(&key).map(serde_json::to_vec).transpose()?;
                Ok(RowChange { table, key: key.to_string(), row: row.map(Bytes::from) })
            })
            .collect()
    }

    fn load_row(&mut self, key: &str, row: &[u8]) -> Result<(), serde_json::Error> {
        self.rows.insert(parse_key(key)?, serde_json::from_slice(row)?);
        Ok(())
    }

    fn mark_all_changed(&mut self) {
        self.changed.extend(self.rows.keys().cloned());
    }

    fn discard_changes(&mut self) {
        self.changed.clear();
    }
}

fn parse_key<K: TableKey>(key: &str) -> Result<K, serde_json::Error> {
    let Ok(parsed) = key.parse() else {
        return Err(serde::de::Error::custom(format_args!("`{key}` is no key of the table")));
    };
    Ok(parsed)
}

/// A [`Table`] of byte strings, which the state file contains as they are, not as JSON.
#[derive(Debug, Clone)]
pub struct BytesTable<K>(Table<K, Bytes>);

/// As JSON, for snapshots: the rows in base64.
impl<K: TableKey> Serialize for BytesTable<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.0.rows.iter();
        serializer.collect_map(rows.map(|(key, row)| (key.to_string(), STANDARD.encode(row))))
    }
}

impl<'de, K: TableKey> Deserialize<'de> for BytesTable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = Self::default();
        for (key, row) in BTreeMap::<String, String>::deserialize(deserializer)? {
            let invalid = |problem| D::Error::custom(format_args!("row `{key}` {problem}"));
            let parsed = key.parse().ok().ok_or_else(|| invalid("has no key of the table"))?;
            let row = STANDARD.decode(row).ok().ok_or_else(|| invalid("is not base64"))?;
            table.insert(parsed, row.into());
        }
        Ok(table)
    }
}

impl<K> Default for BytesTable<K> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<K> Deref for BytesTable<K> {
    type Target = Table<K, Bytes>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K> DerefMut for BytesTable<K> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<K: TableKey> StoredTable for BytesTable<K> {
    fn take_changes(&mut self, table: &'static str) -> Result<Vec<RowChange>, serde_json::Error> {
        let changed = std::mem::take(&mut self.0.changed).into_iter();
        let change =
            |key: K| RowChange { table, key: key.to_string(), row: self.0.rows.get(&key).cloned() };
        Ok(changed.map(change).collect())
    }

    fn load_row(&mut self, key: &str, row: &[u8]) -> Result<(), serde_json::Error> {
        self.0.rows.insert(parse_key(key)?, Bytes::copy_from_slice(row));
        Ok(())
    }

    fn mark_all_changed(&mut self) {
        self.0.changed.extend(self.0.rows.keys().cloned());
    }

    fn discard_changes(&mut self) {
        self.0.changed.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table_of(rows: &[(u32, &str)]) -> Table<u32, String> {
        rows.iter().map(|(key, row)| (*key, (*row).to_owned())).collect()
    }

    fn changes(table: &mut Table<u32, String>) -> Vec<(String, Option<String>)> {
        let changes = table.take_changes("t").unwrap().into_iter();
        changes
            .map(|change| {
                (change.key, change.row.map(|row| String::from_utf8(row.into()).unwrap()))
            })
            .collect()
    }

    #[test]
    fn only_rows_that_changed_since_the_last_call_are_reported() {
        let mut table = table_of(&[(1, "a"), (2, "b"), (3, "c")]);
        assert_eq!(changes(&mut table).len(), 3);
        assert_eq!(changes(&mut table), []);
        table.insert(4, "d".to_owned());
        table.discard_changes();
        table.get_mut(&2).unwrap().push('!');
        table.remove(&3);
        assert_eq!(table.remove(&9), None);
        let expected = [("2".to_owned(), Some("\"b!\"".to_owned())), ("3".to_owned(), None)];
        assert_eq!(changes(&mut table), expected);
    }

    #[test]
    fn a_row_with_an_invalid_key_is_rejected() {
        let mut table = Table::<u32, String>::default();
        assert!(table.load_row("x", b"\"a\"").is_err());
        assert!(serde_json::from_str::<Table<u32, String>>(r#"{"x":"a"}"#).is_err());
    }

    #[test]
    fn byte_rows_are_stored_without_encoding() {
        let mut table = BytesTable::<u32>::default();
        table.insert(1, Bytes::from_static(&[0, 0xff]));
        let changes = table.take_changes("t").unwrap();
        assert_eq!(changes[0].row.as_deref(), Some(&[0, 0xff][..]));
        let mut loaded = BytesTable::<u32>::default();
        loaded.load_row(&changes[0].key, &[0, 0xff]).unwrap();
        assert_eq!(loaded.get(&1), table.get(&1));
        assert!(loaded.take_changes("t").unwrap().is_empty());
        assert!(loaded.load_row("x", b"").is_err());
        let json = serde_json::to_string(&table).unwrap();
        assert_eq!(json, r#"{"1":"AP8="}"#);
        let parsed: BytesTable<u32> = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed.get(&1), table.get(&1));
        for invalid in [r#"{"x":""}"#, r#"{"1":"*"}"#] {
            assert!(serde_json::from_str::<BytesTable<u32>>(invalid).is_err(), "{invalid}");
        }
    }

    #[derive(Debug, Clone)]
    enum Edit {
        Insert(u32, String),
        Remove(u32),
        Append(u32),
    }

    fn edits() -> impl Strategy<Value = Vec<Edit>> {
        let key = 0..8_u32;
        let edit = prop_oneof![
            (key.clone(), "[a-z]{0,3}").prop_map(|(key, row)| Edit::Insert(key, row)),
            key.clone().prop_map(Edit::Remove),
            key.prop_map(Edit::Append),
        ];
        prop::collection::vec(edit, 0..40)
    }

    proptest! {
        #[test]
        fn replaying_the_changes_gives_the_same_rows(batches in prop::collection::vec(edits(), 0..4)) {
            let mut table = Table::<u32, String>::default();
            let mut stored: BTreeMap<String, Bytes> = BTreeMap::new();
            for batch in batches {
                for edit in batch {
                    match edit {
                        Edit::Insert(key, row) => drop(table.insert(key, row)),
                        Edit::Remove(key) => drop(table.remove(&key)),
                        Edit::Append(key) => {
                            if let Some(row) = table.get_mut(&key) {
                                row.push('+');
                            }
                        }
                    }
                }
                for change in table.take_changes("t").unwrap() {
                    match change.row {
                        Some(row) => drop(stored.insert(change.key, row)),
                        None => drop(stored.remove(&change.key)),
                    }
                }
            }
            let mut loaded = Table::<u32, String>::default();
            for (key, row) in &stored {
                loaded.load_row(key, row).unwrap();
            }
            prop_assert_eq!(&loaded.rows, &table.rows);
            prop_assert!(loaded.changed.is_empty());
        }
    }
}
