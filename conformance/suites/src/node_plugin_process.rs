//! The node plugin as a process of its own, with a stand-in for the kubelet before it.

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

/// The node did not do its part.
#[derive(Debug, Error)]
pub(crate) enum NodePluginError {
    #[error("the node has no directory")]
    Directory(#[source] io::Error),
    #[error("the class cannot be written")]
    Class(#[source] serde_json::Error),
    #[error("`{} node` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("after {} s it was not so that {what}; the last events: {events:?}", patience.as_secs())]
    TimedOut { what: &'static str, patience: Duration, events: Vec<KubeletEvent> },
    #[error("the table of mounts cannot be read")]
    Mounts(#[source] io::Error),
}

/// A node with one class; what is mounted on it goes when it is dropped.
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
    /// Starts `lanyard node` and a kubelet, and waits until they have found each other.
    pub(crate) fn start(
        program: &Path,
        class: &SecretProviderClass,
        interval: &'static str,
        environment: EnvironmentVariables,
        runtime: &Arc<Runtime>,
    ) -> Result<Self, NodePluginError> {
        let root = TempDir::new().map_err(NodePluginError::Directory)?;
        fs::create_dir(root.path().join("plugins_registry")).map_err(NodePluginError::Directory)?;
        // JSON is YAML.
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

    /// Kills the plugin as hard as a machine can, and starts it again.
    pub(crate) fn restart_plugin(&mut self) -> Result<(), NodePluginError> {
        self.kill_plugin();
        self.start_plugin()
    }

    fn kill_plugin(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
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

    /// Waits until something is so.
    pub(crate) fn wait_until(
        &mut self,
        what: &'static str,
        patience: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), NodePluginError> {
        let end = self.clock.monotonic().saturating_add(patience);
        while !is_so(self) {
            if self.clock.monotonic() > end {
                self.events.extend(self.kubelet.take_events());
                let events = self.events.split_off(self.events.len().saturating_sub(5));
                return Err(NodePluginError::TimedOut { what, patience, events });
            }
            self.runtime.block_on(self.clock.sleep(POLL_INTERVAL));
        }
        Ok(())
    }

    /// Where something is mounted below the kubelet's directory: the fifth field of
    /// `/proc/self/mountinfo` (proc(5)).
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
            // Nobody is left to be told; the directory would stay.
            rustix::mount::unmount(mount.as_str(), UnmountFlags::DETACH).unwrap_or_default();
        }
    }
}

/// The driver's name, which everybody in the ecosystem knows.
const DRIVER: &str = "secrets-store.csi.k8s.io";

const CLASS_FILE: &str = "classes.yaml";

/// How long the plugin may take to be found.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How often somebody who waits looks: a hundredth of what is measured, and less.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
