//! What happened, for the health.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::health::{LastTokenError, ScopeHealth, TokenCounts, TokenHealth};
use crate::token::error::TokenError;
use crate::token::request::TokenKey;

/// What happened to the requests of one engine.
#[derive(Default)]
pub(super) struct TokenEngineStatus {
    counts: TokenCounts,
    /// Why the last request for each key failed; a success takes its key away.
    errors: HashMap<TokenKey, LastTokenError>,
    identity_in_doubt: bool,
    last_generation: Option<u64>,
}

impl TokenEngineStatus {
    /// Notes a token that was issued, to replace another if `renewed`.
    pub(super) fn record_issued(&mut self, key: &TokenKey, generation: u64, renewed: bool) {
        self.counts.issued += 1;
        self.counts.renewed += u64::from(renewed);
        self.last_generation = Some(generation);
        self.errors.remove(key);
        // Whatever the scope, the service knows the identity.
        self.identity_in_doubt = false;
    }

    /// Notes a request that failed `at` this time.
    pub(super) fn record_failed(&mut self, key: &TokenKey, error: &TokenError, at: Timestamp) {
        self.counts.failed += 1;
        // Another tenant may not know an identity that its own tenant knows well.
        self.identity_in_doubt |= key.variant.tenant.is_none() && !error.is_request_error();
        if self.errors.len() >= MAX_ERRORS && !self.errors.contains_key(key) {
            let oldest = self.errors.iter().min_by_key(|(_, error)| error.at);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.errors.remove(&key);
            }
        }
        self.errors.insert(key.clone(), LastTokenError::observe(key, error, at));
    }

    /// Forgets the errors: they belong to an identity that is no longer ours.
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

/// Callers who ask for ever new scopes must not fill the memory.
const MAX_ERRORS: usize = 64;
