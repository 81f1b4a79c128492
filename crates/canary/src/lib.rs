//! A canary: a tiny pod per identity that keeps proving its identity.
//!
//! It stands where a component of a hosted control plane would stand, learns the path of its
//! credential file in the component's own way ([`CredentialFileLocation`]), keeps a token and makes one
//! call that the component's role grants ([`GrantedCall`]). What it finds out goes three ways: to
//! metrics ([`CanaryMetrics`]), to the log, and as [`lanyard_api::CanaryStatusReport`] to an annotation of
//! its own pod, which is written only when something changes.
//!
//! What a try came to is one thing, and what is told another: a refusal is told at once, and what
//! may pass by itself is counted and told when it lasts ([`FailureThreshold`]). So facts never flap.
//!
//! ```
//! use lanyard_canary::GrantedCall;
//! use lanyard_vocabulary::Cloud;
//!
//! let endpoints = Cloud::Public.endpoints().ok_or("no endpoints")?;
//! let line = "GET https://management.azure.com/subscriptions/s?api-version=2021-04-01";
//! let call = GrantedCall::parse(line, endpoints)?;
//! assert_eq!(call.scope(), "https://management.core.windows.net//.default");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod annotation;
mod call;
mod canary;
mod check_tracker;
mod credential;
mod credential_location;
mod delays;
#[cfg(test)]
mod fake_azure;
mod identity;
mod metrics;
mod probe;
mod proof_error;
mod timeout;

pub use annotation::{FactsPublisher, FactsSink, PodAnnotation, PublishFactsError};
pub use call::{GrantedCall, ParseCallError};
pub use canary::{CanaryDependencies, CanarySettings, IdentityCanary};
pub use check_tracker::FailureThreshold;
pub use credential_location::{CloudConfigError, CredentialFileLocation, CredentialLocationError};
pub use metrics::CanaryMetrics;
pub use probe::encryption::{KeyUrl, ParseKeyUrlError};
pub use probe::network::NetworkProbeTarget;
pub use probe::{ProbeKind, ProbeSettings};
