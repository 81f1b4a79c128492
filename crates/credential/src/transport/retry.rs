//! The retry policy of token requests: pure arithmetic.

use std::time::Duration;

use crate::token::lifetime::jitter;

/// The retry policy of token requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySettings {
    /// The maximum number of requests for one token.
    pub attempts: u32,
    /// The delay before the first retry; it doubles with each retry.
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
    /// The policy for IMDS, which responds with 410 for up to 70 seconds while it is updated.
    pub fn for_managed_identity() -> Self {
        Self {
            attempts: 9,
            first_delay: Duration::from_secs(1),
            longest_delay: Duration::from_secs(20),
            budget: Duration::from_secs(75),
            attempt_timeout: Duration::from_secs(15),
        }
    }

    /// The delay after request number `attempt`, counted from one.
    pub(crate) fn delay(&self, attempt: u32, fraction: f64) -> Duration {
        let doubled = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = self.first_delay.saturating_mul(doubled).min(self.longest_delay);
        jitter(delay, DELAY_JITTER, fraction)
    }
}

/// The jitter of a delay, as a fraction.
const DELAY_JITTER: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let settings = RetrySettings::default();
        let delays: Vec<u128> = (1..=7).map(|n| settings.delay(n, 0.5).as_millis()).collect();
        assert_eq!(delays, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(settings.delay(u32::MAX, 1.0).as_millis(), 12_500);
        assert_eq!(settings.delay(1, 0.0).as_millis(), 375);
    }

    #[test]
    fn managed_identity_outlasts_an_update_of_the_endpoint() {
        let settings = RetrySettings::for_managed_identity();
        let total: Duration = (1..settings.attempts).map(|n| settings.delay(n, 0.5)).sum();
        assert!(total >= Duration::from_secs(70), "{total:?}");
    }
}
