//! Fetches tokens with the newest key that works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::KeyHealth;
use crate::entra::exchange::AssertionExchange;
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
    /// The newest generation whose refusal has made the file be read again.
    reread_for: AtomicU64,
}

impl CertificateSource {
    pub(crate) fn new(file: CredentialFile, transport: TokenTransport) -> Self {
        Self { file, transport, key: Mutex::default(), reread_for: AtomicU64::new(0) }
    }

    pub(crate) fn file(&self) -> &CredentialFile {
        &self.file
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.transport.clock().now()
    }

    pub(crate) fn cool_down(&self) -> Option<Duration> {
        self.transport.cool_down(self.file.current().token_endpoint())
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
        generation: &Generation,
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
        let exchange = AssertionExchange {
            endpoint,
            client_id: generation.client_id().as_str(),
            scope: &key.scope,
            assertion: assertion.as_str(),
            claims: claims.as_deref(),
            request_id: self.transport.randomness().uuid(),
        };
        let outcome = exchange.fetch(&self.transport, number).await;
        self.note(number, key, &outcome);
        outcome
    }

    /// Keeps what the outcome says about the key, unless it is about an older one.
    fn note(&self, generation: u64, key: &TokenKey, outcome: &Result<IssuedToken, TokenError>) {
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

    /// The generation before `refused`, while it lasts and is the same identity.
    fn fallback(&self, refused: &Generation) -> Option<Arc<Generation>> {
        let previous = self.file.previous()?;
        let lasts = previous.expires_at() > self.now();
        let older = previous.number() < refused.number();
        (lasts && older && previous.is_same_identity(refused)).then_some(previous)
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
        if is_refused(&outcome)
            && let Some(previous) = self.fallback(&generation)
        {
            let (refused, serving) = (generation.number(), previous.number());
            tracing::warn!(refused, serving, "entra refuses the new key: the one before serves");
            let rescued = self.fetch_with(&previous, key).await;
            // The newest key's error is the one to mend.
            return rescued.or(outcome);
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
