//! A node plugin process, called as the kubelet does.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use lanyard_clock::SystemClock;
use lanyard_grpc::channel_to_socket;
use lanyard_grpc::csi::node_client::NodeClient;
use lanyard_grpc::csi::volume_capability::access_mode::Mode;
use lanyard_grpc::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability};
use lanyard_volume::VolumeStep;
use libtest_mimic::Failed;
use rustix::process::Signal;
use tonic::{Code, Status};

use super::node::VolumeStaging;

/// A running process. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct CrashTestPlugin {
    child: Child,
    socket: PathBuf,
    target: PathBuf,
    log: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessClock {
    SystemTime,
    OneHourAhead,
}

#[derive(Debug)]
pub(crate) enum CsiCallResult {
    Good,
    Refused(Status),
    /// The process was killed during the call.
    Killed(ExitStatus),
}

impl CrashTestPlugin {
    /// Starts a process on the node in `dir`.
    pub(crate) fn launch(
        dir: &Path,
        target: &Path,
        (staging, start): (VolumeStaging, ProcessClock),
        crash: Option<CrashTrigger>,
    ) -> Result<Self, Failed> {
        let socket = dir.join("csi.sock");
        let log = dir.join("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
        command.env_clear().args(["node", "--nodeid", "node", "--azure-provider", "socket"]);
        command.args(["--registration-dir", "", "--additional-provider-volume-paths", ""]);
        command.args(["--healthz-port", "0", "--metrics-addr", "0"]);
        command.arg("--endpoint").arg(format!("unix://{}", socket.display()));
        command.arg("--kubelet-dir").arg(dir.join("kubelet"));
        command.arg("--provider-volume").arg(dir.join("providers"));
        command.arg("--classes").arg(dir.join("classes.yaml"));
        if let Some(moment) = crash {
            command.env("LANYARD_CRASH_AT", moment.to_string());
        }
        if staging == VolumeStaging::InPlace {
            command.env("LANYARD_MOUNT_IN_PLACE", "1");
        }
        if start == ProcessClock::OneHourAhead {
            command.env("LANYARD_CLOCK_AHEAD", "3600");
        }
        let output = fs::File::options().create(true).append(true).open(&log)?;
        let child = command.stdout(output.try_clone()?).stderr(output).stdin(Stdio::null()).spawn();
        Ok(Self { child: child?, socket, target: target.to_owned(), log })
    }

    /// Waits until the new process accepts connections: the socket of a killed process still exists.
    pub(crate) async fn wait_until_serving(&mut self) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let start = clock.monotonic();
        loop {
            if tokio::net::UnixStream::connect(&self.socket).await.is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || clock.monotonic().saturating_sub(start) > WAIT_TIMEOUT {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("the process does not serve ({ended:?}): {log}").into());
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the process has killed itself without a call. Returns an error if it does not reach the
    /// step.
    pub(crate) async fn expect_killed_at(&mut self, moment: CrashTrigger) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let start = clock.monotonic();
        while clock.monotonic().saturating_sub(start) <= WAIT_TIMEOUT {
            if let Some(ended) = self.child.try_wait()? {
                return CsiCallResult::Killed(ended).expect_killed_at(moment);
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
        Err(format!("step `{moment}` was not reached: the process lives").into())
    }

    /// Publishes the volume. The version is also a volume attribute, so that a mounted volume is updated
    /// immediately, regardless of the time.
    pub(crate) async fn publish(&mut self, version: &str) -> CsiCallResult {
        let context = [
            ("secretProviderClass", "class"),
            ("version", version),
            ("csi.storage.k8s.io/pod.name", "pod"),
            ("csi.storage.k8s.io/pod.namespace", "ns"),
            ("csi.storage.k8s.io/pod.uid", "uid"),
            ("csi.storage.k8s.io/serviceAccount.name", "sa"),
            ("csi.storage.k8s.io/ephemeral", "true"),
        ];
        let mount = MountVolume { volume_mount_group: "2000".to_owned(), ..MountVolume::default() };
        let request = NodePublishVolumeRequest {
            volume_id: VOLUME_ID.to_owned(),
            target_path: self.target.display().to_string(),
            volume_capability: Some(VolumeCapability {
                access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
                access_type: Some(AccessType::Mount(mount)),
            }),
            readonly: true,
            volume_context: context.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            publish_context: BTreeMap::new(),
            staging_target_path: String::new(),
            secrets: BTreeMap::new(),
        };
        let called = self.client().node_publish_volume(request).await.map(drop);
        self.call_result(called)
    }

    pub(crate) async fn unpublish(&mut self) -> CsiCallResult {
        let target_path = self.target.display().to_string();
        let request = NodeUnpublishVolumeRequest { volume_id: VOLUME_ID.to_owned(), target_path };
        let called = self.client().node_unpublish_volume(request).await.map(drop);
        self.call_result(called)
    }

    fn client(&self) -> NodeClient<tonic::transport::Channel> {
        NodeClient::new(channel_to_socket(&self.socket))
    }

    fn call_result(&mut self, called: Result<(), Status>) -> CsiCallResult {
        match called {
            Ok(()) => CsiCallResult::Good,
            // The connection broke. A running process always responds.
            Err(status) if is_transport_error(&status) => match self.child.wait() {
                Ok(ended) => CsiCallResult::Killed(ended),
                Err(_) => CsiCallResult::Refused(status),
            },
            Err(status) => CsiCallResult::Refused(status),
        }
    }
}

/// Whether the status comes from the transport. Statuses of the node plugin contain a hint.
fn is_transport_error(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal)
        && !status.message().contains("hint:")
}

impl Drop for CrashTestPlugin {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// When the process kills itself: before the given occurrence of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrashTrigger {
    pub(crate) step: VolumeStep,
    pub(crate) occurrence: u32,
}

impl fmt::Display for CrashTrigger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, occurrence: time } = self;
        if *time == 1 { write!(formatter, "{step}") } else { write!(formatter, "{step}#{time}") }
    }
}

impl fmt::Display for CsiCallResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => formatter.write_str("good"),
            Self::Refused(status) => write!(formatter, "refused with {status}"),
            Self::Killed(ended) => write!(formatter, "cut off by {ended}"),
        }
    }
}

impl CsiCallResult {
    pub(crate) fn expect_good(self) -> Result<(), Failed> {
        if matches!(self, Self::Good) { Ok(()) } else { Err(format!("not good: {self}").into()) }
    }

    pub(crate) fn expect_refused(self) -> Result<(), Failed> {
        if matches!(self, Self::Refused(_)) {
            return Ok(());
        }
        Err(format!("not refused: {self}").into())
    }

    /// Returns an error if the process did not reach the step.
    pub(crate) fn expect_killed_at(self, moment: CrashTrigger) -> Result<(), Failed> {
        match self {
            Self::Killed(ended) if ended.signal() == Some(Signal::KILL.as_raw()) => Ok(()),
            other => Err(format!("step `{moment}` was not reached: {other}").into()),
        }
    }
}

const VOLUME_ID: &str = "csi-0123456789abcdef";

/// Long enough for a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
