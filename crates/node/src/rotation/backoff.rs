//! How long to wait after failures.

use std::time::Duration;

use lanyard_keyvault::RetryClass;

use super::cadence::{LEAST_GAP, floor};
use super::interval::PollInterval;

/// How long after the `failures`-th failure in a row the next look is due, jitter apart.
///
/// Waits double up to the interval, so that a vault that comes back is not met by everybody at
/// once, and yet every volume has looked again within `1.2` intervals. What does not heal by
/// itself begins at the floor: somebody has to change something first. A pause that the service
/// asked for is kept in any case.
pub(super) fn pause(interval: PollInterval, failures: u32, retry: RetryClass) -> Duration {
    let longest = interval.duration();
    let (first, asked) = match retry {
        RetryClass::Invalid | RetryClass::Denied => (floor(interval), None),
        RetryClass::Throttled { after } => (LEAST_GAP, after),
        // Transient; a class that is not known may be.
        _ => (LEAST_GAP, None),
    };
    let doublings = failures.saturating_sub(1).min(MOST_DOUBLINGS);
    let backoff = first.saturating_mul(1 << doublings).min(longest);
    backoff.max(asked.unwrap_or_default())
}

/// Ten seconds become a week and more.
const MOST_DOUBLINGS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_interval() {
        let seconds = |interval: &str, retry| {
            let interval = interval.parse().unwrap();
            [1, 2, 3, 4, 5, 6, 40].map(|failures| pause(interval, failures, retry).as_secs())
        };
        let transient = RetryClass::Transient;
        assert_eq!(seconds("2m", transient), [10, 20, 40, 80, 120, 120, 120]);
        assert_eq!(seconds("1h", transient), [10, 20, 40, 80, 160, 320, 3_600]);
        assert_eq!(seconds("5s", transient), [5; 7]);
        assert_eq!(
            seconds("1h", RetryClass::Denied),
            [900, 1_800, 3_600, 3_600, 3_600, 3_600, 3_600]
        );
    }

    #[test]
    fn a_pause_that_the_service_asked_for_is_kept_though_it_is_longer_than_the_interval() {
        let throttled =
            |seconds| RetryClass::Throttled { after: Some(Duration::from_secs(seconds)) };
        let interval = PollInterval::DEFAULT;
        assert_eq!(pause(interval, 1, throttled(600)), Duration::from_mins(10));
        assert_eq!(pause(interval, 3, throttled(1)), Duration::from_secs(40));
        assert_eq!(pause(interval, 1, RetryClass::Throttled { after: None }), LEAST_GAP);
    }
}
