//! Shutdown signals, which stop parts of the process in order.

use std::time::Duration;

use tokio::sync::watch;

/// Triggers the shutdown of a part. Dropping the trigger starts the shutdown with no time to drain.
#[derive(Debug, Default)]
pub(super) struct ShutdownTrigger(watch::Sender<Option<Duration>>);

/// Receives the signal of a [`ShutdownTrigger`].
#[derive(Debug, Clone)]
pub(super) struct ShutdownSignal(watch::Receiver<Option<Duration>>);

impl ShutdownTrigger {
    /// Starts the shutdown. Running work may continue until the monotonic clock reaches `deadline`.
    pub(super) fn trigger(&self, deadline: Duration) {
        self.0.send_replace(Some(deadline));
    }

    pub(super) fn subscribe(&self) -> ShutdownSignal {
        ShutdownSignal(self.0.subscribe())
    }
}

impl ShutdownSignal {
    /// Waits for the start of the shutdown and returns its deadline. Cancel safe.
    pub(super) async fn wait(&self) -> Duration {
        let mut signal = self.0.clone();
        // A dropped trigger counts as a shutdown without time to drain.
        let started = signal.wait_for(Option::is_some).await;
        started.ok().and_then(|deadline| *deadline).unwrap_or_default()
    }
}
