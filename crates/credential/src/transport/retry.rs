//! The retry policy of token requests: pure arithmetic.

use std::time::Duration;

use lanyard_clock::Backoff;

/// The retry policy of token requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySettings {
    /// The maximum number of requests for one token.
    pub attempts: u32,
    /// The delay before the first retry; it doubles with each retry. Jitter shortens each delay by up to a half.
    pub first_delay: Duration,
    /// The maximum delay.
    pub longest_delay: Duration,
    /// No retry starts later than this after the first request.
    pub budget: Duration,
    /// The timeout of one request.
    pub attempt_timeout: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_delay: Duration::from_millis(500),
            longest_delay: Duration::from_secs(10),
            budget: Duration::from_secs(45),
            attempt_timeout: Duration::from_secs(30),
        }
    }
}

impl RetrySettings {
    /// The policy for IMDS, which responds with 410 for up to 70 seconds while it is updated. The attempts suffice
    /// for the budget even if every delay is the shortest possible.
    pub fn for_managed_identity() -> Self {
        Self {
            attempts: 12,
            first_delay: Duration::from_secs(1),
            longest_delay: Duration::from_secs(20),
            budget: Duration::from_secs(75),
            attempt_timeout: Duration::from_secs(15),
        }
    }

    /// The delay after request number `attempt`, counted from one, which ended `elapsed` after the start of the
    /// first one. `None` if no further request is allowed.
    ///
    /// A delay that exceeds the budget is shortened, so that the last retry starts when the budget ends. `chance` is
    /// the jitter, from 0 to 1.
    pub(crate) fn next_delay(
        &self,
        attempt: u32,
        elapsed: Duration,
        chance: f64,
    ) -> Option<Duration> {
        let left = self.budget.saturating_sub(elapsed);
        let backoff = Backoff::new(self.first_delay, self.longest_delay);
        let delay = backoff.delay_with_jitter(attempt, chance);
        (attempt < self.attempts && !left.is_zero()).then(|| delay.min(left))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let settings = RetrySettings { attempts: u32::MAX, ..RetrySettings::default() };
        let delay = |attempt, chance| settings.next_delay(attempt, Duration::ZERO, chance).unwrap();
        let delays: Vec<u128> = (1..=7).map(|n| delay(n, 0.0).as_millis()).collect();
        assert_eq!(delays, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(delay(u32::MAX - 1, 1.0).as_millis(), 5_000);
        assert_eq!(delay(1, 1.0).as_millis(), 250);
    }

    #[test]
    fn no_retry_starts_after_the_budget() {
        let settings = RetrySettings::default();
        for (elapsed, expected) in [(0, Some(4_000)), (42_000, Some(3_000)), (45_000, None)] {
            let delay = settings.next_delay(4, Duration::from_millis(elapsed), 0.0);
            assert_eq!(delay.map(|delay| delay.as_millis()), expected, "{elapsed}");
        }
        assert_eq!(settings.next_delay(5, Duration::ZERO, 0.0), None);
    }

    proptest! {
        #[test]
        fn managed_identity_outlasts_an_update_of_the_endpoint(
            chances in prop::collection::vec(prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0], 12),
        ) {
            let settings = RetrySettings::for_managed_identity();
            let mut last_start = Duration::ZERO;
            for (attempt, chance) in (1..).zip(chances) {
                let Some(delay) = settings.next_delay(attempt, last_start, chance) else { break };
                last_start += delay;
            }
            prop_assert!(last_start >= Duration::from_secs(70), "{last_start:?}");
            prop_assert!(last_start <= settings.budget, "{last_start:?}");
        }
    }
}
