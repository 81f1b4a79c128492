//! A node with one node plugin process in a cgroup, and the calls of its kubelet.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lanyard_clock::SystemClock;
use lanyard_grpc::channel_to_socket;
use lanyard_grpc::csi::node_client::NodeClient;
use lanyard_grpc::csi::volume_capability::{AccessType, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, VolumeCapability};
use libtest_mimic::Failed;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use tonic::Status;

use super::cgroup::MemoryCgroup;
use super::vault::MemoryTestVault;
use crate::MemoryTestClass;

/// A node. Dropping it unmounts everything below it.
pub(crate) struct MemoryTestNode {
    child: Child,
    kubelet: MemoryTestKubelet,
    pub(crate) vault: MemoryTestVault,
    dir: TempDir,
    // Dropped last, because it contains the process.
    pub(crate) cgroup: MemoryCgroup,
}

/// The kubelet's side of the CSI socket.
#[derive(Debug, Clone)]
pub(crate) struct MemoryTestKubelet(PathBuf);

impl MemoryTestNode {
    /// Starts the node plugin and waits until it serves.
    pub(crate) async fn start(
        classes: &[MemoryTestClass],
        cgroup: MemoryCgroup,
    ) -> Result<Self, Failed> {
        let dir = tempfile::tempdir()?;
        let vault = MemoryTestVault::serve(dir.path()).await?;
        fs::create_dir(dir.path().join("kubelet"))?;
        fs::write(
            dir.path().join("classes.yaml"),
            classes.iter().map(class_yaml).collect::<String>(),
        )?;
        let child = launch_in_cgroup(dir.path(), &vault, &cgroup)?;
        let kubelet = MemoryTestKubelet(dir.path().to_owned());
        let mut node = Self { child, kubelet, vault, dir, cgroup };
        node.wait_until_serving().await?;
        Ok(node)
    }

    pub(crate) fn kubelet(&self) -> MemoryTestKubelet {
        self.kubelet.clone()
    }

    /// Mounts the volume of a pod.
    pub(crate) async fn publish(&self, pod: &str, class: &str) -> Result<(), Failed> {
        let published = self.kubelet.publish(pod, class).await;
        Ok(published.map_err(|status| format!("pod {pod}: {status}"))?)
    }

    /// Checks that the pod reads this version.
    pub(crate) fn check_version(&self, pod: &str, version: u64) -> Result<(), Failed> {
        let observed = fs::read_to_string(self.kubelet.target_path(pod).join("one"))?;
        let is_shown = observed == MemoryTestVault::small_secret_value(version);
        if is_shown {
            Ok(())
        } else {
            Err(format!("pod {pod} reads {observed}, not {version}").into())
        }
    }

    /// Waits until the pod reads this version.
    pub(crate) async fn wait_for_version(&self, pod: &str, version: u64) -> Result<(), Failed> {
        while self.check_version(pod, version).is_err() {
            SystemClock::shared().sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Checks that the process still runs and was never killed.
    pub(crate) fn check_alive(&self) -> Result<(), Failed> {
        let kills = self.cgroup.oom_kills()?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let is_running = stat.is_ok_and(|stat| !stat.contains(") Z "));
        if kills == 0 && is_running {
            return Ok(());
        }
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let log: Vec<_> = log.lines().rev().take(5).collect();
        Err(format!("the process was killed ({kills} kills, running: {is_running}): {log:?}")
            .into())
    }

    async fn wait_until_serving(&mut self) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let start = clock.monotonic();
        loop {
            if tokio::net::UnixStream::connect(self.kubelet.socket_path()).await.is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || clock.monotonic().saturating_sub(start) > START_TIMEOUT {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                return Err(format!("the process does not serve ({ended:?}): {log}").into());
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for MemoryTestNode {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        for point in points.filter(|point| point.starts_with(self.dir.path())) {
            let _gone = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

impl MemoryTestKubelet {
    pub(crate) async fn publish(&self, pod: &str, class: &str) -> Result<(), Status> {
        let target = self.target_path(pod);
        // The kubelet creates the parent directories before the call, but not the target.
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let context = [
            ("secretProviderClass", class),
            ("csi.storage.k8s.io/pod.name", pod),
            ("csi.storage.k8s.io/pod.namespace", "ns"),
            ("csi.storage.k8s.io/pod.uid", pod),
            ("csi.storage.k8s.io/serviceAccount.name", "sa"),
            ("csi.storage.k8s.io/ephemeral", "true"),
        ];
        let request = NodePublishVolumeRequest {
            volume_id: format!("csi-{pod}"),
            target_path: target.display().to_string(),
            volume_capability: Some(VolumeCapability {
                access_mode: None,
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            readonly: true,
            volume_context: context.map(|(key, text)| (key.to_owned(), text.to_owned())).into(),
            publish_context: BTreeMap::new(),
            staging_target_path: String::new(),
            secrets: BTreeMap::new(),
        };
        let mut client = NodeClient::new(channel_to_socket(&self.socket_path()));
        client.node_publish_volume(request).await.map(drop)
    }

    fn target_path(&self, pod: &str) -> PathBuf {
        self.0.join(format!("kubelet/pods/{pod}/volumes/kubernetes.io~csi/v/mount"))
    }

    fn socket_path(&self) -> PathBuf {
        self.0.join("csi.sock")
    }
}

/// Starts the process in the cgroup: a shell joins the cgroup and executes the program.
fn launch_in_cgroup(
    dir: &Path,
    vault: &MemoryTestVault,
    cgroup: &MemoryCgroup,
) -> Result<Child, Failed> {
    let mut command = Command::new("/bin/sh");
    command.env_clear().args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(cgroup.procs_file());
    command.arg(env!("CARGO_BIN_EXE_lanyard"));
    command.args(["node", "--nodeid", "node", "--registration-dir", ""]);
    command.args(["--additional-provider-volume-paths", "", "--provider-volume", "/nonexistent"]);
    command.args(["--healthz-port", "0", "--metrics-addr", "0"]);
    command.args(["--container-memory-limit", "128Mi", "--rotation-poll-interval", "1s"]);
    command.args(["--vault-requests-per-second", "400", "--vault-request-burst", "400"]);
    command.arg("--endpoint").arg(format!("unix://{}", dir.join("csi.sock").display()));
    command.arg("--kubelet-dir").arg(dir.join("kubelet"));
    command.arg("--classes").arg(dir.join("classes.yaml"));
    command.env("HTTPS_PROXY", vault.proxy_url());
    command.env("SSL_CERT_FILE", vault.ca_file());
    command.env("AZURE_POD_IDENTITY_AUTHORITY_HOST", vault.metadata_url());
    let output = fs::File::create(dir.join("log"))?;
    Ok(command.stdout(output.try_clone()?).stderr(output).stdin(Stdio::null()).spawn()?)
}

fn class_yaml(class: &MemoryTestClass) -> String {
    let mut objects = String::new();
    for (name, alias) in &class.entries {
        // Writing to a string cannot fail.
        let _infallible = write!(
            objects,
            "        - |\n          objectName: {name}\n          objectType: secret\n          \
             objectAlias: {alias}\n"
        );
        if class.history > 0 {
            let _infallible =
                writeln!(objects, "          objectVersionHistory: {}", class.history);
        }
    }
    format!(
        "---\napiVersion: secrets-store.csi.x-k8s.io/v1\nkind: SecretProviderClass\nmetadata:\n  \
         namespace: ns\n  name: {}\nspec:\n  provider: azure\n  parameters:\n    keyvaultName: {}\n    \
         tenantID: 11111111-1111-1111-1111-111111111111\n    useVMManagedIdentity: \"true\"\n    \
         objects: |\n      array:\n{objects}",
        class.name, class.vault
    )
}

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Long enough for a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);
