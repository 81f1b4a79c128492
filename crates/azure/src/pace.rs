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

impl Rate {
    /// The time in which the bucket gains one request.
    pub(crate) fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }

    /// How far ahead of an even flow the requests of a burst are.
    fn tolerance(self) -> Duration {
        self.interval() * self.burst.saturating_sub(1)
    }
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
    /// How many times in a row it throttled without saying for how long.
    throttles: u32,
}

impl Pace {
    /// How long until a request may be sent: the bucket has to hold one, and no pause may last.
    pub(crate) fn ready_in(&self, now: Duration, rate: Rate) -> Duration {
        let bucket = self.full_at.saturating_sub(now).saturating_sub(rate.tolerance());
        bucket.max(self.cooling(now))
    }

    /// Takes one request out of the bucket.
    pub(crate) fn take(&mut self, now: Duration, rate: Rate) {
        self.full_at = self.full_at.max(now) + rate.interval();
    }

    /// The host asked to be left alone: nobody asks it before `now + pause`, and then no burst
    /// comes, for all who wait would be one. No pause is longer than [`LONGEST_COOL_DOWN`].
    pub(crate) fn cool(&mut self, now: Duration, pause: Duration, rate: Rate) {
        let pause = pause.min(LONGEST_COOL_DOWN);
        self.cool_until = self.cool_until.max(now.saturating_add(pause));
        let drained = self.cool_until.saturating_add(rate.tolerance());
        self.full_at = self.full_at.max(drained);
    }

    /// The host throttles. Where it does not say for how long, as vaults do not, the pause is the
    /// one that Key Vault's documentation asks for: a second, doubled each time.
    pub(crate) fn throttle(&mut self, now: Duration, asked: Option<Duration>, rate: Rate) {
        // Who was under way when the first one was refused is refused too.
        if asked.is_none() && !self.cooling(now).is_zero() {
            return;
        }
        let pause = asked.unwrap_or_else(|| {
            let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.throttles));
            self.throttles = self.throttles.saturating_add(1);
            doubled.min(LONGEST_PAUSE)
        });
        self.cool(now, pause, rate);
    }

    /// The host took a request.
    pub(crate) fn relax(&mut self) {
        self.throttles = 0;
    }

    /// How long the host is still to be left alone.
    pub(crate) fn cooling(&self, now: Duration) -> Duration {
        self.cool_until.saturating_sub(now)
    }

    /// Whether it is the host that wants fewer requests: it said so, and has taken none since.
    pub(crate) fn is_throttled(&self, now: Duration) -> bool {
        self.throttles > 0 || !self.cooling(now).is_zero()
    }
}

/// The longest cool-down that is believed: a misread header must not stop a node for days.
pub(crate) const LONGEST_COOL_DOWN: Duration = Duration::from_mins(10);

/// The first pause of a host that throttles and does not say for how long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No such pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 3 };

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_goes_out_at_once_and_then_the_rate_holds() {
        let mut pace = Pace::default();
        let mut now = millis(1_000);
        let mut sent = Vec::new();
        for _ in 0..6 {
            now += pace.ready_in(now, RATE);
            pace.take(now, RATE);
            sent.push(now);
        }
        assert_eq!(sent, [1_000, 1_000, 1_000, 1_100, 1_200, 1_300].map(millis));
    }

    #[test]
    fn the_bucket_refills_while_nobody_asks() {
        let mut pace = Pace::default();
        for _ in 0..3 {
            pace.take(millis(0), RATE);
        }
        for _ in 0..2 {
            assert_eq!(pace.ready_in(millis(250), RATE), Duration::ZERO);
            pace.take(millis(250), RATE);
        }
        assert_eq!(pace.ready_in(millis(250), RATE), millis(50));
    }

    #[test]
    fn a_cool_down_holds_for_everybody_and_a_shorter_one_does_not_shorten_it() {
        let mut pace = Pace::default();
        pace.cool(millis(0), millis(5_000), RATE);
        pace.cool(millis(1_000), millis(100), RATE);
        assert_eq!(pace.ready_in(millis(2_000), RATE), millis(3_000));
        assert_eq!(pace.cooling(millis(6_000)), Duration::ZERO);
    }

    #[test]
    fn a_misread_header_does_not_stop_a_node_for_days() {
        let mut pace = Pace::default();
        pace.throttle(millis(0), Some(Duration::from_secs(u64::MAX)), RATE);
        assert_eq!(pace.cooling(millis(0)), LONGEST_COOL_DOWN);
        assert_eq!(pace.ready_in(LONGEST_COOL_DOWN, RATE), Duration::ZERO);
    }

    #[test]
    fn no_burst_follows_a_cool_down() {
        let (mut pace, mut now, mut sent) = (Pace::default(), millis(0), Vec::new());
        pace.cool(now, millis(5_000), RATE);
        for _ in 0..4 {
            now += pace.ready_in(now, RATE);
            pace.take(now, RATE);
            sent.push(now);
        }
        assert_eq!(sent, [5_000, 5_100, 5_200, 5_300].map(millis));
    }

    #[test]
    fn a_host_that_does_not_say_for_how_long_is_left_alone_ever_longer() {
        let (mut pace, mut now, mut pauses) = (Pace::default(), millis(0), Vec::new());
        for _ in 0..7 {
            pace.throttle(now, None, RATE);
            // Under way at the same time.
            pace.throttle(now, None, RATE);
            pauses.push(pace.cooling(now).as_secs());
            now += pace.cooling(now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 32]);
        pace.relax();
        pace.throttle(now, None, RATE);
        assert_eq!(pace.cooling(now).as_secs(), 1);
        pace.throttle(now, Some(millis(7_000)), RATE);
        assert_eq!(pace.cooling(now).as_secs(), 7);
    }

    proptest! {
        #[test]
        fn no_second_sees_more_than_the_burst_and_the_rate(
            gaps in prop::collection::vec(0_u64..400, 1..200),
        ) {
            let (mut pace, mut now, mut sent) = (Pace::default(), Duration::ZERO, Vec::new());
            for gap in gaps {
                now += millis(gap);
                now += pace.ready_in(now, RATE);
                pace.take(now, RATE);
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
