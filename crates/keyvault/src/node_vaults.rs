//! The vaults of a node: one read for all volumes that ask for the same, as the same reader.

mod outages;
mod volume_read;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::ProviderParameters;
use lanyard_clock::SharedClock;
use lanyard_credential::RetryClass;
use lanyard_vocabulary::Cloud;

use self::outages::VaultOutages;
use self::volume_read::{SharedReadKey, VolumeRead};
use crate::cloud::{VaultCloud, VaultCloudError};
use crate::decode::{DecodedFiles, MountedFile, VolumeDecoder, VolumeFileOptions};
use crate::error::VaultReadError;
use crate::fetch::{
    FetchedEntryObject, FetchedVaultObject, ReadError, VolumeReadLimits, fetch_entries,
};
use crate::files::FetchError;
use crate::memory::{CacheMemory, ReadMemory};
use crate::pod::{PodCredentials, VolumePod};
use crate::reader::{ReaderIdentityError, identify_reader};
use crate::reader_sessions::{NodeTransports, ReaderCredentialError, ReaderSessions};
use crate::shared_reads::{Freshness, SharedReads};
use crate::source::ListedVersion;
use crate::stale_cache::StaleCache;

/// How a node reads vaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVaultSettings {
    /// The cloud of classes that name none (`--cloud-name`).
    pub cloud: Cloud,
    /// Where the files are that classes of an Azure Stack name (`--cloud-env-dir`): nobody but the
    /// owner of the node writes there.
    pub cloud_env_dir: PathBuf,
    /// How files are written.
    pub files: VolumeFileOptions,
    /// How long a value is kept at least for those who take what is not new; it is kept as long
    /// as the greatest [`Freshness::max_age`] that was asked for it.
    pub cache_retention: Duration,
    /// How many bytes the files of one volume may have together.
    pub max_content_bytes: u64,
}

impl Default for NodeVaultSettings {
    /// The public cloud, the files of Azure Stacks where a node of one has its own, files as
    /// upstream of 32 MiB together, and values kept for two minutes: the default interval of rotation.
    fn default() -> Self {
        Self {
            cloud: Cloud::Public,
            cloud_env_dir: PathBuf::from("/etc/kubernetes"),
            files: VolumeFileOptions::default(),
            cache_retention: Duration::from_mins(2),
            max_content_bytes: 32 * 1024 * 1024,
        }
    }
}

/// What is read for one volume.
#[derive(Debug, Clone, Copy)]
pub struct VolumeReadRequest<'a> {
    /// What the class asks for.
    pub parameters: &'a ProviderParameters,
    /// Whose volume it is.
    pub pod: &'a VolumePod,
    /// What the pod brings to prove who it is.
    pub credentials: &'a PodCredentials,
    /// How new it has to be, and who waits.
    pub freshness: Freshness,
    /// The greatest age of what is served from the sealed cache while the vault is not there, to
    /// those who cannot begin without it ([`RequestPriority::High`](lanyard_azure::RequestPriority)); nothing
    /// where the class does not opt in. What is read for those who opt in is kept, whoever waits.
    pub serve_stale: Option<Duration>,
    /// The memory that reading takes.
    pub memory: &'a dyn ReadMemory,
}

/// What was read for one volume.
#[derive(Debug)]
pub struct VolumeReadResult {
    /// The files, in the order of the entries.
    pub files: Vec<MountedFile>,
    /// Where the sealed cache answered for the vault: the outage in which it did.
    pub outage: Option<VaultOutage>,
}

/// A vault is not there for a reader.
#[derive(Debug)]
pub struct VaultOutage {
    /// Since when, as far as this process knows.
    pub since: Timestamp,
    /// What the volume would have been refused with: the first read that failed.
    pub error: ReadError,
}

/// A volume's files could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeVaultError {
    /// The endpoints of the cloud are not known.
    #[error(transparent)]
    Cloud(#[from] VaultCloudError),
    /// The pod does not bring what the class's identity needs.
    #[error(transparent)]
    Identity(#[from] ReaderIdentityError),
    /// There is no credential for the reader.
    #[error(transparent)]
    Reader(#[from] ReaderCredentialError),
    /// The token service gave no token for the vault.
    #[error(transparent)]
    Token(VaultReadError),
    /// The vault did not give an object, or it cannot become its file.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl NodeVaultError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cloud(error) => Some(error.hint().to_owned()),
            Self::Identity(error) => Some(error.hint()),
            Self::Reader(error) => error.hint(),
            Self::Token(error) => error.hint(),
            Self::Fetch(error) => error.hint(),
        }
    }

    /// Whether and when the same order may succeed.
    pub fn retry(&self) -> RetryClass {
        match self {
            Self::Cloud(_) | Self::Reader(_) => RetryClass::Invalid,
            Self::Identity(error) => error.retry(),
            Self::Token(error) => error.retry(),
            Self::Fetch(error) => error.retry(),
        }
    }

    /// For how long nobody asks the vault, where it was not asked because it failed others.
    pub fn circuit_open_for(&self) -> Option<Duration> {
        match self {
            Self::Fetch(FetchError::Read(error)) => error.circuit_open_for(),
            _ => None,
        }
    }
}

/// The vaults of a node.
///
/// Reads are shared by everybody whom Azure answers alike: the same managed identity of the node,
/// the same service account with the same client id, the same service principal with the same
/// secret. Nobody else is served what they read.
#[derive(Debug)]
pub struct NodeVaults {
    clock: SharedClock,
    settings: NodeVaultSettings,
    sessions: ReaderSessions,
    objects: SharedReads<SharedReadKey, FetchedVaultObject>,
    version_lists: SharedReads<SharedReadKey, Vec<ListedVersion>>,
    outages: VaultOutages,
    stale: Option<Arc<StaleCache>>,
}

impl NodeVaults {
    /// The vaults over these ways. Without a `stale` cache nothing is ever served from one.
    pub fn new(
        settings: NodeVaultSettings,
        ways: NodeTransports,
        stale: Option<StaleCache>,
        clock: SharedClock,
    ) -> Self {
        Self {
            sessions: ReaderSessions::new(ways, Arc::clone(&clock)),
            objects: SharedReads::new(Arc::clone(&clock), settings.cache_retention),
            version_lists: SharedReads::new(Arc::clone(&clock), settings.cache_retention),
            outages: VaultOutages::default(),
            stale: stale.map(Arc::new),
            settings,
            clock,
        }
    }

    /// Gets the token with which the vault of a class is read, without a request to the vault.
    /// Returns when the token expires. [`NodeVaults::fetch`] uses the same cached token.
    ///
    /// # Errors
    ///
    /// [`NodeVaultError`]: unknown cloud, missing proof of identity, or the token service's error.
    pub async fn authenticate(
        &self,
        parameters: &ProviderParameters,
        pod: &VolumePod,
        proofs: &PodCredentials,
    ) -> Result<Timestamp, NodeVaultError> {
        let cloud = self.load_cloud(parameters).await?;
        let scope = format!("https://{}/.default", cloud.vault_suffix);
        let identified = identify_reader(parameters, cloud, pod, proofs, self.clock.now())?;
        let open = self.sessions.open_session(&identified)?;
        let token = open.token(&scope).await;
        let token =
            token.map_err(|source| NodeVaultError::Token(VaultReadError::Token { source }))?;
        let expires = Timestamp::from_second(token.expires_on.unix_timestamp());
        Ok(expires.unwrap_or(Timestamp::MAX))
    }

    /// Reads what a class asks for and makes the files of a volume.
    ///
    /// # Errors
    ///
    /// [`NodeVaultError`]: the first thing that is wrong, in the order in which it is needed.
    pub async fn fetch(
        &self,
        order: &VolumeReadRequest<'_>,
    ) -> Result<VolumeReadResult, NodeVaultError> {
        let parameters = order.parameters;
        let cloud = self.load_cloud(parameters).await?;
        let host = cloud.vault_host(&parameters.vault_name);
        let now = self.clock.now();
        let identified = identify_reader(parameters, cloud, order.pod, order.credentials, now)?;
        let open = self.sessions.open_session(&identified)?;
        let read = VolumeRead::new(self, order, identified.reader, open, host);
        let limits = VolumeReadLimits {
            max_content_bytes: self.settings.max_content_bytes,
            memory: order.memory,
        };
        let objects =
            fetch_entries(&parameters.objects, &read, limits).await.map_err(FetchError::from)?;
        let decoded = self.decode_objects(&objects, order.memory).await?;
        for warning in &decoded.warnings {
            tracing::warn!(pod = %order.pod, vault = %parameters.vault_name, "{warning}");
        }
        Ok(VolumeReadResult { files: decoded.files, outage: read.into_outage() })
    }

    async fn load_cloud(
        &self,
        parameters: &ProviderParameters,
    ) -> Result<VaultCloud, VaultCloudError> {
        let cloud = parameters.cloud.unwrap_or(self.settings.cloud);
        let file = parameters.cloud_env_file.as_deref();
        VaultCloud::load(cloud, file, &self.settings.cloud_env_dir).await
    }

    /// Decodes one object after the other, each with its memory taken first.
    async fn decode_objects(
        &self,
        objects: &[FetchedEntryObject],
        memory: &dyn ReadMemory,
    ) -> Result<DecodedFiles, FetchError> {
        let mut decoder = VolumeDecoder::new(self.settings.files);
        for fetched in objects {
            let room = decoder.required_memory(fetched);
            if room > 0 {
                let taken = memory.reserve_read_memory(room).await;
                taken.map_err(|source| ReadError::NotEnoughMemory {
                    object: fetched.reference(),
                    source,
                })?;
            }
            let kept = decoder.decode_object(fetched)?;
            if room > 0 {
                memory.finish_read(room, kept);
            }
        }
        Ok(decoder.finish())
    }

    /// Lets what was read be cached only within `reads`, and what is sealed for outages be kept in
    /// memory only within `sealed`.
    #[must_use]
    pub fn with_cache_memory(
        mut self,
        reads: &Arc<dyn CacheMemory>,
        sealed: Arc<dyn CacheMemory>,
    ) -> Self {
        self.objects.set_cache_memory(Arc::clone(reads));
        self.version_lists.set_cache_memory(Arc::clone(reads));
        if let Some(stale) = &mut self.stale
            && let Some(stale) = Arc::get_mut(stale)
        {
            stale.set_cache_memory(sealed);
        }
        self
    }

    /// Drops cached values, the oldest first, until they take `bytes` less or there are none. What
    /// is sealed for outages stays.
    pub fn evict(&self, bytes: u64) {
        let evicted = self.objects.evict(bytes);
        self.version_lists.evict(bytes.saturating_sub(evicted));
    }
}

#[cfg(test)]
mod tests;
