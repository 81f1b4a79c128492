//! The loop that rotates and scrubs volumes without the kubelet.

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
use lanyard_provider::{ClassSource, IntervalBounds, ObjectTimestamps, PollInterval, Urgency};
use lanyard_volume::PublishError;
use tokio::task::JoinSet;

use self::scheduler::{RotationScheduler, RotationTask, RotationTaskOutcome};
use super::poll_history::PollHistory;
use crate::reporter::Reporter;

/// The mounted volumes of the node, as the [`Rotator`] uses them. The publisher implements it.
#[async_trait]
pub trait RotatableVolumes: fmt::Debug + Send + Sync {
    /// The volumes that are mounted with complete content.
    fn volumes(&self) -> Vec<RotationTarget>;

    /// Fetches the content of a volume and publishes it. The outcome is recorded in the volume's
    /// [`PollHistory`] and reported as events and status.
    ///
    /// `last_attempt` is the time of the last poll in the caller's copy of the history. If the volume is
    /// gone or was polled since, the call does nothing.
    async fn rotate(&self, target: &Path, urgency: Urgency, last_attempt: Option<Timestamp>);

    /// Scrubs the retired generations of a volume. Returns when to scrub again, or `None` if the
    /// volume is not mounted any more or needs no further scrub.
    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError>;
}

/// A mounted volume that the [`Rotator`] polls.
#[derive(Debug, Clone)]
pub struct RotationTarget {
    /// The CSI volume id.
    pub volume_id: String,
    /// The path at which the volume is mounted.
    pub target: PathBuf,
    /// The pod that uses the volume.
    pub pod: VolumePod,
    /// The name of the SecretProviderClass, in the pod's namespace.
    pub class_name: String,
    /// The polls of the volume.
    pub history: PollHistory,
    /// The timestamps of each mounted object, by object id.
    pub timestamps: BTreeMap<String, ObjectTimestamps>,
    /// The pod tokens of the last publish request; `None` if an earlier process received it.
    pub pod_credentials: Option<PodCredentials>,
    /// The number of the generation that readers see.
    pub generation: u64,
}

/// The settings of a [`Rotator`].
#[derive(Debug, Clone, Copy)]
pub struct RotatorSettings {
    /// The poll interval of volumes whose class does not set one; `None` if the node does not
    /// rotate. Scrubbing runs in either case.
    pub interval: Option<PollInterval>,
    /// The bounds of the interval that a class may set.
    pub interval_bounds: IntervalBounds,
    /// The maximum number of concurrent rotations. Publishes of the kubelet do not count.
    pub max_concurrent: NonZeroUsize,
}

impl RotatorSettings {
    /// The default of [`RotatorSettings::max_concurrent`].
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

/// Polls every mounted volume when it is due, and scrubs retired generations.
#[derive(Debug)]
pub struct Rotator {
    volumes: Arc<dyn RotatableVolumes>,
    classes: Arc<dyn ClassSource>,
    reporter: Arc<dyn Reporter>,
    clock: SharedClock,
    settings: RotatorSettings,
}

impl Rotator {
    /// Creates a rotator. It does nothing until [`Rotator::run`].
    pub fn new(
        volumes: Arc<dyn RotatableVolumes>,
        classes: Arc<dyn ClassSource>,
        reporter: Arc<dyn Reporter>,
        clock: SharedClock,
        settings: RotatorSettings,
    ) -> Self {
        Self { volumes, classes, reporter, clock, settings }
    }

    /// Runs until `stop` resolves, then waits for the tasks that have started and starts no new
    /// ones.
    ///
    /// Dropping the future stops the loop at once. No volume is lost: the publisher finishes the
    /// operations that it has started.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut scheduler = RotationScheduler::new(self.settings);
        let mut running = JoinSet::new();
        loop {
            self.poll_classes(&mut scheduler).await;
            let now = self.clock.now();
            for event in scheduler.plan_tasks(now, self.volumes.volumes()) {
                self.reporter.emit_event(event);
            }
            for task in scheduler.start_tasks() {
                running.spawn(run_task(Arc::clone(&self.volumes), task));
            }
            tokio::select! {
                () = &mut stop => break,
                () = self.clock.sleep(scheduler.sleep_duration(self.clock.now())) => {}
                Some(done) = running.join_next() => scheduler.finish_task(done.ok(), self.clock.now()),
            }
        }
        while let Some(done) = running.join_next().await {
            scheduler.finish_task(done.ok(), self.clock.now());
        }
    }

    /// Reads the rotation policy of the classes in use. If a class cannot be read in time, its last
    /// policy stays.
    async fn poll_classes(&self, scheduler: &mut RotationScheduler) {
        let now = self.clock.now();
        let keys = scheduler.classes_to_poll(now, &self.volumes.volumes());
        let reads = keys.iter().map(|(namespace, name)| async move {
            (namespace, name, self.classes.class(namespace, name).await)
        });
        let mut reads: FuturesUnordered<_> = reads.collect();
        let mut timeout = self.clock.sleep(CLASS_READ_TIMEOUT);
        loop {
            let answer = tokio::select! {
                answer = reads.next() => answer,
                () = &mut timeout => None,
            };
            match answer {
                Some((namespace, name, Ok(class))) => {
                    scheduler.record_class(now, namespace, name, &class);
                }
                Some((_, _, Err(error))) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(
                        error,
                        "could not read the class; keeping its last rotation policy"
                    );
                }
                None => return,
            }
        }
    }
}

async fn run_task(volumes: Arc<dyn RotatableVolumes>, task: RotationTask) -> RotationTaskOutcome {
    match task {
        RotationTask::Rotate { target, urgency, last_attempt } => {
            volumes.rotate(&target, urgency, last_attempt).await;
            RotationTaskOutcome::Rotated { target }
        }
        RotationTask::Scrub { target } => {
            let next_scrub = volumes.scrub(&target).await.map_err(|error| {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, target = %target.display(), "could not scrub a volume");
            });
            RotationTaskOutcome::Scrubbed { target, next_scrub }
        }
    }
}

/// The time limit for reading the classes. The source normally has them in memory.
const CLASS_READ_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
