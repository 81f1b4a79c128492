//! The providers that the node plugin calls: the registry of providers by name, and external providers.
//!
//! The Azure Key Vault provider runs in this process. Any other provider is called over its socket, with the
//! protocol of the Secrets Store CSI driver. The publisher does not distinguish between the two. [`ProviderServer`]
//! serves the Azure Key Vault provider on a socket, for upstream's driver.

mod attributes;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod name;
mod provider_server;
mod registry;
mod socket;
mod tokens;

pub use attributes::PodOverrides;
pub use name::{ParseProviderNameError, ProviderName};
pub use provider_server::ProviderServer;
pub(crate) use provider_server::hold_memory_until_sent;
pub use registry::ProviderRegistry;
pub use socket::{SocketProviderSettings, SocketProviders};
