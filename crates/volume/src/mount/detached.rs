//! A tmpfs that is not attached to a mount point yet.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use super::{MountOperation, TmpfsMount, TmpfsMountError, TmpfsOptions, mount_error};

/// A tmpfs that is not attached to a mount point yet. It is invisible and disappears with this
/// process. A volume that is written first and attached when it is complete is never visible empty.
#[derive(Debug)]
pub struct DetachedMount {
    handle: OwnedFd,
    dir: PathBuf,
}

impl DetachedMount {
    /// Creates a tmpfs that is intended for `dir`. Returns `None` if the kernel or sandbox does not
    /// support detached mounts (Linux before 5.2).
    pub fn create(dir: &Path, options: TmpfsOptions) -> Result<Option<Self>, TmpfsMountError> {
        match create_detached_tmpfs(options) {
            Ok(handle) => Ok(Some(Self { handle, dir: dir.to_owned() })),
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
            Err(errno) => Err(mount_error(MountOperation::Mount, dir, errno)),
        }
    }

    /// Opens the root directory of the file system for writing.
    pub fn open(&self) -> Result<OwnedFd, TmpfsMountError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.handle, c".", flags, Mode::empty())
            .map_err(|errno| mount_error(MountOperation::Mount, &self.dir, errno))
    }

    /// Mounts the tmpfs on the open directory `target` in one step.
    pub fn attach(self, target: &OwnedFd) -> Result<TmpfsMount, TmpfsMountError> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.handle, c"", target, c"", flags)
            .map_err(|errno| mount_error(MountOperation::Mount, &self.dir, errno))?;
        Ok(TmpfsMount { dir: self.dir, is_persistent: true })
    }
}

fn create_detached_tmpfs(options: TmpfsOptions) -> Result<OwnedFd, Errno> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, c"source", c"tmpfs")?;
    for (key, value) in options.mount_options() {
        fsconfig_set_string(&context, key, value)?;
    }
    match fsconfig_set_flag(&context, c"noswap") {
        // Kernels before 6.4, and user namespaces, do not support `noswap`.
        Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
