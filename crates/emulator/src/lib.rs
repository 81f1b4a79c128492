//! A strict local Azure: Entra, Key Vault, IMDS and ARM behind an intercepting proxy.
//!
//! Unmodified Azure clients reach it through proxy and CA settings, under the real public names.
//! Credentials are verified, authorization is deny by default, and an operation that is not
//! implemented answers 501 and says so.
//!
//! The crate shares no code with the clients of this workspace beyond plain vocabulary, so that a
//! misreading of a protocol cannot pass on both sides.

mod authority;
mod authorization;
mod call;
mod certificates;
mod directory;
mod drill;
mod emulator;
mod engine;
mod faults;
mod hosts;
mod jose;
mod keys;
mod ledger;
mod operations;
mod request;
mod seed;
mod server;
mod services;
mod store;
#[cfg(test)]
mod testing;
mod token;
mod world;

pub use authority::AuthorityError;
pub use drill::{Drill, Fault, ParseFaultError};
pub use emulator::{Builder, Emulator, StartError};
pub use ledger::LedgerEntry;
pub use seed::{
    Bundle, DnsZonePlan, IdentityPlan, KmsKeyPlan, PlanProblem, SeedError, VaultPlan, WorldPlan,
};
pub use store::StoreError;
