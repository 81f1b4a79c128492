//! One proof for all who ask at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lanyard_clock::SharedClock;
use tokio::sync::Mutex;

use super::KmsPlugin;
use crate::error::KmsPluginError;

/// Keeps the last proof, and lets one at a time be made.
#[derive(Debug)]
pub(super) struct ProofCache {
    clock: SharedClock,
    /// How many proofs were made.
    completed_count: AtomicU64,
    /// When the last one began, in milliseconds of the monotonic clock.
    last_started: AtomicU64,
    last_proof: Mutex<Option<CachedProof>>,
}

#[derive(Debug)]
struct CachedProof {
    finished_at: Duration,
    /// The time that it had.
    time_limit: Duration,
    outcome: Result<(), Arc<KmsPluginError>>,
}

impl ProofCache {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            completed_count: AtomicU64::new(0),
            last_started: AtomicU64::new(0),
            last_proof: Mutex::new(None),
        }
    }

    /// A good proof that still counts, the one that was made while this call waited for its turn,
    /// or a new one in the time that is left. Who makes one and is dropped leaves it to the next. One
    /// that failed for want of time says nothing to whoever has more, and whoever has less does not
    /// wait for its end.
    pub(super) async fn get_or_prove<F>(
        &self,
        given: Duration,
        prove: impl FnOnce(Duration) -> F,
    ) -> Result<(), Arc<KmsPluginError>>
    where
        F: Future<Output = Result<(), KmsPluginError>>,
    {
        let began = self.clock.monotonic();
        let made = self.completed_count.load(Relaxed);
        let mut last = tokio::select! {
            biased;
            last = self.last_proof.lock() => last,
            () = self.clock.sleep(given) => return Err(self.timeout_error(given)),
        };
        let left = given.saturating_sub(self.clock.monotonic().saturating_sub(began));
        if let Some(proof) = &*last {
            let age = self.clock.monotonic().saturating_sub(proof.finished_at);
            let counts = proof.outcome.is_ok() && age < KmsPlugin::PROOF_VALIDITY;
            let speaks = match &proof.outcome {
                Err(error) if error.is_timeout() => proof.time_limit >= left,
                _ => true,
            };
            if counts || (speaks && self.completed_count.load(Relaxed) != made) {
                return proof.outcome.clone();
            }
        }
        if left.is_zero() {
            return Err(self.timeout_error(given));
        }
        self.last_started.store(millis(self.clock.monotonic()), Relaxed);
        let outcome = prove(left).await.map_err(Arc::new);
        *last = Some(CachedProof {
            finished_at: self.clock.monotonic(),
            time_limit: left,
            outcome: outcome.clone(),
        });
        self.completed_count.fetch_add(1, Relaxed);
        outcome
    }

    /// For whoever waited for another's proof, and in vain.
    fn timeout_error(&self, after: Duration) -> Arc<KmsPluginError> {
        let began = Duration::from_millis(self.last_started.load(Relaxed));
        let under_way = self.clock.monotonic().saturating_sub(began);
        Arc::new(KmsPluginError::ProofTimedOut { after, under_way })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
