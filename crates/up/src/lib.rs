//! The run of `lanyard up`: composes the other crates and decides nothing.
//!
//! A [`Road`] starts a local Azure with the world of a HostedCluster, renders the cluster's
//! objects, and takes each component through every hop: class, volume, token of the shared vault
//! reader, vault, decoding, file, credential, Entra, one call that is granted and one that is
//! refused. The parts are those of a node: classes come from a `ClassSource` (in memory), files from
//! the Key Vault `Provider` over `NodeVaults`, and volumes are `Volume`s.
//!
//! A rule found here has lost its home.

mod azure_end;
mod chosen_directory;
mod control;
mod hops;
mod locked_directory;
mod options;
mod readers;
mod report;
mod road;
mod roadbed;
mod rotate;
mod run_directory;
mod time;
mod walk;
mod world;

pub use options::{Break, Options, ParseBreakError};
pub use readers::Readers;
pub use report::{ComponentReport, Failure, HopReport, Report, RotationReport};
pub use road::Road;
pub use roadbed::RoadError;
pub use run_directory::{CloseError, RunDirectoryError};
pub use world::world_plan;
