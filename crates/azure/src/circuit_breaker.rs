//! A circuit breaker: decides when a failing host gets no requests. Pure, without I/O.

use std::time::Duration;

use lanyard_clock::Backoff;

/// When a failing host gets no more requests, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitBreakerPolicy {
    /// The number of consecutive failures that opens the breaker; at least 1. A 4xx reply is not a
    /// failure.
    pub failure_threshold: u32,
    /// The first pause; it doubles with each failed probe.
    pub initial_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
}

impl Default for CircuitBreakerPolicy {
    /// Eight failures: two requests with all of their retries.
    fn default() -> Self {
        Self {
            failure_threshold: 8,
            initial_pause: Duration::from_secs(5),
            max_pause: Duration::from_mins(1),
        }
    }
}

/// The circuit breaker of one host. Times are monotonic.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CircuitBreaker {
    consecutive_failures: u32,
    pauses: u32,
    probes: u32,
    state: BreakerState,
}

/// Identifies a probe request among other requests and earlier probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BreakerProbe(u32);

#[derive(Debug, Clone, Copy, Default)]
enum BreakerState {
    /// Requests are sent.
    #[default]
    Closed,
    /// No request is sent before `until`.
    Open { until: Duration },
    /// A probe request is in flight. If it has no result by `until`, the next request becomes a
    /// probe.
    Probing { probe: BreakerProbe, until: Duration },
}

impl CircuitBreaker {
    /// How long no request may be sent; zero if one may be sent now.
    pub(crate) fn remaining_pause(&self, now: Duration) -> Duration {
        match self.state {
            BreakerState::Closed => Duration::ZERO,
            BreakerState::Open { until } => until.saturating_sub(now),
            // The probe's result is expected soon, so callers check again after a short interval.
            BreakerState::Probing { until, .. } => {
                until.saturating_sub(now).min(PROBE_POLL_INTERVAL)
            }
        }
    }

    /// Records that a request is sent. After a pause, the first request becomes the probe, which is
    /// returned.
    pub(crate) fn begin_request(&mut self, now: Duration) -> Option<BreakerProbe> {
        if matches!(self.state, BreakerState::Closed) {
            return None;
        }
        self.probes = self.probes.wrapping_add(1);
        let probe = BreakerProbe(self.probes);
        self.state = BreakerState::Probing { probe, until: now.saturating_add(PROBE_TIMEOUT) };
        Some(probe)
    }

    /// Records that the caller dropped the probe request; the next request becomes a probe.
    pub(crate) fn abandon_probe(&mut self, gone: BreakerProbe, now: Duration) {
        if matches!(self.state, BreakerState::Probing { probe, .. } if probe == gone) {
            self.state = BreakerState::Open { until: now };
        }
    }

    /// Records a reply that is not a failure.
    pub(crate) fn record_success(&mut self) {
        // Keep the counter, so that a probe in flight is never confused with a later one.
        *self = Self { probes: self.probes, ..Self::default() };
    }

    /// Records a failed request, which may have been the probe; returns whether the breaker opens.
    /// `chance` is the random number of [`Backoff::delay_with_jitter`].
    pub(crate) fn record_failure(
        &mut self,
        now: Duration,
        policy: CircuitBreakerPolicy,
        chance: f64,
        sent: Option<BreakerProbe>,
    ) -> bool {
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        let opens = match self.state {
            BreakerState::Closed => self.consecutive_failures >= policy.failure_threshold.max(1),
            // A request that was sent before the breaker opened says nothing about the host now.
            BreakerState::Probing { probe, .. } => sent == Some(probe),
            BreakerState::Open { .. } => false,
        };
        if opens {
            self.pauses = self.pauses.saturating_add(1);
            let backoff = Backoff::new(policy.initial_pause, policy.max_pause);
            let pause = backoff.delay_with_jitter(self.pauses, chance);
            self.state = BreakerState::Open { until: now.saturating_add(pause) };
        }
        opens
    }
}

/// How soon other callers check again for the result of a probe.
const PROBE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time limit of a probe; longer than the longest request.
const PROBE_TIMEOUT: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: CircuitBreakerPolicy = CircuitBreakerPolicy {
        failure_threshold: 3,
        initial_pause: Duration::from_secs(10),
        max_pause: Duration::from_mins(1),
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn breaker_after_failures(times: u32, now: Duration) -> CircuitBreaker {
        let mut breaker = CircuitBreaker::default();
        for _ in 0..times {
            breaker.record_failure(now, POLICY, 0.0, None);
        }
        breaker
    }

    #[test]
    fn consecutive_failures_open_the_breaker_and_a_success_resets_the_count() {
        assert_eq!(
            breaker_after_failures(2, seconds(0)).remaining_pause(seconds(0)),
            Duration::ZERO
        );
        assert_eq!(breaker_after_failures(3, seconds(0)).remaining_pause(seconds(0)), seconds(10));
        let mut breaker = breaker_after_failures(2, seconds(0));
        breaker.record_success();
        assert!(!breaker.record_failure(seconds(0), POLICY, 0.0, None));
    }

    #[test]
    fn after_the_pause_one_probe_decides_the_state() {
        let mut breaker = breaker_after_failures(3, seconds(0));
        assert_eq!(breaker.remaining_pause(seconds(10)), Duration::ZERO);
        let probe = breaker.begin_request(seconds(10));
        assert_eq!(breaker.remaining_pause(seconds(10)), PROBE_POLL_INTERVAL);
        // This request was sent before the breaker opened.
        assert!(!breaker.record_failure(seconds(10), POLICY, 0.0, None));
        assert!(breaker.record_failure(seconds(11), POLICY, 0.0, probe));
        assert_eq!(breaker.remaining_pause(seconds(11)), seconds(20));
        breaker.begin_request(seconds(31));
        breaker.record_success();
        assert_eq!(breaker.remaining_pause(seconds(31)), Duration::ZERO);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let (mut breaker, mut now, mut pauses) =
            (breaker_after_failures(3, seconds(0)), seconds(0), Vec::new());
        for _ in 0..5 {
            let pause = breaker.remaining_pause(now);
            pauses.push(pause.as_secs());
            now += pause;
            let probe = breaker.begin_request(now);
            breaker.record_failure(now, POLICY, 0.0, probe);
        }
        assert_eq!(pauses, [10, 20, 40, 60, 60]);
    }

    #[test]
    fn abandoned_probe_lets_the_next_one_start_immediately() {
        let mut breaker = breaker_after_failures(3, seconds(0));
        let given_up = breaker.begin_request(seconds(10)).unwrap();
        breaker.abandon_probe(given_up, seconds(12));
        assert_eq!(breaker.remaining_pause(seconds(12)), Duration::ZERO);
        let next = breaker.begin_request(seconds(12));
        // The abandoned probe is gone already, so nothing changes.
        breaker.abandon_probe(given_up, seconds(13));
        assert_eq!(breaker.remaining_pause(seconds(13)), PROBE_POLL_INTERVAL);
        assert!(breaker.record_failure(seconds(13), POLICY, 0.0, next));
        assert_eq!(breaker.remaining_pause(seconds(13)), seconds(20));
    }

    #[test]
    fn probe_without_a_result_expires_after_the_timeout() {
        let mut breaker = breaker_after_failures(3, seconds(0));
        breaker.begin_request(seconds(10));
        assert_eq!(breaker.remaining_pause(seconds(10) + PROBE_TIMEOUT), Duration::ZERO);
    }

    #[test]
    fn failures_of_requests_sent_before_opening_do_not_extend_the_pause() {
        let mut breaker = breaker_after_failures(3, seconds(0));
        assert!(!breaker.record_failure(seconds(4), POLICY, 0.0, None));
        assert_eq!(breaker.remaining_pause(seconds(4)), seconds(6));
    }
}
