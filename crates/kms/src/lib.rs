//! A Kubernetes KMS plugin that uses a key in Azure Key Vault.
//!
//! The API server calls the plugin over a unix socket to encrypt and decrypt the seeds of its data
//! keys; the plugin calls the vault. It writes ciphertexts in the layout of
//! [kubernetes-kms](https://github.com/Azure/kubernetes-kms) or of that project's OpenShift fork,
//! as configured ([`CiphertextLayout`]), and reads both.
//!
//! ```
//! use lanyard_kms::{CiphertextLayout, key_id};
//!
//! // The two layouts of one plaintext, and the id of the key in etcd.
//! assert_eq!(&**CiphertextLayout::Upstream.encrypt_value(b"healthcheck"), "aGVhbHRoY2hlY2s");
//! assert_eq!(&**CiphertextLayout::OpenShift.encrypt_value(b"healthcheck"), "YUdWaGJIUm9ZMmhsWTJz");
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
mod process;
mod retry;
mod server;
mod service;
mod transport_settings;
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
pub use process::{KmsHttpListeners, KmsProcessError};
pub use server::{KmsServeError, KmsServer};
pub use transport_settings::transport_settings;
pub use vault::{KeyResult, KeyVaultKeyClient, KmsKeyOperation, VaultKeyClient};
