//! Publishes the status report as an annotation of the canary's own pod.

mod pod;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::CanaryStatusReport;
use lanyard_clock::{SharedClock, period_with_jitter};
use tokio::sync::watch;

use crate::identity::{has_findings, merge_with_previous};
use crate::metrics::{AnnotationWriteResult, CanaryMetrics};

pub use self::pod::PodAnnotation;

/// Stores the status report of a canary: in a cluster, an annotation of its pod.
#[async_trait]
pub trait FactsSink: fmt::Debug + Send + Sync + 'static {
    /// Reads the last published report, which an earlier process may have written.
    ///
    /// # Errors
    ///
    /// [`PublishFactsError`] if the report cannot be read.
    async fn fetch_facts(&self) -> Result<Option<CanaryStatusReport>, PublishFactsError>;

    /// Replaces the published report.
    ///
    /// # Errors
    ///
    /// [`PublishFactsError`] if the report was not written.
    async fn apply_facts(&self, facts: &CanaryStatusReport) -> Result<(), PublishFactsError>;
}

/// The status report could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PublishFactsError {
    /// The action that failed and the API server's answer.
    pub message: String,
    /// What to do next.
    pub hint: Cow<'static, str>,
}

/// Publishes the status report when it changes, and retries failed writes.
#[derive(Debug)]
pub struct FactsPublisher {
    sink: Arc<dyn FactsSink>,
    clock: SharedClock,
    metrics: CanaryMetrics,
}

impl FactsPublisher {
    /// Creates a publisher that writes to `sink`.
    pub fn new(sink: Arc<dyn FactsSink>, clock: SharedClock, metrics: CanaryMetrics) -> Self {
        Self { sink, clock, metrics }
    }

    /// Publishes every change of `facts`; returns when the sender is dropped.
    pub(crate) async fn publish_changes(
        self,
        mut facts: watch::Receiver<Option<CanaryStatusReport>>,
    ) {
        let mut published = self.fetch_published().await;
        loop {
            let now = facts.borrow_and_update().clone().filter(has_findings);
            if let Some(now) = now {
                let now = match &published {
                    Some(before) => merge_with_previous(now, before),
                    None => now,
                };
                if published.as_ref() == Some(&now) {
                    self.metrics.record_annotation_write(AnnotationWriteResult::Unchanged);
                } else if self.write_facts(&now).await {
                    published = Some(now);
                    // Groups changes that happen together into one write and limits the write rate.
                    self.clock.sleep(MIN_WRITE_INTERVAL).await;
                } else {
                    self.clock.sleep(period_with_jitter(RETRY_DELAY, fastrand::f64())).await;
                    continue;
                }
            }
            if facts.changed().await.is_err() {
                return;
            }
        }
    }

    /// Reads the published report, retrying until it succeeds: a write must take the previous
    /// report into account.
    async fn fetch_published(&self) -> Option<CanaryStatusReport> {
        loop {
            match self.sink.fetch_facts().await {
                Ok(facts) => return facts,
                Err(error) => self.log_failure(&error),
            }
            self.clock.sleep(period_with_jitter(RETRY_DELAY, fastrand::f64())).await;
        }
    }

    async fn write_facts(&self, facts: &CanaryStatusReport) -> bool {
        match self.sink.apply_facts(facts).await {
            Ok(()) => {
                self.metrics.record_annotation_write(AnnotationWriteResult::Written);
                true
            }
            Err(error) => {
                self.log_failure(&error);
                false
            }
        }
    }

    fn log_failure(&self, error: &PublishFactsError) {
        self.metrics.record_annotation_write(AnnotationWriteResult::Failed);
        tracing::warn!(hint = &*error.hint, "{error}; trying again");
    }
}

/// The shortest time between two writes.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// The delay before the retry of a failed read or write.
const RETRY_DELAY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
