//! The one transport to Azure, and calls of Azure Resource Manager.
//!
//! Every client of lanyard that talks to Azure does it through a [`Transport`]: it knows the proxy
//! and the trusted roots, and it owns retry, one token bucket and one Retry-After cool-down per
//! host, in which mounts go before rotations ([`Priority`]) and those who ask take turns ([`Asker`]),
//! and leaves a host alone that fails again and again ([`BreakerPolicy`]). The Azure SDK's own retry
//! is off ([`Transport::client_options`]), so a request is never retried twice over. Credentials take the bare [`Transport::unpaced`]: they retry by themselves,
//! because they know what a token request may repeat.

mod arm;
mod authorize;
mod breaker;
mod call;
mod pace;
mod paced;
mod refusal;
mod retry;
mod transport;
mod turns;

pub use arm::ArmClient;
pub use authorize::Authorize;
pub use breaker::BreakerPolicy;
pub use call::{CallError, Caller, Reply};
pub use pace::Rate;
pub use paced::{CoolingCause, CoolingError};
pub use refusal::Refusal;
pub use retry::RetryPolicy;
pub use transport::{Transport, TransportError, TransportSettings};
pub use turns::{Asker, Priority};
