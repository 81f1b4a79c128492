//! What happens when the file has rotated.

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
use crate::token::engine::TokenEngine;
use crate::token::error::RetryClass;
use crate::token::request::TokenKey;

/// Starts the task that follows the rotations of the engine's file. It ends with the engine.
pub(super) fn spawn_rotation_task(engine: &Arc<TokenEngine<CertificateSource>>) {
    let file = engine.source().file();
    let rotations = file.subscribe();
    let rotation = KeyRotationTask { engine: Arc::downgrade(engine), generation: file.current() };
    drop(tokio::spawn(rotation.run(rotations)));
}

struct KeyRotationTask {
    /// Weak, so that the task does not keep alive what it follows.
    engine: Weak<TokenEngine<CertificateSource>>,
    generation: Arc<CredentialGeneration>,
}

impl KeyRotationTask {
    async fn run(mut self, mut rotations: watch::Receiver<u64>) {
        loop {
            // Before looking, so that what comes after the look is not taken for seen.
            rotations.mark_unchanged();
            let held = self.apply_current_generation();
            let trial = pin!(self.try_new_key(held));
            let changed = match select(pin!(rotations.changed()), trial).await {
                Either::Left((changed, _)) => changed,
                Either::Right(((), changed)) => changed.await,
            };
            // The trial of a key that has been replaced ends here; what it asked for still lands.
            if changed.is_err() {
                return;
            }
        }
    }

    /// Takes the current generation into use; what is returned has to be asked for anew.
    fn apply_current_generation(&mut self) -> Vec<TokenKey> {
        let Some(engine) = self.engine.upgrade() else { return Vec::new() };
        let generation = engine.source().file().current();
        if generation.number() == self.generation.number() {
            return Vec::new();
        }
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

    /// Tries the new key on every scope that is held, a few at a time: a broken certificate then
    /// shows in the health, while the old tokens serve. Trouble on the way says nothing about the
    /// key, so what met it is tried again until something is known.
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
            // A task that waits must not keep alive what it follows.
            drop(engine);
            clock.sleep(pause.unwrap_or(MIN_RETRY_DELAY).max(MIN_RETRY_DELAY)).await;
        }
    }

    /// Gives back the key where the outcome says nothing.
    async fn try_renewal(
        &self,
        engine: &TokenEngine<CertificateSource>,
        key: TokenKey,
    ) -> Option<TokenKey> {
        let number = self.generation.number();
        let error = engine.renew(&key, number).await.err()?;
        // The outcome is in the health; the tokens that are held keep serving.
        let told: &dyn std::error::Error = &error;
        tracing::warn!(
            generation = number,
            scope = &*key.scope,
            error = told,
            "the new key was tried in vain"
        );
        match error.retry_class() {
            RetryClass::Transient | RetryClass::Throttled { .. } => Some(key),
            RetryClass::Invalid | RetryClass::Denied => None,
        }
    }
}

/// How many scopes are asked for at once: a host with many must not delay the news about the key,
/// nor meet the authority with all of them.
const CONCURRENT_TRIALS: usize = 4;
/// No trial is repeated sooner.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
