//! The key version that a plugin serves, and its id in etcd.

use aws_lc_rs::digest::{SHA256, digest};
use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{KeyVersion, SecretName, VaultName};

/// The service that contains a key: a vault or a managed HSM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VaultKind {
    /// A vault (`vault.azure.net` in the public cloud).
    #[default]
    Vault,
    /// A managed HSM (`managedhsm.azure.net` in the public cloud).
    ManagedHsm,
}

impl VaultKind {
    /// The DNS suffix in a cloud, without a leading dot.
    pub const fn suffix(self, endpoints: &CloudEndpoints) -> &'static str {
        match self {
            Self::Vault => endpoints.vault_suffix,
            Self::ManagedHsm => endpoints.managed_hsm_suffix,
        }
    }
}

/// One version of one key. The plugin ignores newer versions: a key rotation adds a second plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedKey {
    suffix: &'static str,
    vault: VaultName,
    name: SecretName,
    version: KeyVersion,
    url: String,
    id: String,
}

impl PinnedKey {
    /// Creates the key with these names. The case of the names is kept, because it is part of the
    /// id.
    pub fn new(
        endpoints: &CloudEndpoints,
        kind: VaultKind,
        vault: VaultName,
        name: SecretName,
        version: KeyVersion,
    ) -> Self {
        let suffix = kind.suffix(endpoints);
        let url = format!("https://{vault}.{suffix}/keys/{name}/{version}");
        let id = key_id(&url);
        Self { suffix, vault, name, version, url, id }
    }

    /// The URL of the version, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The id that the API server stores with each ciphertext: see [`key_id`].
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The host of the vault, in the case in which it was configured.
    pub fn host(&self) -> String {
        format!("{}.{}", self.vault, self.suffix)
    }

    /// The scope of tokens for the vault.
    pub fn scope(&self) -> String {
        format!("https://{}/.default", self.suffix)
    }
}

/// The id of a key in etcd: SHA-256 of its versioned URL, 64 lower-case hexadecimal digits
/// (kubernetes-kms v0.11.0 and its OpenShift fork).
pub fn key_id(url: &str) -> String {
    hex::encode(digest(&SHA256, url.as_bytes()))
}

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::Cloud;

    use super::*;

    fn pinned_key(kind: VaultKind, vault: &str, name: &str, version: &str) -> PinnedKey {
        let endpoints = Cloud::Public.endpoints().unwrap();
        let (vault, name) = (vault.parse().unwrap(), name.parse().unwrap());
        PinnedKey::new(endpoints, kind, vault, name, version.parse().unwrap())
    }

    #[test]
    fn key_id_matches_other_plugins() {
        let cases = [
            (
                pinned_key(VaultKind::Vault, "example", "mykey", "ABCD"),
                "567d783db3043fe298fe0d9eeedb0029a3815cdd4fe4b059d018c91e6acffe3b",
            ),
            (
                pinned_key(VaultKind::Vault, "test-kms-keyvault", "test-key", "1"),
                "0183a5c037abb1036e902eaa773f3d85a8a26c8d163b9f6bff4e935b2103a885",
            ),
            (
                pinned_key(VaultKind::ManagedHsm, "testkv", "mykey", "ABCD"),
                "074942f554177daa9f5d42031490b35b27ce2304c09cfb5662973167e9fb2b15",
            ),
        ];
        for (key, id) in cases {
            assert_eq!(key.id(), id, "{}", key.url());
        }
    }

    #[test]
    fn key_id_is_case_sensitive() {
        let (one, other) = (
            pinned_key(VaultKind::Vault, "Example", "mykey", "ABCD"),
            pinned_key(VaultKind::Vault, "example", "mykey", "ABCD"),
        );
        assert_eq!(one.url(), "https://Example.vault.azure.net/keys/mykey/ABCD");
        assert_ne!(one.id(), other.id());
    }

    #[test]
    fn token_scope_follows_vault_kind() {
        let vault = pinned_key(VaultKind::Vault, "kv1", "k", "1");
        assert_eq!(vault.scope(), "https://vault.azure.net/.default");
        let hsm = pinned_key(VaultKind::ManagedHsm, "hsm", "k", "1");
        assert_eq!(hsm.scope(), "https://managedhsm.azure.net/.default");
        assert_eq!(hsm.host(), "hsm.managedhsm.azure.net");
    }
}
