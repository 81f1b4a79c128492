//! The wait between polls of a healthy volume. It grows with the distance to the next renewal.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_provider::{ObjectTimestamps, PollInterval};

use super::decision::PollReason;

/// The wait between a poll at `at` and the next one, without jitter, and its reason.
///
/// The interval is a promise, so object timestamps only shorten the wait: near a renewal (before
/// it, because clocks differ; after it, because it may be late), near an expiry, and most after an
/// expiry.
pub(super) fn healthy_wait(
    interval: PollInterval,
    stamps: impl IntoIterator<Item = ObjectTimestamps>,
    at: Timestamp,
) -> (Duration, PollReason) {
    let longest = interval.duration();
    stamps
        .into_iter()
        .map(|stamps| wait_for_timestamps(&stamps, at))
        .min_by_key(|(wait, _)| *wait)
        .filter(|(wait, _)| *wait < longest)
        .map_or((longest, PollReason::Interval), |(wait, reason)| {
            (wait.max(interval.min_wait()), reason)
        })
}

/// The minimum time between two polls of a volume, whatever the reason.
pub(super) fn min_gap(interval: PollInterval) -> Duration {
    let floor = interval.min_wait();
    MIN_GAP.min(floor / 10 * 9)
}

fn wait_for_timestamps(stamps: &ObjectTimestamps, at: Timestamp) -> (Duration, PollReason) {
    let renewal = stamps
        .renew_after
        .map(|renewal| (time_between(renewal, at) / APPROACH_DIVISOR, PollReason::Renewal));
    let expiry = stamps.not_after.map(|end| {
        if end <= at {
            (Duration::ZERO, PollReason::Expired)
        } else {
            (time_between(end, at) / APPROACH_DIVISOR, PollReason::Expiry)
        }
    });
    let never = (Duration::MAX, PollReason::Interval);
    renewal.into_iter().chain(expiry).min_by_key(|(wait, _)| *wait).unwrap_or(never)
}

fn time_between(one: Timestamp, other: Timestamp) -> Duration {
    one.duration_since(other).unsigned_abs()
}

/// A moment is approached in steps of an eighth of the remaining time.
const APPROACH_DIVISOR: u32 = 8;

/// Also the first back-off after a failure.
pub(super) const MIN_GAP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn polls_are_rare_far_from_a_renewal_and_dense_around_it() {
        let hour = "1h".parse().unwrap();
        let renewal = 10 * 86_400;
        let end = 90 * 86_400;
        let stamps = ObjectTimestamps {
            renew_after: Some(at(renewal)),
            not_after: Some(at(end)),
            ..ObjectTimestamps::default()
        };
        let minutes = Duration::from_mins;
        for (second, expected) in [
            (0, (minutes(60), PollReason::Interval)),
            (renewal - 8 * 3_600, (minutes(60), PollReason::Interval)),
            (renewal - 4 * 3_600, (minutes(30), PollReason::Renewal)),
            (renewal - 60, (minutes(15), PollReason::Renewal)),
            (renewal, (minutes(15), PollReason::Renewal)),
            (renewal + 4 * 3_600, (minutes(30), PollReason::Renewal)),
            (renewal + 86_400, (minutes(60), PollReason::Interval)),
            (end - 4 * 3_600, (minutes(30), PollReason::Expiry)),
            (end, (minutes(15), PollReason::Expired)),
            (end + 86_400 * 365, (minutes(15), PollReason::Expired)),
        ] {
            assert_eq!(healthy_wait(hour, [stamps], at(second)), expected, "at {second}");
        }
    }

    #[test]
    fn earliest_renewal_determines_the_wait() {
        let renewed_at = |second| ObjectTimestamps {
            renew_after: Some(at(second)),
            ..ObjectTimestamps::default()
        };
        let (wait, reason) =
            healthy_wait("1h".parse().unwrap(), [renewed_at(1_000_000), renewed_at(14_400)], at(0));
        assert_eq!((wait, reason), (Duration::from_mins(30), PollReason::Renewal));
    }

    #[test]
    fn without_stamps_the_interval_is_kept() {
        let interval = PollInterval::DEFAULT;
        let expected = (interval.duration(), PollReason::Interval);
        assert_eq!(healthy_wait(interval, [], at(0)), expected);
        assert_eq!(healthy_wait(interval, [ObjectTimestamps::default()], at(0)), expected);
    }

    proptest! {
        #[test]
        fn no_wait_is_shorter_than_the_floor_or_longer_than_the_interval(
            interval in 1_u64..=604_800,
            renewal in proptest::option::of(-10_000_000_i64..10_000_000),
            end in proptest::option::of(-10_000_000_i64..10_000_000),
        ) {
            let interval: PollInterval = format!("{interval}s").parse().unwrap();
            let stamps = ObjectTimestamps {
                renew_after: renewal.map(at),
                not_after: end.map(at),
                ..ObjectTimestamps::default()
            };
            let (wait, _) = healthy_wait(interval, [stamps], at(0));
            prop_assert!(wait >= interval.min_wait() && wait <= interval.duration());
            prop_assert!(min_gap(interval) <= wait);
        }
    }
}
