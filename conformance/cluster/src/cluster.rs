//! The handle of a local cluster, which carries out the plan.

mod start;
mod teardown;

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::SharedClock;
use rustix::process::Signal;
use serde_json::Value;

use crate::component::ClusterComponent;
use crate::error::ClusterError;
use crate::http_client::ClusterHttpClient;
use crate::layout::{ClusterLayout, LOCK_CONTENT};
use crate::plan::{ClusterContext, LocalClusterPlan, Options};
use crate::processes::{self, RecordedProcess, run_tool};
use crate::readiness;
use crate::status::{ClusterStatus, ComponentHealth, ComponentStatus};

/// A cluster that this process or an earlier one started.
///
/// Dropping the handle changes nothing: the processes run until [`LocalCluster::down`].
#[derive(Debug, Clone)]
pub struct LocalCluster {
    layout: ClusterLayout,
    plan: LocalClusterPlan,
    http_client: ClusterHttpClient,
    clock: SharedClock,
}

/// The result of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterStartOutcome {
    /// The components that were started; empty if the cluster was already up.
    pub started: Vec<ClusterComponent>,
    /// The time from the call until pods could run.
    pub elapsed: Duration,
}

/// How long a component may take to exit after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

impl LocalCluster {
    /// Starts a cluster, or its missing components, and waits until pods can run.
    ///
    /// # Errors
    /// Returns an error if a program is missing, a component exits or does not become ready, or the directory
    /// holds a cluster with other options. Components that were started keep running for inspection;
    /// [`LocalCluster::down`] removes them.
    pub async fn up(options: Options, clock: SharedClock) -> Result<Self, ClusterError> {
        Self::up_with_outcome(options, clock).await.map(|(cluster, _)| cluster)
    }

    /// Like [`LocalCluster::up`], and also returns what was started.
    ///
    /// # Errors
    /// As [`LocalCluster::up`].
    pub async fn up_with_outcome(
        options: Options,
        clock: SharedClock,
    ) -> Result<(Self, ClusterStartOutcome), ClusterError> {
        start::up(options, clock).await
    }

    /// Opens the cluster in a directory, whether it runs or not.
    ///
    /// # Errors
    /// Returns an error if the directory holds no cluster.
    pub fn open(directory: &Path, clock: SharedClock) -> Result<Self, ClusterError> {
        let layout = resolve_layout(directory)?;
        let plan = load_plan(&layout)?
            .ok_or_else(|| ClusterError::NoCluster(layout.root().to_path_buf()))?;
        let api = ClusterHttpClient::connect_as_administrator(&layout)?;
        Ok(Self { layout, plan, http_client: api, clock })
    }

    /// Removes a cluster: processes, containers, mounts, control groups, networks and files, however far its
    /// start came. Returns whether there was a cluster.
    ///
    /// # Errors
    /// Returns an error if something could not be removed. The call can be repeated.
    pub async fn down(directory: &Path, clock: SharedClock) -> Result<bool, ClusterError> {
        teardown::down(&resolve_layout(directory)?, &*clock).await
    }

    /// The directory of the cluster.
    pub fn directory(&self) -> &Path {
        self.layout.root()
    }

    /// The paths below the directory.
    pub const fn layout(&self) -> &ClusterLayout {
        &self.layout
    }

    /// The plan that the cluster was started with.
    pub const fn plan(&self) -> &LocalClusterPlan {
        &self.plan
    }

    /// The path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig_path()
    }

    /// The path of a program in the cluster's program directory, for example `kubectl`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.plan.program_path(name)
    }

    /// Probes every component.
    pub async fn status(&self) -> ClusterStatus {
        let mut components = Vec::with_capacity(ClusterComponent::ALL.len());
        for component in ClusterComponent::ALL {
            components.push(self.component_status(component).await);
        }
        let version =
            self.http_client.fetch_json(&format!("{}/version", self.plan.api_server_url())).await;
        ClusterStatus {
            directory: self.layout.root().to_path_buf(),
            kubeconfig: self.kubeconfig(),
            api_server: self.plan.api_server_url(),
            kubernetes: version.ok().and_then(|it| it["gitVersion"].as_str().map(str::to_owned)),
            components,
        }
    }

    async fn component_status(&self, component: ClusterComponent) -> ComponentStatus {
        let ports = &self.plan.ports;
        let port = match component {
            ClusterComponent::Etcd => Some(ports.etcd),
            ClusterComponent::Containerd => None,
            ClusterComponent::KubeApiserver => Some(ports.api_server),
            ClusterComponent::KubeControllerManager => Some(ports.controller_manager),
            ClusterComponent::KubeScheduler => Some(ports.scheduler),
            ClusterComponent::Kubelet => Some(ports.kubelet),
        };
        let process = processes::recorded_process(&self.layout, component);
        let health = if process.is_none() {
            ComponentHealth::Stopped
        } else {
            match readiness::probe_component(self.context(), &self.http_client, component).await {
                Ok(()) => ComponentHealth::Ready,
                Err(message) => ComponentHealth::NotReady(message),
            }
        };
        ComponentStatus {
            component,
            pid: process.as_ref().map(|it| it.pid),
            port,
            health,
            memory_bytes: process.as_ref().and_then(RecordedProcess::resident_memory_bytes),
        }
    }

    /// Imports an image archive (docker-archive or OCI) into containerd and returns the output of `ctr`. Pods
    /// name the image with `imagePullPolicy: Never`.
    ///
    /// # Errors
    /// Returns an error if containerd rejects the archive.
    pub async fn load_image_archive(&self, archive: &Path) -> Result<String, ClusterError> {
        let address = self.layout.containerd_socket();
        let (address, archive) = (address.to_string_lossy(), archive.to_string_lossy());
        let arguments = ["--address", &address, "--namespace", "k8s.io", "images", "import"];
        let arguments = [&arguments[..], &[&*archive]].concat();
        run_tool(&self.plan.program_path("ctr"), &arguments).await
    }

    /// The key set of the issuer of service account tokens (RFC 7517), as the API server publishes it. A
    /// service that is to trust these tokens needs this key set and the issuer's name.
    ///
    /// # Errors
    /// Returns an error if the API server does not respond.
    pub async fn fetch_service_account_keys(&self) -> Result<Value, ClusterError> {
        self.http_client.fetch_json(&format!("{}/openid/v1/jwks", self.plan.api_server_url())).await
    }

    /// Stops one component with SIGTERM, or with SIGKILL if `kill` is set or it does not exit in time.
    ///
    /// # Errors
    /// Returns an error if the process does not exit.
    pub async fn stop(&self, component: ClusterComponent, kill: bool) -> Result<(), ClusterError> {
        let Some(process) = processes::recorded_process(&self.layout, component) else {
            return Ok(());
        };
        if !kill {
            process.send_signal(Signal::TERM);
            if process.wait_for_exit(STOP_TIMEOUT, &*self.clock).await {
                return Ok(());
            }
        }
        let processes = [(component.name().to_owned(), process)];
        processes::kill_all(&processes, &*self.clock).await
    }

    /// Starts one component if it does not run, and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if the component exits or does not become ready.
    pub async fn start(&self, component: ClusterComponent) -> Result<(), ClusterError> {
        let process = match processes::recorded_process(&self.layout, component) {
            Some(process) => process,
            None => processes::start_component(self.context(), component)?,
        };
        self.wait_until_component_ready(component, &process).await
    }

    async fn wait_until_component_ready(
        &self,
        component: ClusterComponent,
        process: &RecordedProcess,
    ) -> Result<(), ClusterError> {
        let pair = (component, process);
        readiness::wait_until_component_ready(self.context(), &self.http_client, pair, &*self.clock)
            .await
    }

    const fn context(&self) -> ClusterContext<'_> {
        ClusterContext { plan: &self.plan, layout: &self.layout }
    }
}

/// The layout of a directory that need not exist. Symbolic links are resolved, because the mount table lists
/// real paths.
fn resolve_layout(directory: &Path) -> Result<ClusterLayout, ClusterError> {
    let absolute = std::path::absolute(directory).map_err(ClusterError::file("find", directory))?;
    let existing = absolute.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    let real = existing.canonicalize().map_err(ClusterError::file("find", existing))?;
    let rest = absolute.strip_prefix(existing).unwrap_or(Path::new(""));
    // Joining nothing would append a slash.
    let root = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
    if root.as_os_str().len() > ClusterLayout::MAX_DIRECTORY_LENGTH {
        return Err(ClusterError::DirectoryTooLong {
            path: root,
            limit: ClusterLayout::MAX_DIRECTORY_LENGTH,
        });
    }
    Ok(ClusterLayout::new(root))
}

fn load_plan(layout: &ClusterLayout) -> Result<Option<LocalClusterPlan>, ClusterError> {
    let path = layout.plan_file();
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|source| {
            ClusterError::InvalidRecord { path, what: "the plan of a cluster", source }
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ClusterError::File { action: "read", path, source }),
    }
}

/// Whether the directory may be changed: it is empty, or its lock file has the content that a cluster writes.
/// The file name alone is not enough, because everything in the directory is unmounted and removed.
fn is_cluster_directory(layout: &ClusterLayout) -> bool {
    let lock = layout.lock_file();
    let is_file = fs::symlink_metadata(&lock).is_ok_and(|it| it.is_file());
    if is_file && fs::read(&lock).is_ok_and(|content| content == LOCK_CONTENT) {
        return true;
    }
    // A process that was killed before it wrote the lock's content has created no other file.
    let is_unwritten_lock = |entry: &fs::DirEntry| {
        entry.path() == lock && entry.metadata().is_ok_and(|it| it.is_file() && it.len() == 0)
    };
    fs::read_dir(layout.root()).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| is_unwritten_lock(&entry)))
    })
}

/// Locks the cluster against changes by other processes. The lock ends when the file is dropped or the
/// process dies.
fn lock_cluster(layout: &ClusterLayout) -> Result<File, ClusterError> {
    let path = layout.lock_file();
    let mut options = File::options();
    // Another process may hold the lock, so the file is not truncated.
    options.write(true).create(true).truncate(false);
    let mut file = options.open(&path).map_err(ClusterError::file("create", &path))?;
    match file.try_lock() {
        Ok(()) => {
            file.write_all(LOCK_CONTENT).map_err(ClusterError::file("write", &path))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => Err(ClusterError::Locked(layout.root().to_path_buf())),
        Err(TryLockError::Error(source)) => {
            Err(ClusterError::File { action: "lock", path, source })
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::SystemClock;

    use super::*;

    #[tokio::test]
    async fn directory_without_cluster_lock_is_left_unchanged() {
        // A lock file of a package manager, and an empty file with the name of the cluster's lock.
        for name in ["lock", "lanyard-cluster.lock"] {
            let directory = tempfile::tempdir().expect("there is room");
            fs::write(directory.path().join(name), "").expect("it is writable");
            fs::write(directory.path().join("status"), "precious").expect("it is writable");
            let refused = LocalCluster::down(directory.path(), SystemClock::shared()).await;
            assert!(matches!(refused, Err(ClusterError::NotAClusterDirectory(_))), "{refused:?}");
            let retained = fs::read_to_string(directory.path().join("status"));
            assert_eq!(retained.expect("it is there"), "precious");
        }
    }

    #[test]
    fn cluster_directory_has_lock_content_or_is_empty() {
        let directory = tempfile::tempdir().expect("there is room");
        let layout = resolve_layout(directory.path()).expect("it is short");
        assert!(is_cluster_directory(&layout), "an empty directory");
        fs::write(layout.lock_file(), "").expect("it is writable");
        assert!(is_cluster_directory(&layout), "a start that was killed before it wrote the lock");
        drop(lock_cluster(&layout).expect("it is not locked"));
        fs::write(layout.plan_file(), "{}").expect("it is writable");
        assert!(is_cluster_directory(&layout));
        drop(lock_cluster(&layout).expect("it is not locked"));
        assert!(is_cluster_directory(&layout), "it can be locked again");
        let held = lock_cluster(&layout).expect("it is not locked");
        assert!(matches!(lock_cluster(&layout), Err(ClusterError::Locked(_))));
        assert!(
            is_cluster_directory(&layout),
            "a failed lock leaves the content of the lock file unchanged"
        );
        drop(held);
    }
}
