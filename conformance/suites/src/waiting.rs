//! Waiting in trials for what others do meanwhile.

use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;

/// Waits until something is so.
pub(crate) async fn eventually(
    what: &str,
    is_so: impl AsyncFnMut() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    eventually_within(DEFAULT_TIMEOUT, what, is_so).await
}

/// The same for what may take its time.
pub(crate) async fn eventually_within(
    patience: Duration,
    what: &str,
    mut is_so: impl AsyncFnMut() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    while !is_so().await? {
        if clock.monotonic().saturating_sub(began) > patience {
            return Err(format!("after {} s: not so: {what}", patience.as_secs()).into());
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Gives what happens in the background the time to happen.
pub(crate) async fn sleep(duration: Duration) {
    SystemClock::new().sleep(duration).await;
}

/// How long [`eventually`] waits.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(40);
/// The time between two looks.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
