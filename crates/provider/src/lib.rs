//! Fetches the content of a volume: from a SecretProviderClass and a pod to files.
//!
//! [`Provider`] is the trait that a publisher calls, [`AzureProvider`] its implementation for Azure Key Vault.
//! [`ClassSource`] supplies the SecretProviderClasses, and [`RotationPolicy`] has the rotation
//! settings of a SecretProviderClass.

mod azure;
mod classes;
mod interval;
mod provider;
mod rotation_policy;

pub use azure::{AzureProvider, AzureProviderSettings};
pub use classes::{ClassError, ClassSource, InMemoryClassSource};
pub use interval::{IntervalBounds, IntervalProblem, ParseIntervalError, PollInterval};
pub use provider::{
    ObjectTimestamps, Provider, ProviderError, ProviderFile, ProviderObjectVersion,
    ProviderRequest, ProviderResponse, StaleResponse, Urgency,
};
pub use rotation_policy::{
    AnnotationProblem, OlderVersion, ParseOlderVersionError, RefreshRequest, RotationPolicy,
};
