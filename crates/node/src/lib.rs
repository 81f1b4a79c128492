//! Publishes secrets into pods as Kubernetes volumes.
//!
//! An [`AtomicVolume`] is a directory whose files change all at once. It uses the layout of the
//! kubelet's atomic writer and keeps retired generations, so that file watches on old files still
//! fire. A [`TmpfsMount`] is the size-limited tmpfs that holds the volume. A [`Publisher`]
//! publishes the volumes that the kubelet requests, rotates their content and unpublishes them. The
//! [`NodePluginServer`] is the CSI node plugin around it. [`ClassSource`], [`Provider`] and
//! [`Reporter`] are the traits through which both reach classes, secret stores and the Kubernetes
//! API.
//!
//! ```
//! use lanyard_clock::SystemClock;
//! use lanyard_node::{AtomicVolume, FileEntry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let mut volume = AtomicVolume::open(dir.path(), SystemClock::shared())?;
//! let published = volume.publish(&[FileEntry::new("token".parse()?, b"first", 0o644)])?;
//! assert_eq!(published.generation.number(), 1);
//! assert_eq!(std::fs::read(dir.path().join("token"))?, b"first");
//! # Ok(())
//! # }
//! ```

pub mod audit;
mod classes;
mod compare_generation;
mod csi;
mod directory;
mod error;
mod fail_point;
mod file_path;
mod generation;
mod kubernetes;
mod marker;
mod memory;
mod memory_limit;
mod metrics;
mod mount;
mod mount_table;
pub mod older_credential;
mod payload;
pub mod policy;
mod provider;
mod publish_request;
mod publisher;
mod registration;
mod reporter;
pub mod rotation;
mod server;
mod sync;
mod target_path;
mod volume;
mod volume_attribute;
mod volume_links;
mod volume_step;
mod wire_token;

pub use classes::{ClassError, ClassSource, InMemoryClassSource};
pub use csi::{DriverName, ParseDriverNameError};
pub use directory::{DiskOperation, VolumeDiskError};
pub use error::PublishError;
#[cfg(feature = "crash-points")]
pub use fail_point::{CrashPoint, ParseCrashPointError};
pub use file_path::{FilePath, FilePathProblem, MAX_COMPONENT, MAX_PATH, ParseFilePathError};
pub use generation::{ParseGenerationError, SCRUB_GRACE, VolumeGeneration};
pub use kubernetes::{
    ClassChange, KubeClassCache, KubeClassCacheSettings, KubeReporter, KubeReporterSettings,
    NodeKubernetesApi, PodEventQueue,
};
pub use marker::{MountedObject, VolumeLastError};
pub use memory::{CacheMemoryShare, FetchMemory, MemoryAccount};
pub use memory_limit::{MemoryPurpose, VolumesMemoryLimitError};
pub use metrics::{
    MeteredProvider, MeteredReporter, NodeMetrics, PodStatusWriteResult, PolicyDecision, ReadKind,
};
pub use mount::{MountOperation, TmpfsMount, TmpfsMountError};
pub use payload::{FileEntry, PayloadProblem};
#[cfg(feature = "fuzzing")]
pub use provider::fuzzing;
pub use provider::{
    AzureProvider, AzureProviderSettings, ObjectTimestamps, ParseProviderNameError, PodOverrides,
    Provider, ProviderError, ProviderFile, ProviderName, ProviderObjectVersion, ProviderRegistry,
    ProviderRequest, ProviderResponse, ProviderServer, SocketProviderSettings, SocketProviders,
    StaleResponse, Urgency,
};
pub use publish_request::{
    InvalidPublishRequest, ParseTokensError, PublishRequest, PublishRequestProblem,
    VolumeRequestParser,
};
pub use publisher::{
    NodeMemoryUsage, PublishFailure, Publisher, PublisherParts, PublisherSettings, RecoveryOutcome,
    RefreshOutcome, VolumeSnapshot,
};
pub use registration::{RegistrationRejectedError, RegistrationSettings};
pub use reporter::{
    NoopReporter, PodEvent, PodEventKind, PollResult, Reporter, StatusReportError,
    VolumeStatusUpdate,
};
pub use server::{
    NodePluginServer, NodePluginServerParts, NodePluginServerSettings, NodeServeError,
};
pub use sync::{SecretSync, SecretSyncHealth, SecretSyncSettings};
pub use volume::{AtomicVolume, PublishOutcome, ScrubOutcome, VolumeChange};
pub use volume_step::{VolumeOperation, VolumeStep};
