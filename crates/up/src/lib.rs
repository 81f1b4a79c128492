//! The run of `lanyard up`: composes the other crates and decides nothing.
//!
//! A [`ScenarioRun`] starts a local Azure with the world of a HostedCluster, renders the cluster's
//! objects, and takes each component through every hop: class, volume, token of the shared vault
//! reader, vault, decoding, file, credential, Entra, one call that is granted and one that is
//! refused. The parts are those of a node: classes come from a `ClassSource` (in memory), files from
//! the Key Vault `Provider` over `NodeVaults`, and volumes are `Volume`s.
//!
//! A rule found here has lost its home.

mod azure_environment;
mod chosen_directory;
mod control_api;
mod hop_recorder;
mod hops;
mod local_azure_plan;
mod locked_directory;
mod options;
mod reader_threads;
mod report;
mod rotate;
mod run_context;
mod run_directory;
mod scenario_run;
mod time;

pub use local_azure_plan::local_azure_plan;
pub use options::{ComponentFault, Options, ParseComponentFaultError};
pub use reader_threads::ReaderCounts;
pub use report::{ComponentReport, HopReport, RotationReport, ScenarioFailure, ScenarioReport};
pub use run_context::ScenarioRunError;
pub use run_directory::{CloseRunError, RunDirectoryError};
pub use scenario_run::ScenarioRun;
