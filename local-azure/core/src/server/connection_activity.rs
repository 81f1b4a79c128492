//! When a connection sends requests, and how long it may send none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use lanyard_clock::SharedClock;

/// The time for the first byte of a connection, for its TLS handshake, and for the headers of its first request.
pub const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection that completes no request headers for this time, while no request is in flight, is closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

/// The requests of one connection. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionActivity(Arc<RequestCounters>);

#[derive(Debug, Default)]
struct RequestCounters {
    begun: AtomicU64,
    in_flight: AtomicUsize,
}

/// Counts as a request in flight until it is dropped.
#[derive(Debug)]
pub(super) struct RequestInFlight(ConnectionActivity);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionActivity {
    /// Counts a request, whose headers are complete.
    pub(super) fn begin_request(&self) -> RequestInFlight {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestInFlight(self.clone())
    }

    /// Whether the connection has sent no request yet.
    pub(super) fn is_unused(&self) -> bool {
        self.requests_begun() == 0
    }

    fn requests_begun(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// Waits until the connection exceeds a timeout. It looks at the counters once for each timeout, so that
    /// requests set no timers: an idle connection is closed after one to two idle timeouts.
    pub(super) async fn wait_until_idle(&self, clock: &SharedClock) {
        clock.sleep(FIRST_REQUEST_TIMEOUT).await;
        let mut before = 0;
        loop {
            let begun = self.requests_begun();
            if begun == before && self.0.in_flight.load(Ordering::Relaxed) == 0 {
                return;
            }
            before = begun;
            clock.sleep(IDLE_TIMEOUT).await;
        }
    }
}
