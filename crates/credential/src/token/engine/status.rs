//! Records the results of token requests for the health.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::health::{LastTokenError, ScopeHealth, TokenCounts, TokenHealth};
use crate::token::error::TokenError;
use crate::token::request::TokenKey;

/// The results of the token requests of one engine.
#[derive(Default)]
pub(super) struct TokenEngineStatus {
    counts: TokenCounts,
    /// The error of the last request for each key; a success removes its entry.
    errors: HashMap<TokenKey, LastTokenError>,
    identity_in_doubt: bool,
    last_generation: Option<u64>,
}

impl TokenEngineStatus {
    /// Records an issued token, which replaced another one if `renewed`.
    pub(super) fn record_issued(&mut self, key: &TokenKey, generation: u64, renewed: bool) {
        self.counts.issued += 1;
        self.counts.renewed += u64::from(renewed);
        self.last_generation = Some(generation);
        self.errors.remove(key);
        // An issued token for any scope shows that the service accepts the identity.
        self.identity_in_doubt = false;
    }

    /// Records a request that failed at `at`.
    pub(super) fn record_failed(&mut self, key: &TokenKey, error: &TokenError, at: Timestamp) {
        self.counts.failed += 1;
        // Another tenant may reject an identity that its own tenant accepts.
        self.identity_in_doubt |= key.variant.tenant.is_none() && !error.is_request_error();
        if self.errors.len() >= MAX_ERRORS && !self.errors.contains_key(key) {
            let oldest = self.errors.iter().min_by_key(|(_, error)| error.at);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.errors.remove(&key);
            }
        }
        self.errors.insert(key.clone(), LastTokenError::observe(key, error, at));
    }

    /// Clears the errors, because the identity has changed.
    pub(super) fn forget_errors(&mut self) {
        self.errors.clear();
        self.identity_in_doubt = false;
    }

    pub(super) fn health(&self, scopes: Vec<ScopeHealth>) -> TokenHealth {
        let mut errors: Vec<_> = self.errors.values().cloned().collect();
        errors.sort_by(|a, b| (b.at, &a.scope, &a.tenant).cmp(&(a.at, &b.scope, &b.tenant)));
        TokenHealth {
            scopes,
            errors,
            identity_in_doubt: self.identity_in_doubt,
            last_generation: self.last_generation,
            counts: self.counts,
        }
    }
}

/// Bounds the memory of callers that request ever new scopes.
const MAX_ERRORS: usize = 64;
