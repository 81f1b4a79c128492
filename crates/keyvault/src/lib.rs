//! Reads Key Vault objects for SecretProviderClass parameters and converts them to files in memory.
//!
//! [`fetch_objects`] reads the objects from a [`VaultSource`], and the pure function [`decode_files`]
//! converts them to files; [`fetch_files`] does both. [`KeyVault`] is the source for Azure. [`NodeVaults`]
//! reads for all volumes of a node: it authenticates as each class and pod requires, shares equal reads, and
//! serves a sealed cache during a vault outage.
//!
//! The files are those of the upstream Key Vault provider (v1.8.2), except where it has a bug:
//!
//! | object | upstream | here |
//! |---|---|---|
//! | version history of N | N + 1 files if there are more versions | N files |
//! | history from a version that does not exist | no file, and a failure elsewhere | an error that names the version |
//! | `objectVersion: latest` without a history | requests a version of that name | the current version |
//! | certificate's secret without a content type | a crash | an error |
//! | PEM certificate's secret with `objectFormat: pfx` | the PEM, or an error about base64 | an error that names the content type |
//! | PKCS#12 to PEM with `objectEncoding: base64` | decodes the PEM, and fails | the PEM |
//! | PKCS#12 with PBES2 or a SHA-256 MAC | cannot be opened | is opened |
//! | PKCS#12 whose certificates lack key identifiers | stay in the vault's order | the leaf first, then its issuers |
//! | `.crt` and `.key` next to a `pfx` file | empty | the certificates and the key |
//!
//! ```
//! use lanyard_api::ProviderParameters;
//! use lanyard_keyvault::{FetchError, MountedFile, VaultSource, VolumeFileOptions, fetch_files};
//!
//! async fn files_of(
//!     parameters: &ProviderParameters,
//!     vault: &dyn VaultSource,
//! ) -> Result<Vec<MountedFile>, FetchError> {
//!     fetch_files(parameters, vault, VolumeFileOptions::default()).await
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
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
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

pub use cloud::{EnvironmentFileError, VaultCloud, VaultCloudError};
pub use content::{CertificateFileOptions, ContentError};
pub use decode::{
    DecodeError, DecodeWarning, DecodedFiles, MountedFile, ObjectId, VolumeFileOptions,
    decode_files,
};
pub use error::{VaultErrorDetails, VaultReadError};
pub use fetch::{FetchedEntryObject, ObjectReference, ReadError, fetch_objects};
pub use files::{FetchError, fetch_files};
pub use history::{HistoryError, select_history};
pub use lanyard_azure::RequestPriority;
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
    FetchedCertificate, FetchedKey, FetchedSecret, FetchedVaultObject, ListedVersion,
    ObjectAttributes, VaultSource,
};
pub use stale_cache::{StaleCache, StaleCacheError};
pub use tls_secret::{TlsSecretError, parse_tls_certificates, parse_tls_private_key};
pub use user_agent::{ParseUserAgentError, UserAgentSuffix};
pub use vault::KeyVault;
