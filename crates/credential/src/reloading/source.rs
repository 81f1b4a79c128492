//! Fetches tokens with the newest working key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use parking_lot::Mutex;

use super::KeyHealth;
use crate::entra::exchange::exchange_signed;
use crate::file::{CredentialFile, ReloadOutcome};
use crate::generation::CredentialGeneration;
use crate::health::LastTokenError;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::source::{IssuedToken, TokenSource};
use crate::transport::sender::TokenTransport;

/// A token source backed by a certificate file.
#[derive(Debug)]
pub(crate) struct CertificateSource {
    file: CredentialFile,
    transport: TokenTransport,
    key_health_state: Mutex<KeyHealth>,
    /// The generation that Entra accepted last. It may be older than the previous one, which may never have
    /// worked.
    last_accepted: Mutex<Option<Arc<CredentialGeneration>>>,
    /// The newest generation whose rejection triggered a read of the file.
    reloaded_for: AtomicU64,
}

impl CertificateSource {
    pub(crate) fn new(file: CredentialFile, transport: TokenTransport) -> Self {
        let (key_health_state, last_accepted) = (Mutex::default(), Mutex::default());
        Self { file, transport, key_health_state, last_accepted, reloaded_for: AtomicU64::new(0) }
    }

    pub(crate) fn file(&self) -> &CredentialFile {
        &self.file
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.transport.clock().now()
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        self.transport.clock()
    }

    pub(crate) fn cool_down(&self) -> Option<Duration> {
        let current = self.file.current();
        self.transport.cool_down(current.token_endpoint(), Some(current.client_id().as_str()))
    }

    pub(crate) fn key_health(&self) -> KeyHealth {
        let newest = self.file.current().number();
        match &*self.key_health_state.lock() {
            // A result for an older key does not apply to this one.
            KeyHealth::Accepted { generation } | KeyHealth::Refused { generation, .. }
                if *generation < newest =>
            {
                KeyHealth::Untried
            }
            known => known.clone(),
        }
    }

    async fn fetch_with(
        &self,
        generation: &Arc<CredentialGeneration>,
        key: &TokenKey,
    ) -> Result<IssuedToken, TokenError> {
        let (application, signer) = (generation.application(), generation.signer());
        let number = generation.number();
        let outcome = exchange_signed(application, signer, key, number, &self.transport).await;
        self.record_key_outcome(generation, key, &outcome);
        outcome
    }

    /// Records the result for the key, unless a newer key is in use.
    fn record_key_outcome(
        &self,
        used: &Arc<CredentialGeneration>,
        key: &TokenKey,
        outcome: &Result<IssuedToken, TokenError>,
    ) {
        if outcome.is_ok() {
            *self.last_accepted.lock() = Some(Arc::clone(used));
        }
        let generation = used.number();
        let found = match outcome {
            Ok(_) => KeyHealth::Accepted { generation },
            Err(error) if is_key_error(error) => {
                let error = LastTokenError::observe(key, error, self.now());
                KeyHealth::Refused { generation, error }
            }
            Err(_) => return,
        };
        let mut known = self.key_health_state.lock();
        let newest = match &*known {
            KeyHealth::Untried => 0,
            KeyHealth::Accepted { generation } | KeyHealth::Refused { generation, .. } => {
                *generation
            }
        };
        if generation >= newest {
            *known = found;
        }
    }

    /// Reads the file again because Entra rejected `generation`: at most once for each generation, so that an
    /// unusable file does not cause a loop.
    async fn reload_after_rejection(
        &self,
        generation: &CredentialGeneration,
    ) -> Option<Arc<CredentialGeneration>> {
        let number = generation.number();
        let newer = self.file.current();
        if newer.number() > number {
            return Some(newer);
        }
        if self.reloaded_for.fetch_max(number, Ordering::Relaxed) >= number {
            return None;
        }
        match self.file.reload().await {
            ReloadOutcome::Changed(_) => Some(self.file.current()),
            ReloadOutcome::Unchanged | ReloadOutcome::Failed => None,
        }
    }

    /// The fallbacks for `refused`, if unexpired and of the same identity: the generation that Entra accepted
    /// last, then the previous one.
    fn fallback_generations(
        &self,
        refused: &CredentialGeneration,
    ) -> Vec<Arc<CredentialGeneration>> {
        let now = self.now();
        let accepted = {
            let mut accepted = self.last_accepted.lock();
            // Do not keep an expired key in memory.
            accepted.take_if(|generation| generation.expires_at() <= now);
            accepted.clone()
        };
        let serves = |candidate: &Arc<CredentialGeneration>| {
            let older = candidate.number() < refused.number();
            candidate.expires_at() > now && older && candidate.is_same_identity(refused)
        };
        let mut fallbacks: Vec<_> =
            accepted.into_iter().chain(self.file.previous()).filter(serves).collect();
        fallbacks.dedup_by_key(|generation| generation.number());
        fallbacks
    }
}

#[async_trait]
impl TokenSource for CertificateSource {
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError> {
        let mut generation = self.file.current();
        let mut outcome = self.fetch_with(&generation, key).await;
        if is_rejected_for_key(&outcome)
            && let Some(newer) = self.reload_after_rejection(&generation).await
        {
            generation = newer;
            outcome = self.fetch_with(&generation, key).await;
        }
        if !is_rejected_for_key(&outcome) {
            return outcome;
        }
        for fallback in self.fallback_generations(&generation) {
            let (refused, serving) = (generation.number(), fallback.number());
            tracing::warn!(refused, serving, "Entra rejected the new key, using an older one");
            let rescued = self.fetch_with(&fallback, key).await;
            if !is_rejected_for_key(&rescued) {
                // Report the error of the newest key, because that one needs fixing.
                return rescued.or(outcome);
            }
        }
        outcome
    }
}

fn is_rejected_for_key(outcome: &Result<IssuedToken, TokenError>) -> bool {
    outcome.as_ref().is_err_and(is_key_error)
}

fn is_key_error(error: &TokenError) -> bool {
    match error {
        TokenError::Refused(error) => error.is_invalid_client(),
        TokenError::Assertion { .. } => true,
        _ => false,
    }
}
