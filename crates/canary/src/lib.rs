//! The canary: one small pod per identity that checks continuously that the identity works.
//!
//! The pod runs next to the hosted control plane components. It finds its credential file as the
//! component does ([`CredentialFileLocation`]), keeps a valid token and calls one Azure operation
//! that the component's role allows ([`GrantedCall`]). It reports the result as metrics
//! ([`CanaryMetrics`]), in the log, and as a [`lanyard_api::CanaryStatusReport`] in an annotation
//! of its own pod. It writes the annotation only when the report changes.
//!
//! The canary reports a definitive error immediately. It counts errors that may be transient, and
//! reports them once they last ([`FailureThreshold`]), so that the report does not flap.
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
