//! The credentials of a node's readers, and the vaults that they have open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::http::policies::Policy;
use lanyard_azure::{Asker, Priority, Transport};
use lanyard_clock::SharedClock;
use lanyard_credential::identity as entra;
use lanyard_credential::secret::SecretText;
use lanyard_credential::{
    ClientSecretCredential, HeldTokenCredential, ManagedIdentityCredential, ManagedIdentityId,
    ManagedIdentitySettings, ManagedIdentitySettingsError, ManagedIdentityTransport, TokenError,
    TokenTransport,
};
use lanyard_vocabulary::ClientId;
use parking_lot::Mutex;

use crate::error::VaultError;
use crate::reader::{Exchange, Identified, Proof, Reader, ReaderMode};
use crate::user_agent::{AppendUserAgent, UserAgentSuffix};
use crate::vault::KeyVault;

/// How Azure is reached from a node.
#[derive(Debug, Clone)]
pub struct NodeWays {
    /// The way to vaults.
    pub transport: Transport,
    /// The way to Entra.
    pub entra: TokenTransport,
    /// The way to the instance metadata service.
    pub managed_identity: ManagedIdentityTransport,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: a stand-in for the instance metadata service.
    pub managed_identity_host: Option<String>,
    /// The way to Entra through the cluster's token proxy, for identity bindings.
    pub token_proxy: TokenTransport,
    /// What is added to the user agent of requests to vaults (`--custom-user-agent`).
    pub user_agent: Option<UserAgentSuffix>,
}

/// A reader has no credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// The settings of the managed identity endpoint are wrong.
    #[error("there is no way to the managed identity")]
    ManagedIdentity(#[from] ManagedIdentitySettingsError),
    /// The service account token is none.
    #[error("the service account token cannot be used")]
    Token(#[source] TokenError),
}

impl ReaderError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::ManagedIdentity(error) => error.hint().map(str::to_owned),
            Self::Token(error) => error.hint(),
        }
    }
}

/// The readers of a node.
#[derive(Debug)]
pub(crate) struct Readers {
    ways: NodeWays,
    clock: SharedClock,
    open: Mutex<HashMap<Reader, Arc<OpenReader>>>,
    /// How many were opened.
    opened: AtomicU64,
}

/// A reader's credential, with its tokens, and the vaults that it has open.
#[derive(Debug)]
pub(crate) struct OpenReader {
    credential: Credential,
    asker: Asker,
    vaults: Mutex<HashMap<(String, Priority), KeyVault>>,
    used_at: Mutex<Duration>,
}

#[derive(Debug)]
enum Credential {
    Lasting(Arc<dyn TokenCredential>),
    Held(Arc<HeldTokenCredential>),
}

impl Credential {
    fn shared(&self) -> Arc<dyn TokenCredential> {
        match self {
            Self::Lasting(credential) => Arc::clone(credential),
            Self::Held(credential) => {
                let credential: Arc<HeldTokenCredential> = Arc::clone(credential);
                credential
            }
        }
    }
}

impl OpenReader {
    /// A token for this scope, from the credential's cache where it has one.
    pub(crate) async fn token(&self, scope: &str) -> azure_core::Result<AccessToken> {
        self.credential.shared().get_token(&[scope], None).await
    }
}

impl Readers {
    pub(crate) fn new(ways: NodeWays, clock: SharedClock) -> Self {
        Self { ways, clock, open: Mutex::default(), opened: AtomicU64::new(0) }
    }

    /// The reader with its credential. A newer proof takes the place of the older one, and the
    /// tokens that are cached stay.
    ///
    /// # Errors
    ///
    /// [`ReaderError`] where no credential can be made of the proof.
    pub(crate) fn open(&self, identified: &Identified<'_>) -> Result<Arc<OpenReader>, ReaderError> {
        let now = self.clock.monotonic();
        let mut open = self.open.lock();
        if let Some(reader) = open.get(&identified.reader) {
            *reader.used_at.lock() = now;
            if let (Credential::Held(held), Proof::Token(token)) =
                (&reader.credential, &identified.proof)
            {
                held.replace_token(token.token.expose()).map_err(ReaderError::Token)?;
            }
            return Ok(Arc::clone(reader));
        }
        let credential = self.credential(identified)?;
        let (vaults, used_at) = (Mutex::default(), Mutex::new(now));
        let asker = Asker(self.opened.fetch_add(1, Ordering::Relaxed));
        let reader = Arc::new(OpenReader { credential, asker, vaults, used_at });
        close_idle(&mut open, now);
        open.insert(identified.reader.clone(), Arc::clone(&reader));
        Ok(reader)
    }

    /// The vault at `host`, as `reader` reads it.
    ///
    /// # Errors
    ///
    /// [`VaultError`] where the host is not one that a token may be sent to.
    pub(crate) fn vault(
        &self,
        reader: &OpenReader,
        host: &str,
        priority: Priority,
    ) -> Result<KeyVault, VaultError> {
        let mut vaults = reader.vaults.lock();
        let key = (host.to_owned(), priority);
        if let Some(vault) = vaults.get(&key) {
            return Ok(vault.clone());
        }
        let mut options = self.ways.transport.client_options_at(priority, reader.asker);
        if let Some(suffix) = &self.ways.user_agent {
            let policy: Arc<dyn Policy> = Arc::new(AppendUserAgent::new(suffix.clone()));
            options.per_try_policies.push(policy);
        }
        let url = format!("https://{host}/");
        let vault = KeyVault::new(&url, reader.credential.shared(), options)?;
        if vaults.len() >= MOST_VAULTS {
            // They cost a request each to open again, at most.
            vaults.clear();
        }
        vaults.insert(key, vault.clone());
        Ok(vault)
    }

    fn credential(&self, identified: &Identified<'_>) -> Result<Credential, ReaderError> {
        let Reader { cloud, tenant, mode } = &identified.reader;
        Ok(match (mode, &identified.proof) {
            (ReaderMode::Workload { client_id, through, .. }, Proof::Token(token)) => {
                let way = match through {
                    Exchange::Authority => &self.ways.entra,
                    Exchange::TokenProxy => &self.ways.token_proxy,
                };
                let (tenant, client) = (tenant.clone(), entra_client_id(*client_id));
                let token = token.token.expose();
                let held = HeldTokenCredential::new(tenant, client, &cloud.authority, token, way);
                Credential::Held(held.map_err(ReaderError::Token)?)
            }
            (ReaderMode::ServicePrincipal { client_id, .. }, Proof::Secret(secret)) => {
                // What identified the reader has seen to it that it is text.
                let secret = str::from_utf8(secret.expose()).unwrap_or_default();
                Credential::Lasting(ClientSecretCredential::new(
                    tenant,
                    client_id.clone(),
                    &cloud.authority,
                    SecretText::from(secret),
                    &self.ways.entra,
                ))
            }
            (ReaderMode::ManagedIdentity { client_id }, _) => {
                Credential::Lasting(self.managed_identity(*client_id)?)
            }
            // A mode has its proof: they are made together.
            (ReaderMode::Workload { .. } | ReaderMode::ServicePrincipal { .. }, _) => {
                let problem = "is not there";
                return Err(ReaderError::Token(TokenError::HeldToken { problem }));
            }
        })
    }

    fn managed_identity(
        &self,
        client_id: Option<ClientId>,
    ) -> Result<Arc<ManagedIdentityCredential>, ManagedIdentitySettingsError> {
        let mut settings = ManagedIdentitySettings::default();
        settings.identity = client_id.map(|id| ManagedIdentityId::ClientId(id.to_string()));
        settings.imds_host.clone_from(&self.ways.managed_identity_host);
        ManagedIdentityCredential::sharing(settings, &self.ways.managed_identity)
    }
}

/// A UUID is a client id for Entra, too.
fn entra_client_id(id: ClientId) -> entra::ClientId {
    entra::ClientId::from(id.uuid())
}

/// Drops the readers that nobody has used for long, and the longest idle ones where there are too
/// many. Whoever still reads with one keeps it until then.
fn close_idle(open: &mut HashMap<Reader, Arc<OpenReader>>, now: Duration) {
    open.retain(|_, reader| now.saturating_sub(*reader.used_at.lock()) < IDLE);
    while open.len() >= MOST_READERS {
        let longest = open.iter().min_by_key(|(_, reader)| *reader.used_at.lock());
        let Some(longest) = longest.map(|(reader, _)| reader.clone()) else { return };
        open.remove(&longest);
    }
}

/// Longer than any rotation interval: a volume that is still there comes back within it.
const IDLE: Duration = Duration::from_hours(4);
/// A node has some hundred pods, and most share their identity with others.
const MOST_READERS: usize = 1024;
/// Classes name vaults, and a shared identity reads for every namespace.
const MOST_VAULTS: usize = 256;
