//! The tmpfs of a volume.

mod detached;

use std::borrow::Cow;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use lanyard_clock::ErrorHint;
use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

pub use detached::DetachedMount;

use crate::mount_table::MountTable;

/// A tmpfs for a volume: nosuid, nodev, noexec, size-limited, and never swapped out if the kernel
/// supports it (Linux 6.4). Its mode is 0755, or 0750 if it belongs to the group of a pod.
///
/// A new mount is unmounted when it is dropped before [`TmpfsMount::persist`], so that a failed
/// first publish leaves no empty volume. A persistent mount outlives the process, as the pods that
/// use it do.
#[derive(Debug)]
pub struct TmpfsMount {
    dir: PathBuf,
    is_persistent: bool,
}

impl TmpfsMount {
    /// Mounts a tmpfs of `size` bytes on `dir`, or adopts the one that an earlier process mounted
    /// there: mounts are never stacked.
    pub fn mount_or_adopt(dir: &Path, size: u64) -> Result<Self, TmpfsMountError> {
        Self::mount_or_adopt_with(dir, TmpfsOptions { size, group: None })
    }

    /// Like [`TmpfsMount::mount_or_adopt`], with other options.
    pub fn mount_or_adopt_with(dir: &Path, options: TmpfsOptions) -> Result<Self, TmpfsMountError> {
        if let Some(mount) = Self::find(dir)? {
            return Ok(mount);
        }
        with_or_without_noswap(options, |data| {
            mount("tmpfs", dir, "tmpfs", HARDENED_FLAGS, data.as_c_str())
        })
        .map_err(|errno| mount_error(MountOperation::Mount, dir, errno))?;
        Ok(Self { dir: dir.to_owned(), is_persistent: false })
    }

    /// Returns the tmpfs that is mounted on `dir`, or `None` if `dir` is not a mount point.
    ///
    /// # Errors
    ///
    /// [`TmpfsMountError::NotTmpfs`] if another file system is mounted there.
    pub fn find(dir: &Path) -> Result<Option<Self>, TmpfsMountError> {
        let failed = |errno| mount_error(MountOperation::Inspect, dir, errno);
        if !is_mount_point(dir).map_err(failed)? {
            return Ok(None);
        }
        let kind = rustix::fs::statfs(dir).map_err(failed)?.f_type;
        if kind == TMPFS_MAGIC {
            Ok(Some(Self { dir: dir.to_owned(), is_persistent: true }))
        } else {
            Err(TmpfsMountError::NotTmpfs { dir: dir.to_owned() })
        }
    }

    /// All tmpfs mounts below `dir`, the deepest first.
    pub fn find_below(dir: &Path) -> Result<Vec<Self>, TmpfsMountError> {
        let (real, table) = canonical_mount_table(dir)?;
        let found = table.tmpfs_mounts_below(&real).into_iter().rev();
        Ok(found.filter(|place| *place != real).map(|place| Self::adopted(&place)).collect())
    }

    /// Returns the path of a mount below `dir` with any file system, bind mounts included.
    pub fn find_any_mount_below(dir: &Path) -> Result<Option<PathBuf>, TmpfsMountError> {
        let (real, table) = canonical_mount_table(dir)?;
        Ok(table.any_mount_below(&real))
    }

    /// Returns the tmpfs on `dir`, which the caller knows to be mounted.
    pub fn adopted(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), is_persistent: true }
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps the mount when this value is dropped.
    pub fn persist(&mut self) {
        self.is_persistent = true;
    }

    /// Grows the tmpfs, if necessary, so that files of these lengths fit in addition to its
    /// content. It never shrinks.
    pub fn ensure_capacity(
        &self,
        lengths: impl IntoIterator<Item = u64>,
    ) -> Result<(), TmpfsMountError> {
        let failed = |errno| mount_error(MountOperation::Resize, &self.dir, errno);
        let usage = statvfs(&self.dir).map_err(failed)?;
        let page = usage.f_frsize.max(1);
        let bytes = capacity_for(lengths, page);
        let free = usage.f_bfree.saturating_mul(page);
        if free >= bytes {
            return Ok(());
        }
        let used = usage.f_blocks.saturating_sub(usage.f_bfree).saturating_mul(page);
        let size = used.saturating_add(bytes).saturating_add(SPARE_CAPACITY);
        self.resize(size).map_err(failed)
    }

    /// Sets the mount flags and a size limit on a tmpfs that another driver mounted. The limit is
    /// large enough for its content, and running pods see no difference.
    pub fn harden(&self) -> Result<(), TmpfsMountError> {
        let failed = |errno| mount_error(MountOperation::Resize, &self.dir, errno);
        let usage = statvfs(&self.dir).map_err(failed)?;
        let used = usage.f_blocks.saturating_sub(usage.f_bfree).saturating_mul(usage.f_frsize);
        self.resize(used.saturating_add(SPARE_CAPACITY)).map_err(failed)
    }

    fn resize(&self, size: u64) -> Result<(), Errno> {
        // A remount must repeat the options of the mount. It does not change mode and group.
        let options = TmpfsOptions { size, group: None };
        with_or_without_noswap(options, |data| {
            mount_remount(&self.dir, HARDENED_FLAGS, data.as_c_str())
        })
    }

    /// Unmounts the tmpfs and discards its content. Succeeds if nothing is mounted.
    pub fn unmount(mut self) -> Result<(), TmpfsMountError> {
        self.is_persistent = true;
        self.detach()
    }

    fn detach(&self) -> Result<(), TmpfsMountError> {
        let attempt = |flags| match unmount(&self.dir, UnmountFlags::NOFOLLOW | flags) {
            Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            result => result,
        };
        // Open files in the volume must not keep the pod from terminating.
        match attempt(UnmountFlags::empty()) {
            Err(Errno::BUSY) => attempt(UnmountFlags::DETACH),
            result => result,
        }
        .map_err(|errno| mount_error(MountOperation::Unmount, &self.dir, errno))
    }
}

impl Drop for TmpfsMount {
    fn drop(&mut self) {
        if self.is_persistent {
            return;
        }
        if let Err(error) = self.detach() {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "could not unmount the tmpfs of a failed publish");
        }
    }
}

/// The mount of a volume could not be created, changed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TmpfsMountError {
    /// A system call failed.
    #[error("could not {operation} the tmpfs on {}", dir.display())]
    SystemCall {
        /// The failed operation.
        operation: MountOperation,
        /// The mount point.
        dir: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// Another kind of file system is mounted there.
    #[error("a file system other than tmpfs is mounted on {}", dir.display())]
    NotTmpfs {
        /// The mount point.
        dir: PathBuf,
    },
}

impl TmpfsMountError {
    /// Whether a retry of the same call may succeed.
    pub fn is_transient(&self) -> bool {
        let Self::SystemCall { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::OutOfMemory)
    }
}

impl ErrorHint for TmpfsMountError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NotTmpfs { .. } => Some("unmount it, or choose another directory".into()),
            Self::SystemCall { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Some(
                    "mounting needs CAP_SYS_ADMIN: run privileged, or publish into a plain \
                     directory"
                        .into(),
                ),
                io::ErrorKind::NotFound => Some("create the directory first".into()),
                _ => None,
            },
        }
    }
}

/// An operation on a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MountOperation {
    /// Inspect the mount point.
    Inspect,
    /// Mount the tmpfs.
    Mount,
    /// Change its size limit.
    Resize,
    /// Unmount it.
    Unmount,
}

impl fmt::Display for MountOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Inspect => "inspect",
            Self::Mount => "mount",
            Self::Resize => "grow",
            Self::Unmount => "unmount",
        })
    }
}

/// Returns the path of `dir` without links, as in the mount table, and the mount table.
fn canonical_mount_table(dir: &Path) -> Result<(PathBuf, MountTable), TmpfsMountError> {
    let failed = |source| TmpfsMountError::SystemCall {
        operation: MountOperation::Inspect,
        dir: dir.into(),
        source,
    };
    let real = dir.canonicalize().map_err(failed)?;
    let table = MountTable::load().map_err(|error| failed(error.source))?;
    Ok((real, table))
}

/// Whether `dir` is a mount point: its device differs from that of its parent, or both are the same
/// inode (a root). Does not detect a bind mount from the same device.
///
/// The publisher compares mount ids through an open handle instead (`publisher::mount_target`,
/// Linux 5.8). [`TmpfsMount`] also works on older kernels.
fn is_mount_point(dir: &Path) -> Result<bool, Errno> {
    let own = rustix::fs::lstat(dir)?;
    let parent = rustix::fs::lstat(dir.join(".."))?;
    Ok(own.st_dev != parent.st_dev || own.st_ino == parent.st_ino)
}

/// The mount options of a tmpfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TmpfsOptions {
    /// The size limit, in bytes.
    pub(crate) size: u64,
    /// The group that may enter the root; all users if `None`.
    pub(crate) group: Option<u32>,
}

impl TmpfsOptions {
    /// Options with a size limit for files of these lengths and the layout.
    pub fn with_capacity_for(lengths: impl IntoIterator<Item = u64>, group: Option<u32>) -> Self {
        Self { size: capacity_for(lengths, LARGEST_PAGE).saturating_add(SPARE_CAPACITY), group }
    }

    /// The permission bits of the root.
    pub const fn mode(self) -> u32 {
        if self.group.is_some() { 0o750 } else { 0o755 }
    }

    fn mount_options(self) -> Vec<(&'static str, String)> {
        let group = self.group.map(|group| ("gid", group.to_string()));
        let mode = ("mode", format!("{:04o}", self.mode()));
        [("size", self.size.to_string()), mode].into_iter().chain(group).collect()
    }
}

/// Returns the space that files of these lengths need. A tmpfs counts in pages, each file has its
/// own pages, and a long link needs one more.
fn capacity_for(lengths: impl IntoIterator<Item = u64>, page: u64) -> u64 {
    let pages = |length: u64| length.div_ceil(page).saturating_add(1).saturating_mul(page);
    lengths.into_iter().map(pages).fold(0, u64::saturating_add)
}

/// Calls with `noswap`, or without it on kernels before 6.4 and in user namespaces.
fn with_or_without_noswap(
    tmpfs_options: TmpfsOptions,
    call: impl Fn(CString) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let options: Vec<_> =
        tmpfs_options.mount_options().iter().map(|(key, value)| format!("{key}={value}")).collect();
    let options = |more: &str| {
        CString::new(format!("{}{more}", options.join(","))).map_err(|_nul| Errno::INVAL)
    };
    match call(options(",noswap")?) {
        Err(Errno::INVAL | Errno::PERM) => call(options("")?),
        result => result,
    }
}

fn mount_error(operation: MountOperation, dir: &Path, errno: Errno) -> TmpfsMountError {
    TmpfsMountError::SystemCall { operation, dir: dir.to_owned(), source: errno.into() }
}

const HARDENED_FLAGS: MountFlags =
    MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// The largest page size of the machines that Linux runs on (arm64, ppc64). It only affects the
/// size limit: unused pages take no memory.
const LARGEST_PAGE: u64 = 64 * 1024;

/// Extra space, so that not every publish remounts.
const SPARE_CAPACITY: u64 = 64 * 1024;

/// `TMPFS_MAGIC` of `linux/magic.h`.
pub const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
