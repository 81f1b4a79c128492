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
    inode: Inode,
    length: u64,
    modified: Option<SystemTime>,
    change_time: ChangeTime,
}

/// The identity of a folder. It includes the birth time because file systems reuse inode numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderIdentity {
    inode: Inode,
    created: Option<SystemTime>,
}

#[cfg(unix)]
type Inode = (u64, u64);
#[cfg(not(unix))]
type Inode = ();
#[cfg(unix)]
type ChangeTime = (i64, i64);
#[cfg(not(unix))]
type ChangeTime = ();

impl FileSnapshot {
    /// Takes a snapshot of `path`. Missing and inaccessible parts are `None`.
    pub(crate) fn of(path: &Path) -> Self {
        Self { file: file_id(path), folder: folder_id(&folder_of(path)) }
    }
}

fn file_id(path: &Path) -> Option<FileVersionId> {
    let target = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&target).ok()?;
    Some(FileVersionId {
        target,
        inode: inode(&metadata),
        length: metadata.len(),
        modified: metadata.modified().ok(),
        change_time: changed(&metadata),
    })
}

fn folder_id(folder: &Path) -> Option<FolderIdentity> {
    let metadata = fs::metadata(folder).ok()?;
    Some(FolderIdentity { inode: inode(&metadata), created: metadata.created().ok() })
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> Inode {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn inode(_metadata: &Metadata) -> Inode {}

/// The time of the last change of content or mode (`ctime`), which user programs cannot set.
#[cfg(unix)]
fn changed(metadata: &Metadata) -> ChangeTime {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn changed(_metadata: &Metadata) -> ChangeTime {}

/// The folder of a file; `.` if the path has no parent.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
