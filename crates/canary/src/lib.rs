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
mod delays;
mod call;
mod canary;
mod credential;
mod timeout;
mod identity;
mod metrics;
mod credential_location;
mod probe;
#[cfg(test)]
mod fake_azure;
mod check_tracker;
mod proof_error;

pub use annotation::{FactsSink, PodAnnotation, PublishFactsError, FactsPublisher};
pub use call::{GrantedCall, ParseCallError};
pub use canary::{IdentityCanary, CanaryDependencies, CanarySettings};
pub use metrics::CanaryMetrics;
pub use credential_location::{CloudConfigError, CredentialFileLocation, CredentialLocationError};
pub use probe::encryption::{KeyUrl, ParseKeyUrlError};
pub use probe::network::NetworkProbeTarget;
pub use probe::{ProbeKind, ProbeSettings};
pub use check_tracker::FailureThreshold;
