//! Waiting no longer than one wants to.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use lanyard_clock::SharedClock;

/// What a future comes to, if it does in time.
pub(crate) async fn with_timeout<T>(
    clock: &SharedClock,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    match select(pin!(future), clock.sleep(limit)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}
