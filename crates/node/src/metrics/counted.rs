//! Counting at the seams: whoever fills volumes and whoever is told about them is counted without
//! knowing it.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use lanyard_vocabulary::OutcomeCode;

use super::NodeMetrics;
use crate::provider::{FillRequest, Filling, Provider, Refusal};
use crate::reporter::{Looked, Notice, NoticeKind, ReportError, Reporter, VolumeReport};

/// A provider whose answers from the sealed cache are counted.
#[derive(Debug)]
pub struct CountedProvider {
    inner: Arc<dyn Provider>,
    metrics: NodeMetrics,
}

impl CountedProvider {
    /// Counts what `inner` does.
    pub fn new(inner: Arc<dyn Provider>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl Provider for CountedProvider {
    async fn fill(&self, request: &FillRequest<'_>) -> Result<Filling, Refusal> {
        self.inner.fill(request).await.inspect(|filling| {
            if filling.stale.is_some() {
                self.metrics.served_stale();
            }
        })
    }
}

/// A reporter that counts what it is told.
#[derive(Debug)]
pub struct CountedReporter {
    inner: Arc<dyn Reporter>,
    metrics: NodeMetrics,
    /// Whether nothing else counts what goes wrong.
    alone: bool,
}

impl CountedReporter {
    /// Counts what `inner` is told by the publisher, whose failures are counted as well where the
    /// kubelet calls and where the provider answers.
    pub fn new(inner: Arc<dyn Reporter>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics, alone: false }
    }

    /// Counts what `inner` is told by somebody whose failures show nowhere else: the rotator, and
    /// who keeps Secrets in step.
    pub fn of_notices_alone(inner: Arc<dyn Reporter>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics, alone: true }
    }

    fn counts(&self, code: OutcomeCode) -> bool {
        // What neither the kubelet's call nor the provider's answer tells.
        let told_only = matches!(
            code,
            OutcomeCode::CredentialOlder | OutcomeCode::ServedStale | OutcomeCode::StatusNotWritten
        );
        self.alone || told_only
    }
}

#[async_trait]
impl Reporter for CountedReporter {
    async fn report(&self, report: &VolumeReport) -> Result<(), ReportError> {
        self.inner.report(report).await
    }

    fn tell(&self, notice: Notice) {
        if let NoticeKind::Failed(code) = notice.kind
            && self.counts(code)
        {
            self.metrics.went_wrong(code);
        }
        self.inner.tell(notice);
    }

    fn looked(&self, look: &Looked) {
        self.metrics.looked(look);
        self.inner.looked(look);
    }

    fn forget(&self, target: &Path) {
        self.inner.forget(target);
    }
}
