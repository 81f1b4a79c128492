//! When something is tried again: pure arithmetic.

use std::time::Duration;

/// The pause between two rounds: `interval`, of which `chance` (0 to 1) takes or adds up to a tenth,
/// so that canaries that began together do not stay together.
pub(crate) fn with_jitter(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(0.9 + 0.2 * chance.clamp(0.0, 1.0))
}

/// How long a service that throttled so many `times` in a row is left alone: never less than it
/// asks, and ever longer, for who comes back as soon as it may is throttled on. Five minutes where it
/// does not say. A misread header keeps nobody quiet for longer than an hour.
pub(crate) fn throttled_delay(asked: Option<Duration>, times: u32) -> Duration {
    let Some(asked) = asked else { return MAX_DELAY_WITHOUT_HEADER };
    let doublings = times.saturating_sub(1).min(16);
    let own = MIN_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY_WITHOUT_HEADER);
    asked.clamp(own, MAX_DELAY)
}

const MIN_DELAY: Duration = Duration::from_mins(1);
/// The longest pause that nobody asked for.
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
