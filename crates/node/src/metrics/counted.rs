//! Counting at the seams: whoever fills volumes and whoever is told about them is counted without
//! knowing it.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_vocabulary::OutcomeCode;

use super::NodeMetrics;
use crate::provider::{FillRequest, Filling, Provider, Refusal, Urgency};
use crate::reporter::{Notice, NoticeKind, ReportError, Reporter, VolumeReport};

/// A provider whose rotations are counted.
#[derive(Debug)]
pub struct CountedProvider {
    inner: Arc<dyn Provider>,
    metrics: NodeMetrics,
    clock: SharedClock,
}

impl CountedProvider {
    /// Counts what `inner` does.
    pub fn new(inner: Arc<dyn Provider>, metrics: NodeMetrics, clock: SharedClock) -> Self {
        Self { inner, metrics, clock }
    }

    fn count_filling(&self, request: &FillRequest<'_>, filling: &Filling) {
        if filling.stale_since.is_some() {
            self.metrics.served_stale();
            return;
        }
        let class = request.class.metadata.name.as_deref().unwrap_or_default();
        let target = Path::new(request.target);
        self.metrics.volume_checked(target, &request.pod.namespace, class);
        if request.urgency == Urgency::Mount {
            return;
        }
        let now = self.clock.now();
        let newer = filling.versions.iter().filter(|it| !request.mounted.contains(it));
        let created = |id: &String| filling.stamps.get(id).and_then(|stamps| stamps.created);
        for created in newer.filter_map(|version| created(&version.id)) {
            self.metrics.swapped_after(since(created, now));
        }
    }
}

#[async_trait]
impl Provider for CountedProvider {
    async fn fill(&self, request: &FillRequest<'_>) -> Result<Filling, Refusal> {
        let name = request.class.spec.provider.as_deref().unwrap_or_default();
        let start = self.clock.monotonic();
        let result = self.inner.fill(request).await;
        let took = self.clock.monotonic().saturating_sub(start);
        self.metrics.filled_by(Path::new(request.target), name);
        if request.urgency != Urgency::Mount {
            let rotated = match &result {
                Ok(filling) => Ok(filling.versions != request.mounted),
                Err(refusal) => Err(refusal.code),
            };
            self.metrics.rotated(name, took, rotated);
        }
        result.inspect(|filling| self.count_filling(request, filling))
    }
}

/// A reporter whose reports are counted.
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
        self.metrics.volume_reported(report);
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

    fn forget(&self, target: &Path) {
        self.metrics.volume_gone(target);
        self.inner.forget(target);
    }
}

fn since(start: Timestamp, now: Timestamp) -> std::time::Duration {
    now.duration_since(start).try_into().unwrap_or_default()
}
