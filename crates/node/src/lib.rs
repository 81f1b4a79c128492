//! The CSI node plugin: publishes secrets into pods as Kubernetes volumes, and rotates them.
//!
//! A [`Publisher`] publishes the volumes that the kubelet requests, rotates their content and unpublishes them.
//! The [`NodePluginServer`] is the CSI node plugin around it. [`ClassSource`](lanyard_provider::ClassSource),
//! [`Provider`](lanyard_provider::Provider) and [`Reporter`] are the traits through which both reach classes,
//! secret stores and the Kubernetes API. `lanyard-volume` writes the files of a volume.

pub mod audit;
mod csi;
mod kubernetes;
mod marker;
mod memory;
mod metrics;
pub mod older_credential;
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
mod volume_attribute;
mod wire_token;

pub use csi::{DriverName, ParseDriverNameError};
pub use kubernetes::{
    ClassChange, KubeClassCache, KubeClassCacheSettings, KubeReporter, KubeReporterSettings,
    NodeKubernetesApi, PodEventQueue,
};
pub use marker::{MountedObject, VolumeLastError};
pub use memory::{CacheMemoryShare, FetchMemory, MemoryAccount};
pub use metrics::{
    MeteredProvider, MeteredReporter, NodeMetrics, PodStatusWriteResult, PolicyDecision, ReadKind,
};
#[cfg(feature = "fuzzing")]
pub use provider::fuzzing;
pub use provider::{
    ParseProviderNameError, PodOverrides, ProviderName, ProviderRegistry, ProviderServer,
    SocketProviderSettings, SocketProviders,
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
