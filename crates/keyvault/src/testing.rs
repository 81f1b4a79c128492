//! A fake Azure in memory for tests of vault readers: it counts, throttles and fails by a manual clock, and
//! each value names the identity that read it.
//!
//! It is not a reference for Azure's behaviour: the emulator is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::{AUTHORIZATION, Headers, USER_AGENT};
use azure_core::http::{
    AsyncRawResponse, Body, ClientOptions, HttpClient, Request, StatusCode, Transport as Wire, Url,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use lanyard_azure::{
    AzureTransport, AzureTransportSettings, CircuitBreakerPolicy, RequestRate, RetryPolicy,
};
use lanyard_clock::{Clock as _, ManualClock, SharedClock};
use lanyard_credential::{ManagedIdentityTransport, TokenTransport, TokenTransportOptions};
use parking_lot::Mutex;

use crate::pod::{PodCredentials, PublishSecrets, ServiceAccountToken, ServiceAccountTokens};
use crate::reader_sessions::NodeTransports;
use crate::secret_bytes::SharedSecretBytes;

/// A failure of a fake service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeAzureFailure {
    /// The service responds with this status.
    Status(u16),
    /// The service is unreachable.
    Unreachable,
    /// The service accepts requests and never responds, until the transport's timeout.
    NoResponse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FakeAzureService {
    /// Key Vault.
    Vaults,
    /// Entra and the instance metadata service.
    Tokens,
}

/// The rate limit of a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeVaultLimit {
    /// The maximum number of requests within [`Self::window`].
    pub requests: usize,
    /// How long a request counts.
    pub window: Duration,
    /// How many of the requests other clients send.
    pub other_client_requests: usize,
    /// The `Retry-After` of throttled responses; `None` omits the header.
    pub retry_after: Option<Duration>,
}

/// A recorded request to a vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeVaultCall {
    /// When the request arrived, in monotonic time.
    pub at: Duration,
    /// The vault's host and the path.
    pub target: String,
    /// The authenticated identity.
    pub identity: String,
    /// The status of the response.
    pub status: u16,
    /// The `User-Agent` header.
    pub user_agent: String,
}

/// A fake Azure. Clones share its state.
#[derive(Clone)]
pub struct FakeAzure {
    clock: ManualClock,
    state: Arc<Mutex<FakeAzureState>>,
}

/// The state that the clones of a [`FakeAzure`] share.
#[derive(Debug, Default)]
struct FakeAzureState {
    /// The secrets by host and name.
    secrets: BTreeMap<String, FakeSecret>,
    /// The status of every response to an identity whose reads are denied.
    denied_identities: BTreeMap<String, u16>,
    failures: BTreeMap<FakeAzureService, FakeAzureFailure>,
    vault_limit: Option<FakeVaultLimit>,
    vault_calls: Vec<FakeVaultCall>,
    /// The identities of the token requests, in order.
    token_requests: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct FakeSecret {
    version: u32,
    value: Option<String>,
    /// Whether the value is the PKCS#12 archive of a certificate.
    is_archive: bool,
    tags: BTreeMap<String, String>,
}

impl FakeAzure {
    /// Creates an Azure without secrets, whose clock starts at noon.
    pub fn new() -> Self {
        let noon = Timestamp::from_second(START_TIME).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { clock: ManualClock::starting_at(noon), state: Arc::default() }
    }

    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The clock as a shared clock.
    pub fn shared_clock(&self) -> SharedClock {
        Arc::new(self.clock.clone())
    }

    /// Adds a new version of a secret in the public cloud.
    pub fn add_secret_version(&self, vault: &str, name: &str) {
        self.state.lock().secret_mut(vault, name).version += 1;
    }

    /// Adds a new version with this value, which does not name the reader.
    pub fn add_secret_value(&self, vault: &str, name: &str, value: impl Into<String>) {
        let mut state = self.state.lock();
        let stored = state.secret_mut(vault, name);
        stored.version += 1;
        stored.value = Some(value.into());
    }

    /// Adds a new version of the secret of a certificate, a PKCS#12 archive in base64.
    pub fn add_certificate_secret(&self, vault: &str, name: &str, archive: impl Into<String>) {
        self.add_secret_value(vault, name, archive);
        self.state.lock().secret_mut(vault, name).is_archive = true;
    }

    /// Sets a tag of a secret.
    pub fn set_tag(&self, vault: &str, name: &str, tag: &str, text: impl Into<String>) {
        self.state.lock().secret_mut(vault, name).tags.insert(tag.to_owned(), text.into());
    }

    /// Responds to every read of `identity` with `status` from now on.
    pub fn deny(&self, identity: impl Into<String>, status: u16) {
        self.state.lock().denied_identities.insert(identity.into(), status);
    }

    /// Sets or clears the failure of a service.
    pub fn set_failure(&self, part: FakeAzureService, failure: Option<FakeAzureFailure>) {
        let mut state = self.state.lock();
        match failure {
            Some(failure) => drop(state.failures.insert(part, failure)),
            None => drop(state.failures.remove(&part)),
        }
    }

    /// Sets the rate limit of vaults.
    pub fn set_vault_limit(&self, limit: Option<FakeVaultLimit>) {
        self.state.lock().vault_limit = limit;
    }

    /// All recorded requests to vaults.
    pub fn calls(&self) -> Vec<FakeVaultCall> {
        self.state.lock().vault_calls.clone()
    }

    /// The number of successful reads.
    pub fn reads(&self) -> usize {
        self.state.lock().vault_calls.iter().filter(|call| call.status == 200).count()
    }

    /// The identities of all token requests, in order.
    pub fn token_requests(&self) -> Vec<String> {
        self.state.lock().token_requests.clone()
    }

    /// Clears the recorded requests.
    pub fn clear_calls(&self) {
        self.state.lock().vault_calls.clear();
    }

    /// The maximum number of requests within any `window`.
    pub fn max_calls_within(&self, window: Duration) -> usize {
        let state = self.state.lock();
        let (mut busiest, mut first) = (0, 0);
        for (last, call) in state.vault_calls.iter().enumerate() {
            while call.at.saturating_sub(state.vault_calls[first].at) >= window {
                first += 1;
            }
            busiest = busiest.max(last + 1 - first);
        }
        busiest
    }

    pub fn azure_transport(
        &self,
        rate: RequestRate,
        breaker: Option<CircuitBreakerPolicy>,
    ) -> AzureTransport {
        let retry = RetryPolicy::default();
        let settings =
            AzureTransportSettings { rate, retry, breaker, ..AzureTransportSettings::default() };
        AzureTransport::from_http_client(Arc::new(self.clone()), &settings, self.shared_clock())
    }

    /// The transports of a node to this Azure.
    pub fn node_transports(
        &self,
        rate: RequestRate,
        breaker: Option<CircuitBreakerPolicy>,
    ) -> NodeTransports {
        let mut options = TokenTransportOptions::default();
        options.clock = self.shared_clock();
        let wire = || Wire::new(Arc::new(self.clone()));
        options.client = ClientOptions { transport: Some(wire()), ..ClientOptions::default() };
        let entra = TokenTransport::new(options.clone());
        NodeTransports {
            vault_transport: self.azure_transport(rate, breaker),
            token_proxy: entra.clone(),
            entra_transport: entra,
            managed_identity: ManagedIdentityTransport::with_http_transport(options, wire()),
            managed_identity_host: None,
            user_agent: None,
        }
    }

    /// Runs `work` to completion, and advances the clock whenever all tasks wait.
    pub async fn run_advancing_clock<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            for _ in 0..YIELDS_UNTIL_IDLE {
                tokio::select! {
                    biased;
                    output = &mut work => return output,
                    () = tokio::task::yield_now() => {}
                }
            }
            if let Some(due) = self.clock.time_until_next_deadline() {
                self.clock.advance(due);
            }
        }
    }

    /// Runs every task until it waits.
    pub async fn run_pending_tasks(&self) {
        for _ in 0..YIELDS_UNTIL_IDLE {
            tokio::task::yield_now().await;
        }
    }

    /// Advances the clock by `duration`, from one sleeper to the next.
    pub async fn advance_clock(&self, duration: Duration) {
        let end = self.clock.monotonic().saturating_add(duration);
        loop {
            self.run_pending_tasks().await;
            let left = end.saturating_sub(self.clock.monotonic());
            let step = self.clock.time_until_next_deadline().map_or(left, |due| due.min(left));
            if step.is_zero() && left.is_zero() {
                return;
            }
            self.clock.advance(step);
        }
    }

    fn has_no_response(&self, request: &Request) -> bool {
        self.state.lock().failures.get(&service_of_request(request))
            == Some(&FakeAzureFailure::NoResponse)
    }

    /// The status, headers and body of the response to a request; `None` if there is no response.
    fn respond(&self, request: &Request) -> Option<(u16, Headers, String)> {
        let part = service_of_request(request);
        let mut state = self.state.lock();
        match part {
            FakeAzureService::Vaults => {
                let (status, headers, body) = state.read_secret(request, self.clock.monotonic())?;
                Some((status, headers, body))
            }
            FakeAzureService::Tokens => {
                let identity = requested_identity(request);
                state.token_requests.push(identity.clone());
                match state.failures.get(&part) {
                    Some(FakeAzureFailure::Unreachable | FakeAzureFailure::NoResponse) => None,
                    Some(FakeAzureFailure::Status(status)) => {
                        let body = if *status == 400 { IDENTITY_NOT_FOUND } else { "" };
                        Some((*status, Headers::new(), body.to_owned()))
                    }
                    None => {
                        let token = URL_SAFE_NO_PAD.encode(identity);
                        let body = format!(
                            r#"{{"token_type":"Bearer","expires_in":86400,"access_token":"{token}"}}"#
                        );
                        Some((200, Headers::new(), body))
                    }
                }
            }
        }
    }
}

/// The reply of the metadata service if the requested identity is not assigned to the host.
const IDENTITY_NOT_FOUND: &str =
    r#"{"error":"invalid_request","error_description":"Identity not found"}"#;

impl Default for FakeAzure {
    fn default() -> Self {
        Self::new()
    }
}

lanyard_vocabulary::debug_text!(FakeAzure, "FakeAzure");

#[async_trait]
impl HttpClient for FakeAzure {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        // Yield before responding, so that other requests can arrive.
        tokio::task::yield_now().await;
        match self.respond(request) {
            Some((status, headers, body)) => {
                Ok(AsyncRawResponse::from_bytes(StatusCode::from(status), headers, body))
            }
            None if self.has_no_response(request) => {
                self.clock.sleep(READ_TIMEOUT).await;
                Err(Error::with_message(ErrorKind::Io, "no answer"))
            }
            None => Err(Error::with_message(ErrorKind::Connection, "connection refused")),
        }
    }
}

impl FakeAzureState {
    fn secret_mut(&mut self, vault: &str, name: &str) -> &mut FakeSecret {
        self.secrets.entry(format!("{vault}.{VAULTS}/secrets/{name}")).or_default()
    }

    /// Handles a read of a vault; `None` if the vault is unreachable.
    fn read_secret(&mut self, request: &Request, now: Duration) -> Option<(u16, Headers, String)> {
        let target = request_target(request.url());
        let token = request.headers().get_optional_str(&AUTHORIZATION).unwrap_or_default();
        let token = URL_SAFE_NO_PAD.decode(token.trim_start_matches("Bearer "));
        let identity = String::from_utf8_lossy(&token.unwrap_or_default()).into_owned();
        let mut headers = Headers::new();
        let status = match self.failures.get(&FakeAzureService::Vaults) {
            Some(FakeAzureFailure::Unreachable | FakeAzureFailure::NoResponse) => 0,
            Some(FakeAzureFailure::Status(status)) => *status,
            None if self.is_throttled(&target, now) => {
                if let Some(pause) = self.vault_limit.and_then(|limit| limit.retry_after) {
                    headers.insert("retry-after", pause.as_secs().to_string());
                }
                429
            }
            None => match self.denied_identities.get(&identity) {
                Some(status) => *status,
                None if !self.secrets.contains_key(&target) => 404,
                None => 200,
            },
        };
        let user_agent = request.headers().get_optional_string(&USER_AGENT).unwrap_or_default();
        let call = FakeVaultCall { at: now, target, identity, status, user_agent };
        let body = self.secret_body(&call);
        self.vault_calls.push(call);
        (status != 0).then_some((status, headers, body))
    }

    /// Whether the vault throttles. Rejected requests count, too.
    fn is_throttled(&self, target: &str, now: Duration) -> bool {
        let Some(limit) = self.vault_limit else { return false };
        let host = |target: &str| target.split('/').next().map(str::to_owned);
        let asked = self.vault_calls.iter().rev();
        let recent = asked.take_while(|call| now.saturating_sub(call.at) < limit.window);
        let ours = recent.filter(|call| host(&call.target) == host(target)).count();
        ours + limit.other_client_requests >= limit.requests
    }

    /// The body of the response to a read of a secret: the secret, or an error.
    fn secret_body(&self, call: &FakeVaultCall) -> String {
        if call.status != 200 {
            return format!(
                r#"{{"error":{{"code":"Planned{}","message":"planned"}}}}"#,
                call.status
            );
        }
        let stored = self.secrets.get(&call.target).cloned().unwrap_or_default();
        let value = stored.value.unwrap_or_else(|| {
            format!("{} version {} for {}", call.target, stored.version, call.identity)
        });
        let (kid, content_type) = if stored.is_archive {
            (Some("https://kv.vault.azure.net/keys/a/1"), Some("application/x-pkcs12"))
        } else {
            (None, None)
        };
        serde_json::json!({
            "value": value,
            "kid": kid,
            "contentType": content_type,
            "id": format!("https://{}/v{}", call.target, stored.version),
            "attributes": {"enabled": true, "created": START_TIME},
            "tags": stored.tags,
        })
        .to_string()
    }
}

fn service_of_request(request: &Request) -> FakeAzureService {
    let host = request.url().host_str().unwrap_or_default();
    if host.ends_with(VAULTS) { FakeAzureService::Vaults } else { FakeAzureService::Tokens }
}

/// The identity that a token request authenticates.
fn requested_identity(request: &Request) -> String {
    let url = request.url();
    if url.path().starts_with("/metadata/") {
        let client = url.query_pairs().find(|(key, _)| key == "client_id");
        let client = client.map_or_else(|| "system".to_owned(), |(_, id)| id.into_owned());
        return format!("managed identity {client}");
    }
    let Body::Bytes(body) = request.body() else { return "unknown".to_owned() };
    let field = |name: &str| {
        let mut fields = url::form_urlencoded::parse(body);
        fields.find(|(key, _)| key == name).map(|(_, text)| text.into_owned())
    };
    let client = field("client_id").unwrap_or_default();
    let tenant = url.path_segments().and_then(|mut path| path.next()).unwrap_or_default();
    let proof = match (field("client_assertion"), field("client_secret")) {
        (Some(assertion), _) => subject_of(&assertion).unwrap_or_default(),
        (_, Some(secret)) => format!("who knows {secret}"),
        _ => "unknown".to_owned(),
    };
    format!("{client} of {tenant} as {proof}")
}

/// The claim `sub` of a JWT.
fn subject_of(jwt: &str) -> Option<String> {
    let payload = URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&payload).ok()?;
    Some(claims.get("sub")?.as_str()?.to_owned())
}

fn request_target(url: &Url) -> String {
    let path = url.path().trim_end_matches('/');
    format!("{}{path}", url.host_str().unwrap_or_default())
}

pub use crate::secret_bytes::live::thread_secret_bytes as live_secret_bytes;

/// The credentials of a pod with one service account token that is valid until `expires`.
pub fn workload_credentials(subject: &str, audience: &str, expires: Timestamp) -> PodCredentials {
    let claims = serde_json::json!({"sub": subject, "aud": audience, "exp": expires.as_second()});
    let jwt = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let token = ServiceAccountToken { token: Arc::new(SharedSecretBytes::from(jwt)), expires };
    let tokens = ServiceAccountTokens([(audience.to_owned(), token)].into());
    PodCredentials { tokens, ..PodCredentials::default() }
}

/// The credentials of a volume with a client id and a secret.
pub fn service_principal_credentials(client_id: &str, secret: &str) -> PodCredentials {
    let value = |text: &str| Arc::new(SharedSecretBytes::from(text.to_owned()));
    let secrets = [("clientid", client_id), ("clientsecret", secret)];
    let secrets = secrets.map(|(key, text)| (key.to_owned(), value(text))).into();
    PodCredentials { secrets: PublishSecrets(secrets), ..PodCredentials::default() }
}

/// The timeout of the program's own transport.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// The DNS suffix of the public cloud.
const VAULTS: &str = "vault.azure.net";
/// 2026-11-21T12:00:00Z.
const START_TIME: i64 = 1_795_262_400;
/// More yields than any test needs.
const YIELDS_UNTIL_IDLE: usize = 64;
