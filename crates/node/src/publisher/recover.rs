//! Adopts the volumes of an earlier process.

use std::path::{Path, PathBuf};

use super::disk::{self, PublishContext};
use super::failure::PublishFailure;
use super::mount_target::{MountTarget, has_required_kernel_features};
use super::mounted_volume::MountedVolume;
use super::publish_plan::PublishPlan;
use super::{PublishEngine, run_blocking};
use lanyard_vocabulary::{OutcomeCode, format_error_chain};
use lanyard_volume::{MountTable, PublishError};

/// The outcome of [`Publisher::recover`](super::Publisher::recover).
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RecoveryOutcome {
    /// The number of adopted volumes.
    pub volumes: usize,
    /// The mount points that could not be inspected, with the reason.
    pub problems: Vec<(PathBuf, PublishFailure)>,
}

impl PublishEngine {
    pub(super) async fn recover(&self) -> Result<RecoveryOutcome, PublishFailure> {
        let kubelet_dir = self.settings.kubelet_dir.clone();
        if !run_blocking(move || has_required_kernel_features(&kubelet_dir)).await? {
            let message = "the kernel does not report mount ids, or the sandbox denies openat2";
            return Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message)
                .with_hint("run Linux 5.8 or newer, with a seccomp profile that allows openat2"));
        }
        let kubelet_dir = self.settings.kubelet_dir.clone();
        let points = move || find_volume_mounts(&kubelet_dir);
        let points = run_blocking(points).await?.map_err(|error| {
            PublishFailure::from_publish_error(OutcomeCode::FailedToEnsureMountPoint, &error)
        })?;
        let mut recovered = RecoveryOutcome::default();
        for point in points {
            let Some(target) = MountTarget::parse(&self.settings.kubelet_dir, &point) else {
                continue;
            };
            let mut guard = self.locks.lock(&point).await;
            let context = self.context.clone();
            match run_blocking(move || recover_volume(&context, target)).await? {
                Ok(Some(mounted)) => {
                    recovered.volumes = recovered.volumes.saturating_add(1);
                    *guard.volume_mut() = Some(mounted);
                }
                Ok(None) => {}
                Err(failure) => {
                    let error = format_error_chain(&failure);
                    tracing::warn!(target_path = %point.display(), error, "could not adopt a mounted volume");
                    recovered.problems.push((point, failure));
                }
            }
        }
        let (memory, limit) = (self.settings.memory.used(), self.settings.memory.limit());
        if memory > limit {
            tracing::warn!(
                memory,
                limit,
                "the adopted volumes exceed the memory limit: they stay mounted but \
                 cannot be updated, and new volumes cannot be mounted",
            );
        }
        tracing::info!(
            memory,
            volumes = recovered.volumes,
            problems = recovered.problems.len(),
            "adopted the volumes of an earlier process"
        );
        Ok(recovered)
    }
}

/// Adopts the volume at a target if its marker names this driver.
fn recover_volume(
    context: &PublishContext,
    target: MountTarget,
) -> Result<Option<MountedVolume>, PublishFailure> {
    let inspection = disk::inspect_target_read_only(context, &target)?;
    let (PublishPlan::KeepMounted { .. }, Some(existing)) = (inspection.plan, inspection.existing)
    else {
        return Ok(None);
    };
    Ok(existing.into_mounted_volume(context, target, None))
}

/// The tmpfs mount points of CSI volumes, as the kubelet spells their paths.
fn find_volume_mounts(kubelet_dir: &Path) -> Result<Vec<PathBuf>, PublishError> {
    // The mount table has resolved paths.
    let real = std::fs::canonicalize(kubelet_dir).unwrap_or_else(|_| kubelet_dir.to_owned());
    let points = MountTable::load()?.tmpfs_mounts_below(&real);
    let below = points.iter().filter_map(|point| point.strip_prefix(&real).ok());
    Ok(below
        .filter(|below| below.iter().any(|part| part == "kubernetes.io~csi"))
        .map(|below| kubelet_dir.join(below))
        .collect())
}
