//! Azure identities from rotating certificate files, federated token files and managed identity
//! endpoints.
//!
//! Five credentials for the Azure SDK for Rust, each an
//! [`azure_core::credentials::TokenCredential`], over one token engine:
//!
//! - [`ReloadingCertificateCredential`] signs in with the credential file that a hosted control
//!   plane's volume holds, and follows the file as it rotates;
//! - [`FederatedTokenCredential`] exchanges a projected service account token, and
//!   [`InMemoryTokenCredential`] one that a program holds for somebody else;
//! - [`ClientSecretCredential`] signs in with a client secret;
//! - [`ManagedIdentityCredential`] asks the host, by IMDS or App Service.
//!
//! ```no_run
//! use azure_security_keyvault_secrets::SecretClient;
//! use lanyard_credential::ReloadingCertificateCredential;
//!
//! # async fn read() -> Result<(), Box<dyn std::error::Error>> {
//! let file = "/mnt/certs/disk-credentials.json";
//! let credential = ReloadingCertificateCredential::open(file, Default::default()).await?;
//! let client = SecretClient::new("https://example.vault.azure.net", credential, None)?;
//! let secret = client.get_secret("name", None).await?.into_model()?;
//! # drop(secret);
//! # Ok(())
//! # }
//! ```
//!
//! Tokens are cached for each scope, renewed in the background before they expire, and fetched by
//! one request however many callers wait. A rotation of the certificate keeps them.
//!
//! All that is secret is kept in types that cannot print, and wiped when it goes; the copy of a
//! token that a caller receives as `azure_core`'s own type is that caller's to guard.

pub mod assertion;
pub mod bundle;
pub mod detected_format;
pub mod document;
pub mod file;
mod file_snapshot;
#[cfg(test)]
pub(crate) mod fixture;
mod folder_watch;
pub mod generation;
pub mod identity;
pub mod inspect;
pub mod loader;
pub mod reply;
pub mod secret;

mod client_secret;
mod entra;
mod federated;
mod health;
mod managed_identity;
mod metrics;
mod randomness;
mod reloading;
mod token;
mod token_proxy;
mod transport;

pub use file::{CredentialFile, CredentialFileOptions, LoadError, LoadObserver, ReloadOutcome};
pub use generation::CredentialGeneration;
pub use loader::LoaderHealth;

pub use client_secret::ClientSecretCredential;
pub use entra::error::EntraError;
pub use federated::{
    FederatedTokenCredential, FederatedTokenSettingProblem, FederatedTokenSettings,
    FederatedTokenSettingsError, InMemoryTokenCredential,
};
pub use health::{LastTokenError, ScopeHealth, TokenCounts, TokenHealth};
pub use managed_identity::endpoint::ManagedIdentityId;
pub use managed_identity::error::ManagedIdentityError;
pub use managed_identity::{
    ManagedIdentityCredential, ManagedIdentitySettings, ManagedIdentitySettingsError,
    ManagedIdentityTransport,
};
pub use metrics::{MetricsHook, TokenRequestEvent};
pub use randomness::{Randomness, SharedRandomness, SystemRandomness};
pub use reloading::{
    CredentialHealth, KeyHealth, ReloadingCertificateCredential, ReloadingCertificateOptions,
};
pub use token::error::{RetryClass, TokenError, TokenResponseProblem};
pub use token::request::TokenRequestContext;
pub use token_proxy::{TokenProxy, TokenProxyError, TokenProxySettings};
pub use transport::sender::{TokenTransport, TokenTransportOptions};
pub use transport::{RequestLimits, RetrySettings};

#[cfg(test)]
mod scripted_service;
#[cfg(test)]
mod secret_leak_tests;
