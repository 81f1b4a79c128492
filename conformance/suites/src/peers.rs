//! The programs that stand on either side of a driver's sockets: upstream's and our own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lanyard_cluster::{NoPorts, choose_ports};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use serde_json::Value;
use thiserror::Error;

use crate::daemon::{Daemon, DaemonError};
use crate::program::Environment;
use crate::volume::NodePlugin;

/// How long a program may take until it answers.
const START: Duration = Duration::from_secs(30);

/// A program could not be started.
#[derive(Debug, Error)]
pub(crate) enum PeerError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Ports(#[from] NoPorts),
    #[error("could not prepare {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Where the programs of one case keep their sockets and logs.
#[derive(Debug, Clone)]
pub(crate) struct Nook {
    /// The directory of everything below.
    root: PathBuf,
    kubeconfig: PathBuf,
}

/// A driver that runs.
#[derive(Debug)]
pub(crate) struct RunningDriver {
    pub(crate) daemon: Daemon,
    pub(crate) plugin: NodePlugin,
}

/// A node that nobody runs: drivers act for it, and no kubelet takes its pods.
pub(crate) const NODE: &str = "elsewhere";

/// The provider of upstream's tests, which answers what it is told to.
#[derive(Debug)]
pub(crate) struct MockProvider {
    daemon: Daemon,
    /// How many answers it was told.
    told: usize,
}

impl MockProvider {
    /// Makes the next mounts be answered so.
    pub(crate) async fn answer(&mut self, answer: &Value) -> Result<(), PeerError> {
        self.daemon.tell(&answer.to_string())?;
        self.told += 1;
        let (told, log) = (self.told, self.daemon.log_file());
        let ready = async || {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            log.lines().filter(|line| *line == "ready").count() >= told
        };
        Ok(self.daemon.await_until("ready", START, ready).await?)
    }
}

/// What a pod has to speak to the API, for a program that takes nothing else.
#[derive(Debug, Clone)]
pub(crate) struct InCluster {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Files with the token and with the authority.
    pub(crate) token: PathBuf,
    pub(crate) authority: PathBuf,
}

/// Puts the files of a pod where it has them, for one process alone: in a mount namespace whose
/// root keeps to itself. Mounts below a shared directory still reach everybody.
const AS_IN_A_POD: &str = r#"
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

/// How a driver is to rotate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    /// Not at all, as upstream by default.
    Off,
    /// This often.
    Every(Duration),
}

impl Rotation {
    fn flags(self) -> Vec<String> {
        match self {
            Self::Off => vec!["--enable-secret-rotation=false".to_owned()],
            Self::Every(interval) => vec![
                "--enable-secret-rotation=true".to_owned(),
                format!("--rotation-poll-interval={}ms", interval.as_millis()),
            ],
        }
    }
}

impl Nook {
    /// A directory of its own below `parent`.
    pub(crate) fn new(parent: &Path, name: &str, kubeconfig: &Path) -> Result<Self, PeerError> {
        let nook = Self { root: parent.join(name), kubeconfig: kubeconfig.to_path_buf() };
        for path in
            [nook.kubelet().join("pods"), nook.kubelet().join("plugins_registry"), nook.providers()]
        {
            std::fs::create_dir_all(&path)
                .map_err(|source| PeerError::Directory { path, source })?;
        }
        Ok(nook)
    }

    /// A kubelet's directory, without a kubelet.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.root.join("k")
    }

    /// Where providers put their sockets.
    pub(crate) fn providers(&self) -> PathBuf {
        self.root.join("p")
    }

    /// The socket of a provider of this name.
    pub(crate) fn provider(&self, name: &str) -> PathBuf {
        self.providers().join(format!("{name}.sock"))
    }

    /// Starts upstream's driver and waits until it answers.
    pub(crate) async fn upstream_driver(
        &self,
        program: &Path,
        rotation: Rotation,
    ) -> Result<RunningDriver, PeerError> {
        let socket = self.root.join("upstream.sock");
        let mut command = Command::new(program);
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        self.upstream_flags(&mut command, &socket, rotation);
        self.driver("upstream-driver", &mut command, &socket).await
    }

    fn upstream_flags(&self, command: &mut Command, socket: &Path, rotation: Rotation) {
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.args(["--metrics-addr=127.0.0.1:0", "-v=2"]);
        command.arg(format!("--nodeid={NODE}"));
        command.arg(format!("--provider-volume={}", self.providers().display()));
        command.args(rotation.flags());
    }

    /// Starts a driver of upstream's that wants to be in a pod, and waits until it answers.
    pub(crate) async fn upstream_driver_in_pod(
        &self,
        program: &Path,
        rotation: Rotation,
        pod: &InCluster,
    ) -> Result<(RunningDriver, SharedDirectory), PeerError> {
        let shared = SharedDirectory::new(&self.root)?;
        let socket = self.root.join("upstream.sock");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "unchanged", "sh", "-c", AS_IN_A_POD, "sh"]);
        command.arg(&pod.token).arg(&pod.authority).arg(program);
        command.env("KUBERNETES_SERVICE_HOST", &pod.host);
        command.env("KUBERNETES_SERVICE_PORT", pod.port.to_string());
        self.upstream_flags(&mut command, &socket, rotation);
        let driver = self.driver("upstream-driver", &mut command, &socket).await?;
        Ok((driver, shared))
    }

    /// Starts upstream's Azure provider under a name and waits until it listens.
    pub(crate) async fn upstream_provider(
        &self,
        program: &Path,
        name: &str,
        environment: &Environment,
    ) -> Result<Daemon, PeerError> {
        let socket = self.provider(name);
        let mut command = Command::new(program);
        command.arg(format!("--endpoint=unix://{}", socket.display())).envs(environment);
        let [health, metrics] = choose_ports()?;
        command.arg(format!("--healthz-port={health}"));
        command.arg(format!("--prometheus-port={metrics}"));
        let mut daemon = Daemon::start("upstream-provider", &mut command, &self.root)?;
        daemon.await_until("listening", START, async || socket.exists()).await?;
        Ok(daemon)
    }

    /// Starts upstream's mock provider under a name; it has to be told what to answer.
    pub(crate) async fn mock_provider(
        &self,
        program: &Path,
        name: &str,
    ) -> Result<MockProvider, PeerError> {
        let socket = self.provider(name);
        let mut command = Command::new(program);
        let mut daemon = Daemon::start("mock-provider", command.arg(&socket), &self.root)?;
        daemon.await_until("listening", START, async || socket.exists()).await?;
        Ok(MockProvider { daemon, told: 0 })
    }

    /// Starts our node plugin and waits until it answers. It serves its provider as `azure.sock`
    /// beside the others.
    pub(crate) async fn lanyard(
        &self,
        program: &Path,
        rotation: Rotation,
        environment: &Environment,
    ) -> Result<RunningDriver, PeerError> {
        let socket = self.root.join("lanyard.sock");
        let mut command = Command::new(program);
        command.arg("node").envs(environment);
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.arg(format!("--nodeid={NODE}"));
        command.arg(format!("--kubelet-dir={}", self.kubelet().display()));
        command.arg(format!(
            "--registration-dir={}",
            self.kubelet().join("plugins_registry").display()
        ));
        command.arg(format!("--provider-volume={}", self.providers().display()));
        command.arg(format!("--provider-socket={}", self.provider("azure").display()));
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        let [metrics, health] = choose_ports()?;
        command.arg(format!("--metrics-addr=127.0.0.1:{metrics}"));
        command.arg(format!("--healthz-port={health}"));
        command.args(rotation.flags());
        self.driver("lanyard", &mut command, &socket).await
    }

    async fn driver(
        &self,
        name: &str,
        command: &mut Command,
        socket: &Path,
    ) -> Result<RunningDriver, PeerError> {
        let mut daemon = Daemon::start(name, command, &self.root)?;
        let plugin = NodePlugin::at(socket);
        daemon.await_until("answering", START, async || plugin.answers().await).await?;
        Ok(RunningDriver { daemon, plugin })
    }
}

/// A directory whose mounts reach the mount namespaces that were made from ours, and come back from
/// them. It is an ordinary one again when this is dropped.
#[derive(Debug)]
pub(crate) struct SharedDirectory(PathBuf);

impl SharedDirectory {
    fn new(path: &Path) -> Result<Self, PeerError> {
        let error = |source: rustix::io::Errno| PeerError::Directory {
            path: path.to_path_buf(),
            source: source.into(),
        };
        mount_bind(path, path).map_err(error)?;
        let shared = Self(path.to_path_buf());
        mount_change(path, MountPropagationFlags::SHARED).map_err(error)?;
        Ok(shared)
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        // Where this fails, the cluster's own clean-up reports what is left.
        unmount(&self.0, UnmountFlags::DETACH).unwrap_or_default();
    }
}
