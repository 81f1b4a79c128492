//! Handles a rotation of the file.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{Either, select};
use futures::stream;
use tokio::sync::watch;

use super::KeyHealth;
use super::source::CertificateSource;
use crate::generation::CredentialGeneration;
use crate::loader::LoaderState;
use crate::token::engine::TokenEngine;
use crate::token::request::TokenKey;

/// Starts the task that handles rotations of the engine's file. It ends with the engine.
pub(super) fn spawn_rotation_task(engine: &Arc<TokenEngine<CertificateSource>>) {
    let states = engine.source().file().subscribe();
    let generation = Arc::clone(states.borrow().current());
    let rotation = KeyRotationTask { engine: Arc::downgrade(engine), generation };
    drop(tokio::spawn(rotation.run(states)));
}

struct KeyRotationTask {
    /// Weak, so that the task does not keep the engine alive.
    engine: Weak<TokenEngine<CertificateSource>>,
    generation: Arc<CredentialGeneration>,
}

impl KeyRotationTask {
    async fn run(mut self, mut states: watch::Receiver<LoaderState>) {
        let mut held = Vec::new();
        loop {
            let generation = {
                let next = pin!(next_generation(&mut states, self.generation.number()));
                let trial = pin!(self.try_new_key(held));
                match select(next, trial).await {
                    Either::Left((next, _)) => next,
                    Either::Right(((), next)) => next.await,
                }
            };
            // The test of a replaced key ends here; requests in flight still complete.
            let (Some(generation), Some(engine)) = (generation, self.engine.upgrade()) else {
                return;
            };
            held = self.apply_generation(&engine, generation);
        }
    }

    /// Applies a new generation and returns the keys of the tokens to renew.
    fn apply_generation(
        &mut self,
        engine: &TokenEngine<CertificateSource>,
        generation: Arc<CredentialGeneration>,
    ) -> Vec<TokenKey> {
        let held = engine.cached_keys();
        let number = generation.number();
        if generation.is_same_identity(&self.generation) {
            tracing::info!(generation = number, "the certificate has rotated; tokens are kept");
            engine.forget_failures();
        } else {
            let client_id = generation.client_id().as_str();
            tracing::warn!(
                generation = number,
                client_id,
                "the identity has changed; tokens are dropped"
            );
            engine.drop_tokens();
        }
        self.generation = generation;
        held
    }

    /// Tests the new key on every cached scope, a few at a time: an unusable certificate then shows in the
    /// health while the old tokens stay in use. Transport errors do not count as a test, so the affected
    /// scopes are retried until there is a result.
    async fn try_new_key(&self, mut keys: Vec<TokenKey>) {
        while !keys.is_empty() {
            let Some(engine) = self.engine.upgrade() else { return };
            let trials = keys.into_iter().map(|key| self.try_renewal(&engine, key));
            let inconclusive: Vec<_> =
                stream::iter(trials).buffer_unordered(CONCURRENT_TRIALS).collect().await;
            keys = inconclusive.into_iter().flatten().collect();
            if engine.source().key_health() != KeyHealth::Untried {
                return;
            }
            let pause = keys.iter().filter_map(|key| engine.remaining_failure_backoff(key)).max();
            let clock = Arc::clone(engine.source().clock());
            // A waiting task must not keep the engine alive.
            drop(engine);
            clock.sleep(pause.unwrap_or(MIN_RETRY_DELAY).max(MIN_RETRY_DELAY)).await;
        }
    }

    /// Returns the token key if the result is inconclusive.
    async fn try_renewal(
        &self,
        engine: &TokenEngine<CertificateSource>,
        key: TokenKey,
    ) -> Option<TokenKey> {
        let number = self.generation.number();
        let error = engine.renew(&key, number).await.err()?;
        // The health has the result; the cached tokens stay in use.
        let cause: &dyn std::error::Error = &error;
        tracing::warn!(
            generation = number,
            scope = &*key.scope,
            error = cause,
            "testing the new key failed"
        );
        error.retry_class().is_temporary().then_some(key)
    }
}

/// Waits for a generation after number `current`. `None` if the file is no longer followed.
async fn next_generation(
    states: &mut watch::Receiver<LoaderState>,
    current: u64,
) -> Option<Arc<CredentialGeneration>> {
    let state = states.wait_for(|state| state.current().number() > current).await.ok()?;
    Some(Arc::clone(state.current()))
}

/// The number of scopes to request at once: a host with many scopes must neither delay the verdict on the key
/// nor send all requests at once.
const CONCURRENT_TRIALS: usize = 4;
/// The minimum delay between tests.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
