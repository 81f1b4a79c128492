//! Telling the facts: to an annotation of the canary's own pod.

mod pod;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::CanaryFacts;
use lanyard_clock::SharedClock;
use tokio::sync::watch;

use crate::cadence::jittered;
use crate::identity::{carried_on, is_telling};
use crate::metrics::{CanaryMetrics, Told};

pub use self::pod::PodAnnotation;

/// Whoever takes the facts of a canary: its pod, in a cluster.
#[async_trait]
pub trait FactsTeller: fmt::Debug + Send + Sync + 'static {
    /// The facts that were told last, perhaps by an earlier process.
    ///
    /// # Errors
    ///
    /// Why they cannot be had.
    async fn fetch_facts(&self) -> Result<Option<CanaryFacts>, TellError>;

    /// Tells facts in the place of those before.
    ///
    /// # Errors
    ///
    /// Why they were not told.
    async fn apply_facts(&self, facts: &CanaryFacts) -> Result<(), TellError>;
}

/// Facts were not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TellError {
    /// What was tried and what came back.
    pub message: String,
    /// What to do next.
    pub hint: &'static str,
}

/// Tells facts as they change, and goes on trying while it cannot.
#[derive(Debug)]
pub struct Telling {
    teller: Arc<dyn FactsTeller>,
    clock: SharedClock,
    metrics: CanaryMetrics,
}

impl Telling {
    /// Tells to `teller`.
    pub fn new(teller: Arc<dyn FactsTeller>, clock: SharedClock, metrics: CanaryMetrics) -> Self {
        Self { teller, clock, metrics }
    }

    /// Follows the facts; ends when nobody finds out any more.
    pub(crate) async fn follow(self, mut facts: watch::Receiver<Option<CanaryFacts>>) {
        let mut told = self.stands().await;
        loop {
            let now = facts.borrow_and_update().clone().filter(is_telling);
            if let Some(now) = now {
                let now = match &told {
                    Some(before) => carried_on(now, before),
                    None => now,
                };
                if told.as_ref() == Some(&now) {
                    self.metrics.told(Told::Unchanged);
                } else if self.tell(&now).await {
                    told = Some(now);
                    // One write for what changes together, and never a stream of them.
                    self.clock.sleep(SHORTEST_PAUSE).await;
                } else {
                    self.clock.sleep(jittered(RETRY_PAUSE, fastrand::f64())).await;
                    continue;
                }
            }
            if facts.changed().await.is_err() {
                return;
            }
        }
    }

    /// What stands there: tried until it is known, for to write what stands there is to write.
    async fn stands(&self) -> Option<CanaryFacts> {
        loop {
            match self.teller.fetch_facts().await {
                Ok(facts) => return facts,
                Err(error) => self.warn(&error),
            }
            self.clock.sleep(jittered(RETRY_PAUSE, fastrand::f64())).await;
        }
    }

    async fn tell(&self, facts: &CanaryFacts) -> bool {
        match self.teller.apply_facts(facts).await {
            Ok(()) => {
                self.metrics.told(Told::Written);
                true
            }
            Err(error) => {
                self.warn(&error);
                false
            }
        }
    }

    fn warn(&self, error: &TellError) {
        self.metrics.told(Told::Failed);
        tracing::warn!(hint = error.hint, "{error}; trying again");
    }
}

/// No two writes are closer.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
/// How long after a failure it is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
