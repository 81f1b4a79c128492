//! Delays between rounds and retries: pure arithmetic.

use std::time::Duration;

/// The delay until the next round: `interval` plus or minus up to 10 %, so that canaries that
/// started together spread out. `chance` is a random number in 0..=1.
pub(crate) fn with_jitter(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(0.9 + 0.2 * chance.clamp(0.0, 1.0))
}

/// The pause after the `times`-th consecutive throttled request. It is at least `asked`, the pause
/// that the service requests, and grows with each request, because a client that returns as early
/// as allowed is throttled again. It is five minutes if the service does not name a pause, and
/// never longer than an hour, so that a misread header cannot stop the canary.
pub(crate) fn throttled_delay(asked: Option<Duration>, times: u32) -> Duration {
    let Some(asked) = asked else { return MAX_DELAY_WITHOUT_HEADER };
    let doublings = times.saturating_sub(1).min(16);
    let own = MIN_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY_WITHOUT_HEADER);
    asked.clamp(own, MAX_DELAY)
}

const MIN_DELAY: Duration = Duration::from_mins(1);
/// The longest pause that the service did not ask for.
const MAX_DELAY_WITHOUT_HEADER: Duration = Duration::from_mins(5);
const MAX_DELAY: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_spreads_by_a_tenth() {
        let minute = Duration::from_mins(1);
        let seconds = [0.0, 0.5, 1.0, 7.0].map(|chance| with_jitter(minute, chance).as_secs());
        assert_eq!(seconds, [54, 60, 66, 66]);
    }

    #[test]
    fn throttled_delay_grows_and_honours_retry_after() {
        let pause = |seconds: Option<u64>, times| {
            throttled_delay(seconds.map(Duration::from_secs), times).as_secs()
        };
        assert_eq!(
            [1, 2, 3, 4, u32::MAX].map(|times| pause(Some(7), times)),
            [60, 120, 240, 300, 300]
        );
        assert_eq!([1, 2, 3].map(|times| pause(Some(200), times)), [200, 200, 240]);
        assert_eq!([1, 9].map(|times| pause(None, times)), [300, 300]);
        assert_eq!([1, 9].map(|times| pause(Some(u64::MAX), times)), [3_600, 3_600]);
    }
}
