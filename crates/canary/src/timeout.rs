//! Time limits for futures.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use lanyard_clock::SharedClock;

/// The output of a future, or `None` if it does not complete within `limit`.
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
