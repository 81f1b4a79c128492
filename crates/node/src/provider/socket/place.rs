//! Where a provider's socket is, and whether to trust it.
//!
//! Trust on a node is by file permissions: whoever could put a socket where a provider's is
//! expected would be told tokens and secrets of pods. A socket is trusted if it, every directory
//! above it and the process behind it belong to root (or to the user that this runs as), and nobody
//! else can change what those directories hold.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use crate::provider::name::ProviderName;

/// There is no connection to a provider.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    /// Nobody listens (yet).
    #[error("nobody listens on {}", path.display())]
    NotListening {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file could not be looked at.
    #[error("could not look at {}", path.display())]
    Look {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Somebody else may have put it there, or listens on it.
    #[error("{} is not trusted: {reason}", path.display())]
    Untrusted {
        /// The file or directory.
        path: PathBuf,
        /// The rule that it breaks.
        reason: Distrust,
    },
}

/// Why a path or a process is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Distrust {
    /// It belongs to somebody else.
    #[error("it belongs to user {owner}, and a provider's socket belongs to root")]
    Owner {
        /// The user id.
        owner: u32,
    },
    /// Others can change it.
    #[error("mode {mode:04o} lets others change it")]
    Writable {
        /// The permission bits.
        mode: u32,
    },
    /// It is no socket.
    #[error("it is not a socket")]
    NotASocket,
    /// Whoever listens runs as somebody else.
    #[error("the process that listens runs as user {user}, and a provider runs as root")]
    Listener {
        /// The user id.
        user: u32,
    },
}

/// The socket of a provider: in the first directory that has one. What it is, is not looked at yet.
pub(super) fn find(name: &ProviderName, directories: &[PathBuf]) -> Option<PathBuf> {
    let file = format!("{name}.sock");
    directories
        .iter()
        .map(|directory| directory.join(&file))
        .find(|path| std::fs::symlink_metadata(path).is_ok())
}

/// Connects to a socket that is trusted.
pub(super) async fn open(path: &Path) -> Result<UnixStream, PlaceError> {
    let own = rustix::process::geteuid().as_raw();
    check(path, own)?;
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| PlaceError::NotListening { path: path.to_owned(), source })?;
    // The file may have been exchanged since, or be a link to another one: this is the truth.
    let look = |source| PlaceError::Look { path: path.to_owned(), source };
    let user = stream.peer_cred().map_err(look)?.uid();
    if is_trusted(user, own) {
        return Ok(stream);
    }
    let reason = Distrust::Listener { user };
    Err(PlaceError::Untrusted { path: path.to_owned(), reason })
}

/// Checks the socket and everything above it, by the names that were given and by the real ones,
/// as the user `own`.
pub(super) fn check(path: &Path, own: u32) -> Result<(), PlaceError> {
    let socket = look(path)?;
    let distrust = |reason| Err(PlaceError::Untrusted { path: path.to_owned(), reason });
    if !socket.file_type().is_socket() {
        return distrust(Distrust::NotASocket);
    }
    if !is_trusted(socket.uid(), own) {
        return distrust(Distrust::Owner { owner: socket.uid() });
    }
    let parent = path.parent().unwrap_or(path);
    let real = parent
        .canonicalize()
        .map_err(|source| PlaceError::Look { path: parent.to_owned(), source })?;
    for start in [parent, &real] {
        for (above, directory) in start.ancestors().enumerate() {
            if !directory.as_os_str().is_empty() {
                check_directory(directory, above > 0, own)?;
            }
        }
    }
    Ok(())
}

/// In a directory with the sticky bit (`/tmp`) others can add names and not exchange ours, which is
/// good enough above the directory of the socket.
fn check_directory(directory: &Path, may_be_sticky: bool, own: u32) -> Result<(), PlaceError> {
    let metadata = look(directory)?;
    let distrust = |reason| Err(PlaceError::Untrusted { path: directory.to_owned(), reason });
    if !is_trusted(metadata.uid(), own) {
        return distrust(Distrust::Owner { owner: metadata.uid() });
    }
    let mode = metadata.mode() & 0o7777;
    let is_sticky = mode & 0o1000 != 0;
    // A link has every bit set, and its own bits mean nothing.
    if metadata.is_symlink() || mode & 0o022 == 0 || (may_be_sticky && is_sticky) {
        return Ok(());
    }
    distrust(Distrust::Writable { mode })
}

fn look(path: &Path) -> Result<std::fs::Metadata, PlaceError> {
    std::fs::symlink_metadata(path)
        .map_err(|source| PlaceError::Look { path: path.to_owned(), source })
}

const fn is_trusted(user: u32, own: u32) -> bool {
    user == 0 || user == own
}
