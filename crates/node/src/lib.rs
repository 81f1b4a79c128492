//! Mounting secrets into pods.
//!
//! A [`AtomicVolume`] is a directory whose files change all at once, in the layout of the kubelet's
//! atomic writer, with retired generations that keep waking whoever watches them; a [`TmpfsMount`] is
//! the bounded memory file system that it lies on. A [`Publisher`] makes the volumes that the
//! kubelet orders, keeps them fresh, and takes them away again; the [`NodePluginServer`] is the process
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
mod memory_limit;
mod classes;
mod compare_generation;
mod csi;
mod directory;
mod error;
mod fail_point;
mod generation;
pub mod older_credential;
mod kubernetes;
mod volume_links;
mod marker;
mod memory;
mod metrics;
mod mount;
mod mount_table;
mod publish_request;
mod file_path;
mod payload;
pub mod policy;
mod provider;
mod publisher;
mod registration;
mod reporter;
pub mod rotation;
mod server;
mod volume_step;
mod sync;
mod target_path;
mod volume;
mod volume_attribute;
mod wire_token;

pub use memory_limit::{MemoryLimitError, MemoryPurpose};
pub use classes::{ClassError, ClassSource, InMemoryClassSource};
pub use csi::{DriverName, ParseDriverNameError};
pub use directory::{VolumeDiskError, DiskOperation};
pub use error::PublishError;
#[cfg(feature = "crash-points")]
pub use fail_point::{CrashPoint, ParseCrashPointError};
pub use generation::{VolumeGeneration, ParseGenerationError, SCRUB_GRACE};
pub use kubernetes::{
    ClassChange, PodEventQueue, KubeClassCache, KubeClassCacheSettings, KubeReporter, KubeReporterSettings,
    NodeKubernetesApi,
};
pub use marker::{MountedObject, VolumeLastError};
pub use memory::{NodeCacheMemory, FetchMemory, MemoryAccount};
pub use metrics::{
    MeteredProvider, MeteredReporter, NodeMetrics, PolicyDecision, ReadKind, StatusWrite,
};
pub use mount::{TmpfsMount, TmpfsMountError, MountOperation};
pub use publish_request::{InvalidPublishRequest, PublishRequest, PublishRequestProblem, VolumeRequestParser, ParseTokensError};
pub use file_path::{FilePath, FilePathProblem, MAX_COMPONENT, MAX_PATH, ParseFilePathError};
pub use payload::{FileEntry, PayloadProblem};
#[cfg(feature = "fuzzing")]
pub use provider::fuzzing;
pub use provider::{
    AzureProvider, AzureProviderSettings, ProviderRequest, ProviderFile, ProviderResponse, ProviderObjectVersion,
    ParseProviderNameError, PodOverrides, Provider, ProviderName, ProviderRegistry, ProviderError,
    ProviderServer, SocketProviders, SocketProviderSettings, StaleResponse, ObjectTimestamps, Urgency,
};
pub use publisher::{
    PublishFailure, Publisher, PublisherParts, PublisherSettings, RecoveryOutcome, RefreshOutcome,
    VolumeState, NodeMemoryUsage,
};
pub use registration::{RegistrationRejectedError, RegistrationSettings};
pub use reporter::{PollResult, NoopReporter, PodEvent, PodEventKind, StatusReportError, Reporter, VolumeReport};
pub use server::{NodePluginServer, NodePluginServerParts, NodePluginServerSettings, NodeServeError};
pub use volume_step::{VolumeStep, VolumeOperation};
pub use sync::{SecretSync, SecretSyncSettings, SecretSyncHealth};
pub use volume::{VolumeChange, PublishOutcome, ScrubOutcome, AtomicVolume};
