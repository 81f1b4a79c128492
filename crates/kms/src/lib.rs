//! The Kubernetes KMS plugin whose key is in Azure Key Vault.
//!
//! An API server asks it to encrypt the seeds of its data keys, over a socket; it asks a vault. What
//! it writes can be read by [kubernetes-kms](https://github.com/Azure/kubernetes-kms) and by its
//! OpenShift fork, as it is told ([`CiphertextLayout`]), and it reads what either wrote.
//!
//! ```
//! use lanyard_kms::{Layout, key_id};
//!
//! // The two layouts of one plaintext, and the name of the key in etcd.
//! assert_eq!(&**Layout::Upstream.encrypt_value(b"healthcheck"), "aGVhbHRoY2hlY2s");
//! assert_eq!(&**Layout::OpenShift.encrypt_value(b"healthcheck"), "YUdWaGJIUm9ZMmhsWTJz");
//! let id = key_id("https://example.vault.azure.net/keys/mykey/ABCD");
//! assert!(id.starts_with("567d783db3043fe2"));
//! ```

mod algorithm;
mod annotations;
mod configuration;
mod error;
#[cfg(test)]
mod fake_vault;
mod health;
mod identity;
mod key;
mod layout;
mod metrics;
mod plugin;
mod retry;
mod server;
mod service;
mod vault;

pub use algorithm::KeyAlgorithm;
pub use annotations::{
    CiphertextAnnotations, ForeignCiphertextError, VaultReplyHeaders, check_ciphertext_origin,
    desired_annotations,
};
pub use configuration::{
    ConfigurationKeyProblem, KmsConfiguration, KmsConfigurationError, VaultIdentity,
};
pub use error::{KeyOperationError, KmsPluginError, VaultErrorReply};
pub use health::{KmsHealthEndpoints, LIVE_PATH};
pub use identity::{IdentitySources, VaultIdentityError, build_credential};
pub use key::{PinnedKey, VaultKind, key_id};
pub use layout::{CiphertextLayout, CiphertextLayoutError};
pub use metrics::{KmsMetrics, MeasuredOperation};
pub use plugin::{EncryptedValue, KmsPlugin, KmsPluginParts};
pub use server::{KmsServeError, KmsServer};
pub use vault::{KeyResult, KeyVaultKeyClient, KmsKeyOperation, VaultKeyClient};
