//! Helpers that wait for a condition.

use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;

/// Waits until a condition holds, for at most [`DEFAULT_TIMEOUT`].
pub(crate) async fn eventually(
    what: &str,
    condition: impl AsyncFnMut() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    eventually_within(DEFAULT_TIMEOUT, what, condition).await
}

/// Waits until a condition holds, for at most `timeout`.
pub(crate) async fn eventually_within(
    timeout: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    while !condition().await? {
        if clock.monotonic().saturating_sub(began) > timeout {
            return Err(
                format!("condition did not hold within {} s: {what}", timeout.as_secs()).into()
            );
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Sleeps, so that background work can happen.
pub(crate) async fn sleep(duration: Duration) {
    SystemClock::new().sleep(duration).await;
}

/// How long [`eventually`] waits.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(40);
/// How often a condition is checked.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
