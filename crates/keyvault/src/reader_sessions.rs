//! The sessions of a node's readers: credentials and open vaults.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::http::policies::Policy;
use lanyard_azure::{AzureTransport, FlowId, RequestPriority};
use lanyard_clock::{ErrorHint, SharedClock};
use lanyard_credential::identity as entra;
use lanyard_credential::secret::SecretText;
use lanyard_credential::{
    ClientSecretCredential, InMemoryTokenCredential, ManagedIdentityCredential, ManagedIdentityId,
    ManagedIdentitySettings, ManagedIdentitySettingsError, ManagedIdentityTransport, TokenError,
    TokenTransport,
};
use lanyard_vocabulary::EntraClientId;
use parking_lot::Mutex;

use crate::error::VaultReadError;
use crate::reader::{
    ReaderCredential, ReaderIdentity, TokenExchangeEndpoint, VaultReader, VerifiedReader,
};
use crate::user_agent::{AppendUserAgentPolicy, UserAgentSuffix};
use crate::vault::KeyVault;

/// The transports of a node to Azure services.
#[derive(Debug, Clone)]
pub struct NodeTransports {
    pub vault_transport: AzureTransport,
    pub entra_transport: TokenTransport,
    /// The transport to the instance metadata service.
    pub managed_identity: ManagedIdentityTransport,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: replaces the address of the instance metadata service.
    pub managed_identity_host: Option<String>,
    /// The transport to Entra through the cluster's token proxy, for identity bindings.
    pub token_proxy: TokenTransport,
    /// The suffix of the user agent in requests to vaults (`--custom-user-agent`).
    pub user_agent: Option<UserAgentSuffix>,
}

/// Errors of creating a reader's credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderCredentialError {
    /// The settings of the managed identity endpoint are invalid.
    #[error("the managed identity endpoint cannot be used")]
    ManagedIdentity(#[from] ManagedIdentitySettingsError),
    /// The service account token is malformed.
    #[error("the service account token cannot be used")]
    Token(#[source] TokenError),
}

impl ErrorHint for ReaderCredentialError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::ManagedIdentity(error) => error.hint(),
            Self::Token(error) => error.hint(),
        }
    }
}

/// The sessions of a node's readers.
#[derive(Debug)]
pub(crate) struct ReaderSessions {
    transports: NodeTransports,
    clock: SharedClock,
    sessions: Mutex<HashMap<VaultReader, Arc<ReaderSession>>>,
    /// The number of opened sessions.
    opened_count: AtomicU64,
}

/// A reader's credential with its cached tokens, and its open vaults.
#[derive(Debug)]
pub(crate) struct ReaderSession {
    credential: SessionCredential,
    request_flow: FlowId,
    vaults: Mutex<HashMap<(String, RequestPriority), KeyVault>>,
    last_used: Mutex<Duration>,
}

#[derive(Debug)]
enum SessionCredential {
    SelfRenewing(Arc<dyn TokenCredential>),
    HeldToken(Arc<InMemoryTokenCredential>),
}

impl SessionCredential {
    fn as_token_credential(&self) -> Arc<dyn TokenCredential> {
        match self {
            Self::SelfRenewing(credential) => Arc::clone(credential),
            Self::HeldToken(credential) => {
                let credential: Arc<InMemoryTokenCredential> = Arc::clone(credential);
                credential
            }
        }
    }
}

impl ReaderSession {
    /// Gets a token for a scope, from the credential's cache if possible.
    pub(crate) async fn token(&self, scope: &str) -> azure_core::Result<AccessToken> {
        self.credential.as_token_credential().get_token(&[scope], None).await
    }
}

impl ReaderSessions {
    pub(crate) fn new(transports: NodeTransports, clock: SharedClock) -> Self {
        Self { transports, clock, sessions: Mutex::default(), opened_count: AtomicU64::new(0) }
    }

    /// Opens or reuses the session of a reader. A newer pod credential replaces the older one, and the cached
    /// tokens are kept.
    ///
    /// # Errors
    ///
    /// Returns a [`ReaderCredentialError`] if the credential cannot be created.
    pub(crate) fn open_session(
        &self,
        identified: &VerifiedReader<'_>,
    ) -> Result<Arc<ReaderSession>, ReaderCredentialError> {
        let now = self.clock.monotonic();
        let mut open = self.sessions.lock();
        if let Some(reader) = open.get(&identified.reader) {
            *reader.last_used.lock() = now;
            if let (SessionCredential::HeldToken(held), ReaderCredential::Token(token)) =
                (&reader.credential, &identified.credential)
            {
                held.replace_token(token.token.expose()).map_err(ReaderCredentialError::Token)?;
            }
            return Ok(Arc::clone(reader));
        }
        let credential = self.create_credential(identified)?;
        let (vaults, used_at) = (Mutex::default(), Mutex::new(now));
        let flow = FlowId(self.opened_count.fetch_add(1, Ordering::Relaxed));
        let reader =
            Arc::new(ReaderSession { credential, request_flow: flow, vaults, last_used: used_at });
        close_idle_sessions(&mut open, now);
        open.insert(identified.reader.clone(), Arc::clone(&reader));
        Ok(reader)
    }

    /// Opens the vault at `host` for `reader`.
    ///
    /// # Errors
    ///
    /// Returns a [`VaultReadError`] if a token must not be sent to the host.
    pub(crate) fn open_vault(
        &self,
        reader: &ReaderSession,
        host: &str,
        priority: RequestPriority,
    ) -> Result<KeyVault, VaultReadError> {
        let mut vaults = reader.vaults.lock();
        let key = (host.to_owned(), priority);
        if let Some(vault) = vaults.get(&key) {
            return Ok(vault.clone());
        }
        let mut options = self
            .transports
            .vault_transport
            .client_options_with_priority(priority, reader.request_flow);
        if let Some(suffix) = &self.transports.user_agent {
            let policy: Arc<dyn Policy> = Arc::new(AppendUserAgentPolicy::new(suffix.clone()));
            options.per_try_policies.push(policy);
        }
        let url = format!("https://{host}/");
        let vault = KeyVault::new(&url, reader.credential.as_token_credential(), options)?;
        if vaults.len() >= MAX_VAULTS_PER_SESSION {
            // Opening a vault again costs at most one request.
            vaults.clear();
        }
        vaults.insert(key, vault.clone());
        Ok(vault)
    }

    fn create_credential(
        &self,
        identified: &VerifiedReader<'_>,
    ) -> Result<SessionCredential, ReaderCredentialError> {
        let VaultReader { cloud, tenant, identity: mode } = &identified.reader;
        Ok(match (mode, &identified.credential) {
            (
                ReaderIdentity::WorkloadIdentity { client_id, through, .. },
                ReaderCredential::Token(token),
            ) => {
                let method = match through {
                    TokenExchangeEndpoint::Authority => &self.transports.entra_transport,
                    TokenExchangeEndpoint::TokenProxy => &self.transports.token_proxy,
                };
                let (tenant, client) = (tenant.clone(), entra_client_id(*client_id));
                let token = token.token.expose();
                let held =
                    InMemoryTokenCredential::new(tenant, client, &cloud.authority, token, method);
                SessionCredential::HeldToken(held.map_err(ReaderCredentialError::Token)?)
            }
            (
                ReaderIdentity::ServicePrincipal { client_id, .. },
                ReaderCredential::Secret(secret),
            ) => {
                // `identify_reader` has checked that the secret is text.
                let secret = str::from_utf8(secret.expose()).unwrap_or_default();
                SessionCredential::SelfRenewing(ClientSecretCredential::new(
                    tenant,
                    client_id.clone(),
                    &cloud.authority,
                    SecretText::from(secret),
                    &self.transports.entra_transport,
                ))
            }
            (ReaderIdentity::ManagedIdentity { client_id }, _) => {
                SessionCredential::SelfRenewing(self.managed_identity_credential(*client_id)?)
            }
            // The mode and its credential are created together.
            (
                ReaderIdentity::WorkloadIdentity { .. } | ReaderIdentity::ServicePrincipal { .. },
                _,
            ) => {
                let problem = "is not there";
                return Err(ReaderCredentialError::Token(TokenError::InMemoryToken { problem }));
            }
        })
    }

    fn managed_identity_credential(
        &self,
        client_id: Option<EntraClientId>,
    ) -> Result<Arc<ManagedIdentityCredential>, ManagedIdentitySettingsError> {
        let mut settings = ManagedIdentitySettings::default();
        settings.identity = client_id.map(|id| ManagedIdentityId::ClientId(id.to_string()));
        settings.imds_host.clone_from(&self.transports.managed_identity_host);
        ManagedIdentityCredential::with_shared_transport(
            settings,
            &self.transports.managed_identity,
        )
    }
}

/// Converts a UUID to a client id of the credential crate.
fn entra_client_id(id: EntraClientId) -> entra::ClientId {
    entra::ClientId::from(id.uuid())
}

/// Drops idle sessions, and the longest idle ones if there are too many. A read in progress keeps its session
/// until it ends.
fn close_idle_sessions(open: &mut HashMap<VaultReader, Arc<ReaderSession>>, now: Duration) {
    open.retain(|_, reader| now.saturating_sub(*reader.last_used.lock()) < SESSION_IDLE_TIMEOUT);
    while open.len() >= MAX_SESSIONS {
        let longest = open.iter().min_by_key(|(_, reader)| *reader.last_used.lock());
        let Some(longest) = longest.map(|(reader, _)| reader.clone()) else { return };
        open.remove(&longest);
    }
}

/// Longer than any rotation interval, so that the sessions of mounted volumes stay open.
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_hours(4);
/// A node has a few hundred pods, and most share their identity with others.
const MAX_SESSIONS: usize = 1024;
/// Classes choose the vaults, and a shared identity reads for every namespace.
const MAX_VAULTS_PER_SESSION: usize = 256;
