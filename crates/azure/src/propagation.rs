//! Waits until a change takes effect everywhere in Azure: new roles and new objects of Entra ID.

use std::time::Duration;

use lanyard_clock::{Backoff, SharedClock};

/// Repeats requests that fail because a change has not taken effect yet.
///
/// New role assignments take up to 10 minutes, new applications and certificates usually less than one
/// (Microsoft Learn, "Troubleshoot Azure RBAC").
#[derive(Debug, Clone)]
pub struct PropagationWait {
    /// The clock for pauses.
    pub clock: SharedClock,
    /// The longest time in which a request is repeated.
    pub timeout: Duration,
}

const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(15));

impl PropagationWait {
    /// Sends a request, and sends it again after a pause while `is_temporary` says so of its error.
    ///
    /// # Errors
    ///
    /// The last error.
    pub async fn repeat<T, E, F: Future<Output = Result<T, E>>>(
        &self,
        request: impl Fn() -> F,
        is_temporary: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let began = self.clock.monotonic();
        let mut failures = 0;
        loop {
            let error = match request().await {
                Err(error) if is_temporary(&error) => error,
                result => return result,
            };
            failures += 1;
            let pause = BACKOFF.delay(failures);
            if self.clock.monotonic().saturating_sub(began).saturating_add(pause) > self.timeout {
                return Err(error);
            }
            self.clock.sleep(pause).await;
        }
    }
}
