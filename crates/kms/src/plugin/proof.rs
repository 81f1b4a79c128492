//! Shares one key proof between concurrent callers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lanyard_clock::SharedClock;
use tokio::sync::Mutex;

use super::KmsPlugin;
use crate::error::KmsPluginError;

/// Caches the last proof and runs at most one proof at a time.
#[derive(Debug)]
pub(super) struct ProofCache {
    clock: SharedClock,
    /// The number of completed proofs.
    completed_count: AtomicU64,
    /// When the last proof started, in milliseconds of the monotonic clock.
    last_started: AtomicU64,
    last_proof: Mutex<Option<CachedProof>>,
}

#[derive(Debug)]
struct CachedProof {
    finished_at: Duration,
    /// The time limit that the proof had.
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

    /// Returns a valid cached proof, the result of a proof that completed while this call waited,
    /// or the result of a new proof. If the caller that runs a proof is dropped, the next caller
    /// starts a new one. A proof that timed out is not shared with a caller that has more time
    /// left, and a caller waits for a running proof only until its own deadline.
    pub(super) async fn get_or_prove<F>(
        &self,
        given: Duration,
        prove: impl FnOnce(Duration) -> F,
    ) -> Result<(), Arc<KmsPluginError>>
    where
        F: Future<Output = Result<(), KmsPluginError>>,
    {
        let began = self.clock.monotonic();
        let completed = self.completed_count.load(Relaxed);
        let mut last = tokio::select! {
            biased;
            last = self.last_proof.lock() => last,
            () = self.clock.sleep(given) => return Err(self.timeout_error(given)),
        };
        let left = given.saturating_sub(self.clock.monotonic().saturating_sub(began));
        if let Some(proof) = &*last {
            let age = self.clock.monotonic().saturating_sub(proof.finished_at);
            let is_valid = proof.outcome.is_ok() && age < KmsPlugin::PROOF_VALIDITY;
            let is_conclusive = match &proof.outcome {
                Err(error) if error.is_timeout() => proof.time_limit >= left,
                _ => true,
            };
            let is_new = self.completed_count.load(Relaxed) != completed;
            if is_valid || (is_conclusive && is_new) {
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

    /// The error of a caller that waited for another caller's proof until its deadline.
    fn timeout_error(&self, after: Duration) -> Arc<KmsPluginError> {
        let began = Duration::from_millis(self.last_started.load(Relaxed));
        let under_way = self.clock.monotonic().saturating_sub(began);
        Arc::new(KmsPluginError::ProofTimedOut { after, under_way })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
