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

mod control;
mod drills;
mod emulator;
mod fault_plan;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod operation_listing;
pub mod seed;
mod services;
mod state_change_error;
mod subject_token;
#[cfg(any(test, feature = "test-util"))]
#[expect(clippy::unwrap_used, reason = "tests call it, and a failure is that of the test")]
pub mod testing;

pub use self::drills::DrillError;
pub use self::emulator::{Emulator, EmulatorBuilder, StartError};
pub use self::fault_plan::FaultPlan;
pub use self::operation_listing::OperationSummary;
pub use self::seed::credential::IssuedCredential;
pub use self::seed::plan::{
    DirectoryAccess, DnsZonePlan, IdentityPlan, KmsKeyPlan, NodePlan, SeedPlan, VaultPlan,
};
pub use self::seed::test_credentials::TestCredentials;
pub use self::seed::{SeedError, SeedPlanProblem};
pub use self::services::operations;
pub use self::state_change_error::StateChangeError;
pub use lanyard_emulator_core::authority::AuthorityError;
pub use lanyard_emulator_core::request_log::RequestLogEntry;
pub use lanyard_emulator_core::snapshot::{SnapshotError, StateSnapshot};
pub use lanyard_emulator_core::state_store::StateStoreError;
pub use lanyard_emulator_state::certificate_bundle::CredentialBundleFormat;
pub use lanyard_emulator_state::cloud_domain::{CloudDomain, ParseCloudDomainError};
pub use lanyard_emulator_state::drill::{DrillDefinitionError, FaultDrill};
pub use lanyard_emulator_state::fault_rules::{FaultRule, FaultRuleError};
pub use lanyard_emulator_state::identity_fault::{IdentityFault, ParseIdentityFaultError};
pub use lanyard_emulator_state::settings::{
    SettingField, SettingsChange, SettingsError, setting_fields,
};
pub use lanyard_emulator_state::token_policy::TokenPolicy;
