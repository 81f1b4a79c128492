//! A process of the node plugin, called as the kubelet calls it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use lanyard_clock::SystemClock;
use lanyard_grpc::connect;
use lanyard_grpc::csi::node_client::NodeClient;
use lanyard_grpc::csi::volume_capability::access_mode::Mode;
use lanyard_grpc::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability};
use lanyard_node::Step;
use libtest_mimic::Failed;
use rustix::process::Signal;
use tonic::{Code, Status};

use super::node::Staging;

/// A running process. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Plugin {
    child: Child,
    socket: PathBuf,
    target: PathBuf,
    log: PathBuf,
}

/// When a process takes it to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    AnHourLater,
}

/// What a call came to.
#[derive(Debug)]
pub(crate) enum Answer {
    Good,
    Refused(Status),
    /// The process died meanwhile.
    CutOff(ExitStatus),
}

impl Plugin {
    /// Starts a process on the node in `dir`.
    pub(crate) fn launch(
        dir: &Path,
        target: &Path,
        (staging, start): (Staging, Start),
        crash: Option<Moment>,
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
        if staging == Staging::InPlace {
            command.env("LANYARD_MOUNT_IN_PLACE", "1");
        }
        if start == Start::AnHourLater {
            command.env("LANYARD_CLOCK_AHEAD", "3600");
        }
        let output = fs::File::options().create(true).append(true).open(&log)?;
        let child = command.stdout(output.try_clone()?).stderr(output).stdin(Stdio::null()).spawn();
        Ok(Self { child: child?, socket, target: target.to_owned(), log })
    }

    /// Waits until a new process listens: the socket of a killed one is still there.
    pub(crate) async fn serves(&mut self) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let start = clock.monotonic();
        loop {
            if tokio::net::UnixStream::connect(&self.socket).await.is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || clock.monotonic().saturating_sub(start) > LONGEST_WAIT {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("the process does not serve ({ended:?}): {log}").into());
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the process has killed itself, though nobody calls it. A step that was not
    /// reached fails the run.
    pub(crate) async fn must_end_at(&mut self, moment: Moment) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let start = clock.monotonic();
        while clock.monotonic().saturating_sub(start) <= LONGEST_WAIT {
            if let Some(ended) = self.child.try_wait()? {
                return Answer::CutOff(ended).must_be_cut_off_at(moment);
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
        Err(format!("step `{moment}` was not reached: the process lives").into())
    }

    /// Orders the volume. Another version is another attribute of it, so that a mounted volume is
    /// due at once, whatever the time.
    pub(crate) async fn publish(&mut self, version: &str) -> Answer {
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
            volume_id: VOLUME.to_owned(),
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
        self.answer(called)
    }

    pub(crate) async fn unpublish(&mut self) -> Answer {
        let target_path = self.target.display().to_string();
        let request = NodeUnpublishVolumeRequest { volume_id: VOLUME.to_owned(), target_path };
        let called = self.client().node_unpublish_volume(request).await.map(drop);
        self.answer(called)
    }

    fn client(&self) -> NodeClient<tonic::transport::Channel> {
        NodeClient::new(connect(&self.socket))
    }

    fn answer(&mut self, called: Result<(), Status>) -> Answer {
        match called {
            Ok(()) => Answer::Good,
            // The connection broke: a process that lives answers, whatever it is.
            Err(status) if is_broken(&status) => match self.child.wait() {
                Ok(ended) => Answer::CutOff(ended),
                Err(_) => Answer::Refused(status),
            },
            Err(status) => Answer::Refused(status),
        }
    }
}

/// Statuses that the node plugin gives name an outcome; those of the transport do not.
fn is_broken(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal)
        && !status.message().contains("hint:")
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// When the process shall kill itself: before a step, as often as it was reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) step: Step,
    pub(crate) time: u32,
}

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, time } = self;
        if *time == 1 { write!(formatter, "{step}") } else { write!(formatter, "{step}#{time}") }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => formatter.write_str("good"),
            Self::Refused(status) => write!(formatter, "refused with {status}"),
            Self::CutOff(ended) => write!(formatter, "cut off by {ended}"),
        }
    }
}

impl Answer {
    pub(crate) fn must_be_good(self) -> Result<(), Failed> {
        if matches!(self, Self::Good) { Ok(()) } else { Err(format!("not good: {self}").into()) }
    }

    pub(crate) fn must_be_refused(self) -> Result<(), Failed> {
        if matches!(self, Self::Refused(_)) {
            return Ok(());
        }
        Err(format!("not refused: {self}").into())
    }

    /// A step that was not reached fails the run.
    pub(crate) fn must_be_cut_off_at(self, moment: Moment) -> Result<(), Failed> {
        match self {
            Self::CutOff(ended) if ended.signal() == Some(Signal::KILL.as_raw()) => Ok(()),
            other => Err(format!("step `{moment}` was not reached: {other}").into()),
        }
    }
}

const VOLUME: &str = "csi-0123456789abcdef";

/// The machine may have much else to do.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_mins(1);
