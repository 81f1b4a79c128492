//! The delays between the attempts of a repeated action: pure arithmetic.

use std::time::Duration;

/// Exponential back-off: the delay after each further failure in a row is twice as long, up to a limit.
///
/// ```
/// use std::time::Duration;
///
/// use lanyard_clock::Backoff;
///
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
/// assert_eq!([1, 2, 3, 4].map(|failures| backoff.delay(failures).as_secs()), [1, 2, 4, 5]);
/// // A chance of one half shortens the delay by a quarter.
/// assert_eq!(backoff.delay_with_jitter(3, 0.5), Duration::from_secs(3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// A back-off with this delay after the first failure and this longest delay.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The delay after this many failures in a row, from one, without jitter.
    pub fn delay(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(MAX_DOUBLINGS);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// The delay after this many failures in a row, shortened by up to a half, in proportion to `chance`.
    ///
    /// `chance` is a random number from 0 to 1, so that clients that failed together do not retry together.
    pub fn delay_with_jitter(self, failures: u32, chance: f64) -> Duration {
        shorten(self.delay(failures), 0.5, chance)
    }
}

/// The period of a repeated action, shortened by up to an eighth, in proportion to `chance`.
///
/// `chance` is a random number from 0 to 1, so that programs that started together do not act together for ever.
pub fn period_with_jitter(period: Duration, chance: f64) -> Duration {
    shorten(period, 0.125, chance)
}

/// A delay that a service requested, lengthened by up to an eighth, in proportion to `chance`.
///
/// `chance` is a random number from 0 to 1. The delay is never shortened, because the service rejects earlier requests.
pub fn requested_delay_with_jitter(delay: Duration, chance: f64) -> Duration {
    delay.saturating_add((delay / 8).mul_f64(chance.clamp(0.0, 1.0)))
}

fn shorten(duration: Duration, share: f64, chance: f64) -> Duration {
    duration.saturating_sub(duration.mul_f64(share * chance.clamp(0.0, 1.0)))
}

/// A delay of 10 ms, doubled 30 times, is longer than four months.
const MAX_DOUBLINGS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let delays = [0, 1, 2, 3, 4, 6, 40, u32::MAX].map(|n| backoff.delay(n).as_millis());
        assert_eq!(delays, [200, 200, 400, 800, 1_600, 5_000, 5_000, 5_000]);
    }

    #[test]
    fn jitter_shortens_in_proportion_to_chance() {
        let backoff = Backoff::new(Duration::from_secs(8), Duration::from_secs(8));
        let delays =
            [-1.0, 0.0, 0.5, 1.0, 7.0].map(|it| backoff.delay_with_jitter(1, it).as_secs());
        assert_eq!(delays, [8, 8, 6, 4, 4]);
        let periods = [0.0, 1.0].map(|it| period_with_jitter(Duration::from_secs(8), it).as_secs());
        assert_eq!(periods, [8, 7]);
        let requested =
            [0.0, 1.0].map(|it| requested_delay_with_jitter(Duration::from_secs(8), it).as_secs());
        assert_eq!(requested, [8, 9]);
    }

    #[test]
    fn extreme_delays_do_not_overflow() {
        let backoff = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(backoff.delay(u32::MAX), Duration::MAX);
        assert_eq!(backoff.delay_with_jitter(2, 0.0), Duration::MAX);
        assert!(backoff.delay_with_jitter(2, 1.0) < Duration::MAX);
        assert_eq!(requested_delay_with_jitter(Duration::MAX, 1.0), Duration::MAX);
    }
}
