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
