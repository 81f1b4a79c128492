//! What happens when the file has rotated.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::source::CertificateSource;
use crate::generation::Generation;
use crate::token::engine::TokenEngine;

/// Starts the task that follows the rotations of the engine's file. It ends with the engine.
pub(super) fn follow(engine: &Arc<TokenEngine<CertificateSource>>) {
    let file = engine.source().file();
    let rotations = file.subscribe();
    let rotation = Rotation { engine: Arc::downgrade(engine), generation: file.current() };
    drop(tokio::spawn(rotation.run(rotations)));
}

struct Rotation {
    /// Weak, so that the task does not keep alive what it follows.
    engine: Weak<TokenEngine<CertificateSource>>,
    generation: Arc<Generation>,
}

impl Rotation {
    async fn run(mut self, mut rotations: watch::Receiver<u64>) {
        loop {
            self.adopt(&mut rotations).await;
            if rotations.changed().await.is_err() {
                return;
            }
        }
    }

    /// Takes the current generation into use, and tries its key on every scope that is held, one
    /// at a time: a broken certificate then shows in the health, while the old tokens serve.
    async fn adopt(&mut self, rotations: &mut watch::Receiver<u64>) {
        let Some(engine) = self.engine.upgrade() else { return };
        // Before looking, so that what comes after the look is not taken for seen.
        rotations.mark_unchanged();
        let generation = engine.source().file().current();
        if generation.number() == self.generation.number() {
            return;
        }
        let held = engine.held();
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
        for key in held {
            if rotations.has_changed().is_ok_and(|changed| changed) {
                return;
            }
            // The outcome is in the health; the tokens that are held keep serving.
            if let Err(error) = engine.renew(&key).await {
                tracing::warn!(generation = number, scope = &*key.scope, %error, "the new key was tried in vain");
            }
        }
    }
}
