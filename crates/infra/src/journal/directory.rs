//! A journal in a directory of the local file system.

use std::borrow::Cow;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lanyard_clock::ErrorHint;

const FILE_NAME: &str = "journal.jsonl";

/// The file `journal.jsonl` in a directory. The file stays locked until this value is dropped, so that two
/// commands never write to the same cluster.
#[derive(Debug)]
pub(super) struct JournalDirectory {
    file: File,
    path: PathBuf,
}

/// The directory of a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalDirectoryError {
    /// Another process uses the journal.
    #[error("another command uses the journal {}", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file system returned an error.
    #[error("{operation} {} failed", .path.display())]
    Io {
        /// What was tried, such as `writing`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl ErrorHint for JournalDirectoryError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Locked { .. } => {
                "wait until the other command has ended, or let this one wait with --lock-timeout"
            }
            Self::Io { .. } => "name a directory that this user may write to with --state",
        }))
    }
}

impl JournalDirectory {
    /// Opens and locks the journal in `directory`, which is created if it does not exist, and reads it.
    ///
    /// An incomplete last line is cut off, so that the next entry begins on a line of its own.
    ///
    /// # Errors
    ///
    /// [`JournalDirectoryError`] if another command uses the journal, or the file system returns an error.
    pub(super) fn open(directory: PathBuf) -> Result<(Self, String), JournalDirectoryError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&directory).map_err(|source| io_error("creating", &directory, source))?;
        let path = directory.join(FILE_NAME);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&path).map_err(|source| io_error("opening", &path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalDirectoryError::Locked { path }),
            Err(TryLockError::Error(source)) => return Err(io_error("locking", &path, source)),
        }
        // The directory entry of a new file must survive a crash, too.
        let directory_file = File::open(&directory);
        directory_file
            .and_then(|directory_file| directory_file.sync_all())
            .map_err(|source| io_error("syncing", &directory, source))?;
        let mut content = String::new();
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.read_to_string(&mut content))
            .map_err(|source| io_error("reading", &path, source))?;
        let complete = content.rfind('\n').map_or(0, |end| end + 1);
        if complete < content.len() {
            let length = u64::try_from(complete).unwrap_or(u64::MAX);
            file.set_len(length).map_err(|source| io_error("truncating", &path, source))?;
            content.truncate(complete);
        }
        Ok((Self { file, path }, content))
    }
}

impl JournalDirectory {
    /// The content of the journal in `directory`; `None` if there is none.
    pub(super) fn read(directory: &Path) -> Result<Option<String>, JournalDirectoryError> {
        let path = directory.join(FILE_NAME);
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            content => content.map(Some).map_err(|source| io_error("reading", &path, source)),
        }
    }
}

impl JournalDirectory {
    /// Appends one line, which is durable when the call returns.
    pub(super) fn append(&mut self, line: &str) -> Result<(), JournalDirectoryError> {
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|source| io_error("writing", &self.path, source))
    }
}

fn io_error(operation: &'static str, path: &Path, source: io::Error) -> JournalDirectoryError {
    JournalDirectoryError::Io { operation, path: path.to_owned(), source }
}
