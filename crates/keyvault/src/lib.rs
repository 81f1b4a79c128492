//! SecretProviderClass parameters to Key Vault reads to files in memory.
//!
//! A [`VaultSource`] is read by [`fetch_objects`]; what it gave becomes files by
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
mod pem_split;
mod pkcs12;
mod pod;
mod public_key;
mod reader;
mod reader_sessions;
mod secret_bytes;
mod shared_reads;
mod source;
mod stale_cache;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod tls_secret;
mod user_agent;
mod vault;

pub use chain::ChainOrderError;
pub use cloud::{EnvironmentFileError, VaultCloud, VaultCloudError};
pub use content::{CertificateOptions, ContentError};
pub use decode::{
    DecodeError, DecodeWarning, DecodedFiles, MountedFile, ObjectId, VolumeFileOptions,
    decode_files,
};
pub use error::{VaultErrorDetails, VaultReadError};
pub use fetch::{
    FetchedEntryObject, FetchedVaultObject, ObjectReference, ReadError, fetch_objects,
};
pub use files::{FetchError, fetch_files};
pub use history::{HistoryError, select_history};
pub use lanyard_azure::RequestPriority;
pub use lanyard_credential::RetryClass;
pub use memory::{CacheMemory, CacheReserveError, MemoryExhausted, ReadMemory, UnlimitedMemory};
pub use node_vaults::{
    NodeVaultError, NodeVaultSettings, NodeVaults, VaultOutage, VolumeReadRequest, VolumeReadResult,
};
pub use pkcs12::PfxError;
pub use pod::{
    PodCredentials, PublishSecrets, ServiceAccountToken, ServiceAccountTokens, VolumePod,
};
pub use public_key::{EcCurve, PublicJwk, PublicKeyError};
pub use reader::ReaderIdentityError;
pub use reader_sessions::{NodeTransports, ReaderCredentialError};
pub use secret_bytes::SharedSecretBytes;
pub use shared_reads::Freshness;
pub use source::{
    FetchedCertificate, FetchedKey, FetchedSecret, ListedVersion, ObjectAttributes, VaultSource,
};
pub use stale_cache::{StaleCache, StaleCacheError};
pub use tls_secret::{TlsSecretError, parse_tls_certificates, parse_tls_private_key};
pub use user_agent::{ParseUserAgentError, UserAgentSuffix};
pub use vault::KeyVault;
