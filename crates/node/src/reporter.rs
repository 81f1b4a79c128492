//! Who is told what became of a volume: the seam between publishing and the Kubernetes API.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::VolumeFacts;
use lanyard_keyvault::Pod;
use lanyard_vocabulary::{Hop, OutcomeCode};

use crate::provider::ObjectVersion;

/// Is told what became of volumes. The Kubernetes API in a cluster; nobody where there is none.
#[async_trait]
pub trait Reporter: fmt::Debug + Send + Sync {
    /// Makes the pod status of a mounted volume say what it holds and how it is. Equal reports
    /// cost no write.
    ///
    /// # Errors
    ///
    /// Where the status could not be written; the volume stays as it is.
    async fn report(&self, report: &VolumeReport) -> Result<(), ReportError>;

    /// Tells the people who look at the pod. Never waits for the API and never fails: what cannot
    /// be told is logged.
    fn tell(&self, notice: Notice);

    /// A look for newer content of a mounted volume ended. For those who count.
    fn looked(&self, _look: &Looked) {}

    /// The volume is gone.
    fn forget(&self, target: &std::path::Path);
}

/// How a look for newer content of a mounted volume ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The provider, as the class names it; nothing where no class was found.
    pub provider: Option<Arc<str>>,
    /// How long it took until readers saw what came of it.
    pub took: Duration,
    /// Whether readers see something newer now.
    pub outcome: Result<bool, OutcomeCode>,
    /// How long after they were made in the vault new versions were seen by readers.
    pub lags: Vec<Duration>,
}

/// How a mounted volume is.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeReport {
    /// Whose it is.
    pub pod: Pod,
    /// Its class.
    pub class_name: String,
    /// Where it is mounted.
    pub target: PathBuf,
    /// What it holds, sorted by id.
    pub objects: Vec<ObjectVersion>,
    /// What the operator and the doctor read.
    pub facts: VolumeFacts,
}

/// Something that people who look at a pod should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whose volume it is about.
    pub pod: Pod,
    /// What happened.
    pub kind: NoticeKind,
    /// What was tried, what came back and what to do next; no secrets.
    pub message: String,
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The volume holds something newer now.
    MountRotationComplete,
    /// Something is wrong, at this hop and of this code.
    Failed(OutcomeCode),
    /// It was wrong, with this code, and is good again.
    Recovered(OutcomeCode),
}

impl NoticeKind {
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
pub struct ReportError {
    /// What came back.
    pub message: String,
}

/// Tells nobody: for a node without a Kubernetes API.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReporter;

#[async_trait]
impl Reporter for NoReporter {
    async fn report(&self, _report: &VolumeReport) -> Result<(), ReportError> {
        Ok(())
    }

    fn tell(&self, notice: Notice) {
        tracing::info!(pod = %notice.pod, kind = ?notice.kind, "{}", notice.message);
    }

    fn forget(&self, _target: &std::path::Path) {}
}
