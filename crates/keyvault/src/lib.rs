//! SecretProviderClass parameters to Key Vault reads to files in memory.
//!
//! A [`SecretSource`] is read by [`fetch_objects`]; what it gave becomes files by
//! [`decode_files`], which is pure. [`fetch_files`] is one after the other. [`KeyVault`] is the
//! source on Azure.
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
mod content;
mod decode;
mod der;
pub mod encoding;
mod error;
mod fetch;
mod files;
mod history;
mod pem;
mod pkcs12;
mod public_key;
mod secret_bytes;
mod separate;
mod source;
mod vault;

pub use chain::ChainError;
pub use content::{CertificateOptions, ContentError};
pub use decode::{
    DecodeError, DecodeWarning, DecodedFiles, FileOptions, MountedFile, ObjectId, decode_files,
};
pub use error::{RetryClass, VaultError, VaultReply};
pub use fetch::{FetchedObject, ObjectReference, ReadError, VaultObject, fetch_objects};
pub use files::{FetchError, fetch_files};
pub use history::{HistoryError, select_history};
pub use pkcs12::PfxError;
pub use public_key::{Curve, PublicJwk, PublicKeyError};
pub use secret_bytes::SecretBytes;
pub use source::{
    ListedVersion, ObjectAttributes, SecretSource, VaultCertificate, VaultKey, VaultSecret,
};
pub use vault::KeyVault;
