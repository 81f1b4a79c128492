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
//!
//! [`ArmClient`] sends typed requests ([`ArmRequest`]), reads lists with all their pages, and follows long-running
//! operations ([`PendingOperation`]), which can be stored and continued by another process. [`ErrorClass`] says
//! what a caller can do about an error.

mod arm_client;
mod arm_request;
mod authenticated_client;
mod bearer_token_policy;
mod circuit_breaker;
mod error_class;
mod error_details;
mod host_queue;
mod long_running;
mod rate_limited_client;
mod rate_limiter;
mod response_headers;
mod retry;
#[cfg(test)]
mod scripted_azure;
mod transport;

pub use arm_client::ArmClient;
pub use arm_request::ArmRequest;
pub use authenticated_client::{AuthenticatedClient, AzureCallError, AzureResponse};
pub use bearer_token_policy::BearerTokenPolicy;
pub use circuit_breaker::CircuitBreakerPolicy;
pub use error_class::ErrorClass;
pub use error_details::AzureErrorDetails;
pub use host_queue::{FlowId, RequestPriority};
pub use long_running::{
    OperationError, OperationPoll, OperationStart, PendingOperation, PollPolicy,
};
pub use rate_limited_client::{ThrottleCause, ThrottledError};
pub use rate_limiter::RequestRate;
pub use response_headers::ResponseHeaders;
pub use retry::RetryPolicy;
pub use transport::{AzureTransport, AzureTransportError, AzureTransportSettings};
