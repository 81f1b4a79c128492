//! The [`Provider`] trait, its request, its response and its error.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_clock::RetryClass;
use lanyard_keyvault::{MemoryExhausted, PodCredentials, ReadMemory, SharedSecretBytes, VolumePod};
use lanyard_vocabulary::{OutcomeCode, RecoveryMode};
use lanyard_volume::{FileEntry, FilePath};

/// Fetches the content of volumes.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// Fetches the complete content of the volume in the request.
    ///
    /// # Errors
    ///
    /// Returns a [`ProviderError`] that states what was tried, what came back and what to do next.
    async fn fetch(&self, request: &ProviderRequest<'_>)
    -> Result<ProviderResponse, ProviderError>;
}

/// The input of [`Provider::fetch`]: one volume, its SecretProviderClass and its pod.
#[derive(Debug, Clone, Copy)]
pub struct ProviderRequest<'a> {
    /// The SecretProviderClass of the volume.
    pub class: &'a SecretProviderClass,
    /// The pod that mounts the volume.
    pub pod: &'a VolumePod,
    /// The volume attributes from the kubelet, without tokens.
    pub attributes: &'a BTreeMap<String, String>,
    /// The pod's credentials: its ServiceAccount tokens and node publish secrets.
    pub pod_credentials: &'a PodCredentials,
    /// The path at which the volume is mounted. Only external providers use it.
    pub target: &'a str,
    /// The reason for this fetch.
    pub urgency: Urgency,
    /// The object versions in the mounted volume; empty at the first publish.
    pub mounted: &'a [ProviderObjectVersion],
    /// The memory account from which the response is reserved.
    pub memory: &'a dyn ReadMemory,
}

/// The reason for a fetch. A starting pod has priority over a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A starting pod waits for the volume.
    Mount,
    /// The force-refresh annotation requested the fetch. The provider must not answer from a cache.
    ForceRefresh,
    /// A periodic poll of a mounted volume.
    Rotation,
}

/// The version of an object in a volume, as the pod status lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderObjectVersion {
    /// The object id. Key Vault ids are `<type>/<name>`, followed by `/<index>` for an object with a version
    /// history.
    pub id: String,
    /// The version of the object.
    pub version: String,
}

/// The complete content of a volume, as a provider returns it.
#[derive(Debug)]
pub struct ProviderResponse {
    /// The files of the volume.
    pub files: Vec<ProviderFile>,
    /// The versions of the objects, sorted by id, each id once.
    pub versions: Vec<ProviderObjectVersion>,
    /// The known timestamps of each object, by id. External providers supply none.
    pub timestamps: BTreeMap<String, ObjectTimestamps>,
    /// Warnings about the content, for events on the pod; no secrets. External providers supply none.
    pub warnings: Vec<String>,
    /// Set if the response comes from the node's cache, because the vault could not be read.
    pub stale: Option<StaleResponse>,
}

impl ProviderResponse {
    /// Returns the files as input of [`AtomicVolume::publish`](lanyard_volume::AtomicVolume::publish), owned by
    /// `group`. The default mode is 0644, or 0640 with a group.
    pub fn file_entries(&self, group: Option<u32>) -> Vec<FileEntry<'_>> {
        let default_mode = if group.is_some() { 0o640 } else { 0o644 };
        let entries = self.files.iter().map(|file| FileEntry {
            path: file.path.clone(),
            content: file.content.expose(),
            mode: file.mode.unwrap_or(default_mode),
            gid: group,
        });
        entries.collect()
    }
}

/// The reason why a response came from the cache.
#[derive(Debug, Clone)]
pub struct StaleResponse {
    /// The start of the outage, as far as this process has observed it.
    pub since: Timestamp,
    /// The error of the failed read.
    pub fetch_error: ProviderError,
}

/// A file of a volume.
#[derive(Debug)]
pub struct ProviderFile {
    /// The path within the volume.
    pub path: FilePath,
    /// The permission bits. With `None`, the publisher uses 0644, or 0640 when the pod has an `fsGroup`.
    pub mode: Option<u32>,
    /// The content.
    pub content: SharedSecretBytes,
    /// The id of the object in the file, if the provider reports it.
    pub object: Option<String>,
}

/// The timestamps of an object, from the vault's attributes and tags and from a credential document. Never
/// contains the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectTimestamps {
    /// When the version was created in the vault.
    pub created: Option<Timestamp>,
    /// Start of the content's validity.
    pub not_before: Option<Timestamp>,
    /// End of the content's validity.
    pub not_after: Option<Timestamp>,
    /// The time after which a newer version is expected.
    pub renew_after: Option<Timestamp>,
    /// Whether the content is a credential. The node rejects older versions of credentials only.
    pub is_credential: bool,
}

/// A provider could not fetch the content of a volume.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// The stable outcome code.
    pub code: OutcomeCode,
    /// The attempted operation and the answer, with causes; contains no secrets.
    pub message: String,
    /// What the user can do next.
    pub hint: String,
    /// Whether and when the same request may succeed.
    pub retry: RetryClass,
    /// Set when the provider sent no request because an earlier failure still suppresses requests: the
    /// remaining time of the suppression. Such an error does not count as a failure of this volume.
    pub suppressed_for: Option<Duration>,
}

impl ProviderError {
    /// Creates an error with the default hint and retry class of `code`.
    pub fn new(code: OutcomeCode, message: impl Into<String>) -> Self {
        let retry = match code.recovery_mode() {
            RecoveryMode::Never => RetryClass::Invalid,
            RecoveryMode::ByItself => RetryClass::Transient,
        };
        let hint = code.hint().to_owned();
        Self { code, message: message.into(), hint, retry, suppressed_for: None }
    }

    /// Creates the error for a volume that exceeds the node's volume memory.
    pub fn from_memory_exhausted(exhausted: MemoryExhausted) -> Self {
        let error = Self::new(OutcomeCode::VolumeMemoryExhausted, exhausted.message);
        let retry = if exhausted.exceeds_node_capacity { RetryClass::Invalid } else { error.retry };
        Self { retry, ..error }.with_hint(exhausted.hint)
    }

    /// Replaces the hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}
