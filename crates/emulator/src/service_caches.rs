//! Caches of the services, which are not part of the stored state.

use crate::services::entra::IssuerKeyCache;
use crate::token::VerifiedTokenCache;

/// What the services cache between requests. A restart empties it.
#[derive(Debug, Default)]
pub(crate) struct ServiceCaches {
    /// Tokens whose signatures were verified.
    pub(crate) verified_tokens: VerifiedTokenCache,
    /// The fetched keys of federated tokens' issuers.
    pub(crate) issuer_keys: IssuerKeyCache,
}
