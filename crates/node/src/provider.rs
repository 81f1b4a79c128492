//! Who fills volumes: the seam between publishing and the providers.
//!
//! The Key Vault provider is in this process; any other is asked over its socket, with the
//! protocol of the Secrets Store CSI driver. The publisher does not know which it talks to.

mod attributes;
mod azure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod name;
mod provider_server;
mod registry;
mod socket;
mod tokens;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_keyvault::{
    MemoryExhausted, PodCredentials, ReadMemory, RetryClass, SharedSecretBytes, VolumePod,
};
use lanyard_vocabulary::{OutcomeCode, RecoveryMode};

use crate::file_path::FilePath;
use crate::payload::FileEntry;

pub use attributes::PodOverrides;
pub use azure::{AzureProvider, AzureProviderSettings};
pub use name::{ParseProviderNameError, ProviderName};
pub use provider_server::ProviderServer;
pub(crate) use provider_server::hold_memory_until_sent;
pub use registry::ProviderRegistry;
pub use socket::{SocketProviderSettings, SocketProviders};

/// Fills volumes.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// What the volume of this request shall hold.
    ///
    /// # Errors
    ///
    /// A [`ProviderError`] that says what was tried, what came back and what to do next.
    async fn fetch(&self, request: &ProviderRequest<'_>)
    -> Result<ProviderResponse, ProviderError>;
}

/// What a provider is asked for.
#[derive(Debug, Clone, Copy)]
pub struct ProviderRequest<'a> {
    /// The class of the volume.
    pub class: &'a SecretProviderClass,
    /// Whose volume it is.
    pub pod: &'a VolumePod,
    /// The volume's attributes as the kubelet gave them, without tokens.
    pub attributes: &'a BTreeMap<String, String>,
    /// What the pod brings to prove who it is.
    pub proofs: &'a PodCredentials,
    /// Where the volume is; other people's providers are told.
    pub target: &'a str,
    /// What waits for the answer.
    pub urgency: Urgency,
    /// What the volume holds now; empty at the first publish.
    pub mounted: &'a [ProviderObjectVersion],
    /// The memory that the filling takes.
    pub memory: &'a dyn ReadMemory,
}

/// What waits for the answer of a provider. A pod that starts outranks a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A pod cannot start without it.
    Mount,
    /// Somebody asked for it: the force-refresh annotation. Nothing cached is good enough.
    ForceRefresh,
    /// The volume is mounted; it is time to look again.
    Rotation,
}

/// The version of an object in a volume, as the pod status lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderObjectVersion {
    /// The id: of Key Vault `<type>/<name>`, and `/<place>` in a history.
    pub id: String,
    /// The version.
    pub version: String,
}

/// What a volume shall hold: all of it.
#[derive(Debug)]
pub struct ProviderResponse {
    /// The files.
    pub files: Vec<ProviderFile>,
    /// The versions of the objects, sorted by id, each id once.
    pub versions: Vec<ProviderObjectVersion>,
    /// What is known about the times of each object, by id. Other people's providers know none.
    pub timestamps: BTreeMap<String, ObjectTimestamps>,
    /// Where the vault could not be read and the node's cache answered: why.
    pub stale: Option<StaleResponse>,
}

impl ProviderResponse {
    /// The files as [`AtomicVolume::publish`](crate::AtomicVolume::publish) takes them, owned by `group`. Where
    /// the provider names no mode it is 0644, or 0640 for a group.
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

/// Why a filling is of the past.
#[derive(Debug, Clone)]
pub struct StaleResponse {
    /// Since when the vault could not be read, as far as this process knows.
    pub since: Timestamp,
    /// What the volume would have been refused with.
    pub fetch_error: ProviderError,
}

/// A file of a volume.
#[derive(Debug)]
pub struct ProviderFile {
    /// Where in the volume.
    pub path: FilePath,
    /// The permission bits; nothing leaves the choice to the publisher (0644, or 0640 for the
    /// pod's group).
    pub mode: Option<u32>,
    /// The bytes.
    pub content: SharedSecretBytes,
    /// The id of the object that it was made from, where the provider says it.
    pub object: Option<String>,
}

/// The times of an object, from the vault's attributes and tags and from a credential document;
/// never the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectTimestamps {
    /// When the version was created in the vault.
    pub created: Option<Timestamp>,
    /// When what it holds begins to be valid.
    pub not_before: Option<Timestamp>,
    /// When what it holds ends to be valid.
    pub not_after: Option<Timestamp>,
    /// From when on a newer one is to be expected.
    pub renew_after: Option<Timestamp>,
    /// Whether the content is a credential: only then is an older one refused.
    pub is_credential: bool,
}

/// A volume was not filled.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// The stable code.
    pub code: OutcomeCode,
    /// What was tried and what came back, causes included; no secrets.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// Whether and when the same request may succeed.
    pub retry: RetryClass,
    /// For how long nobody asks, where nobody was asked for this either: others have found out that
    /// there is no answer. Where it is given, this is no failure of the volume's own.
    pub suppressed_for: Option<Duration>,
}

impl ProviderError {
    /// A refusal with the hint and the retry class of its code.
    pub fn new(code: OutcomeCode, message: impl Into<String>) -> Self {
        let retry = match code.recovery_mode() {
            RecoveryMode::Never => RetryClass::Invalid,
            RecoveryMode::ByItself => RetryClass::Transient,
        };
        let hint = code.hint().to_owned();
        Self { code, message: message.into(), hint, retry, suppressed_for: None }
    }

    /// The refusal of a volume for which the node has no memory.
    pub(crate) fn from_memory_exhausted(exhausted: MemoryExhausted) -> Self {
        let refusal = Self::new(OutcomeCode::VolumeMemoryExhausted, exhausted.message);
        let retry =
            if exhausted.exceeds_node_capacity { RetryClass::Invalid } else { refusal.retry };
        Self { retry, ..refusal }.with_hint(exhausted.hint)
    }

    /// The same with a better hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}
