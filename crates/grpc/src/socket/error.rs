//! The errors of sockets.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;

use super::MAX_SOCKET_PATH;

/// A socket could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The path is too long for a socket address.
    #[error(
        "{} has {length} bytes, and a socket's path has {MAX_SOCKET_PATH} at most",
        path.display()
    )]
    TooLong {
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// Another process listens on the path.
    #[error("another process already listens on {}", path.display())]
    InUse { path: PathBuf },
    /// A file, directory or link exists at the path; it is not removed.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket { path: PathBuf },
    /// The path has no file name.
    #[error("`{}` has no file name", path.display())]
    NoName { path: PathBuf },
    /// A system call failed.
    #[error("could not {operation} {}", path.display())]
    Io {
        /// The operation that failed.
        operation: SocketOperation,
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

impl SocketError {
    /// Whether the same call may succeed later with nothing changed in it.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::Io { .. })
    }
}

impl ErrorHint for SocketError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::TooLong { .. } => "choose a directory with a shorter path",
            Self::InUse { .. } => "stop the process that listens there, or choose another path",
            Self::NotASocket { .. } => "move it away, or choose another path",
            Self::NoName { .. } => "give the path of the socket itself, not of its directory",
            Self::Io { .. } => "see that the directory exists and can be written",
        }))
    }
}

/// An operation on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOperation {
    /// Opening the directory of the socket.
    OpenDirectory,
    /// Checking the file at the path.
    Stat,
    /// Creating the socket.
    Create,
    /// Binding and listening.
    Bind,
    /// Renaming the socket to its final name.
    Rename,
    /// Removing a stale socket.
    Remove,
}

impl fmt::Display for SocketOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OpenDirectory => "open the directory of",
            Self::Stat => "check",
            Self::Create => "create the socket",
            Self::Bind => "listen on",
            Self::Rename => "rename the socket to",
            Self::Remove => "remove",
        })
    }
}
