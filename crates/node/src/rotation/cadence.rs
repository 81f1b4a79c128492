//! How long to wait in health: the longer, the further away the next renewal is.

use std::time::Duration;

use jiff::Timestamp;

use super::decision::Reason;
use super::interval::PollInterval;
use crate::provider::Stamps;

/// How long after a look at `at` the next one is due, jitter apart, and what it is about.
///
/// The interval is a promise, so knowledge of the times only shortens the wait: by a renewal that
/// is near (before it, because clocks differ; after it, because it may come late), by an expiry
/// that is near, and most by one that has passed.
pub(super) fn wait(
    interval: PollInterval,
    stamps: impl IntoIterator<Item = Stamps>,
    at: Timestamp,
) -> (Duration, Reason) {
    let longest = interval.duration();
    stamps
        .into_iter()
        .map(|stamps| wait_of(&stamps, at))
        .min_by_key(|(wait, _)| *wait)
        .filter(|(wait, _)| *wait < longest)
        .map_or((longest, Reason::Interval), |(wait, reason)| (wait.max(floor(interval)), reason))
}

/// The shortest wait in health.
pub(crate) fn floor(interval: PollInterval) -> Duration {
    let interval = interval.duration();
    (interval / 4).max(LEAST_FLOOR).min(interval)
}

/// Two looks at one volume are never closer than this, whatever the reason.
pub(super) fn least_gap(interval: PollInterval) -> Duration {
    let floor = floor(interval);
    LEAST_GAP.min(floor / 10 * 9)
}

fn wait_of(stamps: &Stamps, at: Timestamp) -> (Duration, Reason) {
    let renewal =
        stamps.renew_after.map(|renewal| (distance(renewal, at) / STEPS, Reason::Renewal));
    let expiry = stamps.not_after.map(|end| {
        if end <= at {
            (Duration::ZERO, Reason::Expired)
        } else {
            (distance(end, at) / STEPS, Reason::Expiry)
        }
    });
    let never = (Duration::MAX, Reason::Interval);
    renewal.into_iter().chain(expiry).min_by_key(|(wait, _)| *wait).unwrap_or(never)
}

fn distance(one: Timestamp, other: Timestamp) -> Duration {
    one.duration_since(other).unsigned_abs()
}

/// A moment is approached in steps of an eighth of what is left.
const STEPS: u32 = 8;

const LEAST_FLOOR: Duration = Duration::from_secs(30);

/// The first pause after a failure too.
pub(super) const LEAST_GAP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn looks_are_rare_far_from_a_renewal_and_dense_around_it() {
        let hour = "1h".parse().unwrap();
        let renewal = 10 * 86_400;
        let end = 90 * 86_400;
        let stamps = Stamps {
            renew_after: Some(at(renewal)),
            not_after: Some(at(end)),
            ..Stamps::default()
        };
        let minutes = Duration::from_mins;
        for (second, expected) in [
            (0, (minutes(60), Reason::Interval)),
            (renewal - 8 * 3_600, (minutes(60), Reason::Interval)),
            (renewal - 4 * 3_600, (minutes(30), Reason::Renewal)),
            (renewal - 60, (minutes(15), Reason::Renewal)),
            (renewal, (minutes(15), Reason::Renewal)),
            (renewal + 4 * 3_600, (minutes(30), Reason::Renewal)),
            (renewal + 86_400, (minutes(60), Reason::Interval)),
            (end - 4 * 3_600, (minutes(30), Reason::Expiry)),
            (end, (minutes(15), Reason::Expired)),
            (end + 86_400 * 365, (minutes(15), Reason::Expired)),
        ] {
            assert_eq!(wait(hour, [stamps], at(second)), expected, "at {second}");
        }
    }

    #[test]
    fn the_object_that_is_renewed_first_sets_the_pace() {
        let renewed_at = |second| Stamps { renew_after: Some(at(second)), ..Stamps::default() };
        let (wait, reason) =
            wait("1h".parse().unwrap(), [renewed_at(1_000_000), renewed_at(14_400)], at(0));
        assert_eq!((wait, reason), (Duration::from_mins(30), Reason::Renewal));
    }

    #[test]
    fn without_stamps_the_interval_is_kept() {
        let interval = PollInterval::DEFAULT;
        let expected = (interval.duration(), Reason::Interval);
        assert_eq!(wait(interval, [], at(0)), expected);
        assert_eq!(wait(interval, [Stamps::default()], at(0)), expected);
    }

    #[test]
    fn a_short_interval_is_its_own_floor() {
        for (interval, seconds) in [("1h", 900), ("2m", 30), ("30s", 30), ("5s", 5)] {
            assert_eq!(floor(interval.parse().unwrap()), Duration::from_secs(seconds));
        }
    }

    proptest! {
        #[test]
        fn no_wait_is_shorter_than_the_floor_or_longer_than_the_interval(
            interval in 1_u64..=604_800,
            renewal in proptest::option::of(-10_000_000_i64..10_000_000),
            end in proptest::option::of(-10_000_000_i64..10_000_000),
        ) {
            let interval: PollInterval = format!("{interval}s").parse().unwrap();
            let stamps = Stamps {
                renew_after: renewal.map(at),
                not_after: end.map(at),
                ..Stamps::default()
            };
            let (wait, _) = wait(interval, [stamps], at(0));
            prop_assert!(wait >= floor(interval) && wait <= interval.duration());
            prop_assert!(least_gap(interval) <= wait);
        }
    }
}
