//! A strict local emulator of Azure: Entra, Key Vault, IMDS and ARM behind an intercepting proxy.
//!
//! Unmodified Azure clients reach it through proxy and CA settings, under the real public host names. It
//! verifies credentials, denies requests by default, and responds with 501 to operations that it does not
//! implement.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! use lanyard_emulator::Emulator;
//!
//! let azure = Emulator::builder().start().await?;
//! // A client needs only these two settings.
//! let (https_proxy, trusted) = (azure.proxy_url(), azure.ca_pem());
//! assert!(https_proxy.starts_with("http://127.0.0.1:"));
//! assert!(trusted.starts_with("-----BEGIN CERTIFICATE-----"));
//! azure.shutdown().await;
//! # Ok::<(), lanyard_emulator::StartError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each emulator has its own port, state, clock and certificate authority, and a process can run many of them. A
//! seed makes ids and keys reproducible, and a snapshot copies a prepared state:
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! use std::sync::Arc;
//!
//! use lanyard_clock::ManualClock;
//! use lanyard_emulator::{Emulator, StateSnapshot};
//!
//! let clock = ManualClock::starting_at("2027-01-01T00:00:00Z".parse()?);
//! let prepared = Emulator::builder().id_seed("tests").clock(Arc::new(clock.clone())).start().await?;
//! // Create what the tests need, then copy it.
//! let snapshot = prepared.snapshot();
//! prepared.shutdown().await;
//!
//! let azure = Emulator::builder().snapshot(snapshot.clone()).start().await?;
//! let other = Emulator::builder().snapshot(snapshot.clone()).start().await?;
//! assert_ne!(azure.proxy_url(), other.proxy_url());
//! // Run a test, and return to the prepared state.
//! azure.restore(snapshot.clone()).await?;
//! // As JSON, a snapshot contains secrets and private keys.
//! let copy = StateSnapshot::from_json(&snapshot.to_json()?)?;
//! other.restore(copy).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Apart from `lanyard-vocabulary`, the crate shares no code with the clients of this workspace, so that a
//! misreading of a protocol cannot go unnoticed on both sides.

mod authority;
mod authorization;
mod azure_clouds;
mod azure_state;
mod certificate_bundle;
mod certificates;
mod client_certificate;
mod clock_offset;
mod cloud_domain;
mod directory;
mod drills;
mod emulator;
mod engine;
mod fault_plan;
mod fault_rules;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod identity_binding;
mod ingress;
mod jose;
mod keys;
mod managed_identity_credential;
mod management_groups;
mod operation_context;
mod operation_listing;
mod operations;
mod pregenerated_keys;
mod public_documents;
mod published_key;
mod reproducible_keys;
mod request;
mod request_log;
mod seed;
mod server;
mod service_caches;
mod service_headers;
mod services;
mod settings;
mod snapshot;
mod state_change_error;
mod state_store;
mod table;
#[cfg(test)]
mod testing;
mod token;
mod tracked;

pub use authority::AuthorityError;
pub use certificate_bundle::CredentialBundleFormat;
pub use cloud_domain::{CloudDomain, ParseCloudDomainError};
pub use drills::{DrillError, FaultDrill};
pub use emulator::{Emulator, EmulatorBuilder, StartError};
pub use fault_plan::{FaultPlan, IdentityFault, ParseIdentityFaultError};
pub use fault_rules::{FaultRule, FaultRuleError};
pub use operation_listing::{OperationSummary, operations};
pub use request_log::RequestLogEntry;
pub use seed::{
    DirectoryAccess, DnsZonePlan, IdentityPlan, IssuedCredential, KmsKeyPlan, NodePlan, SeedError,
    SeedPlan, SeedPlanProblem, TestCredentials, VaultPlan,
};
pub use settings::{SettingField, SettingsChange, SettingsError, setting_fields};
pub use snapshot::{SnapshotError, StateSnapshot};
pub use state_change_error::StateChangeError;
pub use state_store::StateStoreError;
pub use token::TokenPolicy;
