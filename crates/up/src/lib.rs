//! Implements `lanyard up`: runs the hops of every component of a HostedCluster against a local Azure. The
//! crate composes the other crates and contains no rules of its own.
//!
//! A [`ScenarioRun`] starts a local Azure that is seeded for the HostedCluster, renders the cluster's
//! objects, and runs every hop of each component: class, volume, token of the shared vault reader, vault,
//! decoding, file, credential, Entra, one proof call that Azure must grant and one that it must refuse. The
//! run uses the components of a node: a `ClassSource` (in memory) for classes, the Key Vault `Provider` over
//! `NodeVaults` for files, and `AtomicVolume`s.

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
mod run_directory_error;
mod scenario_run;
mod scenario_run_error;
mod time;

pub use local_azure_plan::local_azure_plan;
pub use options::{ComponentFault, Options, ParseComponentFaultError};
pub use reader_threads::ReaderCounts;
pub use report::{ComponentReport, HopReport, RotationReport, ScenarioReport, StepFailure};
pub use run_directory::find_run_directories;
pub use run_directory_error::{CloseRunError, RunDirectoryError};
pub use scenario_run::ScenarioRun;
pub use scenario_run_error::ScenarioRunError;
