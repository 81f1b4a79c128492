//! A journal in a directory of the local file system.

use std::borrow::Cow;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lanyard_clock::ErrorHint;

use super::MAX_JOURNAL_BYTES;

const FILE_NAME: &str = "journal.jsonl";

/// The file `journal.jsonl` in a directory. File and directory stay locked until this value is dropped, so that two
/// commands never write to the same cluster, also if a person removes or replaces the file in between.
#[derive(Debug)]
pub(crate) struct JournalDirectory {
    file: File,
    path: PathBuf,
    /// Holds the lock of the directory.
    _directory: File,
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
    /// Another user can change the journal.
    #[error("{} {problem}, so another user could change the journal", .path.display())]
    NotPrivate {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong, such as `belongs to another user`.
        problem: &'static str,
    },
    /// The file was removed or replaced while a command used it.
    #[error("the journal {} was removed or replaced during the run", .path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The file is not text.
    #[error("the journal {} is damaged: it is not UTF-8 text", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file is longer than a journal.
    #[error("the journal {} has more than {MAX_JOURNAL_BYTES} bytes", .path.display())]
    TooLarge {
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
            Self::Removed { .. } => {
                "restore the file, or run `lanyard import azure`; then run the command again"
            }
            Self::Damaged { .. } => {
                "restore the file from a backup, or move it away and run `lanyard import azure`"
            }
            Self::TooLarge { .. } => {
                "keep a copy of the file, move it away, and run `lanyard import azure`"
            }
            Self::NotPrivate { path, problem } => {
                let path = path.display();
                return Some(Cow::Owned(if *problem == OTHER_OWNER {
                    format!(
                        "check the journal; then run `chown` for {path}, or name another directory with --state"
                    )
                } else {
                    format!("check the journal; then run `chmod go-w {path}`")
                }));
            }
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::AlreadyExists => {
                    "name a directory that this user may write to with --state"
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free space in the file system; then run the command again"
                }
                _ => "check the file system for the cause; then run the command again",
            },
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
        check_private(&directory)?;
        let path = directory.join(FILE_NAME);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&path).map_err(|source| io_error("opening", &path, source))?;
        check_private(&path)?;
        let directory_file =
            File::open(&directory).map_err(|source| io_error("opening", &directory, source))?;
        // Earlier versions lock only the file.
        for locked in [&directory_file, &file] {
            match locked.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(JournalDirectoryError::Locked { path });
                }
                Err(TryLockError::Error(source)) => return Err(io_error("locking", &path, source)),
            }
        }
        // The directory entry of a new file must survive a crash, too.
        directory_file.sync_all().map_err(|source| io_error("syncing", &directory, source))?;
        file.seek(SeekFrom::Start(0)).map_err(|source| io_error("reading", &path, source))?;
        let mut content = read_content(&mut file, &path)?;
        let complete = content.rfind('\n').map_or(0, |end| end + 1);
        if complete < content.len() {
            let length = u64::try_from(complete).unwrap_or(u64::MAX);
            file.set_len(length).map_err(|source| io_error("truncating", &path, source))?;
            content.truncate(complete);
        }
        Ok((Self { file, path, _directory: directory_file }, content))
    }
}

impl JournalDirectory {
    /// The content of the journal in `directory`; `None` if there is none.
    pub(super) fn read(directory: &Path) -> Result<Option<String>, JournalDirectoryError> {
        let path = directory.join(FILE_NAME);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(io_error("reading", &path, source)),
            Ok(mut file) => {
                check_private(directory)?;
                check_private(&path)?;
                read_content(&mut file, &path).map(Some)
            }
        }
    }
}

impl JournalDirectory {
    /// Appends one line, which is durable when the call returns.
    pub(super) fn append(&mut self, line: &str) -> Result<(), JournalDirectoryError> {
        let has_same_file = match (self.file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
            _ => false,
        };
        if !has_same_file {
            return Err(JournalDirectoryError::Removed { path: self.path.clone() });
        }
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|source| io_error("writing", &self.path, source))
    }
}

const OTHER_OWNER: &str = "belongs to another user";

/// Fails if another user than this one and root can write to the file or directory.
fn check_private(path: &Path) -> Result<(), JournalDirectoryError> {
    let metadata = std::fs::metadata(path).map_err(|source| io_error("reading", path, source))?;
    let user = rustix::process::geteuid().as_raw();
    match privacy_problem(user, metadata.uid(), metadata.mode()) {
        None => Ok(()),
        Some(problem) => Err(JournalDirectoryError::NotPrivate { path: path.to_owned(), problem }),
    }
}

/// Why another user than `user` and root can write to a file or directory with this owner and mode; `None` if none
/// can.
const fn privacy_problem(user: u32, owner: u32, mode: u32) -> Option<&'static str> {
    const ROOT: u32 = 0;
    if owner != user && owner != ROOT {
        Some(OTHER_OWNER)
    } else if mode & 0o022 != 0 {
        Some("can be written by other users")
    } else {
        None
    }
}

/// Reads the file from its position, if it has at most [`MAX_JOURNAL_BYTES`] bytes.
fn read_content(file: &mut File, path: &Path) -> Result<String, JournalDirectoryError> {
    let mut content = Vec::new();
    let mut limited = file.take(u64::try_from(MAX_JOURNAL_BYTES + 1).unwrap_or(u64::MAX));
    limited.read_to_end(&mut content).map_err(|source| io_error("reading", path, source))?;
    if content.len() > MAX_JOURNAL_BYTES {
        return Err(JournalDirectoryError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(content)
        .map_err(|_text| JournalDirectoryError::Damaged { path: path.to_owned() })
}

fn io_error(operation: &'static str, path: &Path, source: io::Error) -> JournalDirectoryError {
    JournalDirectoryError::Io { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_of_another_user_is_rejected() {
        const WRITABLE: Option<&str> = Some("can be written by other users");
        for (user, owner, mode, expected) in [
            (1000, 1000, 0o700, None),
            (1000, 1000, 0o644, None),
            (1000, 0, 0o755, None),
            (0, 0, 0o700, None),
            (1000, 1001, 0o700, Some(OTHER_OWNER)),
            (1000, 1001, 0o400, Some(OTHER_OWNER)),
            (0, 1000, 0o700, Some(OTHER_OWNER)),
            (1000, 1000, 0o720, WRITABLE),
            (1000, 1000, 0o702, WRITABLE),
            (1000, 0, 0o777, WRITABLE),
        ] {
            let found = privacy_problem(user, owner, mode);
            assert_eq!(found, expected, "user {user}, owner {owner}, mode {mode:o}");
        }
        let (path, problem) = (PathBuf::from("journals"), OTHER_OWNER);
        let error = JournalDirectoryError::NotPrivate { path, problem };
        assert!(error.to_string().contains("journals belongs to another user"), "{error}");
        assert!(error.hint().unwrap().contains("`chown` for journals"), "{:?}", error.hint());
    }
}
