//! A tmpfs that is mounted nowhere yet.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use super::{MountOperation, TmpfsMount, TmpfsMountError, TmpfsOptions, mount_error};

/// A tmpfs that is mounted nowhere yet: nobody sees it, and it goes with this process, however
/// that ends. Filled first and attached when it is whole, it is never seen empty.
#[derive(Debug)]
pub(crate) struct DetachedMount {
    handle: OwnedFd,
    dir: PathBuf,
}

impl DetachedMount {
    /// Makes a tmpfs that is meant for `dir`; nothing where this kernel or sandbox knows no
    /// mounts without a place (Linux before 5.2).
    pub(crate) fn create(dir: &Path, shape: TmpfsOptions) -> Result<Option<Self>, TmpfsMountError> {
        match create_detached_tmpfs(shape) {
            Ok(handle) => Ok(Some(Self { handle, dir: dir.to_owned() })),
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
            Err(errno) => Err(mount_error(MountOperation::Mount, dir, errno)),
        }
    }

    /// The root of the file system, to write into.
    pub(crate) fn open(&self) -> Result<OwnedFd, TmpfsMountError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.handle, c".", flags, Mode::empty())
            .map_err(|errno| mount_error(MountOperation::Mount, &self.dir, errno))
    }

    /// Mounts it on the open directory `target`, in one step.
    pub(crate) fn attach(self, target: &OwnedFd) -> Result<TmpfsMount, TmpfsMountError> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.handle, c"", target, c"", flags)
            .map_err(|errno| mount_error(MountOperation::Mount, &self.dir, errno))?;
        Ok(TmpfsMount { dir: self.dir, is_persistent: true })
    }
}

fn create_detached_tmpfs(shape: TmpfsOptions) -> Result<OwnedFd, Errno> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, c"source", c"tmpfs")?;
    for (key, value) in shape.mount_options() {
        fsconfig_set_string(&context, key, value)?;
    }
    match fsconfig_set_flag(&context, c"noswap") {
        // Kernels before 6.4, and user namespaces, know no `noswap`.
        Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
