//! How often the vault is asked within one request: a pure decision.
//!
//! The API server gives a request 3 s by default, HyperShift 35 s. A retry that would end after
//! that is none: the other plugins wait 30 s before their first.

use std::time::Duration;

use crate::error::VaultError;

/// The pause before the first retry; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// No pause is longer, unless the vault asks for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most that a request asks the vault.
const MOST_TRIES: u32 = 5;

/// A try that could not last this long is not begun.
const SHORTEST_TRY: Duration = Duration::from_millis(300);

/// Less time than this is not shared between two tries.
const WORTH_SHARING: Duration = Duration::from_secs(6);

/// One try lasts no longer: a connection that hangs leaves time for another.
const LONGEST_TRY: Duration = Duration::from_secs(10);

/// What the answer needs on its way back.
const WAY_BACK: Duration = Duration::from_millis(100);

/// How much of the time that the API server gives is ours.
pub(crate) fn budget(given: Duration) -> Duration {
    given.saturating_sub(WAY_BACK.min(given / 10))
}

/// How long one try may last when so much is left. It is cut short only where what comes after it is
/// worth a try: a vault that is slow and good must not be given up for one that is no faster.
pub(crate) fn try_limit(left: Duration) -> Duration {
    if left < WORTH_SHARING { left } else { (left / 2).min(LONGEST_TRY) }
}

/// How long the token may take: the rest is the vault's, should it come.
pub(crate) fn token_limit(left: Duration) -> Duration {
    left.saturating_sub(SHORTEST_TRY)
}

/// The pause before the next try, or nothing where this error stands. `tries` counts those that were
/// made; `jitter` lies in 0..=1 and stretches the pause to 80..=130 %.
pub(crate) fn pause(
    tries: u32,
    error: &VaultError,
    left: Duration,
    jitter: f64,
) -> Option<Duration> {
    if tries >= MOST_TRIES {
        return None;
    }
    let asked = error.passes()?;
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1)));
    let ours = doubled.min(LONGEST_PAUSE).mul_f64(0.8 + 0.5 * jitter.clamp(0.0, 1.0));
    let pause = ours.max(asked);
    (pause.saturating_add(SHORTEST_TRY) <= left).then_some(pause)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::VaultReply;

    fn failed(wait: Option<u64>) -> VaultError {
        let reply = VaultReply { status: 503, code: None, message: String::new() };
        VaultError::Failed { reply, wait: wait.map(Duration::from_secs) }
    }

    #[test]
    fn what_does_not_pass_is_not_asked_again() {
        let reply = VaultReply { status: 403, code: None, message: String::new() };
        let error = VaultError::Forbidden(reply);
        assert_eq!(pause(1, &error, Duration::from_mins(1), 0.0), None);
    }

    #[test]
    fn within_the_default_of_the_api_server_there_are_retries() {
        let mut left = budget(Duration::from_secs(3));
        let mut pauses = Vec::new();
        while let Some(next) =
            pause(u32::try_from(pauses.len()).unwrap() + 1, &failed(None), left, 0.4)
        {
            left = left.saturating_sub(next);
            pauses.push(next.as_millis());
        }
        assert_eq!(pauses, [200, 400, 800], "the fourth would leave no time for a try");
    }

    #[test]
    fn the_wish_of_the_vault_is_obeyed_or_its_refusal_handed_on() {
        let thirty = Duration::from_secs(30);
        assert_eq!(pause(1, &failed(Some(30)), Duration::from_secs(35), 0.0), Some(thirty));
        assert_eq!(pause(1, &failed(Some(30)), Duration::from_secs(3), 0.0), None);
    }

    #[test]
    fn a_try_is_cut_short_only_where_another_one_is_worth_it() {
        let limit = |millis| try_limit(Duration::from_millis(millis)).as_millis();
        assert_eq!(
            [2_900, 5_900, 6_000, 19_900, 34_900].map(limit),
            [2_900, 5_900, 3_000, 9_950, 10_000]
        );
    }

    proptest! {
        #[test]
        fn no_retry_begins_that_could_not_end(
            tries in 1..10_u32,
            wait in prop::option::of(0..100_u64),
            left in 0..40_000_u64,
            jitter in 0.0..=1.0_f64,
        ) {
            let left = Duration::from_millis(left);
            if let Some(pause) = pause(tries, &failed(wait), left, jitter) {
                prop_assert!(pause + SHORTEST_TRY <= left);
                prop_assert!(tries < MOST_TRIES);
            }
            prop_assert!(try_limit(left) <= left && token_limit(left) <= left);
        }
    }
}
