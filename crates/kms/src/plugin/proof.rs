//! One proof for all who ask at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lanyard_clock::SharedClock;
use tokio::sync::Mutex;

use super::Plugin;
use crate::error::PluginError;

/// Keeps the last proof, and lets one at a time be made.
#[derive(Debug)]
pub(super) struct ProofKeeper {
    clock: SharedClock,
    /// How many proofs were made.
    made: AtomicU64,
    /// When the last one began, in milliseconds of the monotonic clock.
    began: AtomicU64,
    last: Mutex<Option<Proof>>,
}

#[derive(Debug)]
struct Proof {
    ended: Duration,
    /// The time that it had.
    given: Duration,
    outcome: Result<(), Arc<PluginError>>,
}

impl ProofKeeper {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock, made: AtomicU64::new(0), began: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// A good proof that still counts, the one that was made while this call waited for its turn,
    /// or a new one in the time that is left. Who makes one and is dropped leaves it to the next. One
    /// that failed for want of time says nothing to whoever has more, and whoever has less does not
    /// wait for its end.
    pub(super) async fn shared<F>(
        &self,
        given: Duration,
        prove: impl FnOnce(Duration) -> F,
    ) -> Result<(), Arc<PluginError>>
    where
        F: Future<Output = Result<(), PluginError>>,
    {
        let began = self.clock.monotonic();
        let made = self.made.load(Relaxed);
        let mut last = tokio::select! {
            biased;
            last = self.last.lock() => last,
            () = self.clock.sleep(given) => return Err(self.late(given)),
        };
        let left = given.saturating_sub(self.clock.monotonic().saturating_sub(began));
        if let Some(proof) = &*last {
            let age = self.clock.monotonic().saturating_sub(proof.ended);
            let counts = proof.outcome.is_ok() && age < Plugin::PROOF_COUNTS;
            let speaks = match &proof.outcome {
                Err(error) if error.is_of_time() => proof.given >= left,
                _ => true,
            };
            if counts || (speaks && self.made.load(Relaxed) != made) {
                return proof.outcome.clone();
            }
        }
        if left.is_zero() {
            return Err(self.late(given));
        }
        self.began.store(millis(self.clock.monotonic()), Relaxed);
        let outcome = prove(left).await.map_err(Arc::new);
        *last =
            Some(Proof { ended: self.clock.monotonic(), given: left, outcome: outcome.clone() });
        self.made.fetch_add(1, Relaxed);
        outcome
    }

    /// For whoever waited for another's proof, and in vain.
    fn late(&self, after: Duration) -> Arc<PluginError> {
        let began = Duration::from_millis(self.began.load(Relaxed));
        let under_way = self.clock.monotonic().saturating_sub(began);
        Arc::new(PluginError::ProofTimedOut { after, under_way })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
