//! The one transport to Azure, and calls of Azure Resource Manager.
//!
//! Every client of lanyard that talks to Azure does it through a [`AzureTransport`]: it knows the proxy
//! and the trusted roots, and it owns retry, one token bucket and one Retry-After cool-down per
//! host, in which mounts go before rotations ([`RequestPriority`]) and those who ask take turns ([`FlowId`]),
//! and leaves a host alone that fails again and again ([`CircuitBreakerPolicy`]). The Azure SDK's own retry
//! is off ([`AzureTransport::client_options`]), so a request is never retried twice over. Credentials take the bare [`AzureTransport::unpaced`]: they retry by themselves,
//! because they know what a token request may repeat.

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
