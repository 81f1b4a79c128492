//! The lifetimes of tokens and of cached keys.

use serde::{Deserialize, Serialize};

/// The lifetimes of tokens and of cached keys. The defaults are those of Azure: one hour for applications and
/// users, one day for managed identities, and refresh tokens that expire after 90 days without use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TokenPolicy {
    /// The lifetime of the token of an application or a user, in seconds.
    pub application_seconds: u32,
    /// The lifetime of a managed identity's token, in seconds; above two hours, the response has a
    /// `refresh_in` of half of it.
    pub managed_identity_seconds: u32,
    /// The lifetime of a refresh token, in seconds. Each use returns a new one.
    pub refresh_token_seconds: u32,
    /// How long Entra uses the keys of a federated token's issuer before it fetches them again, in seconds. A
    /// key that it does not know is fetched immediately.
    pub issuer_key_cache_seconds: u32,
}

impl Default for TokenPolicy {
    fn default() -> Self {
        Self {
            application_seconds: 3_599,
            managed_identity_seconds: 86_399,
            refresh_token_seconds: 90 * 86_400,
            issuer_key_cache_seconds: 3_600,
        }
    }
}
