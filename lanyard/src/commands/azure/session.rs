//! What a running local Azure leaves on disk for `lanyard azure env` and for clients: its address
//! and the certificates to trust.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exports::{Exports, bundle_path, local_ca_path};
use crate::exit::CommandError;
use crate::settings::Environment;

/// A running local Azure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The address of the proxy, of IMDS and of the control API.
    pub(crate) address: SocketAddr,
    /// The proxy as a URL.
    pub(crate) proxy: String,
    /// The control API.
    pub(crate) control: String,
    /// The local CA in PEM.
    pub(crate) ca_file: PathBuf,
    /// The system's roots and the local CA in PEM.
    pub(crate) ca_bundle: PathBuf,
    /// The process that serves it.
    pub(crate) process: u32,
}

/// Where the Debian, Fedora, openSUSE and Alpine families keep the system's roots.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl Session {
    /// Writes the certificates and the address into `directory`.
    pub(crate) fn publish(
        directory: &Path,
        address: SocketAddr,
        ca_pem: &str,
        environment: &Environment,
    ) -> Result<Self, CommandError> {
        let session = Self {
            address,
            proxy: format!("http://{address}"),
            control: format!("http://{address}/lanyard/v1"),
            ca_file: local_ca_path(directory),
            ca_bundle: bundle_path(directory),
            process: std::process::id(),
        };
        let write = || {
            fs::create_dir_all(directory)?;
            replace(&session.ca_file, ca_pem.as_bytes())?;
            let mut bundle = system_roots(environment);
            bundle.extend_from_slice(ca_pem.as_bytes());
            replace(&session.ca_bundle, &bundle)?;
            let text = serde_json::to_vec_pretty(&session).map_err(io::Error::other)?;
            replace(&descriptor_path(directory), &text)
        };
        write().map_err(|error| {
            CommandError::unavailable(format!("cannot write into {}", directory.display()))
                .because(&error)
                .hint("choose another directory with --state")
        })?;
        Ok(session)
    }

    /// Reads the session of the local Azure that runs with this directory.
    pub(crate) fn load(directory: &Path) -> Result<Self, CommandError> {
        let path = descriptor_path(directory);
        let none = |error: &dyn std::error::Error| {
            CommandError::unavailable(format!("no local Azure is running: {}", path.display()))
                .because(error)
                .hint("start one with `lanyard azure serve`, with the same --state if it has one")
        };
        let text = fs::read(&path).map_err(|error| none(&error))?;
        let session: Self = serde_json::from_slice(&text).map_err(|error| none(&error))?;
        // A descriptor outlives a killed process; a connection does not.
        std::net::TcpStream::connect(session.address).map_err(|error| none(&error))?;
        Ok(session)
    }

    /// Removes the address again; the certificates stay for clients that still run.
    pub(crate) fn withdraw(directory: &Path) {
        if let Err(error) = fs::remove_file(descriptor_path(directory)) {
            tracing::debug!(%error, "the address of the local Azure was gone already");
        }
    }

    /// The variables for clients.
    pub(crate) fn exports(&self) -> Exports {
        let directory = self.ca_file.parent().unwrap_or(Path::new("."));
        Exports::new(self.address, directory)
    }
}

/// The directory of the session: the state's, or one per user that the machine forgets.
pub(crate) fn directory(state: Option<&Path>, environment: &Environment) -> PathBuf {
    match (state, &environment.runtime_directory) {
        (Some(state), _) => state.to_owned(),
        (None, Some(runtime)) => runtime.join("lanyard").join("azure"),
        (None, None) => std::env::temp_dir().join(format!("lanyard-azure-{}", user())),
    }
}

fn user() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").map(|metadata| metadata.uid()).unwrap_or_default()
}

fn descriptor_path(directory: &Path) -> PathBuf {
    directory.join("azure.json")
}

fn system_roots(environment: &Environment) -> Vec<u8> {
    let named = environment.ssl_cert_file.iter().map(PathBuf::as_path);
    let usual = SYSTEM_ROOTS.iter().map(Path::new);
    let mut roots = named.chain(usual).find_map(|path| fs::read(path).ok()).unwrap_or_default();
    if !roots.is_empty() && !roots.ends_with(b"\n") {
        roots.push(b'\n');
    }
    roots
}

/// Readers see the old file or the new one, never a part.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut file = fs::File::create(&partial)?;
    file.write_all(content)?;
    drop(file);
    fs::rename(partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_while_its_port_answers_and_not_after() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let published =
            Session::publish(directory.path(), address, "CA\n", &Environment::default()).unwrap();
        assert_eq!(Session::load(directory.path()).unwrap(), published);
        drop(listener);
        let error = Session::load(directory.path()).unwrap_err().to_string();
        assert!(error.contains("no local Azure is running"), "{error}");
        assert!(error.contains("lanyard azure serve"), "{error}");
    }

    #[test]
    fn the_bundle_keeps_the_roots_that_were_trusted_before() {
        let directory = tempfile::tempdir().unwrap();
        let roots = directory.path().join("roots.pem");
        fs::write(&roots, "ROOTS").unwrap();
        let environment = Environment { ssl_cert_file: Some(roots), ..Environment::default() };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let session = Session::publish(directory.path(), address, "CA\n", &environment).unwrap();
        assert_eq!(fs::read_to_string(session.ca_bundle).unwrap(), "ROOTS\nCA\n");
        assert_eq!(fs::read_to_string(session.ca_file).unwrap(), "CA\n");
    }
}
