//! Computes when to renew a token and until when to return it: pure arithmetic.

use std::time::Duration;

use lanyard_clock::period_with_jitter;

/// The deadlines of one token, in the clock's monotonic time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenLifetime {
    /// From this time on, the token is renewed in the background and still returned.
    pub(crate) refresh_at: Duration,
    /// From this time on, callers wait for a new token.
    pub(crate) usable_until: Duration,
    /// From this time on, the service rejects the token.
    pub(crate) expires_at: Duration,
}

impl TokenLifetime {
    /// Computes the deadlines of a token that was requested at `asked_at`.
    ///
    /// The service's own `refresh_in` takes precedence. Without it, a long-lived token (more than two hours:
    /// managed identities and CAE get about a day) is renewed at half its lifetime, so that an outage of some
    /// hours has no effect, and any other five minutes before it expires. A jitter shortens this delay by up to an
    /// eighth, so that pods that started together do not renew together; `chance` is that jitter, from 0 to 1.
    pub(crate) fn plan(
        asked_at: Duration,
        expires_in: Duration,
        refresh_in: Option<Duration>,
        chance: f64,
    ) -> Self {
        let delay = refresh_in
            .filter(|refresh_in| !refresh_in.is_zero() && *refresh_in < expires_in)
            .unwrap_or_else(|| default_refresh_delay(expires_in));
        let hard_margin = EXPIRY_MARGIN.min(expires_in / 4);
        Self {
            refresh_at: asked_at.saturating_add(period_with_jitter(delay, chance)),
            usable_until: asked_at.saturating_add(expires_in.saturating_sub(hard_margin)),
            expires_at: asked_at.saturating_add(expires_in),
        }
    }
}

fn default_refresh_delay(expires_in: Duration) -> Duration {
    // With a lifetime below ten minutes, a margin of five minutes would start the renewal too early.
    if expires_in > LONG_LIVED_THRESHOLD || expires_in < 2 * REFRESH_MARGIN {
        expires_in / 2
    } else {
        expires_in.saturating_sub(REFRESH_MARGIN)
    }
}

/// A token with a longer lifetime is renewed at half its lifetime.
const LONG_LIVED_THRESHOLD: Duration = Duration::from_hours(2);
/// How long before expiry any other token is renewed.
const REFRESH_MARGIN: Duration = Duration::from_mins(5);
/// How long before expiry a token is no longer returned without requesting a new one.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_mins(minutes)
    }

    #[test]
    fn refresh_time_depends_on_the_token_lifetime() {
        let cases = [
            ("one hour: five minutes before the end", minutes(60), None, minutes(55)),
            ("ninety minutes", minutes(90), None, minutes(85)),
            ("two hours are not yet long", minutes(120), None, minutes(115)),
            ("a day: half its life", minutes(24 * 60), None, minutes(12 * 60)),
            ("refresh_in wins", minutes(24 * 60), Some(minutes(600)), minutes(600)),
            ("refresh_in after the end is ignored", minutes(60), Some(minutes(61)), minutes(55)),
            ("refresh_in of zero is ignored", minutes(60), Some(Duration::ZERO), minutes(55)),
            ("a very short life: half of it", minutes(8), None, minutes(4)),
        ];
        for (case, expires_in, refresh_in, expected) in cases {
            let schedule = TokenLifetime::plan(minutes(1), expires_in, refresh_in, 0.0);
            assert_eq!(schedule.refresh_at, minutes(1) + expected, "{case}");
            assert_eq!(schedule.expires_at, minutes(1) + expires_in, "{case}");
            assert_eq!(schedule.usable_until + EXPIRY_MARGIN, schedule.expires_at, "{case}");
        }
    }

    #[test]
    fn jitter_spreads_a_fleet_over_an_eighth_of_the_delay() {
        let refresh_at =
            |chance| TokenLifetime::plan(Duration::ZERO, minutes(24 * 60), None, chance).refresh_at;
        assert_eq!([0.0, 0.5, 1.0].map(refresh_at), [minutes(720), minutes(675), minutes(630)]);
    }

    proptest! {
        #[test]
        fn refresh_usable_and_expiry_times_are_ordered(
            expires_in in 0u64..200_000,
            refresh_in in proptest::option::of(0u64..200_000),
            chance in 0.0f64..=1.0,
        ) {
            let schedule = TokenLifetime::plan(
                minutes(3),
                Duration::from_secs(expires_in),
                refresh_in.map(Duration::from_secs),
                chance,
            );
            prop_assert!(minutes(3) <= schedule.refresh_at);
            prop_assert!(schedule.refresh_at <= schedule.expires_at);
            prop_assert!(schedule.usable_until <= schedule.expires_at);
        }
    }
}
