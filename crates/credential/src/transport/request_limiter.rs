//! Rate and concurrency limits of requests to one authority.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Limits of the requests from one transport to one authority (scheme, host and port).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLimits {
    /// The maximum number of requests within any one second; at least 1.
    pub per_second: u32,
    /// The maximum number of requests in flight; at least 1.
    pub concurrent: u32,
}

impl Default for RequestLimits {
    /// Far below Entra's limits for one application, and far above the needs of a process that caches its
    /// tokens: the limits only matter after a fault.
    fn default() -> Self {
        Self { per_second: 200, concurrent: 64 }
    }
}

impl RequestLimits {
    /// The limits for IMDS, which accepts 20 requests per second and 5 in flight for the whole machine
    /// (Microsoft's documentation of its rate limits).
    pub fn for_managed_identity() -> Self {
        Self { per_second: 20, concurrent: 5 }
    }

    /// A quarter of a second's requests may leave in a burst, and the others at an even pace: together they
    /// never exceed `per_second`.
    fn burst(self) -> u32 {
        (self.per_second / 4).max(1)
    }

    fn interval(self) -> Duration {
        let evenly = self.per_second.saturating_sub(self.burst()).max(1);
        Duration::from_nanos(1_000_000_000_u64.div_ceil(evenly.into()))
    }
}

/// The limiters of all authorities, by origin.
#[derive(Debug, Default)]
pub(crate) struct TokenRequestLimiter {
    limits: RequestLimits,
    origins: Mutex<HashMap<String, Arc<OriginLimiter>>>,
}

/// The limiter of one authority.
#[derive(Debug)]
pub(crate) struct OriginLimiter {
    limits: RequestLimits,
    /// One permit for each request in flight.
    pub(crate) permits: Arc<Semaphore>,
    /// When the next request would leave at an even pace, in monotonic time.
    next_send_at: Mutex<Duration>,
}

impl TokenRequestLimiter {
    pub(crate) fn new(limits: RequestLimits) -> Self {
        Self { limits, origins: Mutex::default() }
    }

    pub(crate) fn limiter_for(&self, origin: &str) -> Arc<OriginLimiter> {
        let mut origins = self.origins.lock();
        if let Some(known) = origins.get(origin) {
            return Arc::clone(known);
        }
        let new = Arc::new(OriginLimiter::new(self.limits));
        origins.insert(origin.to_owned(), Arc::clone(&new));
        new
    }
}

impl OriginLimiter {
    fn new(limits: RequestLimits) -> Self {
        let places = usize::try_from(limits.concurrent.max(1)).unwrap_or(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { limits, permits, next_send_at: Mutex::default() }
    }

    /// Reserves the next send time; the request may leave after the returned delay.
    pub(crate) fn reserve_send_time(&self, now: Duration) -> Duration {
        let interval = self.limits.interval();
        let ahead = interval.saturating_mul(self.limits.burst() - 1);
        let mut next = self.next_send_at.lock();
        let due = (*next).max(now);
        *next = due.saturating_add(interval);
        due.saturating_sub(ahead).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limiter_with_rate(per_second: u32) -> OriginLimiter {
        OriginLimiter::new(RequestLimits { per_second, concurrent: 1 })
    }

    #[test]
    fn burst_is_sent_immediately_and_the_rest_evenly() {
        let origin = limiter_with_rate(20);
        let waits: Vec<u128> =
            (0..8).map(|_| origin.reserve_send_time(Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 66, 133, 200]);
        assert_eq!(origin.reserve_send_time(Duration::from_secs(5)), Duration::ZERO);
    }

    #[test]
    fn limits_of_zero_do_not_stop_everything() {
        let origin = OriginLimiter::new(RequestLimits { per_second: 0, concurrent: 0 });
        assert_eq!(origin.reserve_send_time(Duration::ZERO), Duration::ZERO);
        assert_eq!(origin.reserve_send_time(Duration::ZERO), Duration::from_secs(1));
        assert_eq!(origin.permits.available_permits(), 1);
    }

    #[test]
    fn authorities_do_not_wait_for_each_other() {
        let turns = TokenRequestLimiter::new(RequestLimits { per_second: 1, concurrent: 1 });
        turns.limiter_for("https://a").reserve_send_time(Duration::ZERO);
        assert!(!turns.limiter_for("https://a").reserve_send_time(Duration::ZERO).is_zero());
        assert!(turns.limiter_for("https://b").reserve_send_time(Duration::ZERO).is_zero());
    }

    proptest! {
        #[test]
        fn requests_in_any_second_never_exceed_the_limit(
            per_second in 2u32..60,
            pauses in proptest::collection::vec(0u64..400, 1..200),
        ) {
            let origin = limiter_with_rate(per_second);
            let mut now = Duration::ZERO;
            let mut left: Vec<Duration> = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause / 8);
                left.push(now + origin.reserve_send_time(now));
            }
            for start in &left {
                let second = *start..*start + Duration::from_millis(999);
                let observed = left.iter().filter(|moment| second.contains(*moment)).count();
                prop_assert!(observed <= usize::try_from(per_second).unwrap(), "{observed}");
            }
        }
    }
}
