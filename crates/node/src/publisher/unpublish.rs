//! Taking a volume away.

use std::path::Path;

use super::failure::PublishFailure;
use super::volume_lock::VolumeLockGuard;
use super::{PublishEngine, disk, run_blocking};

impl PublishEngine {
    pub(super) async fn unpublish(
        &self,
        mut turn: VolumeLockGuard,
        volume_id: &str,
        target: &Path,
    ) -> Result<(), PublishFailure> {
        let place = self.parse_target(target)?;
        // What is open of it keeps a mount busy.
        let known = turn.volume_mut().take();
        if let Some(known) = &known
            && known.marker.volume_id != volume_id
        {
            let mounted = &known.marker.volume_id;
            tracing::warn!(volume_id, mounted, "another volume is mounted here; the target counts");
        }
        drop(known);
        let desk = self.context.clone();
        run_blocking(move || disk::remove_volume(&desk, &place)).await??;
        self.forget_failure(target);
        self.parts.reporter.forget_volume(target);
        Ok(())
    }
}
