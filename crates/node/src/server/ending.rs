//! The end of parts of the process, in order.

use tokio::sync::watch;

/// Begins the end of a part. Dropping it begins it as well.
#[derive(Debug, Default)]
pub(super) struct End(watch::Sender<bool>);

/// Sees the end begin.
#[derive(Debug, Clone)]
pub(super) struct Ending(watch::Receiver<bool>);

impl End {
    pub(super) fn begin(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn ending(&self) -> Ending {
        Ending(self.0.subscribe())
    }
}

impl Ending {
    /// Returns when the end has begun. Nothing is lost if it is dropped.
    pub(super) async fn begun(&self) {
        let mut ending = self.0.clone();
        // Without anybody who could begin the end, it has begun.
        drop(ending.wait_for(|begun| *begun).await);
    }
}
