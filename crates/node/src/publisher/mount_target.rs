//! The target of a volume below the kubelet's directory, and the system calls on it.
//!
//! No call follows a symbolic link below the kubelet's directory, so a link planted there cannot
//! redirect the privileged process.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use lanyard_volume::{
    DiskOperation, FailPoint, MountOperation, MountTable, OpenDirectory, TmpfsMountError,
    VolumeDiskError, disk_error,
};
use rustix::fs::{
    self, AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::target_path::parse_target_below;

/// The target path of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountTarget {
    kubelet_dir: PathBuf,
    relative_path: PathBuf,
    path: PathBuf,
}

/// The kernel's id of a mount, unique while it is mounted (`stx_mnt_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountId(u64);

/// The state of a target in the file system.
#[derive(Debug)]
pub(crate) enum TargetState {
    Absent,
    /// A directory on which nothing is mounted.
    Directory,
    /// The target or a directory above it is a symbolic link.
    Symlink,
    /// The target is not a directory.
    File,
    /// A mount that cannot be read.
    DeadMount,
    /// A readable mount.
    Mounted {
        /// The root directory of the mount.
        root: OpenDirectory,
        /// The id of the topmost mount.
        id: MountId,
        /// The number of mounts that are stacked at the target.
        layers: usize,
        /// Whether the file system is a tmpfs.
        in_memory: bool,
    },
}

impl MountTarget {
    /// Parses a target path. Returns `None` if it is not below `kubelet_dir` or not normalized.
    pub(crate) fn parse(kubelet_dir: &Path, target: &Path) -> Option<Self> {
        let below = parse_target_below(kubelet_dir, target).ok()?;
        Some(Self {
            kubelet_dir: kubelet_dir.to_owned(),
            relative_path: below.to_owned(),
            path: target.to_owned(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The id of the mount at the target, if one is mounted. Costs two system calls.
    pub(crate) fn mount_id(&self) -> Result<Option<MountId>, VolumeDiskError> {
        match self.open_target(OFlags::PATH | OFlags::DIRECTORY) {
            Ok(handle) => self.mount_id_of(&handle),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(self.disk_error_at(DiskOperation::Open, errno)),
        }
    }

    /// Whether something may be mounted at the target; `true` if the target cannot be read.
    pub(crate) fn may_be_mounted(&self) -> bool {
        !matches!(self.mount_id(), Ok(None))
    }

    fn mount_id_of(&self, handle: &OwnedFd) -> Result<Option<MountId>, VolumeDiskError> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        let stat = fs::statx(handle, c"", flags, StatxFlags::MNT_ID)
            .map_err(|errno| self.disk_error_at(DiskOperation::Read, errno))?;
        let is_root = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        Ok(is_root.then_some(MountId(stat.stx_mnt_id)))
    }

    /// Reads the state of the target.
    pub(crate) fn state(&self, fail_point: &FailPoint) -> Result<TargetState, VolumeDiskError> {
        match self.read_state(fail_point) {
            Err(error) if is_dead_mount_error(&error) && self.layers()? > 0 => {
                Ok(TargetState::DeadMount)
            }
            state => state,
        }
    }

    fn read_state(&self, fail_point: &FailPoint) -> Result<TargetState, VolumeDiskError> {
        let handle = match self.open_target(OFlags::PATH) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(TargetState::Absent),
            Err(Errno::LOOP) => return Ok(TargetState::Symlink),
            Err(Errno::NOTDIR) => return Ok(TargetState::File),
            Err(errno) => return Err(self.disk_error_at(DiskOperation::Open, errno)),
        };
        let stat =
            fs::fstat(&handle).map_err(|errno| self.disk_error_at(DiskOperation::Read, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {}
            FileType::Symlink => return Ok(TargetState::Symlink),
            _ => return Ok(TargetState::File),
        }
        let Some(id) = self.mount_id_of(&handle)? else { return Ok(TargetState::Directory) };
        let kind =
            fs::fstatfs(&handle).map_err(|errno| self.disk_error_at(DiskOperation::Read, errno))?;
        let root = self
            .open_target(OFlags::RDONLY | OFlags::DIRECTORY)
            .map(|file| OpenDirectory::from_fd(file, &self.path, fail_point.clone()))
            .map_err(|errno| self.disk_error_at(DiskOperation::Open, errno))?;
        root.list()?;
        let in_memory = kind.f_type == lanyard_volume::TMPFS_MAGIC;
        Ok(TargetState::Mounted { root, id, layers: self.layers()?.max(1), in_memory })
    }

    /// Creates the target directory and its missing parents, and opens it.
    pub(crate) fn create(&self) -> Result<OwnedFd, VolumeDiskError> {
        let mut folder = self
            .open_kubelet_dir()
            .map_err(|errno| self.disk_error_at(DiskOperation::Open, errno))?;
        for part in self.relative_path.components() {
            let name: &Path = part.as_ref();
            match fs::mkdirat(&folder, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.disk_error_at(DiskOperation::Create, errno)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | NO_FOLLOW_FLAGS;
            folder = fs::openat2(&folder, name, flags, Mode::empty(), RESOLVE_FLAGS)
                .map_err(|errno| self.disk_error_at(DiskOperation::Open, errno))?;
        }
        Ok(folder)
    }

    /// Unmounts the topmost mount lazily: processes that have files open keep them.
    pub(crate) fn unmount_layer(&self) -> Result<(), TmpfsMountError> {
        match unmount(&self.path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            Err(errno) => Err(TmpfsMountError::SystemCall {
                operation: MountOperation::Unmount,
                dir: self.path.clone(),
                source: errno.into(),
            }),
        }
    }

    /// Opens the target directory, if it exists.
    pub(crate) fn open_directory(
        &self,
        fail_point: &FailPoint,
    ) -> Result<Option<OpenDirectory>, VolumeDiskError> {
        match self.open_target(OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(file) => Ok(Some(OpenDirectory::from_fd(file, &self.path, fail_point.clone()))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.disk_error_at(DiskOperation::Open, errno)),
        }
    }

    /// Removes the target directory, on which nothing is mounted. If it is the directory of a CSI volume, files
    /// that other programs left there are removed too: the kubelet waits until the directory is gone. A missing
    /// directory is not an error.
    pub(crate) fn remove(&self, fail_point: &FailPoint) -> Result<(), VolumeDiskError> {
        let failed = |errno| self.disk_error_at(DiskOperation::Remove, errno);
        match self.remove_directory() {
            Err(Errno::NOTEMPTY) if self.is_csi_volume() => {}
            removed => return removed.map_err(failed),
        }
        let target = self.path.display();
        tracing::warn!(%target, "removing files of another program from the directory of the volume");
        let directory = self.open_target(OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
        // Another program may have mounted there since.
        if self.mount_id_of(&directory)?.is_some() {
            return Err(failed(Errno::BUSY));
        }
        OpenDirectory::from_fd(directory, &self.path, fail_point.clone()).remove_entries()?;
        self.remove_directory().map_err(failed)
    }

    /// Whether the kubelet creates such a path for a CSI volume of a pod, and for nothing else.
    fn is_csi_volume(&self) -> bool {
        let parts: Vec<_> = self.relative_path.iter().collect();
        let [pods, _uid, volumes, plugin, _volume, mount] = parts.as_slice() else { return false };
        [*pods, *volumes, *plugin, *mount] == ["pods", "volumes", "kubernetes.io~csi", "mount"]
    }

    fn remove_directory(&self) -> Result<(), Errno> {
        let removed = || {
            let root = self.open_kubelet_dir()?;
            let name = self.relative_path.file_name().ok_or(Errno::INVAL)?;
            let above = self.relative_path.parent().filter(|above| !above.as_os_str().is_empty());
            let flags = OFlags::PATH | OFlags::DIRECTORY | NO_FOLLOW_FLAGS;
            let folder = match above {
                Some(above) => fs::openat2(&root, above, flags, Mode::empty(), RESOLVE_FLAGS)?,
                None => root,
            };
            fs::unlinkat(&folder, name, AtFlags::REMOVEDIR)
        };
        match removed() {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    fn layers(&self) -> Result<usize, VolumeDiskError> {
        // The mount table has resolved paths, so links in the path of the kubelet's directory are
        // resolved first.
        let path = match std::fs::canonicalize(&self.kubelet_dir) {
            Ok(dir) => dir.join(&self.relative_path),
            Err(_) => self.path.clone(),
        };
        Ok(MountTable::load()?.layer_count(&path))
    }

    fn open_kubelet_dir(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::open(&self.kubelet_dir, flags, Mode::empty())
    }

    fn open_target(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        fs::openat2(
            self.open_kubelet_dir()?,
            &self.relative_path,
            flags | NO_FOLLOW_FLAGS,
            Mode::empty(),
            RESOLVE_FLAGS,
        )
    }

    fn disk_error_at(&self, operation: DiskOperation, errno: Errno) -> VolumeDiskError {
        disk_error(operation, &self.path, errno)
    }
}

/// Whether the kernel can open paths without following links and can distinguish a mount from the
/// directory below it (Linux 5.8: openat2(2), and `STATX_MNT_ID` and `STATX_ATTR_MOUNT_ROOT` of
/// statx(2)). Returns `true` if `dir` does not exist.
pub(crate) fn has_required_kernel_features(dir: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(root) = fs::open(dir, flags, Mode::empty()) else { return true };
    let opened = fs::openat2(&root, c".", flags, Mode::empty(), RESOLVE_FLAGS);
    let stat = fs::statx(&root, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    opened.is_ok()
        && stat.is_ok_and(|stat| {
            stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
                && StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID)
        })
}

/// Whether an error means that the server of the file system is gone.
fn is_dead_mount_error(error: &VolumeDiskError) -> bool {
    [Errno::NOTCONN, Errno::STALE, Errno::IO, Errno::HOSTDOWN, Errno::CONNABORTED, Errno::TIMEDOUT]
        .iter()
        .any(|errno| error.source.raw_os_error() == Some(errno.raw_os_error()))
}

const NO_FOLLOW_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
const RESOLVE_FLAGS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// The mode with which the kubelet creates the parent directories.
const DIRECTORY_MODE: u32 = 0o750;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_kernel_has_the_required_features() {
        assert!(has_required_kernel_features(Path::new("/")));
        assert!(has_required_kernel_features(Path::new("/absent")));
    }
}
