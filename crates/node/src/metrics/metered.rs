//! Counting at the seams: whoever fills volumes and whoever is told about them is counted without
//! knowing it.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use lanyard_vocabulary::OutcomeCode;

use super::NodeMetrics;
use crate::provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};
use crate::reporter::{
    PodEvent, PodEventKind, PollResult, Reporter, StatusReportError, VolumeReport,
};

/// A provider whose answers from the sealed cache are counted.
#[derive(Debug)]
pub struct MeteredProvider {
    inner: Arc<dyn Provider>,
    metrics: NodeMetrics,
}

impl MeteredProvider {
    /// Counts what `inner` does.
    pub fn new(inner: Arc<dyn Provider>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl Provider for MeteredProvider {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        self.inner.fetch(request).await.inspect(|filling| {
            if filling.stale.is_some() {
                self.metrics.record_stale_response();
            }
        })
    }
}

/// A reporter that counts what it is told.
#[derive(Debug)]
pub struct MeteredReporter {
    inner: Arc<dyn Reporter>,
    metrics: NodeMetrics,
    /// Whether nothing else counts what goes wrong.
    counts_every_failure: bool,
}

impl MeteredReporter {
    /// Counts what `inner` is told by the publisher, whose failures are counted as well where the
    /// kubelet calls and where the provider answers.
    pub fn new(inner: Arc<dyn Reporter>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics, counts_every_failure: false }
    }

    /// Counts what `inner` is told by somebody whose failures show nowhere else: the rotator, and
    /// who keeps Secrets in step.
    pub fn counting_every_failure(inner: Arc<dyn Reporter>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics, counts_every_failure: true }
    }

    fn is_counted(&self, code: OutcomeCode) -> bool {
        // What neither the kubelet's call nor the provider's answer tells.
        let told_only = matches!(
            code,
            OutcomeCode::CredentialOlder | OutcomeCode::ServedStale | OutcomeCode::StatusNotWritten
        );
        self.counts_every_failure || told_only
    }
}

#[async_trait]
impl Reporter for MeteredReporter {
    async fn report_status(&self, report: &VolumeReport) -> Result<(), StatusReportError> {
        self.inner.report_status(report).await
    }

    fn emit_event(&self, notice: PodEvent) {
        if let PodEventKind::Failed(code) = notice.kind
            && self.is_counted(code)
        {
            self.metrics.record_outcome(code);
        }
        self.inner.emit_event(notice);
    }

    fn record_poll(&self, look: &PollResult) {
        self.metrics.record_poll(look);
        self.inner.record_poll(look);
    }

    fn forget_volume(&self, target: &Path) {
        self.inner.forget_volume(target);
    }
}
