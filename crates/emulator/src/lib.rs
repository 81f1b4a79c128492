//! A strict local Azure: Entra, Key Vault, IMDS and ARM behind an intercepting proxy.
//!
//! Unmodified Azure clients reach it through proxy and CA settings, under the real public names.
//! Credentials are verified, authorization is deny by default, and an operation that is not
//! implemented answers 501 and says so.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! use lanyard_emulator::Emulator;
//!
//! let azure = Emulator::builder().start().await?;
//! // A client gets these two settings and nothing else.
//! let (https_proxy, trusted) = (azure.proxy_url(), azure.ca_pem());
//! assert!(https_proxy.starts_with("http://127.0.0.1:"));
//! assert!(trusted.starts_with("-----BEGIN CERTIFICATE-----"));
//! azure.shutdown().await;
//! # Ok::<(), lanyard_emulator::StartError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate shares no code with the clients of this workspace beyond plain vocabulary, so that a
//! misreading of a protocol cannot pass on both sides.

mod authority;
mod authorization;
mod binding;
mod call;
mod certificates;
mod directory;
mod doors;
mod drill;
mod emulator;
mod engine;
mod faults;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hosts;
mod jose;
mod keys;
mod ledger;
mod operations;
mod published_key;
mod request;
mod seed;
mod server;
mod services;
mod store;
#[cfg(test)]
mod testing;
mod token;
mod world;
mod world_clock;

pub use authority::AuthorityError;
pub use drill::{Drill, Fault, ParseFaultError};
pub use emulator::{Builder, ChangeError, Emulator, StartError};
pub use ledger::LedgerEntry;
pub use seed::Issued as IssuedCredential;
pub use seed::{
    Bundle, DnsZonePlan, IdentityPlan, KmsKeyPlan, PlanProblem, SeedError, VaultPlan, WorldPlan,
};
pub use store::StoreError;
pub use token::TokenPolicy;
