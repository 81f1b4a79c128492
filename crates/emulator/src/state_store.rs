//! The state directory: one snapshot of the state, written atomically.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::authority::StoredAuthority;
use crate::azure_state::AzureState;
use crate::operation_context::IdGenerator;

const STATE_FILE: &str = "state.json";
const TEMPORARY_FILE: &str = "state.json.tmp";
const LOCK_FILE: &str = "lock";
/// The format version of the state file; newer ones are rejected.
const FORMAT: u32 = 1;

/// Errors of the state directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateStoreError {
    /// Reading or writing failed.
    #[error("`{path}` could not be {action}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The failed action, as a participle.
        action: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("another process uses the state directory `{path}`")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The file is not a valid state file.
    #[error("`{path}` is not the state of an emulator")]
    Format {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The file was written by a newer version.
    #[error("`{path}` has format {found}; this version reads up to {FORMAT}")]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format version of the file.
        found: u32,
    },
}

impl StateStoreError {
    /// Advises how to fix the error.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check that the directory exists, is yours and has room",
            Self::Locked { .. } => "stop the other emulator, or give this one its own directory",
            Self::Format { .. } => "move the file away to start with a new state",
            Self::NewerFormat { .. } => "use the version that wrote it, or another directory",
        }
    }
}

/// The content of the state file, borrowed for writing.
#[derive(Debug, Serialize)]
struct StateFileContents<'a> {
    format: u32,
    authority: &'a StoredAuthority,
    ids: &'a IdGenerator,
    world: &'a AzureState,
}

#[derive(Deserialize)]
struct StateFileHeader {
    format: u32,
}

/// The content of the state file.
#[derive(Debug, Deserialize)]
pub(crate) struct SavedState {
    /// The local certificate authority.
    pub(crate) authority: StoredAuthority,
    /// The generator of new ids.
    pub(crate) ids: IdGenerator,
    /// The emulated Azure state.
    pub(crate) world: AzureState,
}

/// A state directory that this process has locked.
#[derive(Debug)]
pub(crate) struct StateStore {
    directory: PathBuf,
    _lock: File,
}

impl StateStore {
    /// Opens a directory and locks it for this process. The directory is created with mode 0700 if it does
    /// not exist.
    pub(crate) fn open(directory: &Path) -> Result<Self, StateStoreError> {
        let fail = |action| {
            move |source| StateStoreError::Io { path: directory.to_owned(), action, source }
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(fail("created"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(directory.join(LOCK_FILE))
            .map_err(fail("locked"))?;
        lock.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => {
                StateStoreError::Locked { path: directory.to_owned() }
            }
            std::fs::TryLockError::Error(source) => fail("locked")(source),
        })?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// The saved state, if there is one.
    pub(crate) fn load(&self) -> Result<Option<SavedState>, StateStoreError> {
        let path = self.directory.join(STATE_FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => zeroize::Zeroizing::new(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateStoreError::Io { path, action: "read", source }),
        };
        let format = |source| StateStoreError::Format { path: path.clone(), source };
        let StateFileHeader { format: found } = serde_json::from_slice(&bytes).map_err(format)?;
        if found > FORMAT {
            return Err(StateStoreError::NewerFormat { path, found });
        }
        serde_json::from_slice(&bytes).map(Some).map_err(format)
    }

    /// Writes the state atomically: a reader sees the old or the new one, even if the process is killed.
    pub(crate) fn save(
        &self,
        authority: &StoredAuthority,
        ids: &IdGenerator,
        world: &AzureState,
    ) -> Result<(), StateStoreError> {
        let temporary = self.directory.join(TEMPORARY_FILE);
        let fail = |action| {
            let path = temporary.clone();
            move |source| StateStoreError::Io { path, action, source }
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(fail("created"))?;
        // A leftover file of a killed process keeps its mode.
        file.set_permissions(Permissions::from_mode(0o600)).map_err(fail("protected"))?;
        let mut writer = BufWriter::new(file);
        serde_json::to_writer(
            &mut writer,
            &StateFileContents { format: FORMAT, authority, ids, world },
        )
        .map_err(|error| fail("written")(error.into()))?;
        writer.flush().map_err(fail("written"))?;
        writer.get_ref().sync_all().map_err(fail("synced"))?;
        std::fs::rename(&temporary, self.directory.join(STATE_FILE)).map_err(fail("renamed"))?;
        File::open(&self.directory)
            .and_then(|directory| directory.sync_all())
            .map_err(fail("synced"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::authority::LocalAuthority;

    fn save(store: &StateStore) {
        let authority = LocalAuthority::generate().unwrap();
        store
            .save(
                authority.stored_form(),
                &IdGenerator::Random,
                &crate::testing::azure_with_test_principals(),
            )
            .unwrap();
    }

    #[test]
    fn state_file_is_private_and_an_interrupted_write_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let store = StateStore::open(&path).unwrap();
        assert!(store.load().unwrap().is_none());
        std::fs::write(path.join(TEMPORARY_FILE), "{ half of a").unwrap();
        assert!(store.load().unwrap().is_none());
        save(&store);
        let mode = |name: &str| std::fs::metadata(path.join(name)).unwrap().mode() & 0o777;
        assert_eq!(mode(STATE_FILE), 0o600);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let world = store.load().unwrap().unwrap().world;
        assert_eq!(world.directory.principals.len(), 3);
    }

    #[test]
    fn newer_or_foreign_state_file_is_rejected_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = StateStore::open(directory.path()).unwrap();
        let path = directory.path().join(STATE_FILE);
        std::fs::write(&path, r#"{"format":99}"#).unwrap();
        assert!(matches!(store.load(), Err(StateStoreError::NewerFormat { found: 99, .. })));
        std::fs::write(&path, "[]").unwrap();
        assert!(matches!(store.load(), Err(StateStoreError::Format { .. })));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "[]");
    }
}
