//! Snapshots: the complete state of an emulator, in memory and as JSON.

use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;
use serde::{Deserialize, Serialize};

/// The version of the JSON form; others are rejected.
const FORMAT: u32 = 2;

/// The complete state of an emulator at one time, with its secrets and private keys: resources, directory,
/// role assignments, vaults, blobs, clock, fault rules and the generator of new ids and keys.
///
/// The certificate authority and the request log are not part of it. A snapshot is independent of the emulator
/// that it was taken from: it can be restored in any emulator, and more than once.
#[derive(Clone)]
pub struct StateSnapshot {
    pub azure: AzureState,
    pub ids: IdGenerator,
}

/// A snapshot could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The text has no format of a snapshot.
    #[error("the file is not a snapshot of `lanyard azure snapshot save`")]
    NotSnapshot,
    /// The text is not valid. The message repeats no value.
    #[error("the snapshot is invalid at line {line}, column {column}")]
    Invalid {
        /// The line of the first error, from 1.
        line: usize,
        /// The column of the first error, from 1.
        column: usize,
    },
    /// The snapshot was written by another version.
    #[error("the snapshot has format {found}; this version reads format {FORMAT}")]
    OtherFormat {
        /// The format of the snapshot.
        found: u32,
    },
    /// The state could not be written as JSON.
    #[error("the snapshot could not be written as JSON")]
    Serialize(#[source] serde_json::Error),
}

/// The JSON form.
#[derive(Serialize, Deserialize)]
struct SnapshotDocument<Ids, Azure> {
    format: u32,
    ids: Ids,
    azure: Azure,
}

#[derive(Deserialize)]
struct SnapshotHeader {
    format: u32,
}

impl SnapshotHeader {
    fn require_known_format(&self) -> Result<(), SnapshotError> {
        if self.format == FORMAT {
            return Ok(());
        }
        Err(SnapshotError::OtherFormat { found: self.format })
    }
}

impl StateSnapshot {
    /// Copies the state.
    pub fn of_state(azure: &AzureState, ids: &IdGenerator) -> Self {
        Self { azure: azure.clone(), ids: ids.clone() }
    }

    /// The snapshot as JSON, which contains secrets and private keys.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot be written as JSON.
    pub fn to_json(&self) -> Result<Vec<u8>, SnapshotError> {
        let document = SnapshotDocument { format: FORMAT, ids: &self.ids, azure: &self.azure };
        serde_json::to_vec(&document).map_err(SnapshotError::Serialize)
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a snapshot of this version.
    pub fn from_json(text: &[u8]) -> Result<Self, SnapshotError> {
        let document: SnapshotDocument<IdGenerator, AzureState> =
            serde_json::from_slice(text).map_err(|error| reading_error(&error, text))?;
        let SnapshotDocument { format, ids, mut azure } = document;
        SnapshotHeader { format }.require_known_format()?;
        azure.rebuild_indexes();
        Ok(Self { azure, ids })
    }
}

/// Why a text could not be read. The text is read again for its format: another version writes other fields.
fn reading_error(error: &serde_json::Error, text: &[u8]) -> SnapshotError {
    let invalid = SnapshotError::Invalid { line: error.line(), column: error.column() };
    match serde_json::from_slice::<SnapshotHeader>(text) {
        Ok(header) => header.require_known_format().err().unwrap_or(invalid),
        Err(error) if error.is_data() => SnapshotError::NotSnapshot,
        Err(_) => invalid,
    }
}

lanyard_vocabulary::debug_fields!(StateSnapshot);

#[cfg(test)]
mod tests;
