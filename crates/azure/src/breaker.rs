//! When a host that fails again and again is left alone: a pure decision.

use std::time::Duration;

/// When a host is left alone because it fails, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// After how many failures in a row; at least 1. A reply that refuses is no failure.
    pub failures: u32,
    /// The first pause; it doubles with each probe that fails.
    pub first_pause: Duration,
    /// No pause is longer.
    pub longest_pause: Duration,
}

impl Default for BreakerPolicy {
    /// Eight failures are two requests with all of their repetitions.
    fn default() -> Self {
        Self {
            failures: 8,
            first_pause: Duration::from_secs(5),
            longest_pause: Duration::from_mins(1),
        }
    }
}

/// What is known about the failures of one host. Times are monotonic.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Breaker {
    failures: u32,
    pauses: u32,
    probes: u32,
    state: State,
}

/// Tells a probe from other requests, and from other probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe(u32);

#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Requests are sent.
    #[default]
    Closed,
    /// None is sent before that time.
    Open { until: Duration },
    /// One is under way to see whether the host is back. It is given up at that time, should it
    /// not come back.
    Probing { probe: Probe, until: Duration },
}

impl Breaker {
    /// How long no request may be sent; zero when one may.
    pub(crate) fn closed_in(&self, now: Duration) -> Duration {
        match self.state {
            State::Closed => Duration::ZERO,
            State::Open { until } => until.saturating_sub(now),
            // It will be known soon.
            State::Probing { until, .. } => until.saturating_sub(now).min(PROBE_LOOK),
        }
    }

    /// A request is sent. After a pause it is the probe, and no other goes with it.
    pub(crate) fn begin(&mut self, now: Duration) -> Option<Probe> {
        if matches!(self.state, State::Closed) {
            return None;
        }
        self.probes = self.probes.wrapping_add(1);
        let probe = Probe(self.probes);
        self.state = State::Probing { probe, until: now.saturating_add(PROBE_LIMIT) };
        Some(probe)
    }

    /// Whoever sent the probe does not wait for it any more: the next request is one.
    pub(crate) fn give_up(&mut self, gone: Probe, now: Duration) {
        if matches!(self.state, State::Probing { probe, .. } if probe == gone) {
            self.state = State::Open { until: now };
        }
    }

    /// The host answered.
    pub(crate) fn succeed(&mut self) {
        // A probe that is still under way must not be taken for a later one.
        *self = Self { probes: self.probes, ..Self::default() };
    }

    /// The host failed a request, which may have been the probe; true if it is left alone from now
    /// on. `jitter` lies in 0..=1 and stretches the pause to 80..=120 %, so that the nodes of a
    /// fleet do not probe together.
    pub(crate) fn fail(
        &mut self,
        now: Duration,
        policy: BreakerPolicy,
        jitter: f64,
        sent: Option<Probe>,
    ) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            State::Closed => self.failures >= policy.failures.max(1),
            // One that was sent before it opened says nothing about the host now.
            State::Probing { probe, .. } => sent == Some(probe),
            State::Open { .. } => false,
        };
        if opens {
            let doubled = policy.first_pause.saturating_mul(2_u32.saturating_pow(self.pauses));
            let pause =
                doubled.min(policy.longest_pause).mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0));
            self.pauses = self.pauses.saturating_add(1);
            self.state = State::Open { until: now.saturating_add(pause) };
        }
        opens
    }
}

/// After which time others look again whether a probe came back.
const PROBE_LOOK: Duration = Duration::from_secs(1);
/// Longer than any request takes.
const PROBE_LIMIT: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy = BreakerPolicy {
        failures: 3,
        first_pause: Duration::from_secs(10),
        longest_pause: Duration::from_mins(1),
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn failed(times: u32, now: Duration) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..times {
            breaker.fail(now, POLICY, 0.5, None);
        }
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        assert_eq!(failed(2, seconds(0)).closed_in(seconds(0)), Duration::ZERO);
        assert_eq!(failed(3, seconds(0)).closed_in(seconds(0)), seconds(10));
        let mut breaker = failed(2, seconds(0));
        breaker.succeed();
        assert!(!breaker.fail(seconds(0), POLICY, 0.5, None));
    }

    #[test]
    fn after_the_pause_one_probe_goes_and_decides() {
        let mut breaker = failed(3, seconds(0));
        assert_eq!(breaker.closed_in(seconds(10)), Duration::ZERO);
        let probe = breaker.begin(seconds(10));
        assert_eq!(breaker.closed_in(seconds(10)), PROBE_LOOK);
        // Under way since before it opened.
        assert!(!breaker.fail(seconds(10), POLICY, 0.5, None));
        assert!(breaker.fail(seconds(11), POLICY, 0.5, probe));
        assert_eq!(breaker.closed_in(seconds(11)), seconds(20));
        breaker.begin(seconds(31));
        breaker.succeed();
        assert_eq!(breaker.closed_in(seconds(31)), Duration::ZERO);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let (mut breaker, mut now, mut pauses) = (failed(3, seconds(0)), seconds(0), Vec::new());
        for _ in 0..5 {
            let pause = breaker.closed_in(now);
            pauses.push(pause.as_secs());
            now += pause;
            let probe = breaker.begin(now);
            breaker.fail(now, POLICY, 0.5, probe);
        }
        assert_eq!(pauses, [10, 20, 40, 60, 60]);
    }

    #[test]
    fn after_a_probe_that_was_given_up_the_next_one_goes_at_once() {
        let mut breaker = failed(3, seconds(0));
        let given_up = breaker.begin(seconds(10)).unwrap();
        breaker.give_up(given_up, seconds(12));
        assert_eq!(breaker.closed_in(seconds(12)), Duration::ZERO);
        let next = breaker.begin(seconds(12));
        // It is gone already.
        breaker.give_up(given_up, seconds(13));
        assert_eq!(breaker.closed_in(seconds(13)), PROBE_LOOK);
        assert!(breaker.fail(seconds(13), POLICY, 0.5, next));
        assert_eq!(breaker.closed_in(seconds(13)), seconds(20));
    }

    #[test]
    fn a_probe_that_never_came_back_is_given_up() {
        let mut breaker = failed(3, seconds(0));
        breaker.begin(seconds(10));
        assert_eq!(breaker.closed_in(seconds(10) + PROBE_LIMIT), Duration::ZERO);
    }

    #[test]
    fn what_was_sent_before_it_opened_does_not_lengthen_the_pause() {
        let mut breaker = failed(3, seconds(0));
        assert!(!breaker.fail(seconds(4), POLICY, 0.5, None));
        assert_eq!(breaker.closed_in(seconds(4)), seconds(6));
    }
}
