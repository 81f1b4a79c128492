//! The whole road on one machine: composes the other crates and decides nothing.
//!
//! A [`Road`] starts a local Azure with the world of a HostedCluster, renders the cluster's
//! objects, and takes each component down every hop: class, volume, token of the shared vault
//! reader, vault, decoding, file, credential, Entra, one call that is granted and one that is
//! refused. The objects come from memory, behind the seam that an API server fills in a cluster.
//!
//! A rule found here has lost its home.

mod azure_end;
mod control;
mod hops;
mod locked_directory;
mod mounts;
mod options;
mod readers;
mod report;
mod road;
mod roadbed;
mod rotate;
mod time;
mod walk;
mod world;

pub use mounts::CloseError;
pub use options::{Break, Options, ParseBreakError};
pub use readers::Readers;
pub use report::{ComponentReport, Failure, HopReport, Report, RotationReport};
pub use road::Road;
pub use roadbed::RoadError;
pub use world::world_plan;
