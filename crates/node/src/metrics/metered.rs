//! Wrappers that record metrics of a provider and a reporter.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use lanyard_provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};
use lanyard_vocabulary::OutcomeCode;

use super::NodeMetrics;
use crate::reporter::{
    PodEvent, PodEventKind, PollResult, Reporter, StatusReportError, VolumeStatusUpdate,
};

/// Counts the responses of a provider that came from the sealed cache.
#[derive(Debug)]
pub struct MeteredProvider {
    inner: Arc<dyn Provider>,
    metrics: NodeMetrics,
}

impl MeteredProvider {
    /// Wraps `inner`.
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
        self.inner.fetch(request).await.inspect(|response| {
            if response.stale.is_some() {
                self.metrics.record_stale_response();
            }
        })
    }
}

/// Records metrics of the events and polls that go to a reporter.
#[derive(Debug)]
pub struct MeteredReporter {
    inner: Arc<dyn Reporter>,
    metrics: NodeMetrics,
    /// Whether no other metric counts these failures.
    counts_every_failure: bool,
}

impl MeteredReporter {
    /// Wraps the reporter of the publisher, whose failures are also counted by the calls of the kubelet and
    /// by the provider.
    pub fn new(inner: Arc<dyn Reporter>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics, counts_every_failure: false }
    }

    /// Wraps a reporter whose failures no other metric counts: those of the rotator and of the Secret
    /// synchronization.
    pub fn counting_every_failure(inner: Arc<dyn Reporter>, metrics: NodeMetrics) -> Self {
        Self { inner, metrics, counts_every_failure: true }
    }

    fn is_counted(&self, code: OutcomeCode) -> bool {
        // Failures that neither a call of the kubelet nor a provider response shows.
        let has_no_other_metric = matches!(
            code,
            OutcomeCode::CredentialOlder | OutcomeCode::ServedStale | OutcomeCode::StatusNotWritten
        );
        self.counts_every_failure || has_no_other_metric
    }
}

#[async_trait]
impl Reporter for MeteredReporter {
    async fn report_status(&self, report: &VolumeStatusUpdate) -> Result<(), StatusReportError> {
        self.inner.report_status(report).await
    }

    fn emit_event(&self, event: PodEvent) {
        if let PodEventKind::Failed(code) = event.kind
            && self.is_counted(code)
        {
            self.metrics.record_outcome(code);
        }
        self.inner.emit_event(event);
    }

    fn record_poll(&self, poll: &PollResult) {
        self.metrics.record_poll(poll);
        self.inner.record_poll(poll);
    }

    fn forget_volume(&self, target: &Path) {
        self.inner.forget_volume(target);
    }
}
