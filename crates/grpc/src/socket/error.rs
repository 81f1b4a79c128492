//! What can go wrong with a socket.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::MAX_SOCKET_PATH;

/// A socket could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The path does not fit into the address of a socket.
    #[error(
        "{} has {length} bytes, and a socket's path has {MAX_SOCKET_PATH} at most",
        path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// Another process serves there.
    #[error("somebody listens on {} already", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// There is a file, a directory or a link, which is not ours to remove.
    #[error("{} is there and is no socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The path has no name of a file.
    #[error("`{}` names no file", path.display())]
    NoName {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("could not {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: SocketOperation,
        /// The path.
        path: PathBuf,
        /// What came back.
        #[source]
        source: io::Error,
    },
}

impl SocketError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "choose a directory with a shorter path",
            Self::InUse { .. } => "end the process that serves there, or choose another path",
            Self::NotASocket { .. } => "move it away, or choose another path",
            Self::NoName { .. } => "give the path of the socket itself, not of its directory",
            Self::Io { .. } => "see that the directory exists and can be written",
        }
    }

    /// Whether the same call may succeed later with nothing changed in it.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::Io { .. })
    }
}

/// What was tried with a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOperation {
    /// To open its directory.
    OpenDirectory,
    /// To look at what is there.
    Stat,
    /// To make a socket.
    Create,
    /// To bind it and listen.
    Bind,
    /// To give it its name.
    Rename,
    /// To remove what is there.
    Remove,
}

impl fmt::Display for SocketOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OpenDirectory => "open the directory of",
            Self::Stat => "look at",
            Self::Create => "make the socket",
            Self::Bind => "listen on",
            Self::Rename => "give its name to",
            Self::Remove => "remove",
        })
    }
}
