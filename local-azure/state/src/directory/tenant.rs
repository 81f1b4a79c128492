//! Tenants with their signing keys.

use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};

use crate::keys::RsaKey;

/// A directory with its own users, applications and signing keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tenant {
    /// The directory id.
    pub id: EntraTenantId,
    /// The domain names; the first one is the initial domain.
    #[serde(default)]
    pub domains: Vec<String>,
    pub signing_keys: TenantSigningKeys,
}

impl Tenant {
    /// The initial domain of the tenant: its first domain name, or one that is derived from its id.
    pub fn initial_domain(&self) -> String {
        self.domains.first().cloned().unwrap_or_else(|| {
            let start = self.id.as_str().split('-').next().unwrap_or_default();
            format!("lanyard{start}.onmicrosoft.com")
        })
    }

    /// Whether a domain name is a verified domain of the tenant.
    pub fn is_verified_domain(&self, domain: &str) -> bool {
        self.domains.iter().any(|known| known.eq_ignore_ascii_case(domain))
            || self.initial_domain().eq_ignore_ascii_case(domain)
    }

    /// Whether `id` is the id of the tenant, ignoring case.
    pub fn has_id(&self, id: &str) -> bool {
        self.id.as_str().eq_ignore_ascii_case(id)
    }

    /// Whether `name` is the id or a domain of the tenant, ignoring case.
    pub fn is_named(&self, name: &str) -> bool {
        self.has_id(name) || self.is_verified_domain(name)
    }
}

/// A key that signs tokens, with the certificate in which the key set publishes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TenantSigningKey {
    /// The `kid`.
    pub key_id: String,
    pub key: RsaKey,
    /// The self-signed certificate of the key in DER.
    pub certificate: Vec<u8>,
}

/// The published keys of a tenant: one signs; the others are published before or after they sign, so that
/// verifiers with a cached key set know them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TenantSigningKeys {
    /// The key that signs new tokens.
    current: TenantSigningKey,
    /// The key that signs after the next rollover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<TenantSigningKey>,
    /// The keys that signed earlier tokens, oldest first.
    #[serde(default)]
    previous: Vec<TenantSigningKey>,
}

/// The tenant has no key that can sign next: none was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tenant has not published a key that could sign next")]
pub struct NextSigningKeyMissing;

impl TenantSigningKeys {
    pub const fn new(key: TenantSigningKey) -> Self {
        Self { current: key, next: None, previous: Vec::new() }
    }

    /// The key that signs new tokens.
    pub const fn current(&self) -> &TenantSigningKey {
        &self.current
    }

    /// Every key of the key set, oldest first.
    pub fn published(&self) -> impl Iterator<Item = &TenantSigningKey> {
        self.previous.iter().chain([&self.current]).chain(&self.next)
    }

    /// The published key with a `kid`.
    pub fn find(&self, key_id: &str) -> Option<&TenantSigningKey> {
        self.published().find(|key| key.key_id == key_id)
    }

    /// Publishes the key that [`Self::sign_with_next`] will use. It replaces an earlier one that
    /// never signed.
    pub fn publish_next(&mut self, key: TenantSigningKey) {
        self.next = Some(key);
    }

    /// Signs with the next key from now on, and still publishes the current one.
    pub fn sign_with_next(&mut self) -> Result<(), NextSigningKeyMissing> {
        let next = self.next.take().ok_or(NextSigningKeyMissing)?;
        self.previous.push(std::mem::replace(&mut self.current, next));
        Ok(())
    }

    /// Stops publishing the keys that signed earlier tokens: those tokens become invalid.
    pub fn remove_previous(&mut self) {
        self.previous.clear();
    }

    /// Replaces every key at once, without an overlap: all earlier tokens become invalid.
    pub fn replace_all(&mut self, key: TenantSigningKey) {
        *self = Self::new(key);
    }
}
