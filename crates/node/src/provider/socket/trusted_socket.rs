//! Finds the socket of a provider and checks whether to trust it.
//!
//! Trust on a node is based on file permissions: a user who could create a socket at the path of a provider
//! would receive the tokens and secrets of pods. A socket is trusted if the socket, every directory above it
//! and the process behind it belong to root (or to the user of this process), and no other user can change
//! those directories.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use crate::provider::name::ProviderName;

/// The connection to a provider failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketConnectError {
    /// No process listens on the socket (yet).
    #[error("no process listens on {}", path.display())]
    NotListening {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The metadata of a file could not be read.
    #[error("could not inspect {}", path.display())]
    Inspect {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// Another user may have created the socket, or listens on it.
    #[error("{} is not trusted: {reason}", path.display())]
    Untrusted {
        /// The path of the file or directory.
        path: PathBuf,
        /// The violated rule.
        reason: UntrustedSocketReason,
    },
}

/// The reason why a path or a process is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UntrustedSocketReason {
    /// Another user owns it.
    #[error("it belongs to user {owner}, but a provider's socket must belong to root")]
    Owner {
        /// The user id.
        owner: u32,
    },
    /// Other users can change it.
    #[error("mode {mode:04o} lets others change it")]
    Writable {
        /// The permission bits.
        mode: u32,
    },
    /// The file is not a socket.
    #[error("it is not a socket")]
    NotSocket,
    /// The listening process runs as another user.
    #[error("the listening process runs as user {user}, but a provider must run as root")]
    Listener {
        /// The user id.
        user: u32,
    },
}

/// Returns the path of a provider's socket in the first directory that has one, without any check.
pub(super) fn find_socket(name: &ProviderName, directories: &[PathBuf]) -> Option<PathBuf> {
    let file = format!("{name}.sock");
    directories
        .iter()
        .map(|directory| directory.join(&file))
        .find(|path| std::fs::symlink_metadata(path).is_ok())
}

/// Connects to a socket after checking that it is trusted.
pub(super) async fn connect_trusted(path: &Path) -> Result<UnixStream, SocketConnectError> {
    let own = rustix::process::geteuid().as_raw();
    check_trust(path, own)?;
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| SocketConnectError::NotListening { path: path.to_owned(), source })?;
    // The file may have been replaced since the check, or be a symlink; the peer credentials are
    // authoritative.
    let inspect_error = |source| SocketConnectError::Inspect { path: path.to_owned(), source };
    let user = stream.peer_cred().map_err(inspect_error)?.uid();
    if is_trusted_user(user, own) {
        return Ok(stream);
    }
    let reason = UntrustedSocketReason::Listener { user };
    Err(SocketConnectError::Untrusted { path: path.to_owned(), reason })
}

/// Checks the socket and every directory above it as the user `own`, both by the given and by the canonical
/// path.
pub(super) fn check_trust(path: &Path, own: u32) -> Result<(), SocketConnectError> {
    let socket = read_metadata(path)?;
    let untrusted_reason =
        |reason| Err(SocketConnectError::Untrusted { path: path.to_owned(), reason });
    if !socket.file_type().is_socket() {
        return untrusted_reason(UntrustedSocketReason::NotSocket);
    }
    if !is_trusted_user(socket.uid(), own) {
        return untrusted_reason(UntrustedSocketReason::Owner { owner: socket.uid() });
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

/// Checks a directory. In a directory with the sticky bit (`/tmp`), other users can add names but not replace
/// existing ones, which is sufficient above the directory of the socket.
fn check_directory_trust(
    directory: &Path,
    may_be_sticky: bool,
    own: u32,
) -> Result<(), SocketConnectError> {
    let metadata = read_metadata(directory)?;
    let untrusted_reason =
        |reason| Err(SocketConnectError::Untrusted { path: directory.to_owned(), reason });
    if !is_trusted_user(metadata.uid(), own) {
        return untrusted_reason(UntrustedSocketReason::Owner { owner: metadata.uid() });
    }
    let mode = metadata.mode() & 0o7777;
    let is_sticky = mode & 0o1000 != 0;
    // The mode bits of a symlink are always set and have no meaning.
    if metadata.is_symlink() || mode & 0o022 == 0 || (may_be_sticky && is_sticky) {
        return Ok(());
    }
    untrusted_reason(UntrustedSocketReason::Writable { mode })
}

fn read_metadata(path: &Path) -> Result<std::fs::Metadata, SocketConnectError> {
    std::fs::symlink_metadata(path)
        .map_err(|source| SocketConnectError::Inspect { path: path.to_owned(), source })
}

const fn is_trusted_user(user: u32, own: u32) -> bool {
    user == 0 || user == own
}
