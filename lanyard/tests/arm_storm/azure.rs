//! The local Azure in virtual time: the clock moves while no request is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request};
use jiff::Timestamp;
use lanyard_azure::{RetryPolicy, Transport, TransportSettings};
use lanyard_clock::{Clock as _, ManualClock, SharedClock, SystemClock};
use lanyard_desired::{ValidatedHostedCluster, validate};
use lanyard_emulator::Emulator;
use lanyard_vocabulary::{Component, ObjectEncoding};
use parking_lot::Mutex;
use serde_json::Value;

/// Runs a test with one thread for work that blocks, so that it is known when that is done.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(test);
}

/// The local Azure with the world of a cluster.
pub(crate) struct Azure {
    pub(crate) clock: ManualClock,
    pub(crate) cluster: ValidatedHostedCluster,
    emulator: Emulator,
    open: Arc<AtomicUsize>,
    client: Arc<dyn HttpClient>,
}

impl Azure {
    pub(crate) async fn start() -> Self {
        let text = include_str!("../../../examples/hostedcluster.yaml");
        let wire = lanyard_api::HostedCluster::parse_yaml(text).unwrap();
        let cluster = validate(&wire).unwrap().hosted_cluster;
        // Certificates of TLS are looked at by the time of the machine.
        let clock = ManualClock::starting_at(SystemClock::new().now());
        let mut plan = lanyard_up::world_plan(&cluster, None, None);
        for identity in &mut plan.identities {
            identity.encoding = ObjectEncoding::Utf8;
        }
        let shared: SharedClock = Arc::new(clock.clone());
        let emulator = Emulator::builder().clock(shared).seed(plan).start().await.unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        let (_, client) = way(&emulator, &clock, &open);
        Self { clock, cluster, emulator, open, client }
    }

    /// A way to it, as a process has one.
    pub(crate) fn transport(&self) -> Transport {
        way(&self.emulator, &self.clock, &self.open).0
    }

    pub(crate) fn shared_clock(&self) -> SharedClock {
        Arc::new(self.clock.clone())
    }

    /// Lets so much time pass.
    pub(crate) async fn pass(&self, duration: Duration) {
        let end = self.clock.monotonic() + duration;
        loop {
            self.settle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            self.clock.advance(self.clock.next_due().unwrap_or(left).min(left));
        }
    }

    /// Lets everything run until it waits for time to pass.
    async fn settle(&self) {
        let mut quiet = 0;
        while quiet < QUIET {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            // The one thread for what blocks does this after all that was asked before.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            quiet = if self.open.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
        }
    }

    /// When requests reached a service since then.
    pub(crate) fn requests(&self, service: &str, since: Timestamp) -> Vec<Timestamp> {
        let ledger = self.emulator.ledger();
        let of_service = ledger.iter().filter(|entry| entry.service == Some(service));
        of_service.map(|entry| entry.time).filter(|time| *time >= since).collect()
    }

    /// Changes the world from outside.
    pub(crate) async fn control(&self, method: &str, path: &str, body: &str) {
        let url = format!("{}/lanyard/v1/{path}", self.emulator.proxy_url());
        let mut request = Request::new(url.parse().unwrap(), method.parse().unwrap());
        request.insert_header("x-lanyard-control", "1");
        request.insert_header("content-type", "application/json");
        request.set_body(body.to_owned());
        self.ask(&request).await;
    }

    /// The credential document of a component, as the node would mount it.
    pub(crate) async fn document(&self, component: Component) -> String {
        let machine = "metadata/identity/oauth2/token?api-version=2018-02-01";
        let url =
            format!("{}/{machine}&resource=https://vault.azure.net", self.emulator.proxy_url());
        let mut request = Request::new(url.parse().unwrap(), Method::Get);
        request.insert_header("metadata", "true");
        let token = self.ask(&request).await["access_token"].as_str().unwrap().to_owned();
        let (vault, name) =
            (&self.cluster.vault.name, &self.cluster.identities[&component].secret_name);
        let url = format!("https://{vault}.vault.azure.net/secrets/{name}?api-version=7.5");
        let mut request = Request::new(url.parse().unwrap(), Method::Get);
        request.insert_header("authorization", format!("Bearer {token}"));
        self.ask(&request).await["value"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, request: &Request) -> Value {
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

/// A transport, and the client under it.
fn way(
    emulator: &Emulator,
    clock: &ManualClock,
    open: &Arc<AtomicUsize>,
) -> (Transport, Arc<dyn HttpClient>) {
    // As `lanyard canary` has it: its next round is its retry.
    let second = Duration::from_secs(1);
    let settings = TransportSettings {
        https_proxy: Some(emulator.proxy_url()),
        only_roots: Some(emulator.ca_pem().as_bytes().to_vec()),
        retry: RetryPolicy { retries: 0, base: second, cap: second },
        ..TransportSettings::default()
    };
    let kept: Arc<Mutex<Option<Arc<dyn HttpClient>>>> = Arc::default();
    let wrap = |inner| {
        let client: Arc<dyn HttpClient> = Arc::new(Counted { inner, open: Arc::clone(open) });
        *kept.lock() = Some(Arc::clone(&client));
        client
    };
    let transport = Transport::wrapped(&settings, Arc::new(clock.clone()), wrap).unwrap();
    let client = kept.lock().clone().unwrap();
    (transport, client)
}

/// Knows how many requests are on their way, answers that are being read included.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn HttpClient>,
    open: Arc<AtomicUsize>,
}

struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl HttpClient for Counted {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let _open = Open(&self.open);
        let response = self.inner.execute_request(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let whole = response.try_into_raw_response().await?;
        let body = whole.body().as_ref().to_vec();
        Ok(AsyncRawResponse::from_bytes(status, headers, body))
    }
}

const QUIET: u32 = 4;
