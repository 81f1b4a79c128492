//! Delays of throttled requests: pure arithmetic.

use std::time::Duration;

use lanyard_clock::Backoff;

/// The pause after the `times`-th consecutive throttled request. It is at least `asked`, the pause
/// that the service requests, and grows with each request, because a client that returns as early
/// as allowed is throttled again. It is five minutes if the service does not name a pause, and
/// never longer than an hour, so that a misread header cannot stop the canary.
pub(crate) fn throttled_delay(asked: Option<Duration>, times: u32) -> Duration {
    let Some(asked) = asked else { return MAX_DELAY_WITHOUT_HEADER };
    asked.clamp(BACKOFF.delay(times), MAX_DELAY)
}

const BACKOFF: Backoff = Backoff::new(Duration::from_mins(1), MAX_DELAY_WITHOUT_HEADER);
/// The longest pause that the service did not ask for.
const MAX_DELAY_WITHOUT_HEADER: Duration = Duration::from_mins(5);
const MAX_DELAY: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

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
