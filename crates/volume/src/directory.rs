//! An open directory and the system calls on its entries.
//!
//! Every name is a single component and no call follows a symbolic link, so a link planted in a
//! volume cannot redirect a privileged writer.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lanyard_clock::ErrorHint;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::fail_point::FailPoint;
use crate::memory_usage::TmpfsUsage;
use crate::volume_step::VolumeStep;

/// A system call on a volume failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {operation} {}", path.display())]
pub struct VolumeDiskError {
    /// The failed operation.
    pub operation: DiskOperation,
    /// The path of the operation.
    pub path: PathBuf,
    /// The error of the system call.
    #[source]
    pub source: io::Error,
}

impl VolumeDiskError {
    /// Whether a retry of the same call may succeed without a change of the request.
    pub fn is_transient(&self) -> bool {
        use io::ErrorKind::{Interrupted, OutOfMemory, QuotaExceeded, ResourceBusy, StorageFull};
        matches!(
            self.source.kind(),
            StorageFull | QuotaExceeded | ResourceBusy | Interrupted | OutOfMemory
        ) || [Errno::MFILE, Errno::NFILE, Errno::IO]
            .iter()
            .any(|errno| self.source.raw_os_error() == Some(errno.raw_os_error()))
    }
}

impl ErrorHint for VolumeDiskError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "the file system of the volume is full: free space or enlarge it"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "the volume's own directory must be writable; only the pods' mounts of it are \
                 read-only"
            }
            io::ErrorKind::DirectoryNotEmpty => {
                "check what is in the directory, and remove it if it is unused"
            }
            io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices => {
                "check what is mounted there, and unmount it if it is unused"
            }
            io::ErrorKind::PermissionDenied if self.operation == DiskOperation::ChangeOwner => {
                "setting a group that the process does not belong to needs CAP_CHOWN: run as root, \
                 or omit the group"
            }
            io::ErrorKind::PermissionDenied => {
                "run as the owner of the volume's directory, or as root"
            }
            _ => return None,
        }))
    }
}

/// An operation on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskOperation {
    /// Open a file or directory.
    Open,
    /// List a directory.
    List,
    /// Read a file, a link or file attributes.
    Read,
    /// Create a file or directory.
    Create,
    /// Write into a file.
    Write,
    /// Set the permission bits.
    ChangeMode,
    /// Set the group.
    ChangeOwner,
    /// Create a symbolic link.
    Link,
    /// Rename into place.
    Rename,
    /// Remove a file or directory.
    Remove,
    /// Truncate a file.
    Truncate,
    /// Flush to stable storage.
    Sync,
}

impl fmt::Display for DiskOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Open => "open",
            Self::List => "list",
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
            Self::ChangeMode => "set the mode of",
            Self::ChangeOwner => "set the group of",
            Self::Link => "create the link",
            Self::Rename => "move into place",
            Self::Remove => "remove",
            Self::Truncate => "truncate",
            Self::Sync => "flush",
        })
    }
}

/// An open directory. Clones share the descriptor.
#[derive(Debug, Clone)]
pub struct OpenDirectory {
    file: Arc<File>,
    path: PathBuf,
    fail_point: FailPoint,
}

/// The kind of a directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryEntryKind {
    Symlink(OsString),
    Directory,
    /// A regular file, or a special file.
    File,
}

/// Permission bits and group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileAttributes {
    pub(crate) mode: u32,
    pub(crate) gid: u32,
}

/// Whether removal truncates the content of files first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemovedContent {
    Truncated,
    LeftIntact,
}

impl OpenDirectory {
    pub(crate) fn open(path: &Path, fail_point: FailPoint) -> Result<Self, VolumeDiskError> {
        let file = fs::open(path, DIRECTORY_OPEN_FLAGS, Mode::empty())
            .map_err(|errno| disk_error(DiskOperation::Open, path, errno))?;
        Ok(Self::from_fd(file, path, fail_point))
    }

    /// Wraps an open directory; `path` appears in error messages.
    pub fn from_fd(file: OwnedFd, path: &Path, fail_point: FailPoint) -> Self {
        Self { file: Arc::new(file.into()), path: path.to_owned(), fail_point }
    }

    pub(crate) fn fail_point(&self) -> FailPoint {
        self.fail_point.clone()
    }

    /// Marks the point before a step of the publisher, at which a crash test may kill the process.
    pub(crate) fn reach_step(&self, step: VolumeStep) {
        self.fail_point.reach_step(step);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The device of the directory, in the format of the mount table.
    pub(crate) fn device(&self) -> Result<String, VolumeDiskError> {
        let stat = fs::fstat(&*self.file)
            .map_err(|errno| disk_error(DiskOperation::Read, &self.path, errno))?;
        Ok(format!("{}:{}", fs::major(stat.st_dev), fs::minor(stat.st_dev)))
    }

    /// The usage of the directory's file system.
    pub(crate) fn usage(&self) -> Result<TmpfsUsage, VolumeDiskError> {
        let stat = fs::fstatvfs(&*self.file)
            .map_err(|errno| disk_error(DiskOperation::Read, &self.path, errno))?;
        Ok(TmpfsUsage::of(&stat))
    }

    pub(crate) fn open_child(&self, name: &OsStr) -> Result<Self, VolumeDiskError> {
        let file = fs::openat(&*self.file, name, DIRECTORY_OPEN_FLAGS, Mode::empty())
            .map_err(|errno| self.error_at(DiskOperation::Open, name, errno))?;
        let path = self.path.join(name);
        Ok(Self { file: Arc::new(file.into()), path, fail_point: self.fail_point.clone() })
    }

    /// Opens the directory `name` unless something is mounted on it, so that removal never crosses
    /// mounts.
    fn open_child_same_mount(&self, name: &OsStr) -> Result<Self, VolumeDiskError> {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        match fs::openat2(&*self.file, name, DIRECTORY_OPEN_FLAGS, Mode::empty(), within) {
            Ok(file) => Ok(Self::from_fd(file, &self.path.join(name), self.fail_point.clone())),
            // Linux before 5.6, which only plain volumes support: the node plugin needs 5.8.
            Err(Errno::NOSYS) => self.open_child(name),
            Err(errno) => Err(self.error_at(DiskOperation::Open, name, errno)),
        }
    }

    /// Opens the directory `name`; `None` if no directory has this name.
    pub(crate) fn find_child(&self, name: &OsStr) -> Result<Option<Self>, VolumeDiskError> {
        match self.open_child(name) {
            Ok(child) => Ok(Some(child)),
            Err(error) if is_not_found(&error.source) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the entries of the directory in no particular order.
    pub fn list(&self) -> Result<Vec<(OsString, DirectoryEntryKind)>, VolumeDiskError> {
        let failed = |errno| disk_error(DiskOperation::List, &self.path, errno);
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&*self.file).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if let Some(kind) = self.entry_kind(name, entry.file_type())? {
                entries.push((name.to_owned(), kind));
            }
        }
        Ok(entries)
    }

    fn entry_kind(
        &self,
        name: &OsStr,
        listed_type: FileType,
    ) -> Result<Option<DirectoryEntryKind>, VolumeDiskError> {
        // Some file systems do not report the type while listing.
        let kind = match listed_type {
            FileType::Unknown => match fs::statat(&*self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(self.error_at(DiskOperation::List, name, errno)),
            },
            listed_type => listed_type,
        };
        Ok(match kind {
            FileType::Symlink => self.read_link(name)?.map(DirectoryEntryKind::Symlink),
            FileType::Directory => Some(DirectoryEntryKind::Directory),
            _ => Some(DirectoryEntryKind::File),
        })
    }

    /// The target of the link `name`; `None` if no link has this name.
    pub(crate) fn read_link(&self, name: &OsStr) -> Result<Option<OsString>, VolumeDiskError> {
        match fs::readlinkat(&*self.file, name, Vec::new()) {
            Ok(target) => Ok(Some(OsString::from_vec(target.into_bytes()))),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(self.error_at(DiskOperation::Read, name, errno)),
        }
    }

    pub(crate) fn attributes(&self, name: &OsStr) -> Result<FileAttributes, VolumeDiskError> {
        let stat = fs::statat(&*self.file, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.error_at(DiskOperation::Read, name, errno))?;
        Ok(FileAttributes { mode: stat.st_mode & PERMISSION_BITS, gid: stat.st_gid })
    }

    pub(crate) fn len(&self, name: &OsStr) -> Result<u64, VolumeDiskError> {
        let stat = fs::statat(&*self.file, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.error_at(DiskOperation::Read, name, errno))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Whether the file `name` contains exactly `content`. The read buffer is wiped.
    pub(crate) fn content_equals(
        &self,
        name: &OsStr,
        content: &[u8],
    ) -> Result<bool, VolumeDiskError> {
        let mut file =
            match fs::openat(&*self.file, name, OFlags::RDONLY | SAFE_OPEN_FLAGS, Mode::empty()) {
                Ok(file) => File::from(file),
                // The owner may not read this file, so the caller must write it again.
                Err(Errno::ACCESS) => return Ok(false),
                Err(errno) => return Err(self.error_at(DiskOperation::Open, name, errno)),
            };
        let failed = |source| self.error_at(DiskOperation::Read, name, source);
        let length = file.metadata().map_err(failed)?.len();
        if usize::try_from(length).ok() != Some(content.len()) {
            return Ok(false);
        }
        let mut buffer = Zeroizing::new([0; 4096]);
        let mut rest = content;
        loop {
            let count = file.read(&mut *buffer).map_err(failed)?;
            match rest.split_at_checked(count) {
                _ if count == 0 => return Ok(rest.is_empty()),
                Some((expected, after)) if expected == &buffer[..count] => rest = after,
                _ => return Ok(false),
            }
        }
    }

    /// Reads the file `name`; `None` if it does not exist or exceeds `max_bytes` bytes.
    pub(crate) fn load_file(
        &self,
        name: &OsStr,
        max_bytes: u64,
    ) -> Result<Option<Vec<u8>>, VolumeDiskError> {
        let file =
            match fs::openat(&*self.file, name, OFlags::RDONLY | SAFE_OPEN_FLAGS, Mode::empty()) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
                Err(errno) => return Err(self.error_at(DiskOperation::Open, name, errno)),
            };
        let failed = |source| self.error_at(DiskOperation::Read, name, source);
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() || metadata.len() > max_bytes {
            return Ok(None);
        }
        // Allocate the full length at once: a growing buffer would leave copies of secrets behind.
        let length = usize::try_from(metadata.len()).unwrap_or(0);
        let mut content = Vec::with_capacity(length.saturating_add(1));
        file.take(max_bytes).read_to_end(&mut content).map_err(failed)?;
        Ok(Some(content))
    }

    /// Sets the attributes of the directory itself if they differ.
    pub(crate) fn ensure_attributes(
        &self,
        attributes: FileAttributes,
    ) -> Result<(), VolumeDiskError> {
        let stat = fs::fstat(&*self.file)
            .map_err(|errno| disk_error(DiskOperation::Read, &self.path, errno))?;
        let current = FileAttributes { mode: stat.st_mode & PERMISSION_BITS, gid: stat.st_gid };
        if current == attributes {
            return Ok(());
        }
        self.apply_attributes(&self.file, OsStr::new(""), attributes)
    }

    /// Creates the directory `name`, readable by all regardless of the umask.
    pub(crate) fn create_child(&self, name: &OsStr) -> Result<Self, VolumeDiskError> {
        self.check_fail_point(DiskOperation::Create, name)?;
        fs::mkdirat(&*self.file, name, Mode::from_raw_mode(DIRECTORY_MODE))
            .map_err(|errno| self.error_at(DiskOperation::Create, name, errno))?;
        let child = self.open_child(name)?;
        self.check_fail_point(DiskOperation::ChangeMode, name)?;
        fs::fchmod(&child.file, Mode::from_raw_mode(DIRECTORY_MODE))
            .map_err(|errno| self.error_at(DiskOperation::ChangeMode, name, errno))?;
        Ok(child)
    }

    /// Creates the file `name` with its full content and flushes it.
    pub(crate) fn create_file(
        &self,
        name: &OsStr,
        content: &[u8],
        attributes: FileAttributes,
    ) -> Result<(), VolumeDiskError> {
        self.check_fail_point(DiskOperation::Create, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | SAFE_OPEN_FLAGS;
        let file = fs::openat(&*self.file, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.error_at(DiskOperation::Create, name, errno))?;
        let mut file = File::from(file);
        self.check_fail_point(DiskOperation::Write, name)?;
        file.write_all(content)
            .map_err(|error| self.error_at(DiskOperation::Write, name, error))?;
        self.apply_attributes(&file, name, attributes)?;
        self.check_fail_point(DiskOperation::Sync, name)?;
        file.sync_all().map_err(|error| self.error_at(DiskOperation::Sync, name, error))
    }

    /// Sets mode and group of the file `name`.
    pub(crate) fn change_attributes(
        &self,
        name: &OsStr,
        attributes: FileAttributes,
    ) -> Result<(), VolumeDiskError> {
        let file = self.open_with_owner_access(name, OFlags::RDONLY)?;
        self.apply_attributes(&file, name, attributes)
    }

    /// Sets the group, then the mode, because a change of owner clears the set-id bits.
    fn apply_attributes(
        &self,
        file: &File,
        name: &OsStr,
        attributes: FileAttributes,
    ) -> Result<(), VolumeDiskError> {
        let metadata = fs::fstat(file).map_err(|e| self.error_at(DiskOperation::Read, name, e))?;
        if metadata.st_gid != attributes.gid {
            self.check_fail_point(DiskOperation::ChangeOwner, name)?;
            fs::fchown(file, None, Some(fs::Gid::from_raw(attributes.gid)))
                .map_err(|errno| self.error_at(DiskOperation::ChangeOwner, name, errno))?;
        }
        self.check_fail_point(DiskOperation::ChangeMode, name)?;
        fs::fchmod(file, Mode::from_raw_mode(attributes.mode))
            .map_err(|errno| self.error_at(DiskOperation::ChangeMode, name, errno))
    }

    /// Writes into the file `name` without changing it, to trigger its file watches: it rewrites
    /// the first byte, or truncates an empty file to length zero.
    pub(crate) fn touch_file(&self, name: &OsStr) -> Result<(), VolumeDiskError> {
        let file = self.open_with_owner_access(name, OFlags::RDWR)?;
        let mut first = Zeroizing::new([0; 1]);
        let count = rustix::io::pread(&file, &mut *first, 0)
            .map_err(|errno| self.error_at(DiskOperation::Read, name, errno))?;
        self.check_fail_point(DiskOperation::Write, name)?;
        if count == 0 {
            fs::ftruncate(&file, 0).map_err(|e| self.error_at(DiskOperation::Truncate, name, e))
        } else {
            rustix::io::pwrite(&file, &*first, 0)
                .map(|_one| ())
                .map_err(|errno| self.error_at(DiskOperation::Write, name, errno))
        }
    }

    /// Truncates the file `name`; the inode and its watches stay.
    pub(crate) fn truncate_file(&self, name: &OsStr) -> Result<(), VolumeDiskError> {
        let file = self.open_with_owner_access(name, OFlags::RDWR)?;
        self.check_fail_point(DiskOperation::Truncate, name)?;
        fs::ftruncate(&file, 0).map_err(|errno| self.error_at(DiskOperation::Truncate, name, errno))
    }

    /// Opens the file `name` even if its mode denies its owner access: a process that is not root
    /// first adds the owner's permission bits. The bits of readers stay.
    fn open_with_owner_access(&self, name: &OsStr, flags: OFlags) -> Result<File, VolumeDiskError> {
        let open = || fs::openat(&*self.file, name, flags | SAFE_OPEN_FLAGS, Mode::empty());
        let opened = match open() {
            Err(Errno::ACCESS) => {
                let mode = self.attributes(name)?.mode | OWNER_READ_WRITE;
                self.check_fail_point(DiskOperation::ChangeMode, name)?;
                fs::chmodat(&*self.file, name, Mode::from_raw_mode(mode), AtFlags::empty())
                    .map_err(|errno| self.error_at(DiskOperation::ChangeMode, name, errno))?;
                open()
            }
            opened => opened,
        };
        opened.map(File::from).map_err(|errno| self.error_at(DiskOperation::Open, name, errno))
    }

    pub(crate) fn create_symlink(
        &self,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<(), VolumeDiskError> {
        self.check_fail_point(DiskOperation::Link, name)?;
        fs::symlinkat(target, &*self.file, name)
            .map_err(|errno| self.error_at(DiskOperation::Link, name, errno))
    }

    /// Renames `from` to `to` atomically, replacing a link or file.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), VolumeDiskError> {
        self.check_fail_point(DiskOperation::Rename, to)?;
        fs::renameat(&*self.file, from, &*self.file, to)
            .map_err(|errno| self.error_at(DiskOperation::Rename, to, errno))
    }

    /// Exchanges two entries atomically.
    pub(crate) fn exchange_entries(
        &self,
        one: &OsStr,
        other: &OsStr,
    ) -> Result<(), VolumeDiskError> {
        self.check_fail_point(DiskOperation::Rename, other)?;
        fs::renameat_with(&*self.file, one, &*self.file, other, RenameFlags::EXCHANGE)
            .map_err(|errno| self.error_at(DiskOperation::Rename, other, errno))
    }

    /// Removes the entry `name`, if it exists. Files are truncated first, so that no open file or
    /// deleted inode keeps their content.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), VolumeDiskError> {
        self.remove_recursively(name, RemovedContent::Truncated)
    }

    /// Removes the entry `name`, if it exists. Processes that have its files open can still read
    /// them.
    pub(crate) fn remove_keeping_content(&self, name: &OsStr) -> Result<(), VolumeDiskError> {
        self.remove_recursively(name, RemovedContent::LeftIntact)
    }

    /// Removes all entries, without a way through links or mounts. Files keep their content, which other
    /// directories may link to.
    pub fn remove_entries(&self) -> Result<(), VolumeDiskError> {
        self.list()?.iter().try_for_each(|(name, _)| self.remove_keeping_content(name))
    }

    fn remove_recursively(
        &self,
        name: &OsStr,
        content: RemovedContent,
    ) -> Result<(), VolumeDiskError> {
        let kind = match fs::statat(&*self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(self.error_at(DiskOperation::Read, name, errno)),
        };
        let flags = if kind == FileType::Directory {
            let child = self.open_child_same_mount(name)?;
            for (inner, _) in child.list()? {
                child.remove_recursively(&inner, content)?;
            }
            AtFlags::REMOVEDIR
        } else {
            if kind == FileType::RegularFile && content == RemovedContent::Truncated {
                self.truncate_file(name)?;
            }
            AtFlags::empty()
        };
        self.check_fail_point(DiskOperation::Remove, name)?;
        match fs::unlinkat(&*self.file, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error_at(DiskOperation::Remove, name, errno)),
        }
    }

    pub(crate) fn sync(&self) -> Result<(), VolumeDiskError> {
        self.fail_point
            .count_call()
            .map_err(|error| disk_error(DiskOperation::Sync, &self.path, error))?;
        fs::fsync(&*self.file).map_err(|errno| disk_error(DiskOperation::Sync, &self.path, errno))
    }

    /// Marks a system call that changes the disk, at which a test may inject a failure.
    fn check_fail_point(
        &self,
        operation: DiskOperation,
        name: &OsStr,
    ) -> Result<(), VolumeDiskError> {
        self.fail_point.count_call().map_err(|error| self.error_at(operation, name, error))
    }

    fn error_at(
        &self,
        operation: DiskOperation,
        name: &OsStr,
        s: impl Into<io::Error>,
    ) -> VolumeDiskError {
        disk_error(operation, &self.path.join(name), s)
    }
}

/// Creates the error of an operation on a path of the volume.
pub fn disk_error(
    operation: DiskOperation,
    path: &Path,
    source: impl Into<io::Error>,
) -> VolumeDiskError {
    VolumeDiskError { operation, path: path.to_owned(), source: source.into() }
}

fn is_not_found(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Removes the directory at `path` unless it has entries. A missing directory is not an error. Use
/// it only where no other user can plant a link, never below the kubelet's directory.
pub(crate) fn remove_if_empty(path: &Path) -> Result<(), VolumeDiskError> {
    match fs::unlinkat(fs::CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
        Err(errno) => Err(disk_error(DiskOperation::Remove, path, errno)),
    }
}

const SAFE_OPEN_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
const DIRECTORY_OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(SAFE_OPEN_FLAGS);
const DIRECTORY_MODE: u32 = 0o755;
const PERMISSION_BITS: u32 = 0o7777;
const OWNER_READ_WRITE: u32 = 0o600;
