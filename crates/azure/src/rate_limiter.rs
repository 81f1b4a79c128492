//! How fast one host may be asked: a token bucket and a cool-down, as pure arithmetic.

use std::time::Duration;

/// The rate at which a host is asked at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// Requests per second in the long run.
    pub per_second: u32,
    /// Requests that may go out at once after a pause.
    pub burst: u32,
}

impl RequestRate {
    /// The time in which the bucket gains one request.
    pub(crate) fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }

    /// How far ahead of an even flow the requests of a burst are.
    fn tolerance(self) -> Duration {
        self.interval() * self.burst.saturating_sub(1)
    }
}

impl Default for RequestRate {
    /// Well below what Azure grants a principal: a vault takes 400 reads a second from everybody
    /// together, Azure Resource Manager refills 25 reads a second for a principal and subscription.
    fn default() -> Self {
        Self { per_second: 25, burst: 100 }
    }
}

/// What is known of one host. Times are monotonic, since the clock began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateLimiter {
    /// When the bucket would be full again if no request came (generic cell rate algorithm).
    full_at: Duration,
    /// Until when the host asked to be left alone.
    cool_down_until: Duration,
    /// How many times in a row it throttled without saying for how long.
    consecutive_throttles: u32,
}

impl RateLimiter {
    /// How long until a request may be sent: the bucket has to hold one, and no pause may last.
    pub(crate) fn time_until_ready(&self, now: Duration, rate: RequestRate) -> Duration {
        let bucket = self.full_at.saturating_sub(now).saturating_sub(rate.tolerance());
        bucket.max(self.remaining_cool_down(now))
    }

    /// Takes one request out of the bucket.
    pub(crate) fn take_token(&mut self, now: Duration, rate: RequestRate) {
        self.full_at = self.full_at.max(now) + rate.interval();
    }

    /// The host asked to be left alone: nobody asks it before `now + pause`, and then no burst
    /// comes, for all who wait would be one. No pause is longer than [`MAX_COOL_DOWN`].
    pub(crate) fn start_cool_down(&mut self, now: Duration, pause: Duration, rate: RequestRate) {
        let pause = pause.min(MAX_COOL_DOWN);
        self.cool_down_until = self.cool_down_until.max(now.saturating_add(pause));
        let drained = self.cool_down_until.saturating_add(rate.tolerance());
        self.full_at = self.full_at.max(drained);
    }

    /// The host throttles. Where it does not say for how long, as vaults do not, the pause is the
    /// one that Key Vault's documentation asks for: a second, doubled each time.
    pub(crate) fn record_throttling(
        &mut self,
        now: Duration,
        asked: Option<Duration>,
        rate: RequestRate,
    ) {
        // Who was under way when the first one was refused is refused too.
        if asked.is_none() && !self.remaining_cool_down(now).is_zero() {
            return;
        }
        let pause = asked.unwrap_or_else(|| {
            let doubled =
                INITIAL_BACKOFF.saturating_mul(2_u32.saturating_pow(self.consecutive_throttles));
            self.consecutive_throttles = self.consecutive_throttles.saturating_add(1);
            doubled.min(MAX_BACKOFF)
        });
        self.start_cool_down(now, pause, rate);
    }

    /// The host took a request.
    pub(crate) fn record_success(&mut self) {
        self.consecutive_throttles = 0;
    }

    /// How long the host is still to be left alone.
    pub(crate) fn remaining_cool_down(&self, now: Duration) -> Duration {
        self.cool_down_until.saturating_sub(now)
    }

    /// Whether it is the host that wants fewer requests: it said so, and has taken none since.
    pub(crate) fn is_throttled(&self, now: Duration) -> bool {
        self.consecutive_throttles > 0 || !self.remaining_cool_down(now).is_zero()
    }
}

/// The longest cool-down that is believed: a misread header must not stop a node for days.
pub(crate) const MAX_COOL_DOWN: Duration = Duration::from_mins(10);

/// The first pause of a host that throttles and does not say for how long.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// No such pause is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(32);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: RequestRate = RequestRate { per_second: 10, burst: 3 };

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn burst_is_sent_immediately_and_then_the_rate_applies() {
        let mut pace = RateLimiter::default();
        let mut now = millis(1_000);
        let mut sent = Vec::new();
        for _ in 0..6 {
            now += pace.time_until_ready(now, RATE);
            pace.take_token(now, RATE);
            sent.push(now);
        }
        assert_eq!(sent, [1_000, 1_000, 1_000, 1_100, 1_200, 1_300].map(millis));
    }

    #[test]
    fn bucket_refills_while_no_requests_are_sent() {
        let mut pace = RateLimiter::default();
        for _ in 0..3 {
            pace.take_token(millis(0), RATE);
        }
        for _ in 0..2 {
            assert_eq!(pace.time_until_ready(millis(250), RATE), Duration::ZERO);
            pace.take_token(millis(250), RATE);
        }
        assert_eq!(pace.time_until_ready(millis(250), RATE), millis(50));
    }

    #[test]
    fn a_later_shorter_cool_down_does_not_shorten_a_running_one() {
        let mut pace = RateLimiter::default();
        pace.start_cool_down(millis(0), millis(5_000), RATE);
        pace.start_cool_down(millis(1_000), millis(100), RATE);
        assert_eq!(pace.time_until_ready(millis(2_000), RATE), millis(3_000));
        assert_eq!(pace.remaining_cool_down(millis(6_000)), Duration::ZERO);
    }

    #[test]
    fn retry_after_is_capped_at_the_longest_cool_down() {
        let mut pace = RateLimiter::default();
        pace.record_throttling(millis(0), Some(Duration::from_secs(u64::MAX)), RATE);
        assert_eq!(pace.remaining_cool_down(millis(0)), MAX_COOL_DOWN);
        assert_eq!(pace.time_until_ready(MAX_COOL_DOWN, RATE), Duration::ZERO);
    }

    #[test]
    fn no_burst_follows_a_cool_down() {
        let (mut pace, mut now, mut sent) = (RateLimiter::default(), millis(0), Vec::new());
        pace.start_cool_down(now, millis(5_000), RATE);
        for _ in 0..4 {
            now += pace.time_until_ready(now, RATE);
            pace.take_token(now, RATE);
            sent.push(now);
        }
        assert_eq!(sent, [5_000, 5_100, 5_200, 5_300].map(millis));
    }

    #[test]
    fn throttling_without_retry_after_doubles_the_pause() {
        let (mut pace, mut now, mut pauses) = (RateLimiter::default(), millis(0), Vec::new());
        for _ in 0..7 {
            pace.record_throttling(now, None, RATE);
            // Under way at the same time.
            pace.record_throttling(now, None, RATE);
            pauses.push(pace.remaining_cool_down(now).as_secs());
            now += pace.remaining_cool_down(now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 32]);
        pace.record_success();
        pace.record_throttling(now, None, RATE);
        assert_eq!(pace.remaining_cool_down(now).as_secs(), 1);
        pace.record_throttling(now, Some(millis(7_000)), RATE);
        assert_eq!(pace.remaining_cool_down(now).as_secs(), 7);
    }

    proptest! {
        #[test]
        fn requests_in_any_second_never_exceed_burst_plus_rate(
            gaps in prop::collection::vec(0_u64..400, 1..200),
        ) {
            let (mut pace, mut now, mut sent) = (RateLimiter::default(), Duration::ZERO, Vec::new());
            for gap in gaps {
                now += millis(gap);
                now += pace.time_until_ready(now, RATE);
                pace.take_token(now, RATE);
                sent.push(now);
            }
            for (index, from) in sent.iter().enumerate() {
                let until = *from + millis(1_000);
                let within = sent[index..].iter().take_while(|at| **at < until).count();
                prop_assert!(within <= 13, "{within}");
            }
        }
    }
}
