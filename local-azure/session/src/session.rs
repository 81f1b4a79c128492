//! The descriptor file that a running `lanyard azure serve` or `lanyard up` writes for `lanyard azure env` and for
//! clients: its address and the paths of the certificates to trust.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file_replacement::replace_file;
use crate::session_environment::SessionEnvironment;
use crate::session_error::SessionError;
use crate::shell_exports::{ShellExports, TrustFiles, connectable_address};
use crate::test_credentials::LocalTestCredentials;

/// The description of a running local Azure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServeSession {
    /// The address of the proxy, of IMDS and of the control API.
    pub address: SocketAddr,
    /// The URL of the proxy.
    pub proxy: String,
    /// The URL of the control API.
    pub control: String,
    /// The URL of Azure Resource Manager in the custom cloud; `None` without `--cloud-domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_cloud: Option<String>,
    /// The path of the local CA certificate, in PEM.
    pub ca_file: PathBuf,
    /// The path of the system's roots and the local CA certificate, in PEM.
    pub ca_bundle: PathBuf,
    /// The process ID of the server.
    pub process: u32,
}

impl ServeSession {
    /// Writes the descriptor of a local Azure into `directory`. Returns an error if the directory belongs to
    /// another running local Azure.
    pub fn write_descriptor(
        directory: &Path,
        address: SocketAddr,
        custom_cloud: Option<String>,
        ca_pem: &str,
        environment: &SessionEnvironment,
    ) -> Result<Self, SessionError> {
        ensure_owned_directory(directory).map_err(|source| SessionError::Directory {
            directory: directory.to_owned(),
            source,
        })?;
        // The caller has bound its port, so a killed process left a descriptor with the same
        // address.
        let address = connectable_address(address);
        if let Ok(running) = Self::load(directory)
            && running.address != address
        {
            return Err(SessionError::AlreadyServing { process: running.process });
        }
        let files = TrustFiles::write(directory, ca_pem, environment)?;
        let session = Self {
            address,
            proxy: format!("http://{address}"),
            control: format!("http://{address}/lanyard/v1"),
            custom_cloud,
            ca_file: files.local_ca,
            ca_bundle: files.bundle,
            process: std::process::id(),
        };
        serde_json::to_vec_pretty(&session)
            .map_err(io::Error::other)
            .and_then(|text| replace_file(&descriptor_path(directory), &text))
            .map_err(|source| SessionError::WriteDescriptor {
                directory: directory.to_owned(),
                source,
            })?;
        Ok(session)
    }

    /// Finds a running local Azure:
    ///
    /// - with a state directory, the one that runs with it, and no other;
    /// - otherwise, with `LANYARD_AZURE_CONTROL`, the one with that control URL, and no other;
    /// - otherwise, that of the user's `lanyard azure serve` or, if it does not run, that of the only running
    ///   `lanyard up`. `run_directories` returns the directories of all runs of `lanyard up`.
    ///
    /// # Errors
    ///
    /// No such local Azure runs, or several `lanyard up` are running.
    pub fn find(
        state: Option<&Path>,
        environment: &SessionEnvironment,
        run_directories: impl FnOnce() -> Vec<PathBuf>,
    ) -> Result<Self, SessionError> {
        let directory = session_directory(state, environment);
        let control = match &environment.local_azure_control {
            Some(control) if state.is_none() => control.trim_end_matches('/'),
            None if state.is_none() => {
                return Self::load(&directory)
                    .or_else(|not_running| Self::load_from_up(&run_directories(), not_running));
            }
            _ => return Self::load(&directory),
        };
        // `lanyard azure env` exports the certificates of the session, which are in its directory.
        let certificates = environment.ssl_cert_file.as_deref().and_then(Path::parent);
        let directories = certificates.into_iter().chain([directory.as_path()]);
        let mut sessions = directories.filter_map(|directory| Self::load(directory).ok());
        sessions
            .find(|session| session.control == control)
            .ok_or_else(|| SessionError::NotRunningAt { control: control.to_owned() })
    }

    /// Finds the local Azure of the running `lanyard up`; `not_running` is the error without one.
    fn load_from_up(
        directories: &[PathBuf],
        not_running: SessionError,
    ) -> Result<Self, SessionError> {
        // A run without a descriptor has not started to serve clients.
        let mut sessions: Vec<_> =
            directories.iter().filter_map(|path| Self::read_descriptor(path).ok()).collect();
        match sessions.len() {
            0 => Err(not_running),
            1 => Ok(sessions.remove(0)),
            _ => {
                let directories =
                    sessions.iter().map(|session| session.directory().to_owned()).collect();
                Err(SessionError::SeveralRuns { directories })
            }
        }
    }

    /// Reads the descriptor of the local Azure that runs with a session directory.
    pub(crate) fn load(directory: &Path) -> Result<Self, SessionError> {
        let session = Self::read_descriptor(directory)?;
        // The descriptor of a killed process remains, so check that its port accepts a connection.
        std::net::TcpStream::connect(session.address)
            .map_err(|error| not_running_error(directory, error))?;
        Ok(session)
    }

    /// Reads the descriptor in a session directory, also if its process has ended.
    fn read_descriptor(directory: &Path) -> Result<Self, SessionError> {
        // A user who can write the descriptor could redirect this client's requests, including its tokens.
        require_owned_directory(directory).map_err(|error| not_running_error(directory, error))?;
        let text = fs::read(descriptor_path(directory))
            .map_err(|error| not_running_error(directory, error))?;
        serde_json::from_slice(&text).map_err(|error| not_running_error(directory, error))
    }

    /// Removes the descriptor. The certificates stay for clients that are still running.
    pub fn remove_descriptor(&self) {
        let path = descriptor_path(self.directory());
        let is_own = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Self>(&text).ok())
            .is_some_and(|session| session.process == self.process);
        if is_own && let Err(error) = fs::remove_file(path) {
            tracing::debug!(%error, "could not remove the descriptor of the local Azure");
        }
    }

    /// The session directory.
    pub fn directory(&self) -> &Path {
        self.ca_file.parent().unwrap_or(Path::new("."))
    }

    /// The environment variables for clients of this local Azure.
    pub fn exports(&self) -> ShellExports {
        let directory = self.directory();
        let exports = ShellExports::new(self.address, &TrustFiles::in_directory(directory))
            .with_custom_cloud(self.custom_cloud.clone());
        match LocalTestCredentials::load(directory) {
            Some(credentials) if credentials.is_exported() => {
                exports.with_variables(credentials.variables())
            }
            _ => exports,
        }
    }
}

/// Returns the session directory: the state directory, else `lanyard-azure` in `XDG_RUNTIME_DIR`,
/// else `lanyard-azure-UID` in the directory for temporary files. The path is absolute, because
/// clients in other working directories use it.
pub fn session_directory(state: Option<&Path>, environment: &SessionEnvironment) -> PathBuf {
    match (state, &environment.runtime_directory) {
        (Some(state), _) => std::path::absolute(state).unwrap_or_else(|_| state.to_owned()),
        (None, Some(runtime)) => runtime.join("lanyard-azure"),
        (None, None) => {
            let user = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("lanyard-azure-{user}"))
        }
    }
}

/// Creates the directory if it is missing, and rejects one that [`require_owned_directory`] rejects.
fn ensure_owned_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    require_owned_directory(directory)
}

/// Rejects a directory that other users can write to: in a shared temporary directory, other users can guess
/// its name.
fn require_owned_directory(directory: &Path) -> io::Result<()> {
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

fn not_running_error(
    directory: &Path,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> SessionError {
    SessionError::NotRunning { descriptor: descriptor_path(directory), source: source.into() }
}

fn descriptor_path(directory: &Path) -> PathBuf {
    directory.join("azure.json")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use std::error::Error as _;

    use lanyard_clock::ErrorHint as _;

    use super::*;

    /// The message of an error with its cause and its hint.
    fn message(error: &SessionError) -> String {
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        format!("{error}: {cause}; {}", error.hint().unwrap_or_default())
    }

    fn write_test_descriptor(
        directory: &Path,
        address: SocketAddr,
    ) -> Result<ServeSession, SessionError> {
        let environment = SessionEnvironment::default();
        ServeSession::write_descriptor(directory, address, None, "CA\n", &environment)
    }

    #[test]
    fn session_is_loaded_only_while_its_port_answers() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let published = write_test_descriptor(directory.path(), address).unwrap();
        assert_eq!(ServeSession::load(directory.path()).unwrap(), published);
        drop(listener);
        // Keeps the port, so that no other test listens there.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(address).unwrap();
        let error = ServeSession::load(directory.path()).unwrap_err();
        let error = message(&error);
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
        let error = write_test_descriptor(directory.path(), other).unwrap_err();
        let error = message(&error);
        assert!(error.contains("already"), "{error}");
        let other_process = ServeSession { process: first.process + 1, ..first.clone() };
        other_process.remove_descriptor();
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
    fn session_of_this_shell_is_found_by_its_exports() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let session =
            write_test_descriptor(directory.path(), listener.local_addr().unwrap()).unwrap();
        let environment = |control: &str| SessionEnvironment {
            local_azure_control: Some(control.to_owned()),
            ssl_cert_file: Some(session.ca_bundle.clone()),
            runtime_directory: Some(directory.path().join("none")),
            ..SessionEnvironment::default()
        };
        let own = environment(&session.control);
        assert_eq!(ServeSession::find(None, &own, Vec::new).unwrap(), session);
        let other = environment("http://127.0.0.1:1/lanyard/v1");
        let error = ServeSession::find(None, &other, Vec::new).unwrap_err();
        let error = message(&error);
        assert!(error.contains("127.0.0.1:1") && error.contains("--state"), "{error}");
        assert_eq!(ServeSession::find(Some(directory.path()), &other, Vec::new).unwrap(), session);
        assert!(!directory.path().join("none").exists(), "a search creates no directory");
    }

    #[test]
    fn session_directory_is_absolute() {
        let environment = SessionEnvironment::default();
        assert!(session_directory(Some(Path::new("state")), &environment).is_absolute());
    }

    #[test]
    fn session_directory_must_be_private_and_no_link() {
        let parent = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let open = parent.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let error = message(&write_test_descriptor(&open, address).unwrap_err());
        assert!(error.contains("other users"), "{error}");
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        let error = message(&write_test_descriptor(&link, address).unwrap_err());
        assert!(error.contains("link"), "{error}");
    }
}
