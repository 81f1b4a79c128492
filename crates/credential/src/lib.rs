//! Azure credentials from rotating certificate files, federated token files and managed identity endpoints.
//!
//! The crate provides seven credentials for the Azure SDK for Rust. Each implements
//! [`azure_core::credentials::TokenCredential`], and all share one token engine:
//!
//! - [`ReloadingCertificateCredential`] signs in with the credential file in a hosted control plane's volume,
//!   and follows the file as it rotates;
//! - [`FederatedTokenCredential`] exchanges a projected service account token, and
//!   [`InMemoryTokenCredential`] a token that a program holds for another workload;
//! - [`ClientSecretCredential`] signs in with a client secret, and [`ClientCertificateCredential`] with a
//!   certificate that does not rotate;
//! - [`ManagedIdentityCredential`] uses the managed identity of the host, by IMDS or App Service;
//! - [`CredentialChain`] tries several credentials in their order, as `DefaultAzureCredential` of the SDKs does.
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
//! The engine caches tokens per scope, renews them in the background before they expire, and sends one request
//! for all concurrent callers. Cached tokens stay valid when the certificate rotates.
//!
//! Secrets are kept in types that cannot be printed and are wiped on drop. The copy of a token that a caller
//! receives as `azure_core`'s own type is the caller's responsibility.

#![warn(missing_docs)]

pub mod assertion;
pub mod bundle;
pub mod detected_format;
pub mod document;
pub mod error_codes;
mod file;
mod file_snapshot;
#[cfg(test)]
pub(crate) mod fixture;
mod folder_watch;
pub mod generation;
pub mod identity;
pub mod inspect;
mod loader;
pub mod reply;
pub mod secret;

#[cfg(feature = "azure-cli")]
mod azure_cli;
mod client_certificate;
mod client_secret;
mod credential_chain;
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

pub use file::{CredentialFile, CredentialFileOptions, LoadObserver, ReloadOutcome};
pub use generation::CredentialGeneration;
pub use lanyard_clock::ErrorHint;
pub use loader::{
    EqualTimestampPolicy, HealthWarning, KeepReason, LoadCounts, LoadError, LoadFailure,
    LoaderHealth,
};

#[cfg(feature = "azure-cli")]
pub use azure_cli::{AzureCliCredential, AzureCliError, AzureCliSubscription};
pub use client_certificate::{ClientCertificateCredential, ClientCertificateError};
pub use client_secret::ClientSecretCredential;
pub use credential_chain::{ChainLink, ChainLinkState, CredentialChain, CredentialChainError};
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
pub use token::error::{TokenError, TokenResponseProblem};
pub use token::request::TokenRequestContext;
pub use token_proxy::{TokenProxy, TokenProxyError, TokenProxySettings};
pub use transport::sender::{TokenTransport, TokenTransportOptions};
pub use transport::{RequestLimits, RetrySettings};

#[cfg(test)]
mod scripted_service;
#[cfg(test)]
mod secret_leak_tests;
