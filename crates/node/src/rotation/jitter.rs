//! Deterministic jitter of polls.
//!
//! It is not that of [`lanyard_clock`], which shortens delays. A poll must not be sooner, because shared reads and the
//! pauses of a vault count on the whole wait, and may be later only by the documented tenth or fifth.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;

/// A pseudo-random number that is reproducible: a digest of its purpose, the volume and the time
/// from which the wait counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeterministicJitter(u64);

impl DeterministicJitter {
    pub(super) fn of(purpose: &str, volume_id: &str, at: Timestamp) -> Self {
        let text = format!("{purpose}\0{volume_id}\0{}", at.as_nanosecond());
        let digest = digest(&SHA256, text.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&digest.as_ref()[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// A uniformly distributed time in `[0, range)`.
    pub(super) fn offset_within(self, range: Duration) -> Duration {
        let nanos = (range.as_nanos().saturating_mul(u128::from(self.0))) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// `wait`, lengthened by up to one `part`-th of it.
    pub(super) fn lengthen(self, wait: Duration, part: u32) -> Duration {
        wait.saturating_add(self.offset_within(wait / part))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_thousand_volumes_are_spread_evenly_over_the_range() {
        let range = Duration::from_secs(100);
        let mut tenths = [0_u32; 10];
        for number in 0..1_000 {
            let draw =
                DeterministicJitter::of("poll", &format!("csi-{number}"), Timestamp::UNIX_EPOCH);
            let seconds = draw.offset_within(range).as_secs();
            tenths[usize::try_from(seconds / 10).unwrap()] += 1;
        }
        // Five standard deviations of a uniform distribution.
        assert!(tenths.iter().all(|count| (53..=147).contains(count)), "{tenths:?}");
    }

    proptest! {
        #[test]
        fn jitter_stays_in_its_range_and_is_repeatable(id in ".{0,80}", nanos in 0_i64.., wait in 0_u64..=604_800_000) {
            let at = Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
            let wait = Duration::from_millis(wait);
            let draw = DeterministicJitter::of("poll", &id, at);
            prop_assert_eq!(draw, DeterministicJitter::of("poll", &id, at));
            prop_assert!(draw.offset_within(wait) <= wait);
            let beyond = draw.lengthen(wait, 10);
            prop_assert!(beyond >= wait && beyond <= wait + wait / 10);
        }
    }
}
