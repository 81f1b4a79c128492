//! Publishes volumes for the kubelet and keeps them fresh.
//!
//! What concerns one target happens one after the other, different targets go on at the same time.
//! Work that was begun is finished though the caller goes away, so that no deadline leaves half a
//! volume; only who still waits for the provider is let go, when the volume is taken away meanwhile.
//!
//! A volume is filled before it is mounted, where the sandbox of the process lets it (some deny
//! fsmount(2)): a process that is killed at any moment leaves either nothing at the target or a
//! whole volume. Linux 5.8 is needed: before, nobody tells a mount from what it lies on.

mod disk;
mod failure;
mod fetch;
mod fetched_response;
mod mount_target;
mod mounted_volume;
mod pod_events;
mod publish_plan;
mod recover;
mod refresh;
mod state;
mod unpublish;
mod volume_lock;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_vocabulary::OutcomeCode;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

pub use failure::PublishFailure;
pub use recover::RecoveryOutcome;
pub use refresh::RefreshOutcome;
pub use state::VolumeState;

use crate::audit::AuditTrail;
use crate::classes::ClassSource;
use crate::error::PublishError;
use crate::fail_point::FailPoint;
use crate::memory::MemoryAccount;
use crate::mount_table::MountTable;
use crate::provider::{Provider, Urgency};
use crate::publish_request::PublishRequest;
use crate::reporter::Reporter;
use crate::rotation::{IntervalBounds, PollInterval, RotatableVolumes, RotatingVolume};
use crate::volume_step::VolumeStep;
use disk::{PublishContext, TargetInspection};
use fetched_response::FetchedResponse;
use mount_target::MountTarget;
use mounted_volume::MountedVolume;
use pod_events::PublishFailureHistory;
use publish_plan::PublishPlan;
use volume_lock::{VolumeLockGuard, VolumeLocks, VolumeMemoryBudget};

/// Publishes volumes. Clones share everything.
#[derive(Debug, Clone)]
pub struct Publisher {
    engine: Arc<PublishEngine>,
}

/// What a publisher is told once.
#[derive(Debug, Clone)]
pub struct PublisherSettings {
    /// The kubelet's directory: every target lies below it.
    pub kubelet_dir: PathBuf,
    /// The name of the CSI driver. Volumes of another driver are taken over only where the kubelet
    /// orders them from this one.
    pub driver_name: String,
    /// How often a volume is looked at whose class does not say it; nothing where the node does
    /// not rotate.
    pub interval: Option<PollInterval>,
    /// Between which intervals a class may choose.
    pub interval_bounds: IntervalBounds,
    /// How long a provider may take. The kubelet gives up after two minutes, and then knows only
    /// that time passed; so this is shorter.
    pub fetch_timeout: Duration,
    /// How long the first report of a volume is waited for, before the pod may start without it.
    pub report_timeout: Duration,
    /// How many bytes the files of one volume may have together.
    pub content_limit: u64,
    /// The memory of all volumes of the node: the pages and inodes of everything in them, retired
    /// generations included, and what is read for them. It is charged to this process, whose own
    /// limit has to leave room beside it. New volumes stop at three quarters, so that mounted ones
    /// can rotate.
    pub memory: MemoryAccount,
    /// Whether a volume is filled before it is mounted, where the kernel can.
    pub staged_mounts: bool,
    /// Where it stands that an older credential was taken because its class says so.
    pub audit: AuditTrail,
    /// Where the process shall kill itself.
    #[cfg(feature = "crash-points")]
    pub crash_at: Option<crate::CrashPoint>,
}

impl PublisherSettings {
    /// The settings of a node whose kubelet lives in `kubelet_dir`.
    pub fn new(kubelet_dir: impl Into<PathBuf>, driver_name: impl Into<String>) -> Self {
        Self {
            kubelet_dir: kubelet_dir.into(),
            driver_name: driver_name.into(),
            interval: Some(PollInterval::DEFAULT),
            interval_bounds: IntervalBounds::default(),
            fetch_timeout: Duration::from_secs(100),
            report_timeout: Duration::from_secs(5),
            content_limit: 32 * 1024 * 1024,
            memory: MemoryAccount::new(64 * 1024 * 1024),
            staged_mounts: true,
            audit: AuditTrail::disabled(),
            #[cfg(feature = "crash-points")]
            crash_at: None,
        }
    }
}

/// The memory of all volumes of a node together, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMemoryUsage {
    /// What they hold, what is being written, and what was read.
    pub used: u64,
    /// What of it was read: for volumes that are not written yet, or cached for the next ones.
    pub read_or_cached: u64,
    /// What they may hold.
    pub limit: u64,
}

impl NodeMemoryUsage {
    fn of(memory: &MemoryAccount) -> Self {
        Self { used: memory.used(), read_or_cached: memory.read_or_cached(), limit: memory.limit() }
    }
}

/// What a publisher works with.
#[derive(Debug, Clone)]
pub struct PublisherParts {
    /// Where classes are found.
    pub classes: Arc<dyn ClassSource>,
    /// Who fills volumes.
    pub provider: Arc<dyn Provider>,
    /// Who is told what became of them.
    pub reporter: Arc<dyn Reporter>,
    /// Time.
    pub clock: SharedClock,
}

impl Publisher {
    /// A publisher that knows no volume yet; see [`Publisher::recover`].
    pub fn new(settings: PublisherSettings, parts: PublisherParts) -> Self {
        #[cfg(feature = "crash-points")]
        let fuse = FailPoint::crashing_at(settings.crash_at.clone());
        #[cfg(not(feature = "crash-points"))]
        let fuse = FailPoint::default();
        let desk = PublishContext {
            shared_clock: Arc::clone(&parts.clock),
            fail_point: fuse,
            driver_name: settings.driver_name.clone(),
            content_limit: settings.content_limit,
            staged_mounts: settings.staged_mounts,
            audit: settings.audit.clone(),
        };
        let lanes = VolumeLocks::new(settings.memory.clone());
        let engine = PublishEngine {
            settings,
            parts,
            context: desk,
            locks: lanes,
            failure_history: PublishFailureHistory::default(),
        };
        Self { engine: Arc::new(engine) }
    }

    /// Finds the volumes that an earlier process left mounted, and goes on with them. To be called
    /// once, before the kubelet is served.
    ///
    /// # Errors
    ///
    /// Where the kernel is too old, and where the table of mounts cannot be read. A volume that
    /// cannot be is told in the answer and looked at again when the kubelet asks for it.
    pub async fn recover(&self) -> Result<RecoveryOutcome, PublishFailure> {
        self.engine.recover().await
    }

    /// Makes the volume of an order be there, whole.
    ///
    /// Where it is mounted and whole already it stays so whatever becomes of its rotation: what is
    /// wrong with that is told by notice, status and [`Publisher::volumes`], never to the kubelet,
    /// which would tear the volume down under a running pod.
    ///
    /// # Errors
    ///
    /// Only where the volume is not there, or not whole.
    ///
    /// # Cancel safety
    ///
    /// What was begun is finished. Who is dropped while another works on the same target has no
    /// effect.
    pub async fn publish(&self, order: PublishRequest) -> Result<(), PublishFailure> {
        self.publish_with_permit(order, None).await
    }

    /// The same; the permit is held until the work is done, though the caller may be gone by then.
    pub(crate) async fn publish_with_permit(
        &self,
        order: PublishRequest,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), PublishFailure> {
        let engine = Arc::clone(&self.engine);
        let turn = engine.locks.lock(&order.target).await;
        let work = async move {
            let _permit = permit;
            let (pod, class) = (order.pod.clone(), order.class_name.clone());
            let published = engine.publish(turn, order).await;
            engine.context.fail_point.reach_step(VolumeStep::Reply);
            published.map_err(|failure| failure.with_pod_context(&pod, &class))
        };
        run_to_completion(work).await
    }

    /// Takes the volume at `target` away. A volume that was never there, or that is there only in
    /// part, is fine.
    ///
    /// # Errors
    ///
    /// Where something of it could not be removed: `INTERNAL`, or `UNAVAILABLE` where the work
    /// broke off; in any case to be tried again.
    ///
    /// # Cancel safety
    ///
    /// As [`Publisher::publish`].
    pub async fn unpublish(&self, volume_id: &str, target: &Path) -> Result<(), PublishFailure> {
        let engine = Arc::clone(&self.engine);
        let leaving = engine.locks.begin_unpublish(target);
        let turn = engine.locks.lock(target).await;
        // Whoever asks a source from now on comes after this and wants the volume anew.
        drop(leaving);
        let (volume_id, target) = (volume_id.to_owned(), target.to_owned());
        let work = async move {
            let withdrawn = engine.unpublish(turn, &volume_id, &target).await;
            engine.context.fail_point.reach_step(VolumeStep::Reply);
            withdrawn
        };
        run_to_completion(work).await
    }

    /// Asks the source of a mounted volume again, whether it is time or not.
    ///
    /// # Errors
    ///
    /// What the volume could not be refreshed for. It is told already, and the volume is as it was.
    ///
    /// # Cancel safety
    ///
    /// As [`Publisher::publish`].
    pub async fn refresh(
        &self,
        target: &Path,
        urgency: Urgency,
    ) -> Result<RefreshOutcome, PublishFailure> {
        let engine = Arc::clone(&self.engine);
        let turn = engine.locks.lock(target).await;
        run_to_completion(async move { engine.refresh(turn, urgency).await }).await
    }

    /// What is known about every mounted volume, sorted by target.
    pub fn states(&self) -> Vec<Arc<VolumeState>> {
        self.engine.locks.states()
    }

    /// The same for who looks again and again; it keeps nothing of the publisher alive but that.
    pub(crate) fn state_reader(
        &self,
    ) -> impl Fn() -> Vec<Arc<VolumeState>> + Send + Sync + 'static + use<> {
        let lanes = self.engine.locks.clone();
        move || lanes.states()
    }

    /// How much memory the volumes hold, and may hold.
    pub fn memory(&self) -> NodeMemoryUsage {
        NodeMemoryUsage::of(&self.engine.settings.memory)
    }

    /// The same for who looks again and again; see [`Publisher::watched`].
    pub(crate) fn memory_reader(
        &self,
    ) -> impl Fn() -> NodeMemoryUsage + Send + Sync + 'static + use<> {
        let memory = self.engine.settings.memory.clone();
        move || NodeMemoryUsage::of(&memory)
    }

    /// Whether something is mounted at `target`, be it known to this process or not, and wherever
    /// that is: also a request that is refused may be for a volume that a pod uses. What cannot be
    /// looked at is taken for mounted.
    pub(crate) async fn is_mounted(&self, target: &Path) -> bool {
        if self.state(target).is_some() {
            return true;
        }
        let (dir, target) = (self.engine.settings.kubelet_dir.clone(), target.to_owned());
        let look = move || match MountTarget::parse(&dir, &target) {
            Some(place) => place.may_be_mounted(),
            None => MountTable::load().map_or(true, |table| table.layer_count(&target) > 0),
        };
        run_blocking(look).await.unwrap_or(true)
    }

    /// What is known about the volume at `target`.
    pub fn state(&self, target: &Path) -> Option<Arc<VolumeState>> {
        self.engine.locks.state(target)
    }
}

#[async_trait]
impl RotatableVolumes for Publisher {
    fn volumes(&self) -> Vec<RotatingVolume> {
        self.states().iter().map(|state| state.to_rotating_volume()).collect()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, looked: Option<Timestamp>) {
        let engine = Arc::clone(&self.engine);
        let turn = engine.locks.lock(target).await;
        // Whom it concerns is told already.
        let told =
            run_to_completion(async move { engine.rotate(turn, urgency, looked).await }).await;
        tracing::debug!(target_path = %target.display(), ?told, "rotated by itself");
    }

    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError> {
        let engine = Arc::clone(&self.engine);
        let turn = engine.locks.lock(target).await;
        let work = async move { engine.scrub(turn).await };
        tokio::spawn(work.in_current_span()).await.unwrap_or(Ok(None))
    }
}

#[derive(Debug)]
struct PublishEngine {
    settings: PublisherSettings,
    parts: PublisherParts,
    context: PublishContext,
    locks: VolumeLocks,
    failure_history: PublishFailureHistory,
}

impl PublishEngine {
    /// A failure is final for the kubelet only where nothing is mounted: it would forget the
    /// volume, and kubelets before 1.34.4 and 1.35.4 would clear the directory of a running pod.
    async fn publish(
        &self,
        mut turn: VolumeLockGuard,
        order: PublishRequest,
    ) -> Result<(), PublishFailure> {
        let place = self.parse_target(&order.target)?;
        let was_mounted = turn.volume_mut().is_some();
        match self.ensure_mounted(&mut turn, place.clone(), order).await {
            Err(failure) if failure.is_final() => {
                let look = move || place.may_be_mounted();
                let is_mounted = was_mounted || run_blocking(look).await.unwrap_or(true);
                Err(if is_mounted { failure.into_non_final() } else { failure })
            }
            brought => brought,
        }
    }

    /// Brings the volume about that is ordered.
    async fn ensure_mounted(
        &self,
        turn: &mut VolumeLockGuard,
        place: MountTarget,
        order: PublishRequest,
    ) -> Result<(), PublishFailure> {
        if self.is_intact(turn).await? {
            self.handle_republish(turn, order).await;
            return Ok(());
        }
        let TargetInspection { plan, existing: found } = self.inspect_target(&place).await?;
        match plan {
            PublishPlan::Refuse(obstacle) => {
                Err(PublishFailure::from_obstacle(obstacle, place.path()))
            }
            PublishPlan::KeepMounted { .. } => {
                let desk = self.context.clone();
                let known = order.clone();
                let take =
                    move || found.and_then(|it| it.into_mounted_volume(&desk, place, Some(known)));
                *turn.volume_mut() = run_blocking(take).await?;
                self.handle_republish(turn, order).await;
                Ok(())
            }
            PublishPlan::FillExisting => {
                self.fill_existing_mount(turn, (place, found), order).await
            }
            PublishPlan::Mount | PublishPlan::RemoveTopLayer => {
                self.mount_volume(turn, place, order).await
            }
        }
    }

    /// Fills a volume and mounts it.
    async fn mount_volume(
        &self,
        turn: &mut VolumeLockGuard,
        place: MountTarget,
        order: PublishRequest,
    ) -> Result<(), PublishFailure> {
        let (desk, known) = (self.context.clone(), order.clone());
        let mount = move |supply, account: &VolumeMemoryBudget| {
            disk::mount_new_volume(&desk, place, known, supply, account)
        };
        self.fetch_and_mount(turn, &order, mount).await
    }

    /// Fills a volume that is mounted already, in which nothing of ours is to be read yet.
    async fn fill_existing_mount(
        &self,
        turn: &mut VolumeLockGuard,
        (place, found): (MountTarget, Option<disk::ExistingMount>),
        order: PublishRequest,
    ) -> Result<(), PublishFailure> {
        let (desk, known) = (self.context.clone(), order.clone());
        let complete = move |supply, account: &VolumeMemoryBudget| {
            let lost = || PublishFailure::new(OutcomeCode::FailedToMount, "it went away");
            let found = found.ok_or_else(lost)?;
            let mut mounted =
                found.into_mounted_volume(&desk, place, Some(known)).ok_or_else(lost)?;
            disk::update_content(&desk, &mut mounted, supply, account)?;
            Ok(mounted)
        };
        self.fetch_and_mount(turn, &order, complete).await
    }

    /// Asks for what a volume shall hold, has it brought to its place, and tells what came of it.
    async fn fetch_and_mount(
        &self,
        turn: &mut VolumeLockGuard,
        order: &PublishRequest,
        bring: impl FnOnce(
            FetchedResponse,
            &VolumeMemoryBudget,
        ) -> Result<MountedVolume, PublishFailure>
        + Send
        + 'static,
    ) -> Result<(), PublishFailure> {
        let mounted = match self.fetch(turn.unpublish_requested(), order, Urgency::Mount, &[]).await
        {
            Ok(supply) => {
                let provider = Arc::clone(&supply.provider);
                let account = turn.memory_budget(supply.memory.clone());
                with_provider(provider, run_blocking(move || bring(supply, &account)).await?)
            }
            Err(failure) => Err(failure),
        };
        let mounted = mounted.inspect_err(|failure| self.emit_failure_event(order, failure))?;
        *turn.volume_mut() = Some(mounted);
        self.report_first_publish(turn).await;
        Ok(())
    }

    /// Whether the volume of this lane is as it was left. One that is not is forgotten: what
    /// stands at its place now has to be looked at.
    async fn is_intact(&self, turn: &mut VolumeLockGuard) -> Result<bool, PublishFailure> {
        let Some(mounted) = turn.volume_mut().take() else { return Ok(false) };
        let look = move || mounted.is_intact().then_some(mounted);
        let intact: Option<MountedVolume> = run_blocking(look).await?;
        *turn.volume_mut() = intact;
        Ok(turn.volume_mut().is_some())
    }

    async fn inspect_target(
        &self,
        place: &MountTarget,
    ) -> Result<TargetInspection, PublishFailure> {
        let (desk, place) = (self.context.clone(), place.clone());
        run_blocking(move || disk::inspect_target(&desk, &place)).await?
    }

    fn parse_target(&self, target: &Path) -> Result<MountTarget, PublishFailure> {
        MountTarget::parse(&self.settings.kubelet_dir, target).ok_or_else(|| {
            let message = format!(
                "target path {} is not one below the kubelet's directory {}, in its shortest form",
                target.display(),
                self.settings.kubelet_dir.display()
            );
            PublishFailure::new(OutcomeCode::InvalidRequest, message)
        })
    }
}

/// Notes whose work it was.
fn with_provider(
    provider: Arc<str>,
    mounted: Result<MountedVolume, PublishFailure>,
) -> Result<MountedVolume, PublishFailure> {
    match mounted {
        Ok(mounted) => Ok(MountedVolume { provider: Some(provider), ..mounted }),
        Err(failure) => Err(PublishFailure { provider: Some(provider), ..failure }),
    }
}

/// Sees work through to its end, whatever becomes of the caller.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, PublishFailure>> + Send + 'static,
) -> Result<T, PublishFailure> {
    tokio::spawn(work.in_current_span())
        .await
        .unwrap_or_else(|error| Err(interrupted_failure(&error)))
}

/// Runs what blocks beside the threads that serve.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PublishFailure> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work))
        .await
        .map_err(|error| interrupted_failure(&error))
}

fn interrupted_failure(error: &tokio::task::JoinError) -> PublishFailure {
    // The payload of a panic may hold anything; it is not repeated.
    let what = if error.is_panic() { "broke off" } else { "was stopped" };
    let message = format!("the work on the volume {what} inside the node plugin");
    // Nobody knows what is mounted now.
    PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message).into_non_final()
}
