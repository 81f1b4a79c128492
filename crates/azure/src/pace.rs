//! How fast one host may be asked: a token bucket and a cool-down, as pure arithmetic.

use std::time::Duration;

/// The rate at which a host is asked at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second in the long run.
    pub per_second: u32,
    /// Requests that may go out at once after a pause.
    pub burst: u32,
}

impl Default for Rate {
    /// Well below what Azure grants a principal: a vault takes 400 reads a second from everybody
    /// together, Azure Resource Manager refills 25 reads a second for a principal and subscription.
    fn default() -> Self {
        Self { per_second: 25, burst: 100 }
    }
}

/// What is known of one host. Times are monotonic, since the clock began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// When the bucket would be full again if no request came (generic cell rate algorithm).
    full_at: Duration,
    /// Until when the host asked to be left alone.
    cool_until: Duration,
}

impl Pace {
    /// Takes one request out of the bucket: how long the caller has to wait before sending it.
    pub(crate) fn take(&mut self, now: Duration, rate: Rate) -> Duration {
        let interval = Duration::from_secs(1) / rate.per_second.max(1);
        let tolerance = interval * rate.burst.saturating_sub(1);
        let before = self.full_at.max(now);
        self.full_at = before + interval;
        let bucket = before.saturating_sub(now).saturating_sub(tolerance);
        bucket.max(self.cooling(now))
    }

    /// Puts a request back that was not sent.
    pub(crate) fn put_back(&mut self, rate: Rate) {
        let interval = Duration::from_secs(1) / rate.per_second.max(1);
        self.full_at = self.full_at.saturating_sub(interval);
    }

    /// The host asked to be left alone: nobody asks it before `now + pause`.
    pub(crate) fn cool(&mut self, now: Duration, pause: Duration) {
        self.cool_until = self.cool_until.max(now.saturating_add(pause));
    }

    /// How long the host is still to be left alone.
    pub(crate) fn cooling(&self, now: Duration) -> Duration {
        self.cool_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 3 };

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_goes_out_at_once_and_then_the_rate_holds() {
        let mut pace = Pace::default();
        let waits: Vec<_> = (0..6).map(|_| pace.take(millis(1_000), RATE)).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300].map(millis));
    }

    #[test]
    fn the_bucket_refills_while_nobody_asks() {
        let mut pace = Pace::default();
        for _ in 0..3 {
            pace.take(millis(0), RATE);
        }
        assert_eq!(pace.take(millis(250), RATE), Duration::ZERO);
        assert_eq!(pace.take(millis(250), RATE), Duration::ZERO);
        assert_eq!(pace.take(millis(250), RATE), millis(50));
    }

    #[test]
    fn a_cool_down_holds_for_everybody_and_a_shorter_one_does_not_shorten_it() {
        let mut pace = Pace::default();
        pace.cool(millis(0), millis(5_000));
        pace.cool(millis(1_000), millis(100));
        assert_eq!(pace.take(millis(2_000), RATE), millis(3_000));
        assert_eq!(pace.cooling(millis(6_000)), Duration::ZERO);
    }

    #[test]
    fn a_request_that_was_put_back_costs_nothing() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            pace.take(millis(0), RATE);
            pace.put_back(RATE);
        }
        assert_eq!(pace.take(millis(0), RATE), Duration::ZERO);
    }
}
