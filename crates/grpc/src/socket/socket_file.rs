//! The file of a socket.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::error::{SocketError, SocketOperation};

/// The location of a socket: an open directory, which therefore cannot be replaced, and a file
/// name.
#[derive(Debug)]
pub(super) struct SocketLocation {
    directory: OwnedFd,
    name: OsString,
    /// The name until the socket listens. It starts with a dot, so the kubelet's plugin watcher
    /// ignores it.
    temporary_name: OsString,
    path: PathBuf,
}

impl SocketLocation {
    pub(super) fn open(path: &Path) -> Result<Self, SocketError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(SocketError::NoName { path: path.to_owned() });
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|error| io_error(SocketOperation::OpenDirectory, path, error.into()))?;
        let number = NEXT_SOCKET_NUMBER.fetch_add(1, Ordering::Relaxed);
        let hidden = format!(".socket-{}-{number}", std::process::id()).into();
        Ok(Self { directory, name: name.to_owned(), temporary_name: hidden, path: path.to_owned() })
    }

    /// The path of the temporary name through the open directory: short, whatever the directory's
    /// path.
    pub(super) fn temporary_path(&self) -> PathBuf {
        self.proc_fd_path(&self.temporary_name)
    }

    /// Fails if another process listens on the path, or if the file there is not a socket.
    pub(super) fn check_unoccupied(&self) -> Result<(), SocketError> {
        let Some(found) = self.stat(&self.name)? else { return Ok(()) };
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(SocketError::NotASocket { path: self.path.clone() });
        }
        match self.try_connect() {
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
            // The connection would block, because the backlog of a running server is full.
            Ok(()) | Err(Errno::AGAIN) => Err(SocketError::InUse { path: self.path.clone() }),
            Err(error) => Err(self.io_error(SocketOperation::Stat, error.into())),
        }
    }

    /// Removes a temporary socket that a killed process with the same id left behind.
    pub(super) fn remove_stale(&self) -> Result<(), SocketError> {
        self.remove(&self.temporary_name)
            .map_err(|error| self.io_error(SocketOperation::Remove, error))
    }

    /// Renames the socket to its final name, replacing a stale socket.
    pub(super) fn rename_into_place(self) -> Result<SocketFile, SocketError> {
        let identity = match self.stat(&self.temporary_name)? {
            Some(found) => SocketFileId::of(&found),
            None => return Err(self.io_error(SocketOperation::Stat, Errno::NOENT.into())),
        };
        let renamed = self.rename().or_else(|error| {
            if error != Errno::EXIST {
                return Err(self.io_error(SocketOperation::Rename, error.into()));
            }
            self.check_unoccupied()?;
            self.remove(&self.name)
                .map_err(|error| self.io_error(SocketOperation::Remove, error))?;
            self.rename().map_err(|error| match error {
                Errno::EXIST => SocketError::InUse { path: self.path.clone() },
                error => self.io_error(SocketOperation::Rename, error.into()),
            })
        });
        if let Err(error) = renamed {
            // Report the first error; the next bind removes the file if this removal fails, too.
            self.remove(&self.temporary_name).unwrap_or_default();
            return Err(error);
        }
        Ok(SocketFile { location: self, file_id: identity })
    }

    pub(super) fn io_error(&self, operation: SocketOperation, source: io::Error) -> SocketError {
        io_error(operation, &self.path, source)
    }

    fn rename(&self) -> Result<(), Errno> {
        let (from, to) = (&self.temporary_name, &self.name);
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&self.directory, from, &self.directory, to, flags)
    }

    fn stat(&self, name: &OsStr) -> Result<Option<Stat>, SocketError> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.io_error(SocketOperation::Stat, error.into())),
        }
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects without blocking.
    fn try_connect(&self) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::STREAM;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let address = SocketAddrUnix::new(self.proc_fd_path(&self.name))?;
        rustix::net::connect(&socket, &address)
    }

    fn proc_fd_path(&self, name: &OsStr) -> PathBuf {
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        path.push(name);
        path
    }
}

/// The file of a listening socket. Dropping it removes the file, if it still belongs to this
/// socket.
#[derive(Debug)]
pub struct SocketFile {
    location: SocketLocation,
    file_id: SocketFileId,
}

impl SocketFile {
    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.location.path
    }

    /// Whether a client that opens the path reaches this socket, that is, neither the file nor its
    /// directory was removed or replaced.
    pub fn is_in_place(&self) -> bool {
        rustix::fs::lstat(&self.location.path)
            .is_ok_and(|found| SocketFileId::of(&found) == self.file_id)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = self.location.stat(&self.location.name);
        if found.is_ok_and(|found| found.is_some_and(|it| SocketFileId::of(&it) == self.file_id)) {
            // The error cannot be reported; the next process removes a file that stays.
            self.location.remove(&self.location.name).unwrap_or_default();
        }
    }
}

/// The identity of a file: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketFileId {
    device: u64,
    inode: u64,
}

impl SocketFileId {
    fn of(found: &Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino }
    }
}

fn io_error(operation: SocketOperation, path: &Path, source: io::Error) -> SocketError {
    SocketError::Io { operation, path: path.to_owned(), source }
}

static NEXT_SOCKET_NUMBER: AtomicU32 = AtomicU32::new(0);
