//! Who is told what became of a volume: the seam between publishing and the Kubernetes API.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::VolumeStatusReport;
use lanyard_keyvault::VolumePod;
use lanyard_vocabulary::{Hop, OutcomeCode};

use crate::provider::ProviderObjectVersion;

/// Is told what became of volumes. The Kubernetes API in a cluster; nobody where there is none.
#[async_trait]
pub trait Reporter: fmt::Debug + Send + Sync {
    /// Makes the pod status of a mounted volume say what it holds and how it is. Equal reports
    /// cost no write.
    ///
    /// # Errors
    ///
    /// Where the status could not be written; the volume stays as it is.
    async fn report_status(&self, report: &VolumeReport) -> Result<(), StatusReportError>;

    /// Tells the people who look at the pod. Never waits for the API and never fails: what cannot
    /// be told is logged.
    fn emit_event(&self, notice: PodEvent);

    /// A look for newer content of a mounted volume ended. For those who count.
    fn record_poll(&self, _look: &PollResult) {}

    /// The volume is gone.
    fn forget_volume(&self, target: &std::path::Path);
}

/// How a look for newer content of a mounted volume ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollResult {
    /// The provider, as the class names it; nothing where no class was found.
    pub provider: Option<Arc<str>>,
    /// How long it took until readers saw what came of it.
    pub duration: Duration,
    /// Whether readers see something newer now.
    pub outcome: Result<bool, OutcomeCode>,
    /// How long after they were made in the vault new versions were seen by readers.
    pub rotation_lags: Vec<Duration>,
}

/// How a mounted volume is.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeReport {
    /// Whose it is.
    pub pod: VolumePod,
    /// Its class.
    pub class_name: String,
    /// Where it is mounted.
    pub target: PathBuf,
    /// What it holds, sorted by id.
    pub objects: Vec<ProviderObjectVersion>,
    /// What the operator and the doctor read.
    pub facts: VolumeStatusReport,
}

/// Something that people who look at a pod should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    /// Whose volume it is about.
    pub pod: VolumePod,
    /// What happened.
    pub kind: PodEventKind,
    /// What was tried, what came back and what to do next; no secrets.
    pub message: String,
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PodEventKind {
    /// The volume holds something newer now.
    MountRotationComplete,
    /// Something is wrong, at this hop and of this code.
    Failed(OutcomeCode),
    /// It was wrong, with this code, and is good again.
    Recovered(OutcomeCode),
}

impl PodEventKind {
    /// The hop that a failure is about.
    pub const fn hop(self) -> Option<Hop> {
        match self {
            Self::Failed(code) | Self::Recovered(code) => Some(code.hop()),
            Self::MountRotationComplete => None,
        }
    }
}

/// The status of a volume could not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not write the pod status: {message}")]
pub struct StatusReportError {
    /// What came back.
    pub message: String,
}

/// Tells nobody: for a node without a Kubernetes API.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopReporter;

#[async_trait]
impl Reporter for NoopReporter {
    async fn report_status(&self, _report: &VolumeReport) -> Result<(), StatusReportError> {
        Ok(())
    }

    fn emit_event(&self, notice: PodEvent) {
        tracing::info!(pod = %notice.pod, kind = ?notice.kind, "{}", notice.message);
    }

    fn forget_volume(&self, _target: &std::path::Path) {}
}
