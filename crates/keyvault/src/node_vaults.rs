//! The vaults of a node: one read for all volumes that ask for the same, as the same reader.

mod class_read;
mod outages;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::ProviderParameters;
use lanyard_clock::SharedClock;
use lanyard_credential::RetryClass;
use lanyard_vocabulary::Cloud;

use self::class_read::{ClassRead, ReadKey};
use self::outages::Outages;
use crate::cloud::{CloudError, VaultCloud};
use crate::decode::{DecodedFiles, Decoder, FileOptions, MountedFile};
use crate::error::VaultError;
use crate::fetch::{FetchedObject, ReadError, ReadLimits, VaultObject, fetch_entries};
use crate::files::FetchError;
use crate::memory::{CacheMemory, ReadMemory};
use crate::pod::{Pod, Proofs};
use crate::reader::{IdentityError, identify};
use crate::readers::{NodeWays, ReaderError, Readers};
use crate::shared::{Demand, SharedReads};
use crate::source::ListedVersion;
use crate::stale::StaleCache;

/// How a node reads vaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVaultSettings {
    /// The cloud of classes that name none (`--cloud-name`).
    pub cloud: Cloud,
    /// Where the files are that classes of an Azure Stack name (`--cloud-env-dir`): nobody but the
    /// owner of the node writes there.
    pub cloud_env_dir: PathBuf,
    /// How files are written.
    pub files: FileOptions,
    /// How long a value is kept at least for those who take what is not new; it is kept as long
    /// as the greatest [`Demand::max_age`] that was asked for it.
    pub keep: Duration,
    /// How many bytes the files of one volume may have together.
    pub content_limit: u64,
}

impl Default for NodeVaultSettings {
    /// The public cloud, the files of Azure Stacks where a node of one has its own, files as
    /// upstream of 32 MiB together, and values kept for two minutes: the default interval of rotation.
    fn default() -> Self {
        Self {
            cloud: Cloud::Public,
            cloud_env_dir: PathBuf::from("/etc/kubernetes"),
            files: FileOptions::default(),
            keep: Duration::from_mins(2),
            content_limit: 32 * 1024 * 1024,
        }
    }
}

/// What is read for one volume.
#[derive(Debug, Clone, Copy)]
pub struct ReadOrder<'a> {
    /// What the class asks for.
    pub parameters: &'a ProviderParameters,
    /// Whose volume it is.
    pub pod: &'a Pod,
    /// What the pod brings to prove who it is.
    pub proofs: &'a Proofs,
    /// How new it has to be, and who waits.
    pub demand: Demand,
    /// The greatest age of what is served from the sealed cache while the vault is not there, to
    /// those who cannot begin without it ([`Priority::High`](lanyard_azure::Priority)); nothing
    /// where the class does not opt in. What is read for those who opt in is kept, whoever waits.
    pub serve_stale: Option<Duration>,
    /// The memory that reading takes.
    pub memory: &'a dyn ReadMemory,
}

/// What was read for one volume.
#[derive(Debug)]
pub struct VaultReading {
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
    Cloud(#[from] CloudError),
    /// The pod does not bring what the class's identity needs.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is no credential for the reader.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// The token service gave no token for the vault.
    #[error(transparent)]
    Token(VaultError),
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
    pub fn turned_away(&self) -> Option<Duration> {
        match self {
            Self::Fetch(FetchError::Read(error)) => error.turned_away(),
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
    readers: Readers,
    objects: SharedReads<ReadKey, VaultObject>,
    lists: SharedReads<ReadKey, Vec<ListedVersion>>,
    outages: Outages,
    stale: Option<Arc<StaleCache>>,
}

impl NodeVaults {
    /// The vaults over these ways. Without a `stale` cache nothing is ever served from one.
    pub fn new(
        settings: NodeVaultSettings,
        ways: NodeWays,
        stale: Option<StaleCache>,
        clock: SharedClock,
    ) -> Self {
        Self {
            readers: Readers::new(ways, Arc::clone(&clock)),
            objects: SharedReads::new(Arc::clone(&clock), settings.keep),
            lists: SharedReads::new(Arc::clone(&clock), settings.keep),
            outages: Outages::default(),
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
        pod: &Pod,
        proofs: &Proofs,
    ) -> Result<Timestamp, NodeVaultError> {
        let cloud = self.load_cloud(parameters).await?;
        let scope = format!("https://{}/.default", cloud.vault_suffix);
        let identified = identify(parameters, cloud, pod, proofs, self.clock.now())?;
        let open = self.readers.open(&identified)?;
        let token = open.token(&scope).await;
        let token = token.map_err(|source| NodeVaultError::Token(VaultError::Token { source }))?;
        let expires = Timestamp::from_second(token.expires_on.unix_timestamp());
        Ok(expires.unwrap_or(Timestamp::MAX))
    }

    /// Reads what a class asks for and makes the files of a volume.
    ///
    /// # Errors
    ///
    /// [`NodeVaultError`]: the first thing that is wrong, in the order in which it is needed.
    pub async fn fetch(&self, order: &ReadOrder<'_>) -> Result<VaultReading, NodeVaultError> {
        let parameters = order.parameters;
        let cloud = self.load_cloud(parameters).await?;
        let host = cloud.vault_host(&parameters.vault_name);
        let now = self.clock.now();
        let identified = identify(parameters, cloud, order.pod, order.proofs, now)?;
        let open = self.readers.open(&identified)?;
        let read = ClassRead::new(self, order, identified.reader, open, host);
        let limits = ReadLimits { content: self.settings.content_limit, memory: order.memory };
        let objects =
            fetch_entries(&parameters.objects, &read, limits).await.map_err(FetchError::from)?;
        let decoded = self.decode(&objects, order.memory).await?;
        for warning in &decoded.warnings {
            tracing::warn!(pod = %order.pod, vault = %parameters.vault_name, "{warning}");
        }
        Ok(VaultReading { files: decoded.files, outage: read.into_outage() })
    }

    async fn load_cloud(&self, parameters: &ProviderParameters) -> Result<VaultCloud, CloudError> {
        let cloud = parameters.cloud.unwrap_or(self.settings.cloud);
        let file = parameters.cloud_env_file.as_deref();
        VaultCloud::load(cloud, file, &self.settings.cloud_env_dir).await
    }

    /// Decodes one object after the other, each with its memory taken first.
    async fn decode(
        &self,
        objects: &[FetchedObject],
        memory: &dyn ReadMemory,
    ) -> Result<DecodedFiles, FetchError> {
        let mut decoder = Decoder::new(self.settings.files);
        for fetched in objects {
            let room = decoder.room(fetched);
            if room > 0 {
                let taken = memory.begin(room).await;
                taken
                    .map_err(|source| ReadError::NoRoom { object: fetched.reference(), source })?;
            }
            let kept = decoder.decode(fetched)?;
            if room > 0 {
                memory.end(room, kept);
            }
        }
        Ok(decoder.finish())
    }

    /// Lets what was read be cached only within `reads`, and what is sealed for outages be kept in
    /// memory only within `sealed`.
    #[must_use]
    pub fn caching_in(
        mut self,
        reads: &Arc<dyn CacheMemory>,
        sealed: Arc<dyn CacheMemory>,
    ) -> Self {
        self.objects.cache_in(Arc::clone(reads));
        self.lists.cache_in(Arc::clone(reads));
        if let Some(stale) = &mut self.stale
            && let Some(stale) = Arc::get_mut(stale)
        {
            stale.seal_in(sealed);
        }
        self
    }

    /// Drops cached values, the oldest first, until they take `bytes` less or there are none. What
    /// is sealed for outages stays.
    pub fn evict(&self, bytes: u64) {
        let evicted = self.objects.evict(bytes);
        self.lists.evict(bytes.saturating_sub(evicted));
    }
}

#[cfg(test)]
mod tests;
