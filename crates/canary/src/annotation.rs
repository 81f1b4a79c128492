//! Telling the facts: to an annotation of the canary's own pod.

mod pod;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::CanaryStatusReport;
use lanyard_clock::SharedClock;
use tokio::sync::watch;

use crate::delays::with_jitter;
use crate::identity::{has_findings, merge_with_previous};
use crate::metrics::{AnnotationWriteResult, CanaryMetrics};

pub use self::pod::PodAnnotation;

/// Whoever takes the facts of a canary: its pod, in a cluster.
#[async_trait]
pub trait FactsSink: fmt::Debug + Send + Sync + 'static {
    /// The facts that were told last, perhaps by an earlier process.
    ///
    /// # Errors
    ///
    /// Why they cannot be had.
    async fn fetch_facts(&self) -> Result<Option<CanaryStatusReport>, PublishFactsError>;

    /// Tells facts in the place of those before.
    ///
    /// # Errors
    ///
    /// Why they were not told.
    async fn apply_facts(&self, facts: &CanaryStatusReport) -> Result<(), PublishFactsError>;
}

/// Facts were not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PublishFactsError {
    /// What was tried and what came back.
    pub message: String,
    /// What to do next.
    pub hint: &'static str,
}

/// Tells facts as they change, and goes on trying while it cannot.
#[derive(Debug)]
pub struct FactsPublisher {
    sink: Arc<dyn FactsSink>,
    clock: SharedClock,
    metrics: CanaryMetrics,
}

impl FactsPublisher {
    /// Tells to `teller`.
    pub fn new(sink: Arc<dyn FactsSink>, clock: SharedClock, metrics: CanaryMetrics) -> Self {
        Self { sink, clock, metrics }
    }

    /// Follows the facts; ends when nobody finds out any more.
    pub(crate) async fn publish_changes(
        self,
        mut facts: watch::Receiver<Option<CanaryStatusReport>>,
    ) {
        let mut told = self.fetch_published().await;
        loop {
            let now = facts.borrow_and_update().clone().filter(has_findings);
            if let Some(now) = now {
                let now = match &told {
                    Some(before) => merge_with_previous(now, before),
                    None => now,
                };
                if told.as_ref() == Some(&now) {
                    self.metrics.record_annotation_write(AnnotationWriteResult::Unchanged);
                } else if self.write_facts(&now).await {
                    told = Some(now);
                    // One write for what changes together, and never a stream of them.
                    self.clock.sleep(MIN_WRITE_INTERVAL).await;
                } else {
                    self.clock.sleep(with_jitter(RETRY_DELAY, fastrand::f64())).await;
                    continue;
                }
            }
            if facts.changed().await.is_err() {
                return;
            }
        }
    }

    /// What stands there: tried until it is known, for to write what stands there is to write.
    async fn fetch_published(&self) -> Option<CanaryStatusReport> {
        loop {
            match self.sink.fetch_facts().await {
                Ok(facts) => return facts,
                Err(error) => self.log_failure(&error),
            }
            self.clock.sleep(with_jitter(RETRY_DELAY, fastrand::f64())).await;
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
        tracing::warn!(hint = error.hint, "{error}; trying again");
    }
}

/// No two writes are closer.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// How long after a failure it is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
