//! The shared transport to Azure, and a client of Azure Resource Manager.
//!
//! All of lanyard's Azure clients use an [`AzureTransport`]. It configures the proxy and the
//! trusted roots, retries failed requests, and keeps one token bucket and one Retry-After cool-down
//! per host. Queued requests are sent by priority ([`RequestPriority`]), mounts before rotations,
//! and fairly between callers ([`FlowId`]). A host that fails repeatedly gets no requests for a
//! while ([`CircuitBreakerPolicy`]). The Azure SDK's own retries are off
//! ([`AzureTransport::client_options`]), so that requests are retried in one place. Credentials use
//! [`AzureTransport::without_rate_limit`] and retry themselves, because they know which token
//! requests may be repeated.

mod arm_client;
mod authenticated_client;
mod bearer_token_policy;
mod circuit_breaker;
mod error_details;
mod host_queue;
mod rate_limited_client;
mod rate_limiter;
mod retry;
mod transport;

pub use arm_client::ArmClient;
pub use authenticated_client::{AuthenticatedClient, AzureCallError, AzureResponse};
pub use bearer_token_policy::BearerTokenPolicy;
pub use circuit_breaker::CircuitBreakerPolicy;
pub use error_details::AzureErrorDetails;
pub use host_queue::{FlowId, RequestPriority};
pub use rate_limited_client::{ThrottleCause, ThrottledError};
pub use rate_limiter::RequestRate;
pub use retry::RetryPolicy;
pub use transport::{AzureTransport, AzureTransportError, AzureTransportSettings};
