//! The end of parts of the process, in order.

use std::time::Duration;

use tokio::sync::watch;

/// Begins the end of a part. Dropping it begins it as well, and leaves no time.
#[derive(Debug, Default)]
pub(super) struct ShutdownTrigger(watch::Sender<Option<Duration>>);

/// Sees the end begin.
#[derive(Debug, Clone)]
pub(super) struct ShutdownSignal(watch::Receiver<Option<Duration>>);

impl ShutdownTrigger {
    /// What is at work may go on until the monotonic clock says `deadline`.
    pub(super) fn trigger(&self, deadline: Duration) {
        self.0.send_replace(Some(deadline));
    }

    pub(super) fn subscribe(&self) -> ShutdownSignal {
        ShutdownSignal(self.0.subscribe())
    }
}

impl ShutdownSignal {
    /// Returns when the end has begun, and says when it is to be reached. Nothing is lost if it is
    /// dropped.
    pub(super) async fn wait(&self) -> Duration {
        let mut ending = self.0.clone();
        // Without anybody who could begin the end, it has begun.
        let begun = ending.wait_for(Option::is_some).await;
        begun.ok().and_then(|deadline| *deadline).unwrap_or_default()
    }
}
