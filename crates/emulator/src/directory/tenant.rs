//! Tenants.

use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};

use crate::keys::RsaKey;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tenant {
    /// The directory id.
    pub(crate) id: EntraTenantId,
    /// The domain names of the tenant.
    #[serde(default)]
    pub(crate) domains: Vec<String>,
    /// The `kid` of its signing key.
    pub(crate) key_id: String,
    /// The key that signs its tokens.
    pub(crate) key: RsaKey,
    /// The self-signed certificate of the key in DER, which the JWKS contains.
    pub(crate) certificate: Vec<u8>,
}

impl Tenant {
    /// The initial domain of the tenant: its first domain name, or one that is derived from its id.
    pub(crate) fn initial_domain(&self) -> String {
        self.domains.first().cloned().unwrap_or_else(|| {
            let start = self.id.as_str().split('-').next().unwrap_or_default();
            format!("lanyard{start}.onmicrosoft.com")
        })
    }

    /// Whether a domain name is a verified domain of the tenant.
    pub(crate) fn is_verified_domain(&self, domain: &str) -> bool {
        self.domains.iter().any(|known| known.eq_ignore_ascii_case(domain))
            || self.initial_domain().eq_ignore_ascii_case(domain)
    }
}
