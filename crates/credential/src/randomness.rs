//! The source of randomness for jitter and request ids, replaceable in tests.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// A source of randomness that is shared between parts of a program.
pub type SharedRandomness = Arc<dyn Randomness>;

/// The randomness that this crate needs. It is not used for secrets: no key is derived from it, and its ids
/// only have to be unique.
pub trait Randomness: fmt::Debug + Send + Sync + 'static {
    /// A uniformly distributed number from 0 to 1, both included.
    fn fraction(&self) -> f64;

    /// A version 4 UUID, for `jti` and `client-request-id`.
    fn uuid(&self) -> Uuid;
}

/// The randomness of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fraction(&self) -> f64 {
        // The first 32 bits of a version 4 UUID are all random (RFC 9562 5.4).
        let (high, ..) = Uuid::new_v4().as_fields();
        f64::from(high) / f64::from(u32::MAX)
    }

    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

#[cfg(test)]
pub(crate) mod fixed {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A constant fraction, and ids that count upwards.
    #[derive(Debug)]
    pub(crate) struct FixedRandomness {
        fraction: f64,
        ids: AtomicU64,
    }

    impl FixedRandomness {
        /// A fraction of zero is no jitter.
        pub(crate) fn shared(fraction: f64) -> SharedRandomness {
            Arc::new(Self { fraction, ids: AtomicU64::new(0) })
        }
    }

    impl Randomness for FixedRandomness {
        fn fraction(&self) -> f64 {
            self.fraction
        }

        fn uuid(&self) -> Uuid {
            Uuid::from_u64_pair(0, self.ids.fetch_add(1, Ordering::Relaxed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_stay_in_their_range_and_differ() {
        let fractions: Vec<f64> = (0..64).map(|_| SystemRandomness.fraction()).collect();
        assert!(fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction)));
        assert!(fractions.windows(2).any(|pair| pair[0].total_cmp(&pair[1]).is_ne()));
    }
}
