//! A cache of the fetched keys of federated tokens' issuers.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

/// The fetched keys by the exact issuer.
#[derive(Debug, Default)]
pub struct IssuerKeyCache(HashMap<String, FetchedKeySet>);

/// The keys of an issuer, and the time of their fetch.
#[derive(Debug)]
pub(crate) struct FetchedKeySet {
    pub(crate) fetched_at: Timestamp,
    /// `RSAPublicKey` DER by `kid`.
    pub(crate) keys: BTreeMap<String, Vec<u8>>,
}

/// The number of cached issuers beyond which the cache starts over.
const MAX_ISSUERS: usize = 256;

impl IssuerKeyCache {
    /// The cached key of an issuer as `RSAPublicKey` DER, if it was fetched less than `lifetime` ago.
    pub(crate) fn fresh_key(
        &self,
        issuer: &str,
        kid: Option<&str>,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Option<&[u8]> {
        let cached = self.0.get(issuer).filter(|fetched| {
            let age = now.duration_since(fetched.fetched_at);
            !age.is_negative() && age < lifetime
        });
        cached.and_then(|fetched| fetched.key(kid))
    }

    /// Replaces the cached keys of an issuer. A full cache is emptied before.
    pub(crate) fn insert(&mut self, issuer: &str, fetched: FetchedKeySet) {
        if self.0.len() >= MAX_ISSUERS {
            self.0.clear();
        }
        self.0.insert(issuer.to_owned(), fetched);
    }
}

impl FetchedKeySet {
    /// The key with a `kid`. Without a `kid`, the only key of the set.
    pub(crate) fn key(&self, kid: Option<&str>) -> Option<&[u8]> {
        if let Some(kid) = kid {
            return self.keys.get(kid).map(Vec::as_slice);
        }
        let mut keys = self.keys.values();
        keys.next().filter(|_| keys.next().is_none()).map(Vec::as_slice)
    }
}
