//! SecretProviderClass parameters to Key Vault reads to files in memory.
//!
//! A [`SecretSource`] is read by [`fetch_objects`]; what it gave becomes files by
//! [`decode_files`], which is pure. [`fetch_files`] is one after the other. [`KeyVault`] is the
//! source on Azure. [`NodeVaults`] reads for all volumes of a node: as whom each class and pod
//! says, once for all who ask for the same, and from a sealed cache while the vault is not there.
//!
//! Files are those of the upstream Key Vault provider (v1.8.2), except where it has a bug:
//!
//! | object | upstream | here |
//! |---|---|---|
//! | version history of N | N + 1 files where there are more versions | N files |
//! | history from a version that is not there | no file, and a failure elsewhere | an error that names it |
//! | `objectVersion: latest` without a history | asks for a version of that name | the current version |
//! | certificate's secret without a content type | a crash | an error |
//! | PKCS#12 to PEM with `objectEncoding: base64` | undoes it on the PEM, and fails | the PEM |
//! | PKCS#12 with PBES2 or a SHA-256 MAC | cannot be opened | is opened |
//! | `.crt` and `.key` beside a `pfx` file | empty | the certificates and the key |
//!
//! ```
//! use lanyard_api::ProviderParameters;
//! use lanyard_keyvault::{FetchError, FileOptions, MountedFile, SecretSource, fetch_files};
//!
//! async fn files_of(
//!     parameters: &ProviderParameters,
//!     vault: &dyn SecretSource,
//! ) -> Result<Vec<MountedFile>, FetchError> {
//!     fetch_files(parameters, vault, FileOptions::default()).await
//! }
//! ```

mod chain;
mod cloud;
mod content;
mod decode;
mod der;
pub mod encoding;
mod error;
mod fetch;
mod files;
mod history;
mod memory;
mod node_vaults;
mod pem;
mod pkcs12;
mod pod;
mod public_key;
mod reader;
mod readers;
mod secret_bytes;
mod separate;
mod shared;
mod source;
mod stale;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod tls_part;
mod user_agent;
mod vault;

pub use chain::ChainError;
pub use cloud::{CloudError, EnvironmentProblem, VaultCloud};
pub use content::{CertificateOptions, ContentError};
pub use decode::{
    DecodeError, DecodeWarning, DecodedFiles, FileOptions, MountedFile, ObjectId, decode_files,
};
pub use error::{VaultError, VaultReply};
pub use fetch::{FetchedObject, ObjectReference, ReadError, VaultObject, fetch_objects};
pub use files::{FetchError, fetch_files};
pub use history::{HistoryError, select_history};
pub use lanyard_azure::Priority;
pub use lanyard_credential::RetryClass;
pub use memory::{CacheMemory, CacheRefusal, MemoryExhausted, ReadMemory, UnlimitedMemory};
pub use node_vaults::{
    NodeVaultError, NodeVaultSettings, NodeVaults, ReadOrder, VaultOutage, VaultReading,
};
pub use pkcs12::PfxError;
pub use pod::{Pod, Proofs, PublishSecrets, ServiceAccountToken, ServiceAccountTokens};
pub use public_key::{Curve, PublicJwk, PublicKeyError};
pub use reader::IdentityError;
pub use readers::{NodeWays, ReaderError};
pub use secret_bytes::SecretBytes;
pub use shared::Demand;
pub use source::{
    ListedVersion, ObjectAttributes, SecretSource, VaultCertificate, VaultKey, VaultSecret,
};
pub use stale::{StaleCache, StaleCacheError};
pub use tls_part::{TlsPartError, parse_tls_certificates, parse_tls_private_key};
pub use user_agent::{ParseUserAgentError, UserAgentSuffix};
pub use vault::KeyVault;
