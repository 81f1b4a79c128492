//! The vault client of a node: shares one read between all volumes that request the same object as the same
//! reader.

mod outages;
mod volume_read;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::ProviderParameters;
use lanyard_clock::{ErrorHint, RetryClass, SharedClock};
use lanyard_vocabulary::Cloud;

use self::outages::VaultOutages;
use self::volume_read::{SharedReadKey, VolumeRead};
use crate::cloud::{VaultCloud, VaultCloudError};
use crate::decode::{DecodeWarning, DecodedFiles, MountedFile, VolumeDecoder, VolumeFileOptions};
use crate::error::VaultReadError;
use crate::fetch::{FetchedEntryObject, ReadError, VolumeReadLimits, fetch_entries};
use crate::files::FetchError;
use crate::memory::{CacheMemory, ReadMemory};
use crate::pod::{PodCredentials, VolumePod};
use crate::reader::{ReaderIdentityError, identify_reader};
use crate::reader_sessions::{NodeTransports, ReaderCredentialError, ReaderSessions};
use crate::shared_reads::{Freshness, SharedReads};
use crate::source::{FetchedVaultObject, ListedVersion};
use crate::stale_cache::StaleCache;

/// Settings of [`NodeVaults`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVaultSettings {
    /// The default cloud of classes (`--cloud-name`).
    pub cloud: Cloud,
    /// The directory of environment files for Azure Stack (`--cloud-env-dir`). Only the node's owner may
    /// write to it.
    pub cloud_env_dir: PathBuf,
    /// Options for writing files.
    pub files: VolumeFileOptions,
    /// The minimum time for which a value is cached. It is cached longer if a reader accepts a greater
    /// [`Freshness::max_age`].
    pub cache_retention: Duration,
    /// The maximum total size of the files of one volume, in bytes.
    pub max_content_bytes: u64,
}

impl Default for NodeVaultSettings {
    /// The public cloud, the environment directory of Azure Stack nodes, the upstream file options with 32
    /// MiB per volume, and a cache retention of two minutes: the default rotation interval.
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

/// A request to read the objects of one volume.
#[derive(Debug, Clone, Copy)]
pub struct VolumeReadRequest<'a> {
    /// The parameters of the class.
    pub parameters: &'a ProviderParameters,
    /// The pod of the volume.
    pub pod: &'a VolumePod,
    /// The credentials of the pod.
    pub credentials: &'a PodCredentials,
    /// The required freshness, and the priority of the read.
    pub freshness: Freshness,
    /// The maximum age of values from the sealed cache, which starting pods
    /// ([`RequestPriority::High`](lanyard_azure::RequestPriority)) may get during an outage of the vault;
    /// `None` if the class does not opt in. Values for classes that opt in are stored in the sealed cache at
    /// any priority.
    pub serve_stale: Option<Duration>,
    /// The memory account of the volume.
    pub memory: &'a dyn ReadMemory,
}

/// The result of reading a volume.
#[derive(Debug)]
pub struct VolumeReadResult {
    /// The files, in the order of the entries.
    pub files: Vec<MountedFile>,
    /// Warnings about the objects.
    pub warnings: Vec<DecodeWarning>,
    /// The outage during which the sealed cache served a value, if it did.
    pub outage: Option<VaultOutage>,
}

/// An outage of a vault for one reader.
#[derive(Debug)]
pub struct VaultOutage {
    /// The start of the outage, as far as this process knows.
    pub since: Timestamp,
    /// The error without the sealed cache: the first read that failed.
    pub error: ReadError,
}

/// Errors of reading the objects of a volume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeVaultError {
    /// The cloud's endpoints cannot be determined.
    #[error(transparent)]
    Cloud(#[from] VaultCloudError),
    /// The identity that the SecretProviderClass selects cannot be used.
    #[error(transparent)]
    Identity(#[from] ReaderIdentityError),
    /// The reader's credential cannot be created.
    #[error(transparent)]
    Reader(#[from] ReaderCredentialError),
    /// The token service issued no token for the vault.
    #[error(transparent)]
    Token(VaultReadError),
    /// An object could not be read, or cannot be converted to its file.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl NodeVaultError {
    /// Whether and when the request may succeed.
    pub fn retry(&self) -> RetryClass {
        match self {
            Self::Cloud(_) | Self::Reader(_) => RetryClass::Invalid,
            Self::Identity(error) => error.retry(),
            Self::Token(error) => error.retry(),
            Self::Fetch(error) => error.retry(),
        }
    }

    /// How long the circuit breaker stays open, if it rejected the read.
    pub fn circuit_open_for(&self) -> Option<Duration> {
        match self {
            Self::Fetch(FetchError::Read(error)) => error.circuit_open_for(),
            _ => None,
        }
    }
}

impl ErrorHint for NodeVaultError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Cloud(error) => error.hint(),
            Self::Identity(error) => error.hint(),
            Self::Reader(error) => error.hint(),
            Self::Token(error) => error.hint(),
            Self::Fetch(error) => error.hint(),
        }
    }
}

/// The vault client of a node.
///
/// Reads are shared by readers that are equal to Azure: the same managed identity of the node, the same
/// service account with the same client id, or the same service principal with the same secret. Other readers
/// never get their results.
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
    /// Creates a client over these transports. Without a `stale` cache, no stale value is ever served.
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

    /// Gets the token for the vault of a class, without a request to the vault. Returns the expiry of the
    /// token. [`NodeVaults::fetch`] uses the same cached token.
    ///
    /// # Errors
    ///
    /// Returns a [`NodeVaultError`]: unknown cloud, missing pod credentials, or the token service's error.
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

    /// Reads the objects of a class and converts them to the files of a volume.
    ///
    /// # Errors
    ///
    /// Returns a [`NodeVaultError`] for the first failure.
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
        let DecodedFiles { files, warnings } = decoded;
        Ok(VolumeReadResult { files, warnings, outage: read.into_outage() })
    }

    async fn load_cloud(
        &self,
        parameters: &ProviderParameters,
    ) -> Result<VaultCloud, VaultCloudError> {
        let cloud = parameters.cloud.unwrap_or(self.settings.cloud);
        let file = parameters.cloud_env_file.as_deref();
        VaultCloud::load(cloud, file, &self.settings.cloud_env_dir).await
    }

    /// Decodes the objects one by one, and reserves the memory of each first.
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
            let retained = if room > 0 && fetched.object.is_certificate_secret() {
                let (object, held) = (fetched.clone(), memory.hold_reservations());
                let (returned, retained) = run_blocking(move || {
                    let _held = held;
                    let retained = decoder.decode_object(&object);
                    (decoder, retained)
                })
                .await;
                decoder = returned;
                retained?
            } else {
                decoder.decode_object(fetched)?
            };
            if room > 0 {
                memory.finish_read(room, retained);
            }
        }
        Ok(decoder.finish())
    }

    /// Sets the memory accounts: `reads` limits cached values, and `sealed` limits the sealed cache in
    /// memory.
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

    /// Drops the oldest cached values until `bytes` are freed or the cache is empty. The sealed cache is not
    /// affected.
    pub fn evict(&self, bytes: u64) {
        let evicted = self.objects.evict(bytes);
        self.version_lists.evict(bytes.saturating_sub(evicted));
    }
}

/// Runs work that takes long on a thread for it. Opening an archive may take tenths of a second.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and drops this future.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests;
