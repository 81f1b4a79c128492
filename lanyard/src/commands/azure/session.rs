//! The descriptor file that a running `lanyard azure serve` writes for `lanyard azure env` and for clients:
//! its address and the paths of the certificates to trust.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::shell_exports::{ShellExports, TrustFiles, connectable_address, replace_file};
use super::test_credentials::LocalTestCredentials;
use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// A running local Azure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServeSession {
    /// The address of the proxy, of IMDS and of the control API.
    pub(crate) address: SocketAddr,
    /// The URL of the proxy.
    pub(crate) proxy: String,
    /// The URL of the control API.
    pub(crate) control: String,
    /// The path of the local CA certificate, in PEM.
    pub(crate) ca_file: PathBuf,
    /// The path of the system's roots and the local CA certificate, in PEM.
    pub(crate) ca_bundle: PathBuf,
    /// The process ID of the server.
    pub(crate) process: u32,
}

impl ServeSession {
    /// Writes the descriptor of a local Azure into `directory`. Returns an error if the directory belongs to
    /// another running local Azure.
    pub(crate) fn write_descriptor(
        directory: &Path,
        address: SocketAddr,
        ca_pem: &str,
        environment: &ProcessEnvironment,
    ) -> Result<Self, CommandError> {
        ensure_owned_directory(directory).map_err(|error| {
            CommandError::unavailable(format!("{} cannot be used", directory.display()))
                .with_cause(&error)
                .with_hint("choose a directory of your own with --state")
        })?;
        // The caller has bound its port, so a descriptor with the same address is left over from a killed
        // process.
        let address = connectable_address(address);
        if let Ok(running) = Self::load(directory)
            && running.address != address
        {
            let message = format!("process {} serves a local Azure already", running.process);
            return Err(CommandError::unavailable(message)
                .with_hint("end it, or give this one a directory of its own with --state"));
        }
        let files = TrustFiles::write(directory, ca_pem, environment)?;
        let session = Self {
            address,
            proxy: format!("http://{address}"),
            control: format!("http://{address}/lanyard/v1"),
            ca_file: files.local_ca,
            ca_bundle: files.bundle,
            process: std::process::id(),
        };
        serde_json::to_vec_pretty(&session)
            .map_err(io::Error::other)
            .and_then(|text| replace_file(&descriptor_path(directory), &text))
            .map_err(|error| {
                CommandError::unavailable(format!("cannot write into {}", directory.display()))
                    .with_cause(&error)
            })?;
        Ok(session)
    }

    /// Reads the descriptor of the local Azure that runs with this directory.
    pub(crate) fn load(directory: &Path) -> Result<Self, CommandError> {
        let path = descriptor_path(directory);
        let none = |error: &dyn std::error::Error| {
            CommandError::unavailable(format!("no local Azure is running: {}", path.display()))
                .with_cause(error)
                .with_hint(
                    "start one with `lanyard azure serve`, with the same --state if it has one",
                )
        };
        // A user who can write the descriptor could redirect this client's requests, including its tokens.
        ensure_owned_directory(directory).map_err(|error| none(&error))?;
        let text = fs::read(&path).map_err(|error| none(&error))?;
        let session: Self = serde_json::from_slice(&text).map_err(|error| none(&error))?;
        // The descriptor of a killed process remains, so check that its port accepts a connection.
        std::net::TcpStream::connect(session.address).map_err(|error| none(&error))?;
        Ok(session)
    }

    /// Removes the descriptor. The certificates stay for clients that are still running.
    pub(crate) fn remove_descriptor(&self) {
        let Some(directory) = self.ca_file.parent() else { return };
        let path = descriptor_path(directory);
        let is_own = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Self>(&text).ok())
            .is_some_and(|session| session.process == self.process);
        if is_own && let Err(error) = fs::remove_file(path) {
            tracing::debug!(%error, "could not remove the descriptor of the local Azure");
        }
    }

    /// The environment variables for clients.
    pub(crate) fn exports(&self) -> ShellExports {
        let directory = self.ca_file.parent().unwrap_or(Path::new("."));
        let exports = ShellExports::new(self.address, &TrustFiles::in_directory(directory));
        match LocalTestCredentials::load(directory) {
            Some(credentials) if credentials.is_exported() => {
                exports.with_variables(credentials.variables())
            }
            _ => exports,
        }
    }
}

/// The directory of the session: the state directory, or a temporary directory per user.
pub(crate) fn session_directory(state: Option<&Path>, environment: &ProcessEnvironment) -> PathBuf {
    match (state, &environment.runtime_directory) {
        (Some(state), _) => state.to_owned(),
        (None, Some(runtime)) => runtime.join("lanyard-azure"),
        (None, None) => {
            let user = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("lanyard-azure-{user}"))
        }
    }
}

/// Creates the directory if it is missing, and refuses a directory that other users can write to: in a shared
/// temporary directory, other users can guess its name.
fn ensure_owned_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let metadata = fs::symlink_metadata(directory)?;
    let refuse = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !metadata.is_dir() {
        return refuse("it is a link, not a directory");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return refuse("it belongs to another user");
    }
    if metadata.mode() & 0o022 != 0 {
        return refuse("other users can write into it");
    }
    Ok(())
}

fn descriptor_path(directory: &Path) -> PathBuf {
    directory.join("azure.json")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn write_test_descriptor(
        directory: &Path,
        address: SocketAddr,
    ) -> Result<ServeSession, CommandError> {
        ServeSession::write_descriptor(directory, address, "CA\n", &ProcessEnvironment::default())
    }

    #[test]
    fn session_is_loaded_only_while_its_port_answers() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let published = write_test_descriptor(directory.path(), address).unwrap();
        assert_eq!(ServeSession::load(directory.path()).unwrap(), published);
        drop(listener);
        let error = ServeSession::load(directory.path()).unwrap_err().to_string();
        assert!(error.contains("no local Azure is running"), "{error}");
        assert!(error.contains("lanyard azure serve"), "{error}");
    }

    #[test]
    fn second_session_in_one_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let first =
            write_test_descriptor(directory.path(), listener.local_addr().unwrap()).unwrap();
        let other = SocketAddr::from(([127, 0, 0, 1], 1));
        let error = write_test_descriptor(directory.path(), other).unwrap_err().to_string();
        assert!(error.contains("already"), "{error}");
        let stranger = ServeSession { process: first.process + 1, ..first.clone() };
        stranger.remove_descriptor();
        assert_eq!(ServeSession::load(directory.path()).unwrap(), first);
        first.remove_descriptor();
        assert!(ServeSession::load(directory.path()).is_err());
    }

    #[test]
    fn session_of_killed_process_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let killed = write_test_descriptor(directory.path(), address).unwrap();
        assert_eq!(write_test_descriptor(directory.path(), address).unwrap(), killed);
    }

    #[test]
    fn session_directory_must_be_private_and_no_link() {
        let parent = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let open = parent.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            write_test_descriptor(&open, address).unwrap_err().to_string().contains("other users")
        );
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        assert!(write_test_descriptor(&link, address).unwrap_err().to_string().contains("link"));
    }
}
