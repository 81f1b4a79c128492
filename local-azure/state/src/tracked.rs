//! A value that records whether it was changed, so that it is written to the state file only then.

use std::ops::{Deref, DerefMut};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::table::{RowChange, StoredTable};

/// A small part of the state that is stored as one row. Mutable access records a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tracked<T> {
    value: T,
    #[serde(skip)]
    is_changed: bool,
}

impl<T: PartialEq> Tracked<T> {
    /// Replaces the value. An equal value is not recorded as a change.
    pub fn set(&mut self, value: T) {
        if self.value != value {
            *self = value.into();
        }
    }
}

impl<T> From<T> for Tracked<T> {
    fn from(value: T) -> Self {
        Self { value, is_changed: true }
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Tracked<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_changed = true;
        &mut self.value
    }
}

impl<T: Serialize + DeserializeOwned> StoredTable for Tracked<T> {
    fn take_changes(&mut self, table: &'static str) -> Result<Vec<RowChange>, serde_json::Error> {
        if !std::mem::take(&mut self.is_changed) {
            return Ok(Vec::new());
        }
        let row = serde_json::to_vec(&self.value)?;
        Ok(vec![RowChange { table, key: String::new(), row: Some(row.into()) }])
    }

    fn load_row(&mut self, _key: &str, row: &[u8]) -> Result<(), serde_json::Error> {
        self.value = serde_json::from_slice(row)?;
        Ok(())
    }

    fn mark_all_changed(&mut self) {
        self.is_changed = true;
    }

    fn discard_changes(&mut self) {
        self.is_changed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mutable_access_records_a_change() {
        let mut value = Tracked::<Vec<u8>>::default();
        assert!(value.is_empty());
        assert_eq!(value.take_changes("t").unwrap(), []);
        value.push(1);
        let changes = value.take_changes("t").unwrap();
        assert_eq!(changes[0].row.as_deref(), Some(&b"[1]"[..]));
        value.set(vec![1]);
        assert_eq!(value.take_changes("t").unwrap(), []);
        value.set(vec![2]);
        assert_eq!(value.take_changes("t").unwrap().len(), 1);
    }
}
