//! Azure identities from rotating certificate files, federated token files and managed identity endpoints

pub mod assertion;
pub mod bundle;
pub mod document;
pub mod file;
#[cfg(test)]
pub(crate) mod fixture;
pub mod generation;
pub mod identity;
pub mod inspect;
pub mod loader;
pub mod lookalike;
mod probe;
pub mod secret;
mod watch;

mod entra;
mod federated;
mod health;
mod managed_identity;
mod metrics;
mod randomness;
mod reloading;
mod token;
mod transport;

pub use file::{CredentialFile, FileOptions, LoadError, Reload};
pub use generation::Generation;
pub use loader::LoaderHealth;

pub use entra::error::EntraError;
pub use federated::{
    FederatedTokenCredential, FederatedTokenSettingProblem, FederatedTokenSettings,
    FederatedTokenSettingsError,
};
pub use health::{LastTokenError, ScopeHealth, TokenCounts, TokenHealth};
pub use managed_identity::endpoint::ManagedIdentityId;
pub use managed_identity::error::ManagedIdentityError;
pub use managed_identity::{
    ManagedIdentityCredential, ManagedIdentitySettings, ManagedIdentitySettingsError,
};
pub use metrics::{MetricsHook, TokenRequested};
pub use randomness::{Randomness, SharedRandomness, SystemRandomness};
pub use reloading::{
    CredentialHealth, KeyHealth, ReloadingCertificateCredential, ReloadingCertificateOptions,
};
pub use token::error::{AnswerProblem, RetryClass, TokenError};
pub use token::request::TokenRequestContext;
pub use transport::RetrySettings;
pub use transport::sender::{TokenTransport, TokenTransportOptions};

#[cfg(test)]
mod scripted;
