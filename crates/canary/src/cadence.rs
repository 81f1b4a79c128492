//! When something is tried again: pure arithmetic.

use std::time::Duration;

/// The pause between two rounds: `interval`, of which `chance` (0 to 1) takes or adds up to a tenth,
/// so that canaries that began together do not stay together.
pub(crate) fn jittered(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(0.9 + 0.2 * chance.clamp(0.0, 1.0))
}

/// How long a service that throttles is left alone: as long as it asks, and five minutes where it
/// does not say. A misread header keeps nobody quiet for longer than an hour.
pub(crate) fn throttled(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(UNTOLD_PAUSE).min(LONGEST_PAUSE)
}

const UNTOLD_PAUSE: Duration = Duration::from_mins(5);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_spread_by_a_tenth_to_either_side() {
        let minute = Duration::from_mins(1);
        let seconds = [0.0, 0.5, 1.0, 7.0].map(|chance| jittered(minute, chance).as_secs());
        assert_eq!(seconds, [54, 60, 66, 66]);
    }

    #[test]
    fn a_throttling_service_is_left_alone_as_long_as_it_asks_within_reason() {
        let asked = |seconds: Option<u64>| throttled(seconds.map(Duration::from_secs)).as_secs();
        assert_eq!([None, Some(7), Some(u64::MAX)].map(asked), [300, 7, 3_600]);
    }
}
