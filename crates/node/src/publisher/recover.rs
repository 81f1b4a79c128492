//! Going on with the volumes of an earlier process.

use std::path::{Path, PathBuf};

use super::disk::{self, PublishContext};
use super::failure::PublishFailure;
use super::mount_target::{MountTarget, has_required_kernel_features};
use super::mounted_volume::MountedVolume;
use super::publish_plan::PublishPlan;
use super::{PublishEngine, run_blocking};
use crate::error::PublishError;
use crate::mount_table::MountTable;
use lanyard_vocabulary::{OutcomeCode, format_error_chain};

/// What an earlier process left.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RecoveryOutcome {
    /// How many volumes are whole and known.
    pub volumes: usize,
    /// Where something is mounted that could not be looked at, and why.
    pub problems: Vec<(PathBuf, PublishFailure)>,
}

impl PublishEngine {
    pub(super) async fn recover(&self) -> Result<RecoveryOutcome, PublishFailure> {
        let kubelet_dir = self.settings.kubelet_dir.clone();
        if !run_blocking(move || has_required_kernel_features(&kubelet_dir)).await? {
            let message =
                "the kernel cannot tell mounts from what they lie on, or openat2 is denied";
            return Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message)
                .with_hint(
                    "run Linux 5.8 or newer, with a seccomp profile that lets openat2 pass",
                ));
        }
        let kubelet_dir = self.settings.kubelet_dir.clone();
        let points = move || find_volume_mounts(&kubelet_dir);
        let points = run_blocking(points).await?.map_err(|error| {
            PublishFailure::from_publish_error(OutcomeCode::FailedToEnsureMountPoint, &error)
        })?;
        let mut recovered = RecoveryOutcome::default();
        for point in points {
            let Some(place) = MountTarget::parse(&self.settings.kubelet_dir, &point) else {
                continue;
            };
            let mut turn = self.locks.lock(&point).await;
            let desk = self.context.clone();
            match run_blocking(move || recover_volume(&desk, place)).await? {
                Ok(Some(mounted)) => {
                    recovered.volumes = recovered.volumes.saturating_add(1);
                    *turn.volume_mut() = Some(mounted);
                }
                Ok(None) => {}
                Err(failure) => {
                    let error = format_error_chain(&failure);
                    tracing::warn!(target_path = %point.display(), error, "not taken over");
                    recovered.problems.push((point, failure));
                }
            }
        }
        let (memory, limit) = (self.settings.memory.used(), self.settings.memory.limit());
        if memory > limit {
            tracing::warn!(
                memory,
                limit,
                "the volumes of an earlier process hold more memory than volumes may: they stay, \
                 and neither take new content nor leave room for more",
            );
        }
        tracing::info!(
            memory,
            volumes = recovered.volumes,
            problems = recovered.problems.len(),
            "looked for the volumes of an earlier process"
        );
        Ok(recovered)
    }
}

/// The volume at a place, if its marker says that it is one of this driver.
fn recover_volume(
    desk: &PublishContext,
    place: MountTarget,
) -> Result<Option<MountedVolume>, PublishFailure> {
    let survey = disk::inspect_target_read_only(desk, &place)?;
    let (PublishPlan::KeepMounted { .. }, Some(found)) = (survey.plan, survey.existing) else {
        return Ok(None);
    };
    Ok(found.into_mounted_volume(desk, place, None))
}

/// Where volumes may be mounted, named as the kubelet names them.
fn find_volume_mounts(kubelet_dir: &Path) -> Result<Vec<PathBuf>, PublishError> {
    // The table knows no link on the way to the kubelet's directory.
    let real = std::fs::canonicalize(kubelet_dir).unwrap_or_else(|_| kubelet_dir.to_owned());
    let points = MountTable::load()?.tmpfs_mounts_below(&real);
    let below = points.iter().filter_map(|point| point.strip_prefix(&real).ok());
    Ok(below
        .filter(|below| below.iter().any(|part| part == "kubernetes.io~csi"))
        .map(|below| kubelet_dir.join(below))
        .collect())
}
