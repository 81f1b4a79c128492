//! The back-off after failed polls.

use std::time::Duration;

use lanyard_clock::{Backoff, RetryClass};
use lanyard_provider::PollInterval;

use super::poll_wait::MIN_GAP;

/// The wait between the `failures`-th failure in a row and the next poll, without jitter.
///
/// Waits double up to the interval, so that volumes do not all hit a recovering vault at once, and
/// yet every volume polls again within `1.2` intervals. Errors that do not recover by themselves
/// start at the minimum wait, because they need a change first. A pause that the service asked for
/// always applies.
pub(super) fn backoff_after_failures(
    interval: PollInterval,
    failures: u32,
    retry: RetryClass,
) -> Duration {
    let first = if retry.is_permanent() { interval.min_wait() } else { MIN_GAP };
    let delay = Backoff::new(first, interval.duration()).delay(failures);
    delay.max(retry.requested_delay().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_interval() {
        let seconds = |interval: &str, retry| {
            let interval = interval.parse().unwrap();
            [1, 2, 3, 4, 5, 6, 40]
                .map(|failures| backoff_after_failures(interval, failures, retry).as_secs())
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
    fn retry_after_is_honoured_beyond_the_interval() {
        let throttled =
            |seconds| RetryClass::Throttled { after: Some(Duration::from_secs(seconds)) };
        let interval = PollInterval::DEFAULT;
        assert_eq!(backoff_after_failures(interval, 1, throttled(600)), Duration::from_mins(10));
        assert_eq!(backoff_after_failures(interval, 3, throttled(1)), Duration::from_secs(40));
        assert_eq!(
            backoff_after_failures(interval, 1, RetryClass::Throttled { after: None }),
            MIN_GAP
        );
    }
}
