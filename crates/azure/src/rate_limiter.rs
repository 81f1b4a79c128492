//! The rate limit of one host: a token bucket and a cool-down, as pure arithmetic.

use std::time::Duration;

use lanyard_clock::Backoff;

/// The maximum rate of requests to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// The sustained number of requests per second.
    pub per_second: u32,
    /// The number of requests that may be sent at once after a pause.
    pub burst: u32,
}

impl RequestRate {
    /// The time in which the bucket gains one token.
    pub(crate) fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }

    /// How far a burst may run ahead of the sustained rate.
    fn tolerance(self) -> Duration {
        self.interval() * self.burst.saturating_sub(1)
    }
}

impl Default for RequestRate {
    /// Well below Azure's limits: a vault accepts 400 reads per second from all clients together,
    /// and Azure Resource Manager refills 25 reads per second for each principal and subscription.
    fn default() -> Self {
        Self { per_second: 25, burst: 100 }
    }
}

/// The rate limiter of one host. Times are monotonic.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateLimiter {
    /// When the bucket would be full again without further requests (generic cell rate algorithm).
    full_at: Duration,
    /// The end of the host's cool-down.
    cool_down_until: Duration,
    /// The number of consecutive throttled replies without Retry-After.
    consecutive_throttles: u32,
}

impl RateLimiter {
    /// How long until a request may be sent: the bucket must contain a token, and the cool-down
    /// must be over.
    pub(crate) fn time_until_ready(&self, now: Duration, rate: RequestRate) -> Duration {
        let bucket = self.full_at.saturating_sub(now).saturating_sub(rate.tolerance());
        bucket.max(self.remaining_cool_down(now))
    }

    /// Takes one token from the bucket.
    pub(crate) fn take_token(&mut self, now: Duration, rate: RequestRate) {
        self.full_at = self.full_at.max(now) + rate.interval();
    }

    /// Starts a cool-down: no requests before `now + pause`, at most [`MAX_COOL_DOWN`], and no
    /// burst after it, because the queued requests would arrive as one.
    pub(crate) fn start_cool_down(&mut self, now: Duration, pause: Duration, rate: RequestRate) {
        let pause = pause.min(MAX_COOL_DOWN);
        self.cool_down_until = self.cool_down_until.max(now.saturating_add(pause));
        let drained = self.cool_down_until.saturating_add(rate.tolerance());
        self.full_at = self.full_at.max(drained);
    }

    /// Records a throttled reply. Without Retry-After, which vaults do not send, the pause follows
    /// Key Vault's documentation: one second, doubled each time.
    pub(crate) fn record_throttling(
        &mut self,
        now: Duration,
        asked: Option<Duration>,
        rate: RequestRate,
    ) {
        // Requests that were in flight when the first one was throttled do not count again.
        if asked.is_none() && !self.remaining_cool_down(now).is_zero() {
            return;
        }
        let pause = asked.unwrap_or_else(|| {
            self.consecutive_throttles = self.consecutive_throttles.saturating_add(1);
            BACKOFF.delay(self.consecutive_throttles)
        });
        self.start_cool_down(now, pause, rate);
    }

    /// Records a reply that was not throttled.
    pub(crate) fn record_success(&mut self) {
        self.consecutive_throttles = 0;
    }

    /// How long the cool-down still lasts.
    pub(crate) fn remaining_cool_down(&self, now: Duration) -> Duration {
        self.cool_down_until.saturating_sub(now)
    }

    /// Whether the host throttles: a cool-down is running, or no request has succeeded since the
    /// last throttled reply.
    pub(crate) fn is_throttled(&self, now: Duration) -> bool {
        self.consecutive_throttles > 0 || !self.remaining_cool_down(now).is_zero()
    }
}

/// The longest accepted cool-down, so that a misread header cannot stop a node for days.
pub(crate) const MAX_COOL_DOWN: Duration = Duration::from_mins(10);

/// The pauses after throttled replies without Retry-After.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(32));

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
        let mut limiter = RateLimiter::default();
        let mut now = millis(1_000);
        let mut sent = Vec::new();
        for _ in 0..6 {
            now += limiter.time_until_ready(now, RATE);
            limiter.take_token(now, RATE);
            sent.push(now);
        }
        assert_eq!(sent, [1_000, 1_000, 1_000, 1_100, 1_200, 1_300].map(millis));
    }

    #[test]
    fn bucket_refills_while_no_requests_are_sent() {
        let mut limiter = RateLimiter::default();
        for _ in 0..3 {
            limiter.take_token(millis(0), RATE);
        }
        for _ in 0..2 {
            assert_eq!(limiter.time_until_ready(millis(250), RATE), Duration::ZERO);
            limiter.take_token(millis(250), RATE);
        }
        assert_eq!(limiter.time_until_ready(millis(250), RATE), millis(50));
    }

    #[test]
    fn a_later_shorter_cool_down_does_not_shorten_a_running_one() {
        let mut limiter = RateLimiter::default();
        limiter.start_cool_down(millis(0), millis(5_000), RATE);
        limiter.start_cool_down(millis(1_000), millis(100), RATE);
        assert_eq!(limiter.time_until_ready(millis(2_000), RATE), millis(3_000));
        assert_eq!(limiter.remaining_cool_down(millis(6_000)), Duration::ZERO);
    }

    #[test]
    fn retry_after_is_capped_at_the_longest_cool_down() {
        let mut limiter = RateLimiter::default();
        limiter.record_throttling(millis(0), Some(Duration::from_secs(u64::MAX)), RATE);
        assert_eq!(limiter.remaining_cool_down(millis(0)), MAX_COOL_DOWN);
        assert_eq!(limiter.time_until_ready(MAX_COOL_DOWN, RATE), Duration::ZERO);
    }

    #[test]
    fn no_burst_follows_a_cool_down() {
        let (mut limiter, mut now, mut sent) = (RateLimiter::default(), millis(0), Vec::new());
        limiter.start_cool_down(now, millis(5_000), RATE);
        for _ in 0..4 {
            now += limiter.time_until_ready(now, RATE);
            limiter.take_token(now, RATE);
            sent.push(now);
        }
        assert_eq!(sent, [5_000, 5_100, 5_200, 5_300].map(millis));
    }

    #[test]
    fn throttling_without_retry_after_doubles_the_pause() {
        let (mut limiter, mut now, mut pauses) = (RateLimiter::default(), millis(0), Vec::new());
        for _ in 0..7 {
            limiter.record_throttling(now, None, RATE);
            // This request was in flight at the same time.
            limiter.record_throttling(now, None, RATE);
            pauses.push(limiter.remaining_cool_down(now).as_secs());
            now += limiter.remaining_cool_down(now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 32]);
        limiter.record_success();
        limiter.record_throttling(now, None, RATE);
        assert_eq!(limiter.remaining_cool_down(now).as_secs(), 1);
        limiter.record_throttling(now, Some(millis(7_000)), RATE);
        assert_eq!(limiter.remaining_cool_down(now).as_secs(), 7);
    }

    proptest! {
        #[test]
        fn requests_in_any_second_never_exceed_burst_plus_rate(
            gaps in prop::collection::vec(0_u64..400, 1..200),
        ) {
            let (mut limiter, mut now, mut sent) = (RateLimiter::default(), Duration::ZERO, Vec::new());
            for gap in gaps {
                now += millis(gap);
                now += limiter.time_until_ready(now, RATE);
                limiter.take_token(now, RATE);
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
