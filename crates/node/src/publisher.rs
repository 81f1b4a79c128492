//! Publishes volumes for the kubelet and keeps their content up to date.
//!
//! The publisher runs operations on one target one after the other, and operations on different
//! targets concurrently. An operation that has started runs to completion even if its caller is
//! dropped, so a call deadline never leaves a half-written volume. An unpublish only cancels a
//! fetch that still waits for the provider.
//!
//! Where the sandbox allows it (some seccomp profiles deny fsmount(2)), the publisher writes a
//! volume before it mounts it. A process that is killed at any moment then leaves either nothing at
//! the target or a complete volume. Linux 5.8 or newer is required: older kernels cannot
//! distinguish a mount from the directory below it.

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
use lanyard_provider::{ClassSource, IntervalBounds, PollInterval, Provider, Urgency};
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::{FailPoint, MountTable, PublishError, VolumeStep};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

pub use failure::PublishFailure;
pub use recover::RecoveryOutcome;
pub use refresh::RefreshOutcome;
pub use state::VolumeSnapshot;

use crate::audit::AuditTrail;
use crate::memory::MemoryAccount;
use crate::publish_request::PublishRequest;
use crate::reporter::Reporter;
use crate::rotation::{RotatableVolumes, RotationTarget};
use disk::{PublishContext, TargetInspection};
use fetched_response::FetchedResponse;
use mount_target::MountTarget;
use mounted_volume::MountedVolume;
use pod_events::PublishFailureHistory;
use publish_plan::PublishPlan;
use volume_lock::{VolumeLockGuard, VolumeLocks, VolumeMemoryBudget};

/// Publishes, refreshes and unpublishes volumes. Clones share all state.
#[derive(Debug, Clone)]
pub struct Publisher {
    engine: Arc<PublishEngine>,
}

/// The settings of a [`Publisher`].
#[derive(Debug, Clone)]
pub struct PublisherSettings {
    /// The kubelet's root directory. Every target path lies below it.
    pub kubelet_dir: PathBuf,
    /// The name of the CSI driver. The publisher adopts a volume of another driver only when the
    /// kubelet requests that volume from this one.
    pub driver_name: String,
    /// The poll interval of volumes whose class does not set one; `None` if the node does not
    /// rotate.
    pub interval: Option<PollInterval>,
    /// The bounds of the interval that a class may set.
    pub interval_bounds: IntervalBounds,
    /// The time limit of one fetch. It is shorter than the kubelet's call timeout of two minutes,
    /// after which the kubelet would report only that time ran out.
    pub fetch_timeout: Duration,
    /// How long a publish waits for the first status report before the pod may start without it.
    pub report_timeout: Duration,
    /// The maximum total size of the files of one volume, in bytes.
    pub content_limit: u64,
    /// The memory account of all volumes of the node: pages and inodes of their content, retired
    /// generations included, and the responses being read for them. The kernel charges this memory
    /// to the process, so the container's memory limit must be larger. New volumes may use three
    /// quarters of it; the rest is reserved for rotations of mounted volumes.
    pub memory: MemoryAccount,
    /// Whether a volume is written before it is mounted, if the kernel supports it.
    pub staged_mounts: bool,
    /// The audit trail. It records each older credential that was accepted because the class allows
    /// it.
    pub audit: AuditTrail,
    /// The crash point at which the process kills itself.
    #[cfg(feature = "crash-points")]
    pub crash_at: Option<lanyard_volume::CrashPoint>,
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

/// The memory usage of all volumes of a node, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMemoryUsage {
    /// Bytes in volumes, in writes that are in progress, and in fetched responses.
    pub used: u64,
    /// The part of `used` that was fetched but is not in a volume: for pending writes, or in the
    /// cache.
    pub read_or_cached: u64,
    /// The limit of `used`.
    pub limit: u64,
}

impl NodeMemoryUsage {
    fn of(memory: &MemoryAccount) -> Self {
        Self { used: memory.used(), read_or_cached: memory.read_or_cached(), limit: memory.limit() }
    }
}

/// The dependencies of a [`Publisher`].
#[derive(Debug, Clone)]
pub struct PublisherParts {
    /// Looks up SecretProviderClasses.
    pub classes: Arc<dyn ClassSource>,
    /// Fetches the content of volumes.
    pub provider: Arc<dyn Provider>,
    /// Receives pod events, pod status and poll results.
    pub reporter: Arc<dyn Reporter>,
    /// The clock of all timestamps and timeouts.
    pub clock: SharedClock,
}

impl Publisher {
    /// Creates a publisher without volumes; see [`Publisher::recover`].
    pub fn new(settings: PublisherSettings, parts: PublisherParts) -> Self {
        #[cfg(feature = "crash-points")]
        let fail_point = FailPoint::crashing_at(settings.crash_at.clone());
        #[cfg(not(feature = "crash-points"))]
        let fail_point = FailPoint::default();
        let context = PublishContext {
            shared_clock: Arc::clone(&parts.clock),
            fail_point,
            driver_name: settings.driver_name.clone(),
            content_limit: settings.content_limit,
            staged_mounts: settings.staged_mounts,
            audit: settings.audit.clone(),
        };
        let locks = VolumeLocks::new(settings.memory.clone());
        let engine = PublishEngine {
            settings,
            parts,
            context,
            locks,
            failure_history: PublishFailureHistory::default(),
        };
        Self { engine: Arc::new(engine) }
    }

    /// Adopts the volumes that an earlier process left mounted. Call it once, before the CSI server
    /// accepts calls.
    ///
    /// # Errors
    ///
    /// Fails if the kernel is too old or the mount table cannot be read. A volume that cannot be
    /// read does not fail the call: [`RecoveryOutcome::problems`] lists it, and the next publish
    /// inspects it again.
    pub async fn recover(&self) -> Result<RecoveryOutcome, PublishFailure> {
        self.engine.recover().await
    }

    /// Mounts the requested volume with complete content.
    ///
    /// If a complete volume is mounted already, the call succeeds even if its refresh fails.
    /// Refresh errors appear in pod events, pod status and [`Publisher::states`] but never reach
    /// the kubelet, which would tear the volume down under a running pod.
    ///
    /// # Errors
    ///
    /// Fails only if the volume is not mounted or its content is incomplete.
    ///
    /// # Cancel safety
    ///
    /// An operation that has started runs to completion. Dropping the future while another call
    /// holds the lock of this target is a no-op.
    pub async fn publish(&self, request: PublishRequest) -> Result<(), PublishFailure> {
        self.publish_with_permit(request, None).await
    }

    /// Like [`Publisher::publish`]. The operation holds the permit until it ends, even if the
    /// caller is gone.
    pub(crate) async fn publish_with_permit(
        &self,
        request: PublishRequest,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), PublishFailure> {
        let engine = Arc::clone(&self.engine);
        let guard = engine.locks.lock(&request.target).await;
        let work = async move {
            let _permit = permit;
            let (pod, class) = (request.pod.clone(), request.class_name.clone());
            let published = engine.publish(guard, request).await;
            engine.context.fail_point.reach_step(VolumeStep::Reply);
            published.map_err(|failure| failure.with_pod_context(&pod, &class))
        };
        run_to_completion(work).await
    }

    /// Unmounts and removes the volume at `target`. A missing or partial volume is not an error.
    ///
    /// # Errors
    ///
    /// Fails with `INTERNAL` if a part of the volume could not be removed, and with `UNAVAILABLE`
    /// if the operation was interrupted. The kubelet retries both.
    ///
    /// # Cancel safety
    ///
    /// Like [`Publisher::publish`].
    pub async fn unpublish(&self, volume_id: &str, target: &Path) -> Result<(), PublishFailure> {
        let engine = Arc::clone(&self.engine);
        let intent = engine.locks.begin_unpublish(target);
        let guard = engine.locks.lock(target).await;
        // A fetch that starts from now on runs after this unpublish and is for a new volume.
        drop(intent);
        let (volume_id, target) = (volume_id.to_owned(), target.to_owned());
        let work = async move {
            let result = engine.unpublish(guard, &volume_id, &target).await;
            engine.context.fail_point.reach_step(VolumeStep::Reply);
            result
        };
        run_to_completion(work).await
    }

    /// Fetches the content of a mounted volume and updates the volume, whether a poll is due or
    /// not.
    ///
    /// # Errors
    ///
    /// Returns the failure of the fetch or the update. The publisher has reported it already, and
    /// the volume is unchanged.
    ///
    /// # Cancel safety
    ///
    /// Like [`Publisher::publish`].
    pub async fn refresh(
        &self,
        target: &Path,
        urgency: Urgency,
    ) -> Result<RefreshOutcome, PublishFailure> {
        let engine = Arc::clone(&self.engine);
        let guard = engine.locks.lock(target).await;
        run_to_completion(async move { engine.refresh(guard, urgency).await }).await
    }

    /// The states of all mounted volumes, sorted by target.
    pub fn states(&self) -> Vec<Arc<VolumeSnapshot>> {
        self.engine.locks.states()
    }

    /// Returns a closure that reads [`Publisher::states`] and keeps only the volume locks alive.
    pub(crate) fn state_reader(
        &self,
    ) -> impl Fn() -> Vec<Arc<VolumeSnapshot>> + Send + Sync + 'static + use<> {
        let locks = self.engine.locks.clone();
        move || locks.states()
    }

    /// The memory usage and limit of all volumes.
    pub fn memory(&self) -> NodeMemoryUsage {
        NodeMemoryUsage::of(&self.engine.settings.memory)
    }

    /// Returns a closure that reads [`Publisher::memory`] and keeps only the memory account alive.
    pub(crate) fn memory_reader(
        &self,
    ) -> impl Fn() -> NodeMemoryUsage + Send + Sync + 'static + use<> {
        let memory = self.engine.settings.memory.clone();
        move || NodeMemoryUsage::of(&memory)
    }

    /// Whether something is mounted at `target`, known to this process or not. It accepts any path,
    /// because a rejected request can also name a volume that a pod uses. Returns `true` if the
    /// target cannot be inspected.
    pub(crate) async fn is_mounted(&self, target: &Path) -> bool {
        if self.state(target).is_some() {
            return true;
        }
        let (dir, target) = (self.engine.settings.kubelet_dir.clone(), target.to_owned());
        let probe = move || match MountTarget::parse(&dir, &target) {
            Some(place) => place.may_be_mounted(),
            None => MountTable::load().map_or(true, |table| table.layer_count(&target) > 0),
        };
        run_blocking(probe).await.unwrap_or(true)
    }

    /// The state of the volume at `target`, if one is mounted.
    pub fn state(&self, target: &Path) -> Option<Arc<VolumeSnapshot>> {
        self.engine.locks.state(target)
    }
}

#[async_trait]
impl RotatableVolumes for Publisher {
    fn volumes(&self) -> Vec<RotationTarget> {
        self.states().iter().map(|state| state.to_rotation_target()).collect()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, polled: Option<Timestamp>) {
        let engine = Arc::clone(&self.engine);
        let guard = engine.locks.lock(target).await;
        // `rotate` has reported the outcome already.
        let outcome =
            run_to_completion(async move { engine.rotate(guard, urgency, polled).await }).await;
        tracing::debug!(target_path = %target.display(), ?outcome, "scheduled rotation finished");
    }

    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError> {
        let engine = Arc::clone(&self.engine);
        let guard = engine.locks.lock(target).await;
        let work = async move { engine.scrub(guard).await };
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
    /// Publishes one request. A failure is final for the kubelet only if nothing is mounted: after
    /// a final failure the kubelet forgets the volume, and kubelets before 1.34.4 and 1.35.4 clear
    /// the directory of a running pod.
    async fn publish(
        &self,
        mut guard: VolumeLockGuard,
        request: PublishRequest,
    ) -> Result<(), PublishFailure> {
        let target = self.parse_target(&request.target)?;
        let was_mounted = guard.volume_mut().is_some();
        match self.ensure_mounted(&mut guard, target.clone(), request).await {
            Err(failure) if failure.is_final() => {
                let probe = move || target.may_be_mounted();
                let is_mounted = was_mounted || run_blocking(probe).await.unwrap_or(true);
                Err(if is_mounted { failure.into_non_final() } else { failure })
            }
            result => result,
        }
    }

    /// Mounts the requested volume, or keeps the mounted one and refreshes it if a poll is due.
    async fn ensure_mounted(
        &self,
        guard: &mut VolumeLockGuard,
        target: MountTarget,
        request: PublishRequest,
    ) -> Result<(), PublishFailure> {
        if self.is_intact(guard).await? {
            self.handle_republish(guard, request).await;
            return Ok(());
        }
        let TargetInspection { plan, existing } = self.inspect_target(&target).await?;
        match plan {
            PublishPlan::Refuse(obstacle) => {
                Err(PublishFailure::from_obstacle(obstacle, target.path()))
            }
            PublishPlan::KeepMounted { .. } => {
                let context = self.context.clone();
                let known = request.clone();
                let take = move || {
                    existing.and_then(|it| it.into_mounted_volume(&context, target, Some(known)))
                };
                *guard.volume_mut() = run_blocking(take).await?;
                self.handle_republish(guard, request).await;
                Ok(())
            }
            PublishPlan::FillExisting => {
                self.fill_existing_mount(guard, (target, existing), request).await
            }
            PublishPlan::Mount | PublishPlan::RemoveTopLayer => {
                self.mount_volume(guard, target, request).await
            }
        }
    }

    /// Fetches the content and mounts a new volume with it.
    async fn mount_volume(
        &self,
        guard: &mut VolumeLockGuard,
        target: MountTarget,
        request: PublishRequest,
    ) -> Result<(), PublishFailure> {
        let (context, known) = (self.context.clone(), request.clone());
        let mount = move |response, account: &VolumeMemoryBudget| {
            disk::mount_new_volume(&context, target, known, response, account)
        };
        self.fetch_and_mount(guard, &request, mount).await
    }

    /// Fetches the content and writes it into an existing mount that shows no generation of this
    /// driver.
    async fn fill_existing_mount(
        &self,
        guard: &mut VolumeLockGuard,
        (target, existing): (MountTarget, Option<disk::ExistingMount>),
        request: PublishRequest,
    ) -> Result<(), PublishFailure> {
        let (context, known) = (self.context.clone(), request.clone());
        let complete = move |response, account: &VolumeMemoryBudget| {
            let lost = || {
                PublishFailure::new(OutcomeCode::FailedToMount, "the existing mount disappeared")
            };
            let existing = existing.ok_or_else(lost)?;
            let mut mounted =
                existing.into_mounted_volume(&context, target, Some(known)).ok_or_else(lost)?;
            disk::update_content(&context, &mut mounted, response, account)?;
            Ok(mounted)
        };
        self.fetch_and_mount(guard, &request, complete).await
    }

    /// Fetches the content, mounts the volume with `mount`, and reports the outcome.
    async fn fetch_and_mount(
        &self,
        guard: &mut VolumeLockGuard,
        request: &PublishRequest,
        mount: impl FnOnce(
            FetchedResponse,
            &VolumeMemoryBudget,
        ) -> Result<MountedVolume, PublishFailure>
        + Send
        + 'static,
    ) -> Result<(), PublishFailure> {
        let mounted =
            match self.fetch(guard.unpublish_requested(), request, Urgency::Mount, &[]).await {
                Ok(response) => {
                    let provider = Arc::clone(&response.provider);
                    let account = guard.memory_budget(response.memory.clone());
                    with_provider(provider, run_blocking(move || mount(response, &account)).await?)
                }
                Err(failure) => Err(failure),
            };
        let mounted = mounted.inspect_err(|failure| self.emit_failure_event(request, failure))?;
        *guard.volume_mut() = Some(mounted);
        self.report_first_publish(guard).await;
        Ok(())
    }

    /// Whether the mounted volume of this lock is unchanged since its last operation. If it is not,
    /// the lock forgets the volume, so that the caller inspects the target again.
    async fn is_intact(&self, guard: &mut VolumeLockGuard) -> Result<bool, PublishFailure> {
        let Some(mounted) = guard.volume_mut().take() else { return Ok(false) };
        let probe = move || mounted.is_intact().then_some(mounted);
        let intact: Option<MountedVolume> = run_blocking(probe).await?;
        *guard.volume_mut() = intact;
        Ok(guard.volume_mut().is_some())
    }

    async fn inspect_target(
        &self,
        target: &MountTarget,
    ) -> Result<TargetInspection, PublishFailure> {
        let (context, target) = (self.context.clone(), target.clone());
        run_blocking(move || disk::inspect_target(&context, &target)).await?
    }

    fn parse_target(&self, target: &Path) -> Result<MountTarget, PublishFailure> {
        MountTarget::parse(&self.settings.kubelet_dir, target).ok_or_else(|| {
            let message = format!(
                "target path {} is not a normalized path below the kubelet's directory {}",
                target.display(),
                self.settings.kubelet_dir.display()
            );
            PublishFailure::new(OutcomeCode::InvalidRequest, message)
        })
    }
}

/// Sets the provider on the volume or the failure.
fn with_provider(
    provider: Arc<str>,
    mounted: Result<MountedVolume, PublishFailure>,
) -> Result<MountedVolume, PublishFailure> {
    match mounted {
        Ok(mounted) => Ok(MountedVolume { provider: Some(provider), ..mounted }),
        Err(failure) => Err(PublishFailure { provider: Some(provider), ..failure }),
    }
}

/// Spawns `work`, so that it runs to completion even if the caller is dropped.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, PublishFailure>> + Send + 'static,
) -> Result<T, PublishFailure> {
    tokio::spawn(work.in_current_span())
        .await
        .unwrap_or_else(|error| Err(interrupted_failure(&error)))
}

/// Runs `work` on the blocking thread pool.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PublishFailure> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work))
        .await
        .map_err(|error| interrupted_failure(&error))
}

fn interrupted_failure(error: &tokio::task::JoinError) -> PublishFailure {
    // A panic payload may contain secrets, so the message does not include it.
    let what = if error.is_panic() { "panicked" } else { "was cancelled" };
    let message = format!("the node plugin's task for the volume {what}");
    // The state of the mount is unknown now.
    PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message).into_non_final()
}
