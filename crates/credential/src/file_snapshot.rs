//! The metadata of a file, read without opening it.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The metadata of a file and its folder. If two snapshots differ, the file should be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSnapshot {
    file: Option<FileVersionId>,
    pub(crate) folder: Option<FolderIdentity>,
}

/// The identity of the file after following all links, and of its version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileVersionId {
    target: PathBuf,
    file_id: FileId,
    length: u64,
    modified: Option<SystemTime>,
    change_time: ChangeTime,
}

/// The identity of a folder. It includes the birth time because file systems reuse inode numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderIdentity {
    file_id: FileId,
    created: Option<SystemTime>,
}

/// The device and inode numbers, which identify a file while it exists; empty on systems other than Unix.
#[cfg(unix)]
type FileId = (u64, u64);
#[cfg(not(unix))]
type FileId = ();
/// The time of the last change of content or mode (`ctime`), which user programs cannot set: seconds and
/// nanoseconds. Empty on systems other than Unix.
#[cfg(unix)]
type ChangeTime = (i64, i64);
#[cfg(not(unix))]
type ChangeTime = ();

impl FileSnapshot {
    /// Takes a snapshot of `path`. Missing and inaccessible parts are `None`.
    pub(crate) fn of(path: &Path) -> Self {
        Self { file: file_version_id(path), folder: folder_id(&folder_of(path)) }
    }
}

/// Identifies the file that `path` leads to, and its version. `None` if the file cannot be inspected.
fn file_version_id(path: &Path) -> Option<FileVersionId> {
    let target = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&target).ok()?;
    Some(FileVersionId {
        target,
        file_id: file_id(&metadata),
        length: metadata.len(),
        modified: metadata.modified().ok(),
        change_time: change_time_of(&metadata),
    })
}

/// Identifies a folder. `None` if the folder cannot be inspected.
fn folder_id(folder: &Path) -> Option<FolderIdentity> {
    let metadata = fs::metadata(folder).ok()?;
    Some(FolderIdentity { file_id: file_id(&metadata), created: metadata.created().ok() })
}

/// Returns the device and inode numbers of a file or folder.
#[cfg(unix)]
fn file_id(metadata: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn file_id(_metadata: &Metadata) -> FileId {}

/// Returns the time of the last change of content or mode of a file.
#[cfg(unix)]
fn change_time_of(metadata: &Metadata) -> ChangeTime {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn change_time_of(_metadata: &Metadata) -> ChangeTime {}

/// The folder of a file; `.` if the path has no parent.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
