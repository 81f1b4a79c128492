//! Drivers and providers as processes: upstream's and lanyard's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lanyard_cluster::{NoFreePorts, choose_ports};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use serde_json::Value;
use thiserror::Error;

use crate::client_program::EnvironmentVariables;
use crate::daemon::{Daemon, DaemonError};
use crate::file_error::FileError;
use crate::volume::{CsiDriverClient, UNMANAGED_NODE_NAME};

/// How long a program may take until it responds.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A program could not be started.
#[derive(Debug, Error)]
pub(crate) enum DriverProcessError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Ports(#[from] NoFreePorts),
    #[error(transparent)]
    File(#[from] FileError),
}

/// A directory for the sockets and logs of one case.
#[derive(Debug, Clone)]
pub(crate) struct DriverFixtureDirectory {
    /// The root of the directory.
    root: PathBuf,
    kubeconfig: PathBuf,
}

/// A running driver and its client.
#[derive(Debug)]
pub(crate) struct RunningDriver {
    pub(crate) daemon: Daemon,
    pub(crate) client: CsiDriverClient,
}

/// Upstream's mock provider, whose responses the case sets.
#[derive(Debug)]
pub(crate) struct MockProvider {
    daemon: Daemon,
    /// The number of responses that were set.
    response_count: usize,
}

impl MockProvider {
    /// Sets the response to the next mount requests.
    pub(crate) async fn set_response(&mut self, answer: &Value) -> Result<(), DriverProcessError> {
        self.daemon.write_line_to_stdin(&answer.to_string())?;
        self.response_count += 1;
        let (expected, log) = (self.response_count, self.daemon.log_file());
        let ready = async || {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            log.lines().filter(|line| *line == "ready").count() >= expected
        };
        Ok(self.daemon.wait_until("ready", START_TIMEOUT, ready).await?)
    }
}

/// Address and credentials of the API server, as a pod has them. Some programs accept no other configuration.
#[derive(Debug, Clone)]
pub(crate) struct InClusterAccess {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Files with the token and the CA certificate.
    pub(crate) token: PathBuf,
    pub(crate) authority: PathBuf,
}

/// Puts the ServiceAccount files where a pod has them, for one process only: in a mount namespace whose root
/// mount is private. Mounts below a shared directory are still visible outside.
const POD_FILES_SCRIPT: &str = r#"
set -e
mount --make-private /
if mountpoint -q /run; then mount --make-private /run; fi
mount -t tmpfs tmpfs /run
files=/run/secrets/kubernetes.io/serviceaccount
mkdir -p "$files"
cp "$1" "$files/token"
cp "$2" "$files/ca.crt"
shift 2
exec "$@"
"#;

/// The rotation settings of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverRotation {
    /// Disabled, which is upstream's default.
    Disabled,
    /// Enabled with this interval.
    Every(Duration),
}

impl DriverRotation {
    fn rotation_flags(self) -> Vec<String> {
        match self {
            Self::Disabled => vec!["--enable-secret-rotation=false".to_owned()],
            Self::Every(interval) => vec![
                "--enable-secret-rotation=true".to_owned(),
                format!("--rotation-poll-interval={}ms", interval.as_millis()),
            ],
        }
    }
}

impl DriverFixtureDirectory {
    /// Creates a directory below `parent`.
    pub(crate) fn new(
        parent: &Path,
        name: &str,
        kubeconfig: &Path,
    ) -> Result<Self, DriverProcessError> {
        let fixture = Self { root: parent.join(name), kubeconfig: kubeconfig.to_path_buf() };
        for path in [
            fixture.kubelet_directory().join("pods"),
            fixture.kubelet_directory().join("plugins_registry"),
            fixture.provider_socket_directory(),
        ] {
            std::fs::create_dir_all(&path).map_err(FileError::of("prepare", &path))?;
        }
        Ok(fixture)
    }

    /// The kubelet's directory, which no kubelet uses.
    pub(crate) fn kubelet_directory(&self) -> PathBuf {
        self.root.join("k")
    }

    pub(crate) fn provider_socket_directory(&self) -> PathBuf {
        self.root.join("p")
    }

    pub(crate) fn provider_socket(&self, name: &str) -> PathBuf {
        self.provider_socket_directory().join(format!("{name}.sock"))
    }

    /// Starts upstream's driver and waits until it responds.
    pub(crate) async fn start_upstream_driver(
        &self,
        program: &Path,
        rotation: DriverRotation,
    ) -> Result<RunningDriver, DriverProcessError> {
        let socket = self.root.join("upstream.sock");
        let mut command = Command::new(program);
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        self.add_upstream_flags(&mut command, &socket, rotation);
        self.start_driver("upstream-driver", &mut command, &socket).await
    }

    fn add_upstream_flags(&self, command: &mut Command, socket: &Path, rotation: DriverRotation) {
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.args(["--metrics-addr=127.0.0.1:0", "-v=2"]);
        command.arg(format!("--nodeid={UNMANAGED_NODE_NAME}"));
        command.arg(format!("--provider-volume={}", self.provider_socket_directory().display()));
        command.args(rotation.rotation_flags());
    }

    /// Starts a version of upstream's driver that works only in a pod, and waits until it responds.
    pub(crate) async fn start_upstream_driver_in_pod(
        &self,
        program: &Path,
        rotation: DriverRotation,
        pod: &InClusterAccess,
    ) -> Result<(RunningDriver, SharedMountDirectory), DriverProcessError> {
        let shared = SharedMountDirectory::new(&self.root)?;
        let socket = self.root.join("upstream.sock");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "unchanged", "sh", "-c", POD_FILES_SCRIPT, "sh"]);
        command.arg(&pod.token).arg(&pod.authority).arg(program);
        command.env("KUBERNETES_SERVICE_HOST", &pod.host);
        command.env("KUBERNETES_SERVICE_PORT", pod.port.to_string());
        self.add_upstream_flags(&mut command, &socket, rotation);
        let driver = self.start_driver("upstream-driver", &mut command, &socket).await?;
        Ok((driver, shared))
    }

    /// Starts upstream's Azure provider under a name and waits until its socket exists.
    pub(crate) async fn start_upstream_provider(
        &self,
        program: &Path,
        name: &str,
        environment: &EnvironmentVariables,
    ) -> Result<Daemon, DriverProcessError> {
        let socket = self.provider_socket(name);
        let mut command = Command::new(program);
        command.arg(format!("--endpoint=unix://{}", socket.display())).envs(environment);
        let [health, metrics] = choose_ports()?;
        command.arg(format!("--healthz-port={health}"));
        command.arg(format!("--prometheus-port={metrics}"));
        let mut daemon = Daemon::start("upstream-provider", &mut command, &self.root)?;
        daemon.wait_until("listening", START_TIMEOUT, async || socket.exists()).await?;
        Ok(daemon)
    }

    /// Starts upstream's mock provider under a name. Its responses have to be set.
    pub(crate) async fn start_mock_provider(
        &self,
        program: &Path,
        name: &str,
    ) -> Result<MockProvider, DriverProcessError> {
        let socket = self.provider_socket(name);
        let mut command = Command::new(program);
        let mut daemon = Daemon::start("mock-provider", command.arg(&socket), &self.root)?;
        daemon.wait_until("listening", START_TIMEOUT, async || socket.exists()).await?;
        Ok(MockProvider { daemon, response_count: 0 })
    }

    /// Starts lanyard's node plugin and waits until it responds. Its provider listens on `azure.sock` in the
    /// provider directory.
    pub(crate) async fn start_lanyard_node(
        &self,
        program: &Path,
        rotation: DriverRotation,
        environment: &EnvironmentVariables,
    ) -> Result<RunningDriver, DriverProcessError> {
        let socket = self.root.join("lanyard.sock");
        let mut command = Command::new(program);
        command.arg("node").envs(environment);
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.arg(format!("--nodeid={UNMANAGED_NODE_NAME}"));
        command.arg(format!("--kubelet-dir={}", self.kubelet_directory().display()));
        command.arg(format!(
            "--registration-dir={}",
            self.kubelet_directory().join("plugins_registry").display()
        ));
        command.arg(format!("--provider-volume={}", self.provider_socket_directory().display()));
        command.arg(format!("--provider-socket={}", self.provider_socket("azure").display()));
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        let [metrics, health] = choose_ports()?;
        command.arg(format!("--metrics-addr=127.0.0.1:{metrics}"));
        command.arg(format!("--healthz-port={health}"));
        command.args(rotation.rotation_flags());
        self.start_driver("lanyard", &mut command, &socket).await
    }

    async fn start_driver(
        &self,
        name: &str,
        command: &mut Command,
        socket: &Path,
    ) -> Result<RunningDriver, DriverProcessError> {
        let mut daemon = Daemon::start(name, command, &self.root)?;
        let plugin = CsiDriverClient::new(socket);
        daemon.wait_until("answering", START_TIMEOUT, async || plugin.is_answering().await).await?;
        Ok(RunningDriver { daemon, client: plugin })
    }
}

/// A directory with shared mount propagation: mounts propagate to and from mount namespaces that are cloned
/// from this one. Dropping the value ends the sharing.
#[derive(Debug)]
pub(crate) struct SharedMountDirectory(PathBuf);

impl SharedMountDirectory {
    fn new(path: &Path) -> Result<Self, DriverProcessError> {
        let error = |source: rustix::io::Errno| FileError::of("prepare", path)(source.into());
        mount_bind(path, path).map_err(error)?;
        let shared = Self(path.to_path_buf());
        mount_change(path, MountPropagationFlags::SHARED).map_err(error)?;
        Ok(shared)
    }
}

impl Drop for SharedMountDirectory {
    fn drop(&mut self) {
        // If this fails, the cluster's teardown reports the mount.
        unmount(&self.0, UnmountFlags::DETACH).unwrap_or_default();
    }
}
