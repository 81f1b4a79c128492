//! The name of a socket in the file system.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::error::{Operation, SocketError};

/// Where a socket is to appear: a directory, held open so that it cannot be exchanged, and a name.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    name: OsString,
    /// The name until it listens. The kubelet's plugin watcher leaves names with a dot alone.
    hidden: OsString,
    path: PathBuf,
}

impl Place {
    pub(super) fn open(path: &Path) -> Result<Self, SocketError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(SocketError::NoName { path: path.to_owned() });
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|error| failure(Operation::OpenDirectory, path, error.into()))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let hidden = format!(".socket-{}-{number}", std::process::id()).into();
        Ok(Self { directory, name: name.to_owned(), hidden, path: path.to_owned() })
    }

    /// The hidden name, by way of the open directory: short, whatever the directory's path.
    pub(super) fn hidden_path(&self) -> PathBuf {
        self.through_directory(&self.hidden)
    }

    /// Fails where the name is taken by a living server or by something that is no socket.
    pub(super) fn refuse_occupied(&self) -> Result<(), SocketError> {
        let Some(found) = self.look(&self.name)? else { return Ok(()) };
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(SocketError::NotASocket { path: self.path.clone() });
        }
        match self.knock() {
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
            // Would block: there are so many callers that they queue.
            Ok(()) | Err(Errno::AGAIN) => Err(SocketError::InUse { path: self.path.clone() }),
            Err(error) => Err(self.failure(Operation::Look, error.into())),
        }
    }

    /// Removes what a process of the same id left under the hidden name when it was killed.
    pub(super) fn sweep(&self) -> Result<(), SocketError> {
        self.remove(&self.hidden).map_err(|error| self.failure(Operation::Remove, error))
    }

    /// Gives the socket its name, in place of a dead one.
    pub(super) fn reveal(self) -> Result<SocketFile, SocketError> {
        let identity = match self.look(&self.hidden)? {
            Some(found) => Identity::of(&found),
            None => return Err(self.failure(Operation::Look, Errno::NOENT.into())),
        };
        let renamed = self.rename().or_else(|error| {
            if error != Errno::EXIST {
                return Err(self.failure(Operation::Rename, error.into()));
            }
            self.refuse_occupied()?;
            self.remove(&self.name).map_err(|error| self.failure(Operation::Remove, error))?;
            self.rename().map_err(|error| match error {
                Errno::EXIST => SocketError::InUse { path: self.path.clone() },
                error => self.failure(Operation::Rename, error.into()),
            })
        });
        if let Err(error) = renamed {
            // What is reported is the first failure; the next bind sweeps.
            self.remove(&self.hidden).unwrap_or_default();
            return Err(error);
        }
        Ok(SocketFile { place: self, identity })
    }

    pub(super) fn failure(&self, operation: Operation, source: io::Error) -> SocketError {
        failure(operation, &self.path, source)
    }

    fn rename(&self) -> Result<(), Errno> {
        let (from, to) = (&self.hidden, &self.name);
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&self.directory, from, &self.directory, to, flags)
    }

    fn look(&self, name: &OsStr) -> Result<Option<Stat>, SocketError> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failure(Operation::Look, error.into())),
        }
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects without waiting.
    fn knock(&self) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::STREAM;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let address = SocketAddrUnix::new(self.through_directory(&self.name))?;
        rustix::net::connect(&socket, &address)
    }

    fn through_directory(&self, name: &OsStr) -> PathBuf {
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        path.push(name);
        path
    }
}

/// The name of a listening socket. Dropping it removes the name, if it still is this socket's.
#[derive(Debug)]
pub struct SocketFile {
    place: Place,
    identity: Identity,
}

impl SocketFile {
    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Whether a client that opens the path reaches this socket: nobody removed or replaced it or
    /// its directory.
    pub fn is_in_place(&self) -> bool {
        rustix::fs::lstat(&self.place.path).is_ok_and(|found| Identity::of(&found) == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = self.place.look(&self.place.name);
        if found.is_ok_and(|found| found.is_some_and(|it| Identity::of(&it) == self.identity)) {
            // There is nobody to tell; a name that stays is swept by the next process.
            self.place.remove(&self.place.name).unwrap_or_default();
        }
    }
}

/// Which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(found: &Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino }
    }
}

fn failure(operation: Operation, path: &Path, source: io::Error) -> SocketError {
    SocketError::Io { operation, path: path.to_owned(), source }
}

static NEXT: AtomicU32 = AtomicU32::new(0);
