//! Fetches tokens with the newest key that works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use parking_lot::Mutex;

use super::KeyHealth;
use crate::entra::exchange::ProofExchange;
use crate::entra::request::Proof;
use crate::file::{CredentialFile, Reload};
use crate::generation::Generation;
use crate::health::LastTokenError;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::source::{IssuedToken, TokenSource};
use crate::transport::sender::TokenTransport;

/// A certificate file as a source of tokens.
#[derive(Debug)]
pub(crate) struct CertificateSource {
    file: CredentialFile,
    transport: TokenTransport,
    key: Mutex<KeyHealth>,
    /// The generation that Entra accepted last, of whatever number: the one before the newest may
    /// never have worked.
    accepted: Mutex<Option<Arc<Generation>>>,
    /// The newest generation whose refusal has made the file be read again.
    reread_for: AtomicU64,
}

impl CertificateSource {
    pub(crate) fn new(file: CredentialFile, transport: TokenTransport) -> Self {
        let (key, accepted) = (Mutex::default(), Mutex::default());
        Self { file, transport, key, accepted, reread_for: AtomicU64::new(0) }
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
        match &*self.key.lock() {
            // What was found out about an older key says nothing about this one.
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
        generation: &Arc<Generation>,
        key: &TokenKey,
    ) -> Result<IssuedToken, TokenError> {
        let claims = key.variant.claims_parameter()?;
        let other = key.variant.tenant.as_ref().map(|tenant| generation.token_endpoint_of(tenant));
        let endpoint = other.as_ref().unwrap_or_else(|| generation.token_endpoint());
        let number = generation.number();
        let jti = self.transport.randomness().uuid();
        let assertion = generation.client_assertion_for(endpoint, self.now(), jti);
        let assertion = assertion.map_err(|error| TokenError::Assertion {
            generation: number,
            source: Arc::new(error),
        })?;
        let exchange = ProofExchange {
            endpoint,
            client_id: generation.client_id().as_str(),
            scope: &key.scope,
            proof: Proof::Assertion(assertion.as_str()),
            claims: claims.as_deref(),
            request_id: self.transport.randomness().uuid(),
        };
        let outcome = exchange.fetch(&self.transport, number).await;
        self.note(generation, key, &outcome);
        outcome
    }

    /// Keeps what the outcome says about the key, unless it is about an older one.
    fn note(
        &self,
        used: &Arc<Generation>,
        key: &TokenKey,
        outcome: &Result<IssuedToken, TokenError>,
    ) {
        if outcome.is_ok() {
            *self.accepted.lock() = Some(Arc::clone(used));
        }
        let generation = used.number();
        let found = match outcome {
            Ok(_) => KeyHealth::Accepted { generation },
            Err(error) if is_key_refused(error) => {
                let error = LastTokenError::observe(key, error, self.now());
                KeyHealth::Refused { generation, error }
            }
            Err(_) => return,
        };
        let mut known = self.key.lock();
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

    /// Reads the file again because Entra refuses `generation`: at most once for each, so that a
    /// broken file cannot keep us busy.
    async fn reread(&self, generation: &Generation) -> Option<Arc<Generation>> {
        let number = generation.number();
        let newer = self.file.current();
        if newer.number() > number {
            return Some(newer);
        }
        if self.reread_for.fetch_max(number, Ordering::Relaxed) >= number {
            return None;
        }
        match self.file.reload().await {
            Reload::Changed(_) => Some(self.file.current()),
            Reload::Unchanged | Reload::Failed => None,
        }
    }

    /// Older generations that may serve in the place of `refused`, while they last and are the
    /// same identity: the one that worked last, then the one before.
    fn fallbacks(&self, refused: &Generation) -> Vec<Arc<Generation>> {
        let now = self.now();
        let accepted = {
            let mut accepted = self.accepted.lock();
            // An expired key is not kept in memory for nothing.
            accepted.take_if(|generation| generation.expires_at() <= now);
            accepted.clone()
        };
        let serves = |candidate: &Arc<Generation>| {
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
        if is_refused(&outcome)
            && let Some(newer) = self.reread(&generation).await
        {
            generation = newer;
            outcome = self.fetch_with(&generation, key).await;
        }
        if !is_refused(&outcome) {
            return outcome;
        }
        for fallback in self.fallbacks(&generation) {
            let (refused, serving) = (generation.number(), fallback.number());
            tracing::warn!(refused, serving, "entra refuses the new key: an older one is used");
            let rescued = self.fetch_with(&fallback, key).await;
            if !is_refused(&rescued) {
                // The newest key's error is the one to mend.
                return rescued.or(outcome);
            }
        }
        outcome
    }
}

fn is_refused(outcome: &Result<IssuedToken, TokenError>) -> bool {
    outcome.as_ref().is_err_and(is_key_refused)
}

fn is_key_refused(error: &TokenError) -> bool {
    match error {
        TokenError::Refused(error) => error.is_invalid_client(),
        TokenError::Assertion { .. } => true,
        _ => false,
    }
}
