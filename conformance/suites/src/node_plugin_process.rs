//! The node plugin as a process, driven by a fake kubelet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_kubelet::{
    CsiDriverObject, FakeKubelet, InlineVolume, KubeletEvent, PodSpec, VolumeKey,
};
use rustix::mount::UnmountFlags;
use tempfile::TempDir;
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::client_program::EnvironmentVariables;

/// The node plugin or its fake kubelet failed.
#[derive(Debug, Error)]
pub(crate) enum NodePluginError {
    #[error("the directory of the node could not be prepared")]
    Directory(#[source] io::Error),
    #[error("the class cannot be written")]
    Class(#[source] serde_json::Error),
    #[error("`{} node` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("condition `{what}` did not hold within {} s; the last events: {events:?}", timeout.as_secs())]
    TimedOut { what: &'static str, timeout: Duration, events: Vec<KubeletEvent> },
    #[error("the table of mounts cannot be read")]
    Mounts(#[source] io::Error),
}

/// A node plugin with one class. Dropping it kills the plugin and removes its mounts.
#[derive(Debug)]
pub(crate) struct NodePluginProcess {
    program: PathBuf,
    environment: EnvironmentVariables,
    rotation_interval: &'static str,
    root: TempDir,
    child: Option<Child>,
    kubelet: FakeKubelet,
    kubelet_task: JoinHandle<()>,
    runtime: Arc<Runtime>,
    clock: SharedClock,
    events: Vec<KubeletEvent>,
}

impl NodePluginProcess {
    /// Starts `lanyard node` and a fake kubelet, and waits until the driver is registered.
    pub(crate) fn start(
        program: &Path,
        class: &SecretProviderClass,
        interval: &'static str,
        environment: EnvironmentVariables,
        runtime: &Arc<Runtime>,
    ) -> Result<Self, NodePluginError> {
        let root = TempDir::new().map_err(NodePluginError::Directory)?;
        fs::create_dir(root.path().join("plugins_registry")).map_err(NodePluginError::Directory)?;
        // Every JSON document is valid YAML.
        let text = serde_json::to_vec(class).map_err(NodePluginError::Class)?;
        fs::write(root.path().join(CLASS_FILE), text).map_err(NodePluginError::Directory)?;
        let clock = SystemClock::shared();
        let kubelet = FakeKubelet::new(root.path(), Arc::clone(&clock));
        kubelet.apply_driver(CsiDriverObject::new(DRIVER));
        let running = runtime.spawn({
            let kubelet = kubelet.clone();
            async move { kubelet.run(std::future::pending()).await }
        });
        let mut node = Self {
            program: program.to_owned(),
            environment,
            rotation_interval: interval,
            root,
            child: None,
            kubelet,
            kubelet_task: running,
            runtime: Arc::clone(runtime),
            clock,
            events: Vec::new(),
        };
        node.start_plugin()?;
        node.wait_until("the plugin has registered", START_TIMEOUT, |node| {
            node.kubelet.registered_driver(DRIVER).is_some()
        })?;
        Ok(node)
    }

    fn start_plugin(&mut self) -> Result<(), NodePluginError> {
        let root = self.root.path();
        let mut command = Command::new(&self.program);
        command.args(["node", "--log", "warn", "--nodeid", "localhost", "--healthz-port", "0"]);
        command.args([
            "--metrics-addr",
            "127.0.0.1:0",
            "--rotation-poll-interval",
            self.rotation_interval,
        ]);
        command.arg("--kubelet-dir").arg(root).arg("--classes").arg(root.join(CLASS_FILE));
        command.arg("--endpoint").arg(format!("unix://{}", root.join("csi.sock").display()));
        command.envs(&self.environment).stdin(Stdio::null()).stdout(Stdio::null());
        let program = self.program.clone();
        let child = command.spawn().map_err(|source| NodePluginError::Start { program, source })?;
        self.child = Some(child);
        Ok(())
    }

    /// Kills the plugin with SIGKILL and starts it again.
    pub(crate) fn restart_plugin(&mut self) -> Result<(), NodePluginError> {
        self.kill_plugin();
        self.start_plugin()
    }

    fn kill_plugin(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have exited.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Adds a pod with a volume of a class.
    pub(crate) fn add_pod(&self, namespace: &str, class: &str, number: usize) -> VolumeKey {
        let uid = format!("uid-{number}");
        let volume =
            InlineVolume::new("credentials", DRIVER).with_attribute("secretProviderClass", class);
        let pod = PodSpec::new(namespace, format!("pod-{number}"), &uid).with_volume(volume);
        self.kubelet.add_pod(pod);
        VolumeKey::new(uid, "credentials")
    }

    pub(crate) fn delete_pod(&self, key: &VolumeKey) {
        self.kubelet.delete_pod(&key.pod_uid);
    }

    pub(crate) const fn kubelet(&self) -> &FakeKubelet {
        &self.kubelet
    }

    /// Waits until a condition holds.
    pub(crate) fn wait_until(
        &mut self,
        what: &'static str,
        timeout: Duration,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<(), NodePluginError> {
        let end = self.clock.monotonic().saturating_add(timeout);
        while !condition(self) {
            if self.clock.monotonic() > end {
                self.events.extend(self.kubelet.take_events());
                let events = self.events.split_off(self.events.len().saturating_sub(5));
                return Err(NodePluginError::TimedOut { what, timeout, events });
            }
            self.runtime.block_on(self.clock.sleep(POLL_INTERVAL));
        }
        Ok(())
    }

    /// The mount points below the kubelet's directory: the fifth field of `/proc/self/mountinfo` (proc(5)).
    pub(crate) fn mount_points(&self) -> Result<Vec<String>, NodePluginError> {
        let table = fs::read_to_string("/proc/self/mountinfo").map_err(NodePluginError::Mounts)?;
        let root = self.root.path().to_string_lossy();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        Ok(points.filter(|point| point.starts_with(&*root)).map(str::to_owned).collect())
    }
}

impl Drop for NodePluginProcess {
    fn drop(&mut self) {
        self.kubelet_task.abort();
        self.kill_plugin();
        for mount in self.mount_points().unwrap_or_default() {
            // `drop` cannot report an error. A mount that remains would keep the directory from being
            // removed.
            rustix::mount::unmount(mount.as_str(), UnmountFlags::DETACH).unwrap_or_default();
        }
    }
}

/// The CSI driver name of the Secrets Store project.
const DRIVER: &str = "secrets-store.csi.k8s.io";

const CLASS_FILE: &str = "classes.yaml";

/// How long the plugin may take to register.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a condition is checked, at most a hundredth of the measured time.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
