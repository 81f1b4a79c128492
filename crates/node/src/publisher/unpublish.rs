//! Unpublishes a volume.

use std::path::Path;

use super::failure::PublishFailure;
use super::volume_lock::VolumeLockGuard;
use super::{PublishEngine, disk, run_blocking};

impl PublishEngine {
    pub(super) async fn unpublish(
        &self,
        mut guard: VolumeLockGuard,
        volume_id: &str,
        target: &Path,
    ) -> Result<(), PublishFailure> {
        let mount_target = self.parse_target(target)?;
        // An open file keeps the mount busy.
        let known = guard.volume_mut().take();
        if let Some(known) = &known
            && known.marker.volume_id != volume_id
        {
            let mounted = &known.marker.volume_id;
            tracing::warn!(
                volume_id,
                mounted,
                "the target has a volume with another id; unpublishing by target path"
            );
        }
        drop(known);
        let context = self.context.clone();
        run_blocking(move || disk::remove_volume(&context, &mount_target)).await??;
        self.forget_failure(target);
        self.parts.reporter.forget_volume(target);
        Ok(())
    }
}
