//! Reports about volumes: the [`Reporter`] trait between the publisher and the Kubernetes API.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::VolumeStatusReport;
use lanyard_keyvault::VolumePod;
use lanyard_provider::ProviderObjectVersion;
use lanyard_vocabulary::{Hop, OutcomeCode};

/// Reports the state of volumes: to the Kubernetes API in a cluster, to the log without one.
#[async_trait]
pub trait Reporter: fmt::Debug + Send + Sync {
    /// Updates the pod status of a mounted volume. An unchanged report causes no write.
    ///
    /// # Errors
    ///
    /// Returns an error if the status could not be written. The volume is unaffected.
    async fn report_status(&self, report: &VolumeStatusUpdate) -> Result<(), StatusReportError>;

    /// Emits a Kubernetes event on the pod. Does not wait for the API and never fails; events that cannot be
    /// sent are logged.
    fn emit_event(&self, event: PodEvent);

    /// Records a finished poll of a mounted volume, for metrics.
    fn record_poll(&self, _poll: &PollResult) {}

    /// Forgets what was last written for the volume at `target`, after its unmount. Its pod status in the API
    /// stays, because the pod owns it.
    fn forget_volume(&self, target: &std::path::Path);
}

/// The result of one poll of a mounted volume for newer content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollResult {
    /// The provider named by the class; `None` if the class was not found.
    pub provider: Option<Arc<str>>,
    /// The time from the start of the poll until its result was visible to readers.
    pub duration: Duration,
    /// Whether readers see newer content now, or the outcome code of the failure.
    pub outcome: Result<bool, OutcomeCode>,
    /// For each new version, the time from its creation in the vault until readers saw it.
    pub rotation_lags: Vec<Duration>,
}

/// The status of a mounted volume, which a [`Reporter`] writes to the Kubernetes API.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeStatusUpdate {
    /// The pod that mounts the volume.
    pub pod: VolumePod,
    /// The name of the SecretProviderClass.
    pub class_name: String,
    /// The path of the mount.
    pub target: PathBuf,
    /// The mounted object versions, sorted by id.
    pub objects: Vec<ProviderObjectVersion>,
    /// The details that the operator reads.
    pub facts: VolumeStatusReport,
}

/// An event about a volume, to be shown on its pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod of the volume.
    pub pod: VolumePod,
    /// What happened.
    pub kind: PodEventKind,
    /// What was tried, what came back and what to do next; no secrets.
    pub message: String,
}

/// The kind of a [`PodEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PodEventKind {
    /// The volume holds newer content.
    MountRotationComplete,
    /// The provider warns about content that it returned.
    ContentWarning,
    /// The volume failed with this outcome code.
    Failed(OutcomeCode),
    /// The volume recovered from a failure with this outcome code.
    Recovered(OutcomeCode),
}

impl PodEventKind {
    /// Whether the event is a warning, in Kubernetes and in the log.
    pub const fn is_warning(self) -> bool {
        match self {
            Self::ContentWarning | Self::Failed(_) => true,
            Self::MountRotationComplete | Self::Recovered(_) => false,
        }
    }

    /// The hop of the failure.
    pub const fn hop(self) -> Option<Hop> {
        match self {
            Self::Failed(code) | Self::Recovered(code) => Some(code.hop()),
            Self::MountRotationComplete | Self::ContentWarning => None,
        }
    }
}

/// The pod status of a volume could not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not write the pod status: {message}")]
pub struct StatusReportError {
    /// The error of the API, as text.
    pub message: String,
}

/// Logs events and discards reports, for a node without a Kubernetes API.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopReporter;

#[async_trait]
impl Reporter for NoopReporter {
    async fn report_status(&self, _report: &VolumeStatusUpdate) -> Result<(), StatusReportError> {
        Ok(())
    }

    fn emit_event(&self, event: PodEvent) {
        let PodEvent { pod, kind, message } = event;
        if kind.is_warning() {
            tracing::warn!(%pod, ?kind, "{message}");
        } else {
            tracing::info!(%pod, ?kind, "{message}");
        }
    }

    fn forget_volume(&self, _target: &std::path::Path) {}
}
