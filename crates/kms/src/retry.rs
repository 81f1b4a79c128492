//! Decides how often the plugin retries a vault request within one API server request. Does no I/O.
//!
//! The API server gives a request 3 s by default, HyperShift 35 s. A retry must fit into that time;
//! the other plugins wait 30 s before their first retry.

use std::time::Duration;

use lanyard_clock::Backoff;

use crate::error::KeyOperationError;

/// The delays that the vault did not ask for.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// The maximum number of vault requests per API server request.
const MAX_ATTEMPTS: u32 = 5;

/// The minimum time for an attempt; with less time left, no attempt starts.
const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(300);

/// With less time than this, the first attempt gets all of it.
const MIN_TIME_TO_SPLIT: Duration = Duration::from_secs(6);

/// The longest time for one attempt, so that a hanging connection leaves time for a retry.
const MAX_ATTEMPT_TIME: Duration = Duration::from_secs(10);

/// The time that the response needs to reach the API server.
const REPLY_MARGIN: Duration = Duration::from_millis(100);

/// The part of the API server's deadline that the plugin can use.
pub(crate) fn usable_time(given: Duration) -> Duration {
    given.saturating_sub(REPLY_MARGIN.min(given / 10))
}

/// The time limit of one attempt. An attempt is cut short only if the remaining time is enough for
/// another one: a slow but working vault must not be abandoned for a retry that is no faster.
pub(crate) fn attempt_timeout(left: Duration) -> Duration {
    if left < MIN_TIME_TO_SPLIT { left } else { (left / 2).min(MAX_ATTEMPT_TIME) }
}

/// The time limit of the token request; it leaves time for one attempt at the vault.
pub(crate) fn token_timeout(left: Duration) -> Duration {
    left.saturating_sub(MIN_ATTEMPT_TIME)
}

/// The delay before the next attempt, or `None` if the error is final. `tries` is the number of
/// attempts so far; `chance` is the random number of [`Backoff::delay_with_jitter`]. A longer delay
/// that the vault asked for is kept.
pub(crate) fn retry_delay(
    tries: u32,
    error: &KeyOperationError,
    left: Duration,
    chance: f64,
) -> Option<Duration> {
    let class = error.retry_class();
    if tries >= MAX_ATTEMPTS || !class.is_temporary() {
        return None;
    }
    let ours = BACKOFF.delay_with_jitter(tries, chance);
    let pause = ours.max(class.requested_delay().unwrap_or_default());
    (pause.saturating_add(MIN_ATTEMPT_TIME) <= left).then_some(pause)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::VaultErrorReply;

    fn vault_failure(wait: Option<u64>) -> KeyOperationError {
        let reply = VaultErrorReply { status: 503, code: None, message: String::new() };
        KeyOperationError::Failed { reply, retry_after: wait.map(Duration::from_secs) }
    }

    #[test]
    fn permanent_error_is_not_retried() {
        let reply = VaultErrorReply { status: 403, code: None, message: String::new() };
        let error = KeyOperationError::Forbidden(reply);
        assert_eq!(retry_delay(1, &error, Duration::from_mins(1), 0.0), None);
    }

    #[test]
    fn default_deadline_allows_retries() {
        let mut left = usable_time(Duration::from_secs(3));
        let mut pauses = Vec::new();
        while let Some(next) =
            retry_delay(u32::try_from(pauses.len()).unwrap() + 1, &vault_failure(None), left, 0.0)
        {
            left = left.saturating_sub(next);
            pauses.push(next.as_millis());
        }
        assert_eq!(pauses, [200, 400, 800], "the fourth would leave no time for a try");
    }

    #[test]
    fn retry_after_is_honoured_or_error_returned() {
        let thirty = Duration::from_secs(30);
        assert_eq!(
            retry_delay(1, &vault_failure(Some(30)), Duration::from_secs(35), 0.0),
            Some(thirty)
        );
        assert_eq!(retry_delay(1, &vault_failure(Some(30)), Duration::from_secs(3), 0.0), None);
    }

    #[test]
    fn attempt_is_shortened_only_for_useful_retry() {
        let limit = |millis| attempt_timeout(Duration::from_millis(millis)).as_millis();
        assert_eq!(
            [2_900, 5_900, 6_000, 19_900, 34_900].map(limit),
            [2_900, 5_900, 3_000, 9_950, 10_000]
        );
    }

    proptest! {
        #[test]
        fn retries_always_fit_the_remaining_time(
            tries in 1..10_u32,
            wait in prop::option::of(0..100_u64),
            left in 0..40_000_u64,
            chance in 0.0..=1.0_f64,
        ) {
            let left = Duration::from_millis(left);
            if let Some(pause) = retry_delay(tries, &vault_failure(wait), left, chance) {
                prop_assert!(pause + MIN_ATTEMPT_TIME <= left);
                prop_assert!(tries < MAX_ATTEMPTS);
            }
            prop_assert!(attempt_timeout(left) <= left && token_timeout(left) <= left);
        }
    }
}
