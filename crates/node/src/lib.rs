//! Mounting secrets into pods.
//!
//! A [`Volume`] is a directory whose files change all at once, in the layout of the kubelet's
//! atomic writer, with retired generations that keep waking whoever watches them; a [`Mount`] is
//! the bounded memory file system that it lies on. A [`Publisher`] makes the volumes that the
//! kubelet orders, keeps them fresh, and takes them away again; the [`NodeServer`] is the process
//! around it, and the seams of both are [`ClassSource`], [`Provider`] and [`Reporter`].
//!
//! ```
//! use lanyard_clock::SystemClock;
//! use lanyard_node::{FileEntry, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let mut volume = Volume::open(dir.path(), SystemClock::shared())?;
//! let published = volume.publish(&[FileEntry::new("token".parse()?, b"first", 0o644)])?;
//! assert_eq!(published.generation.number(), 1);
//! assert_eq!(std::fs::read(dir.path().join("token"))?, b"first");
//! # Ok(())
//! # }
//! ```

pub mod audit;
mod budget;
mod classes;
mod compare;
mod csi;
mod directory;
mod error;
mod fuse;
mod generation;
pub mod guard;
mod kubernetes;
mod links;
mod marker;
mod memory;
mod metrics;
mod mount;
mod mount_table;
mod order;
mod path;
mod payload;
pub mod policy;
mod provider;
mod publisher;
mod registration;
mod reporter;
pub mod rotation;
mod server;
mod step;
mod sync;
mod target;
mod volume;
mod volume_attribute;
mod wire_token;

pub use budget::{NoRoom, Purpose};
pub use classes::{ClassError, ClassSource, MemoryClasses};
pub use csi::{DriverName, ParseDriverNameError};
pub use directory::{DiskError, Operation};
pub use error::PublishError;
#[cfg(feature = "crash-points")]
pub use fuse::{CrashPoint, ParseCrashPointError};
pub use generation::{Generation, ParseGenerationError, SCRUB_GRACE};
pub use kubernetes::{
    ClassChange, EventQueue, KubeClasses, KubeClassesSettings, KubeReporter, KubeReporterSettings,
    NodeApi,
};
pub use marker::{MountedObject, Trouble};
pub use memory::{CacheShare, FillMemory, NodeMemory};
pub use metrics::{
    CountedProvider, CountedReporter, NodeMetrics, PolicyDecision, ReadKind, StatusWrite,
};
pub use mount::{Mount, MountError, MountOperation};
pub use order::{InvalidOrder, MountOrder, OrderProblem, OrderRules, TokensProblem};
pub use path::{FilePath, FilePathProblem, MAX_COMPONENT, MAX_PATH, ParseFilePathError};
pub use payload::{FileEntry, PayloadProblem};
#[cfg(feature = "fuzzing")]
pub use provider::fuzzing;
pub use provider::{
    AzureProvider, AzureProviderSettings, FillRequest, FilledFile, Filling, ObjectVersion,
    ParseProviderNameError, PodOverrides, Provider, ProviderName, ProviderRegistry, Refusal,
    ServedProvider, SocketProviders, SocketSettings, Stale, Stamps, Urgency,
};
pub use publisher::{
    PublishFailure, Publisher, PublisherParts, PublisherSettings, Recovered, Refreshed,
    VolumeState, VolumesMemory,
};
pub use registration::{RegistrationRefused, RegistrationSettings};
pub use reporter::{Looked, NoReporter, Notice, NoticeKind, ReportError, Reporter, VolumeReport};
pub use server::{NodeServer, NodeServerParts, NodeServerSettings, ServeError};
pub use step::{Step, Work};
pub use sync::{SecretSync, SecretSyncSettings, SyncProblem};
pub use volume::{Changed, Published, Scrubbed, Volume};
