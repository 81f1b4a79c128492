//! The keys of federated tokens' issuers, fetched from their discovery documents.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_state::published_key::IssuerJsonWebKey;
use serde::Deserialize;
use serde_json::Value;

use crate::issuer_key_cache::{FetchedKeySet, IssuerKeyCache};
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
        if let Some(key) = self.fresh_key(issuer, kid, lifetime, now) {
            return Ok(key.to_vec());
        }
        let keys = fetch_keys(documents, issuer)?;
        let fetched = FetchedKeySet { fetched_at: now, keys };
        let key = fetched.key(kid).map(<[u8]>::to_vec);
        self.insert(issuer, fetched);
        key.ok_or(IssuerKeyError::KeyMissing)
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
