//! The keys of federated tokens' issuers, fetched from their discovery documents and cached.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_state::published_key::IssuerJsonWebKey;
use serde::Deserialize;
use serde_json::Value;

use crate::public_documents::{DISCOVERY_PATH, PublicDocumentMissing, PublicDocuments};

/// The key that signed a token could not be read from the documents of the token's issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerKeyError {
    /// A document could not be fetched.
    #[error(transparent)]
    Missing(#[from] PublicDocumentMissing),
    /// The discovery document lacks fields, or the key set is malformed.
    #[error("the document at `{url}` is malformed")]
    Malformed { url: String },
    /// The discovery document belongs to another issuer.
    #[error("the document at `{url}` is that of the issuer `{issuer}`")]
    OtherIssuer { url: String, issuer: String },
    /// The key set has no key with this id.
    #[error("the key that signed the token is not in the key set of its issuer")]
    KeyMissing,
}

/// The fetched keys by the exact issuer.
#[derive(Debug, Default)]
pub struct IssuerKeyCache(HashMap<String, FetchedKeySet>);

#[derive(Debug)]
struct FetchedKeySet {
    fetched_at: Timestamp,
    /// `RSAPublicKey` DER by `kid`.
    keys: BTreeMap<String, Vec<u8>>,
}

/// The number of cached issuers beyond which the cache starts over.
const MAX_ISSUERS: usize = 256;

#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<Value>,
}

impl IssuerKeyCache {
    /// Finds the key of an issuer as `RSAPublicKey` DER. Without a `kid`, the issuer's only key.
    ///
    /// Keys are used for `lifetime` after they were fetched; a key that is not among them is fetched once.
    pub fn find_key(
        &mut self,
        documents: PublicDocuments<'_>,
        issuer: &str,
        kid: Option<&str>,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<u8>, IssuerKeyError> {
        let cached = self.0.get(issuer).filter(|fetched| {
            let age = now.duration_since(fetched.fetched_at);
            !age.is_negative() && age < lifetime
        });
        if let Some(key) = cached.and_then(|fetched| fetched.key(kid)) {
            return Ok(key.to_vec());
        }
        let keys = fetch_keys(documents, issuer)?;
        let fetched = FetchedKeySet { fetched_at: now, keys };
        let key = fetched.key(kid).map(<[u8]>::to_vec);
        if self.0.len() >= MAX_ISSUERS {
            self.0.clear();
        }
        self.0.insert(issuer.to_owned(), fetched);
        key.ok_or(IssuerKeyError::KeyMissing)
    }
}

impl FetchedKeySet {
    fn key(&self, kid: Option<&str>) -> Option<&[u8]> {
        if let Some(kid) = kid {
            return self.keys.get(kid).map(Vec::as_slice);
        }
        let mut keys = self.keys.values();
        keys.next().filter(|_| keys.next().is_none()).map(Vec::as_slice)
    }
}

fn fetch_keys(
    documents: PublicDocuments<'_>,
    issuer: &str,
) -> Result<BTreeMap<String, Vec<u8>>, IssuerKeyError> {
    let url = format!("{}{DISCOVERY_PATH}", issuer.trim_end_matches('/'));
    let document: DiscoveryDocument = fetch_document(documents, &url)?;
    if document.issuer != issuer {
        return Err(IssuerKeyError::OtherIssuer { url, issuer: document.issuer });
    }
    let set: KeySetDocument = fetch_document(documents, &document.jwks_uri)?;
    // Key sets may contain keys of types that Entra does not use.
    let keys = set.keys.into_iter().filter_map(|key| {
        let key: IssuerJsonWebKey = serde_json::from_value(key).ok()?;
        let (kid, key) = key.into_rsa_signing_key()?;
        Some((kid, key.public_der()?))
    });
    Ok(keys.collect())
}

fn fetch_document<T: for<'de> Deserialize<'de>>(
    documents: PublicDocuments<'_>,
    url: &str,
) -> Result<T, IssuerKeyError> {
    serde_json::from_value(documents.read(url)?)
        .map_err(|_malformed| IssuerKeyError::Malformed { url: url.to_owned() })
}
