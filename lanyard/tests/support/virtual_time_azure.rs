//! A local Azure in virtual time: the clock advances only while no request is in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::TokenCredential;
use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request};
use jiff::Timestamp;
use lanyard_azure::{
    ArmClient, AzureTransport, AzureTransportSettings, CallerIdentity, GraphClient, RetryPolicy,
};
use lanyard_clock::{Clock as _, ManualClock, SharedClock, SystemClock};
use lanyard_credential::secret::SecretText;
use lanyard_credential::{ClientSecretCredential, TokenTransport, TokenTransportOptions};
use lanyard_desired::{ValidatedHostedCluster, validate};
use lanyard_emulator::{Emulator, TestCredentials};
use lanyard_vocabulary::{Component, ObjectEncoding, cloud};
use parking_lot::Mutex;
use serde_json::Value;

/// Runs a test with one thread for blocking work, so that [`VirtualTimeAzure::advance`] can wait for that
/// work.
pub(crate) fn run_in_virtual_time(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(test);
}

/// The local Azure, seeded for a cluster.
pub(crate) struct VirtualTimeAzure {
    pub(crate) clock: ManualClock,
    pub(crate) cluster: ValidatedHostedCluster,
    emulator: Emulator,
    in_flight: Arc<AtomicUsize>,
    client: Arc<dyn HttpClient>,
}

impl VirtualTimeAzure {
    pub(crate) async fn start() -> Self {
        let text = include_str!("../../../examples/hostedcluster.yaml");
        let wire = lanyard_api::HostedCluster::parse_yaml(text).unwrap();
        let cluster = validate(&wire).unwrap().hosted_cluster;
        // TLS clients validate certificates with the time of the machine.
        let clock = ManualClock::starting_at(SystemClock::new().now());
        let mut plan = lanyard_up::local_azure_plan(&cluster, None, None);
        for identity in &mut plan.identities {
            identity.encoding = ObjectEncoding::Utf8;
        }
        let shared: SharedClock = Arc::new(clock.clone());
        let emulator =
            Emulator::builder().clock(shared).id_seed("tests").seed(plan).start().await.unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        let (_, client) = transport_and_client(&emulator, &clock, &open);
        Self { clock, cluster, emulator, in_flight: open, client }
    }

    /// A transport to the local Azure, as each process has its own.
    pub(crate) fn transport(&self) -> AzureTransport {
        transport_and_client(&self.emulator, &self.clock, &self.in_flight).0
    }

    /// A transport whose HTTP client is wrapped.
    pub(crate) fn transport_with(
        &self,
        wrap: impl FnOnce(Arc<dyn HttpClient>) -> Arc<dyn HttpClient>,
    ) -> AzureTransport {
        let in_flight = Arc::clone(&self.in_flight);
        let counting = |inner| wrap(Arc::new(InFlightCountingClient { inner, in_flight }));
        let settings = transport_settings(&self.emulator);
        AzureTransport::with_wrapped_client(&settings, self.shared_clock(), counting).unwrap()
    }

    /// A client of the seeded application, which owns the subscription. `wrap` wraps its HTTP client.
    pub(crate) fn owner_client(
        &self,
        wrap: impl FnOnce(Arc<dyn HttpClient>) -> Arc<dyn HttpClient>,
    ) -> ArmClient {
        let credential = self.owner_credential();
        ArmClient::new(&cloud::PUBLIC, credential, &self.transport_with(wrap))
    }

    /// A client of Microsoft Graph of the seeded application.
    pub(crate) fn owner_graph(&self) -> GraphClient {
        GraphClient::new(&cloud::PUBLIC, self.owner_credential(), &self.transport())
    }

    /// The credential of the seeded application.
    pub(crate) fn owner_credential(&self) -> Arc<dyn TokenCredential> {
        let account = self.test_credentials();
        let mut options = TokenTransportOptions::default();
        options.clock = self.shared_clock();
        options.client.transport = Some(self.transport().without_rate_limit());
        ClientSecretCredential::new(
            &account.tenant.as_str().parse().unwrap(),
            account.client_id.uuid().to_string().parse().unwrap(),
            &cloud::PUBLIC.authority_url().parse().unwrap(),
            SecretText::from(account.client_secret()),
            &TokenTransport::new(options),
        )
    }

    /// The seeded application, which owns the subscription.
    pub(crate) async fn owner(&self) -> CallerIdentity {
        let scope = "https://management.azure.com/.default";
        let token = self.owner_credential().get_token(&[scope], None).await.unwrap();
        CallerIdentity::of_token(token.token.secret()).unwrap()
    }

    /// The seeded test credentials.
    pub(crate) fn test_credentials(&self) -> TestCredentials {
        self.emulator.test_credentials().unwrap()
    }

    pub(crate) fn shared_clock(&self) -> SharedClock {
        Arc::new(self.clock.clone())
    }

    /// Advances the time by a duration.
    pub(crate) async fn advance(&self, duration: Duration) {
        let end = self.clock.monotonic() + duration;
        loop {
            self.wait_until_idle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            self.clock.advance(self.clock.time_until_next_deadline().unwrap_or(left).min(left));
        }
    }

    /// Waits until all tasks wait for time to pass.
    async fn wait_until_idle(&self) {
        let mut quiet = 0;
        while quiet < IDLE_ROUNDS {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            // The only blocking thread runs this after all earlier blocking work.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            quiet = if self.in_flight.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
        }
    }

    /// The times of the requests to a service since a time.
    pub(crate) fn requests(&self, service: &str, since: Timestamp) -> Vec<Timestamp> {
        let log = self.emulator.request_log();
        let of_service = log.iter().filter(|entry| entry.service == Some(service));
        of_service.map(|entry| entry.time).filter(|time| *time >= since).collect()
    }

    /// Changes the state of the local Azure through the control API.
    pub(crate) async fn change(&self, method: &str, path: &str, body: &str) {
        let url = format!("{}/lanyard/v1/{path}", self.emulator.proxy_url());
        let mut request = Request::new(url.parse().unwrap(), method.parse().unwrap());
        request.insert_header("x-lanyard-control", "1");
        request.insert_header("content-type", "application/json");
        request.set_body(body.to_owned());
        self.request_json(&request).await;
    }

    /// The credential document of a component, as the node mounts it.
    pub(crate) async fn fetch_document(&self, component: Component) -> String {
        let machine = "metadata/identity/oauth2/token?api-version=2018-02-01";
        let url =
            format!("{}/{machine}&resource=https://vault.azure.net", self.emulator.proxy_url());
        let mut request = Request::new(url.parse().unwrap(), Method::Get);
        request.insert_header("metadata", "true");
        let token = self.request_json(&request).await["access_token"].as_str().unwrap().to_owned();
        let (vault, name) =
            (&self.cluster.vault.name, &self.cluster.identities[&component].secret_name);
        let url = format!("https://{vault}.vault.azure.net/secrets/{name}?api-version=7.5");
        let mut request = Request::new(url.parse().unwrap(), Method::Get);
        request.insert_header("authorization", format!("Bearer {token}"));
        self.request_json(&request).await["value"].as_str().unwrap().to_owned()
    }

    async fn request_json(&self, request: &Request) -> Value {
        let response = self.client.execute_request(request).await.unwrap();
        let status = u16::from(response.status());
        let body = response.try_into_raw_response().await.unwrap();
        let text = String::from_utf8_lossy(body.body().as_ref()).into_owned();
        assert!((200..300).contains(&status), "{status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) async fn shutdown(self) {
        self.emulator.shutdown().await;
    }
}

fn transport_settings(emulator: &Emulator) -> AzureTransportSettings {
    // No retries, as in `lanyard canary`, whose next round is the retry.
    let second = Duration::from_secs(1);
    AzureTransportSettings {
        https_proxy: Some(emulator.proxy_url()),
        trusted_roots_pem: Some(emulator.ca_pem().as_bytes().to_vec()),
        retry: RetryPolicy { retries: 0, base: second, cap: second },
        ..AzureTransportSettings::default()
    }
}

/// Builds a transport, and returns it with its HTTP client.
fn transport_and_client(
    emulator: &Emulator,
    clock: &ManualClock,
    open: &Arc<AtomicUsize>,
) -> (AzureTransport, Arc<dyn HttpClient>) {
    let settings = transport_settings(emulator);
    let retained: Arc<Mutex<Option<Arc<dyn HttpClient>>>> = Arc::default();
    let wrap = |inner| {
        let client: Arc<dyn HttpClient> =
            Arc::new(InFlightCountingClient { inner, in_flight: Arc::clone(open) });
        *retained.lock() = Some(Arc::clone(&client));
        client
    };
    let transport =
        AzureTransport::with_wrapped_client(&settings, Arc::new(clock.clone()), wrap).unwrap();
    let client = retained.lock().clone().unwrap();
    (transport, client)
}

/// Counts the requests in flight, including responses whose body is being read.
#[derive(Debug)]
struct InFlightCountingClient {
    inner: Arc<dyn HttpClient>,
    in_flight: Arc<AtomicUsize>,
}

struct OpenRequestGuard<'a>(&'a AtomicUsize);

impl Drop for OpenRequestGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl HttpClient for InFlightCountingClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let _open = OpenRequestGuard(&self.in_flight);
        let response = self.inner.execute_request(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let whole = response.try_into_raw_response().await?;
        let body = whole.body().as_ref().to_vec();
        Ok(AsyncRawResponse::from_bytes(status, headers, body))
    }
}

const IDLE_ROUNDS: u32 = 4;
