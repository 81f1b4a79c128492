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
    last: Mutex<Option<Proof>>,
}

#[derive(Debug)]
struct Proof {
    ended: Duration,
    outcome: Result<(), Arc<PluginError>>,
}

impl ProofKeeper {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock, made: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// A good proof that still counts, the one that was made while this call waited for its turn,
    /// or a new one. Who makes one and is dropped leaves it to the next.
    pub(super) async fn shared<F>(&self, prove: impl FnOnce() -> F) -> Result<(), Arc<PluginError>>
    where
        F: Future<Output = Result<(), PluginError>>,
    {
        let made = self.made.load(Relaxed);
        let mut last = self.last.lock().await;
        if let Some(proof) = &*last {
            let age = self.clock.monotonic().saturating_sub(proof.ended);
            let counts = proof.outcome.is_ok() && age < Plugin::PROOF_COUNTS;
            if counts || self.made.load(Relaxed) != made {
                return proof.outcome.clone();
            }
        }
        let outcome = prove().await.map_err(Arc::new);
        *last = Some(Proof { ended: self.clock.monotonic(), outcome: outcome.clone() });
        self.made.fetch_add(1, Relaxed);
        outcome
    }
}
