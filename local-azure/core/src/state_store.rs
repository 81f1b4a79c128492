//! The state directory: a database with one row for each object of the state.
//!
//! A request that changes the state waits for the commit of its rows, so a reply is never ahead of the disk.
//! One thread writes; requests that arrive during a commit share the next one.

use lanyard_clock::ErrorHint;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::table::RowChange;
use redb::backends::FileBackend;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::authority::StoredAuthority;

const DATABASE_FILE: &str = "state.redb";
/// The state file of versions before the database.
const OLD_STATE_FILE: &str = "state.json";
const LOCK_FILE: &str = "lock";
/// The version of the stored form; newer ones are rejected.
const FORMAT: u32 = 3;
/// The memory for pages of the database: it is written, and read only at the start.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// The rows, by table and key: JSON, or bytes in tables of byte strings.
const ROWS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("rows");
/// The format, the certificate authority and the id generator, as JSON.
const PROPERTIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("properties");

/// The stored properties as JSON, by name.
type StoredProperties = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// The state directory could not be opened, read or written.
#[derive(Debug, Clone, thiserror::Error)]
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
        source: Arc<io::Error>,
    },
    /// Another process uses the directory.
    #[error("another process uses the state directory `{path}`")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The database cannot be read or written.
    #[error("the database `{path}` could not be {action}")]
    Database {
        /// The file.
        path: PathBuf,
        /// The failed action, as a participle.
        action: &'static str,
        /// The database's error.
        #[source]
        source: Arc<redb::Error>,
    },
    /// A row is not in the format of this version.
    #[error("`{path}`: the row `{row}` is not valid")]
    Row {
        /// The file.
        path: PathBuf,
        /// The table and the key.
        row: String,
        /// The parse error.
        #[source]
        source: Arc<serde_json::Error>,
    },
    /// The file was written by another version.
    #[error("`{path}` has format {found}; this version reads format {FORMAT}")]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The format version of the file.
        found: u32,
    },
    /// An object could not be written as JSON.
    #[error("an object of the state could not be written as JSON")]
    Serialize(#[source] Arc<serde_json::Error>),
    /// The emulator stops, and writes nothing more.
    #[error("the emulator stopped before the state was written")]
    Stopped,
}

impl ErrorHint for StateStoreError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Io { .. } => "check that the directory exists, is yours and has room",
            Self::Database { .. } => {
                "check that the disk has room; move the file away to start with a new state"
            }
            Self::Locked { .. } => "stop the other emulator, or give this one its own directory",
            Self::Row { .. } => "move the file away to start with a new state",
            Self::OtherFormat { .. } => {
                "use the version that wrote it, another directory, or move the file away"
            }
            Self::Serialize(_) => "report this as a defect of lanyard",
            Self::Stopped => "start the emulator again and repeat the request",
        };
        Some(Cow::Borrowed(hint))
    }
}

impl From<serde_json::Error> for StateStoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Serialize(Arc::new(error))
    }
}

/// The content of a state directory.
#[derive(Debug)]
pub struct SavedState {
    /// The local certificate authority.
    pub authority: StoredAuthority,
    /// The generator of new ids.
    pub ids: IdGenerator,
    /// The emulated Azure state.
    pub azure: AzureState,
}

/// A state directory that this process has locked.
///
/// The database is read without a write to the disk, which a start would have to wait for. The first commit
/// opens it for writing.
#[derive(Debug)]
pub struct StateStore {
    path: PathBuf,
    writable: OnceLock<Database>,
    _lock: File,
}

impl StateStore {
    /// Opens a directory and locks it for this process. The directory is created with mode 0700 if it does
    /// not exist.
    pub fn open(directory: &Path) -> Result<Self, StateStoreError> {
        let lock = lock_directory(directory)?;
        let old = directory.join(OLD_STATE_FILE);
        if old.exists() {
            return Err(StateStoreError::OtherFormat { path: old, found: 1 });
        }
        let path = directory.join(DATABASE_FILE);
        let store = Self { path, writable: OnceLock::new(), _lock: lock };
        store.open_file()?;
        Ok(store)
    }

    /// Opens the file of the database for writing. It is created with mode 0600 if it does not exist.
    fn open_file(&self) -> Result<File, StateStoreError> {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&self.path)
            .and_then(|file| {
                file.set_permissions(Permissions::from_mode(0o600))?;
                Ok(file)
            })
            .map_err(|source| io_error(&self.path, "opened", source))
    }

    fn writable_database(&self) -> Result<&Database, StateStoreError> {
        if let Some(database) = self.writable.get() {
            return Ok(database);
        }
        let file = self.open_file()?;
        let open = || -> Result<Database, redb::Error> {
            Ok(database_builder().create_with_backend(FileBackend::new(file)?)?)
        };
        let database = open().map_err(database_error(&self.path, "opened"))?;
        Ok(self.writable.get_or_init(|| database))
    }

    /// The saved state, if there is one.
    pub fn load(&self) -> Result<Option<SavedState>, StateStoreError> {
        if let Some(database) = self.writable.get() {
            return self.load_from(database);
        }
        let metadata = std::fs::metadata(&self.path);
        if metadata.map_err(|source| io_error(&self.path, "read", source))?.len() == 0 {
            return Ok(None);
        }
        match database_builder().open_read_only(&self.path) {
            Ok(database) => self.load_from(&database),
            // The process that wrote it was killed: only a writable database is repaired.
            Err(DatabaseError::RepairAborted) => self.load_from(self.writable_database()?),
            Err(error) => Err(database_error(&self.path, "opened")(error.into())),
        }
    }

    fn load_from(
        &self,
        database: &impl ReadableDatabase,
    ) -> Result<Option<SavedState>, StateStoreError> {
        let Some(properties) = self.read_properties(database)? else { return Ok(None) };
        let format: u32 = self.property(&properties, "format")?;
        if format != FORMAT {
            return Err(StateStoreError::OtherFormat { path: self.path.clone(), found: format });
        }
        let mut azure = AzureState::default();
        self.load_rows(database, &mut azure)?;
        azure.rebuild_indexes();
        Ok(Some(SavedState {
            authority: self.property(&properties, "authority")?,
            ids: self.property(&properties, "ids")?,
            azure,
        }))
    }

    fn read_properties(
        &self,
        database: &impl ReadableDatabase,
    ) -> Result<Option<StoredProperties>, StateStoreError> {
        let read = || -> Result<_, redb::Error> {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(PROPERTIES) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let mut properties = BTreeMap::new();
            for entry in table.iter()? {
                let (name, value) = entry?;
                properties.insert(name.value().to_owned(), Zeroizing::new(value.value().to_vec()));
            }
            Ok(Some(properties))
        };
        read().map_err(database_error(&self.path, "read"))
    }

    fn property<T: DeserializeOwned>(
        &self,
        properties: &StoredProperties,
        name: &str,
    ) -> Result<T, StateStoreError> {
        let value = properties.get(name).map_or(&[][..], |value| value);
        serde_json::from_slice(value).map_err(self.row_error(name, ""))
    }

    fn load_rows(
        &self,
        database: &impl ReadableDatabase,
        azure: &mut AzureState,
    ) -> Result<(), StateStoreError> {
        let read = |error: redb::Error| database_error(&self.path, "read")(error);
        let transaction = database.begin_read().map_err(|error| read(error.into()))?;
        let rows = transaction.open_table(ROWS).map_err(|error| read(error.into()))?;
        let mut outcome = Ok(());
        azure.for_each_table(&mut |name, table| {
            if outcome.is_err() {
                return;
            }
            // All keys of a table: the text after its name that sorts first is the end.
            let end = format!("{name}\0");
            outcome = (|| {
                let range = rows
                    .range((name, "")..(end.as_str(), ""))
                    .map_err(|error| read(error.into()))?;
                for entry in range {
                    let (key, row) = entry.map_err(|error| read(error.into()))?;
                    let key = key.value().1.to_owned();
                    table.load_row(&key, row.value()).map_err(self.row_error(name, &key))?;
                }
                Ok(())
            })();
        });
        outcome
    }

    fn row_error(
        &self,
        table: &str,
        key: &str,
    ) -> impl FnOnce(serde_json::Error) -> StateStoreError + use<> {
        let (path, row) = (self.path.clone(), format!("{table} {key}"));
        move |source| StateStoreError::Row { path, row, source: Arc::new(source) }
    }

    /// Starts the thread that writes. The directory stays locked until it ends.
    pub fn into_writer(self) -> Result<StateWriter, StateStoreError> {
        let (sender, receiver) = channel();
        let path = self.path.clone();
        let thread = std::thread::Builder::new()
            .name("state-writer".to_owned())
            .spawn(move || write_until_closed(&self, &receiver))
            .map_err(|source| io_error(&path, "written", source))?;
        Ok(StateWriter { sender: Some(sender), thread: Some(thread) })
    }

    fn commit(&self, batches: &[StateChanges]) -> Result<(), StateStoreError> {
        let database = self.writable_database()?;
        let write = || -> Result<(), redb::Error> {
            let transaction = database.begin_write()?;
            {
                let mut properties = transaction.open_table(PROPERTIES)?;
                let mut rows = transaction.open_table(ROWS)?;
                for batch in batches {
                    if batch.replaces_all {
                        rows.retain(|_, _| false)?;
                    }
                    for (name, value) in &batch.properties {
                        properties.insert(*name, value.as_slice())?;
                    }
                    for RowChange { table, key, row } in &batch.rows {
                        let key = (*table, key.as_str());
                        match row {
                            Some(row) => drop(rows.insert(key, &row[..])?),
                            None => drop(rows.remove(key)?),
                        }
                    }
                }
            }
            transaction.commit()?;
            Ok(())
        };
        write().map_err(database_error(&self.path, "written"))
    }
}

fn database_builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn io_error(path: &Path, action: &'static str, source: io::Error) -> StateStoreError {
    StateStoreError::Io { path: path.to_owned(), action, source: Arc::new(source) }
}

fn database_error(
    path: &Path,
    action: &'static str,
) -> impl FnOnce(redb::Error) -> StateStoreError + use<> {
    let path = path.to_owned();
    move |source| StateStoreError::Database { path, action, source: Arc::new(source) }
}

fn lock_directory(directory: &Path) -> Result<File, StateStoreError> {
    let fail = |action| move |source| io_error(directory, action, source);
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
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(StateStoreError::Locked { path: directory.to_owned() })
        }
        Err(std::fs::TryLockError::Error(source)) => Err(fail("locked")(source)),
    }
}

/// Changes that are committed together.
#[derive(Debug, Default)]
pub struct StateChanges {
    /// Whether all earlier rows are removed.
    replaces_all: bool,
    properties: Vec<(&'static str, Vec<u8>)>,
    rows: Vec<RowChange>,
}

impl StateChanges {
    /// Collects the changes since the last call, with the state of the id generator.
    pub fn collect(azure: &mut AzureState, ids: &IdGenerator) -> Result<Self, serde_json::Error> {
        let mut rows = Vec::new();
        let mut outcome = Ok(());
        azure.for_each_table(&mut |name, table| match table.take_changes(name) {
            Ok(changes) => rows.extend(changes),
            Err(error) => outcome = Err(error),
        });
        outcome?;
        let properties = match ids {
            IdGenerator::Random => Vec::new(),
            IdGenerator::Seeded { .. } => vec![("ids", serde_json::to_vec(ids)?)],
        };
        Ok(Self { replaces_all: false, properties, rows })
    }

    /// Collects the complete state, which replaces all earlier rows.
    pub(crate) fn collect_all(
        authority: &StoredAuthority,
        azure: &mut AzureState,
        ids: &IdGenerator,
    ) -> Result<Self, serde_json::Error> {
        azure.for_each_table(&mut |_, table| table.mark_all_changed());
        let mut changes = Self::collect(azure, ids)?;
        changes.replaces_all = true;
        changes.properties = vec![
            ("format", serde_json::to_vec(&FORMAT)?),
            ("authority", serde_json::to_vec(authority)?),
            ("ids", serde_json::to_vec(ids)?),
        ];
        Ok(changes)
    }

    fn is_empty(&self) -> bool {
        !self.replaces_all && self.rows.is_empty()
    }
}

/// Accepts changes for the thread that writes. Dropping it waits until everything is written and the
/// directory is unlocked.
#[derive(Debug)]
pub struct StateWriter {
    sender: Option<Sender<SubmittedChanges>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[derive(Debug)]
struct SubmittedChanges {
    changes: StateChanges,
    committed: oneshot::Sender<Result<(), StateStoreError>>,
}

/// The result of a commit that may still be in progress.
#[derive(Debug)]
pub struct PendingCommit(Option<oneshot::Receiver<Result<(), StateStoreError>>>);

impl StateWriter {
    /// Submits changes. Commits happen in the order of the calls.
    pub fn submit(&self, changes: StateChanges) -> PendingCommit {
        if changes.is_empty() {
            return PendingCommit::none();
        }
        let (committed, receiver) = oneshot::channel();
        // Without the thread, the receiver reports that the emulator stopped.
        if let Some(sender) = &self.sender {
            drop(sender.send(SubmittedChanges { changes, committed }));
        }
        PendingCommit(Some(receiver))
    }
}

impl PendingCommit {
    /// A commit without changes: waiting for it returns immediately.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Waits until the changes are on the disk.
    pub async fn wait(self) -> Result<(), StateStoreError> {
        match self.0 {
            None => Ok(()),
            Some(receiver) => receiver.await.unwrap_or(Err(StateStoreError::Stopped)),
        }
    }

    /// Like [`Self::wait`], outside of an asynchronous context.
    pub(crate) fn wait_blocking(self) -> Result<(), StateStoreError> {
        match self.0 {
            None => Ok(()),
            Some(receiver) => receiver.blocking_recv().unwrap_or(Err(StateStoreError::Stopped)),
        }
    }
}

/// Commits submitted changes, all that are waiting together, until the writer is dropped.
fn write_until_closed(store: &StateStore, receiver: &Receiver<SubmittedChanges>) {
    while let Ok(first) = receiver.recv() {
        let (batches, waiting): (Vec<_>, Vec<_>) = std::iter::once(first)
            .chain(receiver.try_iter())
            .map(|submitted| (submitted.changes, submitted.committed))
            .unzip();
        let outcome = store.commit(&batches);
        if let Err(error) = &outcome {
            tracing::error!(%error, "the state could not be written");
        }
        for committed in waiting {
            drop(committed.send(outcome.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
