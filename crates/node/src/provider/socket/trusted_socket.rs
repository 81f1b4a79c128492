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
pub(super) enum SocketConnectError {
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
    Inspect {
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
        reason: UntrustedSocketReason,
    },
}

/// Why a path or a process is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UntrustedSocketReason {
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
    NotSocket,
    /// Whoever listens runs as somebody else.
    #[error("the process that listens runs as user {user}, and a provider runs as root")]
    Listener {
        /// The user id.
        user: u32,
    },
}

/// The socket of a provider: in the first directory that has one. What it is, is not looked at yet.
pub(super) fn find_socket(name: &ProviderName, directories: &[PathBuf]) -> Option<PathBuf> {
    let file = format!("{name}.sock");
    directories
        .iter()
        .map(|directory| directory.join(&file))
        .find(|path| std::fs::symlink_metadata(path).is_ok())
}

/// Connects to a socket that is trusted.
pub(super) async fn connect_trusted(path: &Path) -> Result<UnixStream, SocketConnectError> {
    let own = rustix::process::geteuid().as_raw();
    check_trust(path, own)?;
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| SocketConnectError::NotListening { path: path.to_owned(), source })?;
    // The file may have been exchanged since, or be a link to another one: this is the truth.
    let look = |source| SocketConnectError::Inspect { path: path.to_owned(), source };
    let user = stream.peer_cred().map_err(look)?.uid();
    if is_trusted_user(user, own) {
        return Ok(stream);
    }
    let reason = UntrustedSocketReason::Listener { user };
    Err(SocketConnectError::Untrusted { path: path.to_owned(), reason })
}

/// Checks the socket and everything above it, by the names that were given and by the real ones,
/// as the user `own`.
pub(super) fn check_trust(path: &Path, own: u32) -> Result<(), SocketConnectError> {
    let socket = read_metadata(path)?;
    let distrust = |reason| Err(SocketConnectError::Untrusted { path: path.to_owned(), reason });
    if !socket.file_type().is_socket() {
        return distrust(UntrustedSocketReason::NotSocket);
    }
    if !is_trusted_user(socket.uid(), own) {
        return distrust(UntrustedSocketReason::Owner { owner: socket.uid() });
    }
    let parent = path.parent().unwrap_or(path);
    let real = parent
        .canonicalize()
        .map_err(|source| SocketConnectError::Inspect { path: parent.to_owned(), source })?;
    for start in [parent, &real] {
        for (above, directory) in start.ancestors().enumerate() {
            if !directory.as_os_str().is_empty() {
                check_directory_trust(directory, above > 0, own)?;
            }
        }
    }
    Ok(())
}

/// In a directory with the sticky bit (`/tmp`) others can add names and not exchange ours, which is
/// good enough above the directory of the socket.
fn check_directory_trust(
    directory: &Path,
    may_be_sticky: bool,
    own: u32,
) -> Result<(), SocketConnectError> {
    let metadata = read_metadata(directory)?;
    let distrust =
        |reason| Err(SocketConnectError::Untrusted { path: directory.to_owned(), reason });
    if !is_trusted_user(metadata.uid(), own) {
        return distrust(UntrustedSocketReason::Owner { owner: metadata.uid() });
    }
    let mode = metadata.mode() & 0o7777;
    let is_sticky = mode & 0o1000 != 0;
    // A link has every bit set, and its own bits mean nothing.
    if metadata.is_symlink() || mode & 0o022 == 0 || (may_be_sticky && is_sticky) {
        return Ok(());
    }
    distrust(UntrustedSocketReason::Writable { mode })
}

fn read_metadata(path: &Path) -> Result<std::fs::Metadata, SocketConnectError> {
    std::fs::symlink_metadata(path)
        .map_err(|source| SocketConnectError::Inspect { path: path.to_owned(), source })
}

const fn is_trusted_user(user: u32, own: u32) -> bool {
    user == 0 || user == own
}
