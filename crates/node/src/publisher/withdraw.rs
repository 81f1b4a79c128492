//! Taking a volume away.

use std::path::Path;

use super::failure::PublishFailure;
use super::lane::Turn;
use super::{Engine, blocking, disk};

impl Engine {
    pub(super) async fn withdraw(
        &self,
        mut turn: Turn,
        volume_id: &str,
        target: &Path,
    ) -> Result<(), PublishFailure> {
        let place = self.place(target)?;
        // What is open of it keeps a mount busy.
        let known = turn.mounted().take();
        if let Some(known) = &known
            && known.marker.volume_id != volume_id
        {
            let mounted = &known.marker.volume_id;
            tracing::warn!(volume_id, mounted, "another volume is mounted here; the target counts");
        }
        drop(known);
        let desk = self.desk.clone();
        blocking(move || disk::withdraw(&desk, &place)).await??;
        self.forget_failure(target);
        self.parts.reporter.forget(target);
        Ok(())
    }
}
