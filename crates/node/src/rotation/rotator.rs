//! The loop that rotates and scrubs without the kubelet's help: thin.

mod event_history;
mod scheduler;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_keyvault::{PodCredentials, VolumePod};
use tokio::task::JoinSet;

use self::scheduler::{RotationScheduler, RotationTask, RotationTaskOutcome};
use super::interval::{IntervalBounds, PollInterval};
use super::poll_history::PollHistory;
use crate::classes::ClassSource;
use crate::error::PublishError;
use crate::provider::{ObjectTimestamps, Urgency};
use crate::reporter::Reporter;

/// The mounted volumes of the node, and what can be done with them: the seam between the loop
/// and the publisher.
#[async_trait]
pub trait RotatableVolumes: fmt::Debug + Send + Sync {
    /// The volumes that are mounted and whole now.
    fn volumes(&self) -> Vec<RotatingVolume>;

    /// Asks the provider for a volume and publishes what it gives. How it went shows in the
    /// volume's clock; who has to be told is told.
    ///
    /// Nothing is done for a volume that is gone or was looked at meanwhile: `looked` is what its
    /// clock said.
    async fn rotate(&self, target: &Path, urgency: Urgency, looked: Option<Timestamp>);

    /// Scrubs the retired generations of a volume; returns when to do it again. A volume that is
    /// gone needs it no more.
    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError>;
}

/// A mounted volume, as far as the loop has to know it.
#[derive(Debug, Clone)]
pub struct RotatingVolume {
    /// Its id.
    pub volume_id: String,
    /// Where it is mounted.
    pub target: PathBuf,
    /// Whose it is.
    pub pod: VolumePod,
    /// Its class, in the pod's namespace.
    pub class_name: String,
    /// What is remembered about the looks at it.
    pub history: PollHistory,
    /// What is known about the times of each object that it holds.
    pub timestamps: BTreeMap<String, ObjectTimestamps>,
    /// What the kubelet brought last; nothing where that was to an earlier process.
    pub proofs: Option<PodCredentials>,
    /// The number of the generation that readers see.
    pub generation: u64,
}

/// How a [`Rotator`] works.
#[derive(Debug, Clone, Copy)]
pub struct RotatorSettings {
    /// How often a volume is looked at whose class does not say it; nothing where the node does
    /// not rotate. It scrubs all the same.
    pub interval: Option<PollInterval>,
    /// Between which intervals a class may choose.
    pub interval_bounds: IntervalBounds,
    /// How many volumes are rotated at once. Publishes of the kubelet do not count.
    pub max_concurrent: NonZeroUsize,
}

impl RotatorSettings {
    /// How many volumes are rotated at once unless it is said otherwise.
    pub const DEFAULT_MAX_CONCURRENT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);
}

impl Default for RotatorSettings {
    fn default() -> Self {
        Self {
            interval: Some(PollInterval::DEFAULT),
            interval_bounds: IntervalBounds::default(),
            max_concurrent: Self::DEFAULT_MAX_CONCURRENT,
        }
    }
}

/// Rotates every mounted volume when it is due, and scrubs what has retired.
#[derive(Debug)]
pub struct Rotator {
    volumes: Arc<dyn RotatableVolumes>,
    classes: Arc<dyn ClassSource>,
    reporter: Arc<dyn Reporter>,
    clock: SharedClock,
    settings: RotatorSettings,
}

impl Rotator {
    /// A rotator of these volumes.
    pub fn new(
        volumes: Arc<dyn RotatableVolumes>,
        classes: Arc<dyn ClassSource>,
        reporter: Arc<dyn Reporter>,
        clock: SharedClock,
        settings: RotatorSettings,
    ) -> Self {
        Self { volumes, classes, reporter, clock, settings }
    }

    /// Works until `stop` is ready. What has begun then is brought to its end; nothing new is.
    ///
    /// Dropping the future ends it at once, which loses no volume: the publisher finishes or
    /// undoes what it is at.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut rounds = RotationScheduler::new(self.settings);
        let mut running = JoinSet::new();
        loop {
            self.poll_classes(&mut rounds).await;
            let now = self.clock.now();
            for notice in rounds.plan_tasks(now, self.volumes.volumes()) {
                self.reporter.emit_event(notice);
            }
            for task in rounds.start_tasks() {
                running.spawn(run_task(Arc::clone(&self.volumes), task));
            }
            tokio::select! {
                () = &mut stop => break,
                () = self.clock.sleep(rounds.sleep_duration(self.clock.now())) => {}
                Some(done) = running.join_next() => rounds.finish_task(done.ok(), self.clock.now()),
            }
        }
        while let Some(done) = running.join_next().await {
            rounds.finish_task(done.ok(), self.clock.now());
        }
    }

    /// Looks which wishes the classes in use carry now. A source that does not answer leaves
    /// those that were seen last.
    async fn poll_classes(&self, rounds: &mut RotationScheduler) {
        let now = self.clock.now();
        let wanted = rounds.classes_to_poll(now, &self.volumes.volumes());
        let answers = wanted.iter().map(|(namespace, name)| async move {
            (namespace, name, self.classes.class(namespace, name).await)
        });
        let mut answers: FuturesUnordered<_> = answers.collect();
        let mut patience = self.clock.sleep(CLASS_READ_TIMEOUT);
        loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                () = &mut patience => None,
            };
            match answer {
                Some((namespace, name, Ok(class))) => {
                    rounds.record_class(now, namespace, name, &class)
                }
                Some((_, _, Err(error))) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(error, "the wishes of the class stay as they were seen last");
                }
                None => return,
            }
        }
    }
}

async fn run_task(volumes: Arc<dyn RotatableVolumes>, task: RotationTask) -> RotationTaskOutcome {
    match task {
        RotationTask::Rotate { target, urgency, looked } => {
            volumes.rotate(&target, urgency, looked).await;
            RotationTaskOutcome::Rotated { target }
        }
        RotationTask::Scrub { target } => {
            let again = volumes.scrub(&target).await.map_err(|error| {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, target = %target.display(), "could not scrub a volume");
            });
            RotationTaskOutcome::Scrubbed { target, next_scrub: again }
        }
    }
}

/// How long the classes may take to be found: the source has them in memory, or is in trouble.
const CLASS_READ_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
