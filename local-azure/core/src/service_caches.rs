//! Caches of the services, which are not part of the stored state.

use crate::exclusive_writes::ExclusiveWrites;
use crate::issuer_key_cache::IssuerKeyCache;
use crate::token::VerifiedTokenCache;

/// What the services cache between requests. A restart empties it.
#[derive(Debug, Default)]
pub struct ServiceCaches {
    /// Tokens whose signatures were verified.
    pub verified_tokens: VerifiedTokenCache,
    /// The fetched keys of federated tokens' issuers.
    pub issuer_keys: IssuerKeyCache,
    /// The writes to federated credentials that are in progress, by managed identity.
    pub exclusive_writes: ExclusiveWrites,
}
