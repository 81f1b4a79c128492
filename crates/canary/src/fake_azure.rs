//! Fakes for tests: Azure services, a credential file, and a clock that advances when all tasks wait.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::headers::{AUTHORIZATION, Headers};
use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lanyard_azure::{AzureTransport, AzureTransportSettings};
use lanyard_clock::{Clock as _, ManualClock, SharedClock};
use lanyard_credential::{TokenTransport, TokenTransportOptions};
use lanyard_vocabulary::{Cloud, Component};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    CanaryDependencies, CanaryMetrics, CanarySettings, CredentialFileLocation, FailureThreshold,
    GrantedCall, IdentityCanary,
};

/// A marker inside all secrets, which must not appear in any output.
pub(crate) const MARKER: &str = "planted-marker";

/// Runs a test with a single blocking thread, so that [`CanaryFixture::run_until_idle`] can wait for
/// file reads.
pub(crate) fn run_test(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(test);
}

/// A configured response of a service.
#[derive(Debug, Clone)]
pub(crate) enum FakeAzureResponse {
    /// A status with headers and a body.
    Reply(u16, Vec<(&'static str, String)>, Value),
    /// Breaks the connection.
    Broken,
    /// Never responds.
    NoResponse,
}

impl FakeAzureResponse {
    pub(crate) fn ok(body: Value) -> Self {
        Self::Reply(200, Vec::new(), body)
    }

    pub(crate) fn failure(status: u16, code: &str) -> Self {
        let message = format!("{code}: no");
        Self::Reply(status, Vec::new(), json!({"error": {"code": code, "message": message}}))
    }

    pub(crate) fn throttled(seconds: Option<u64>) -> Self {
        let header = seconds.map(|seconds| ("retry-after", seconds.to_string()));
        Self::Reply(429, header.into_iter().collect(), json!({"error": {"code": "Throttled"}}))
    }

    /// An error response of Entra.
    pub(crate) fn entra_error(error: &str, code: u32) -> Self {
        let text = format!("AADSTS{code}: refused. Trace ID: t");
        let body = json!({"error": error, "error_description": text, "error_codes": [code]});
        Self::Reply(401, Vec::new(), body)
    }

    fn token_response(number: usize) -> Self {
        let token = format!("{MARKER}-token-{number}");
        Self::ok(json!({"token_type": "Bearer", "expires_in": 3_600, "access_token": token}))
    }
}

/// A request that a service received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedAzureRequest {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) method: Method,
    pub(crate) body: String,
}

/// Fake Azure services, distinguished by host, and Entra.
#[derive(Debug)]
pub(crate) struct FakeAzureServices {
    responses: Mutex<HashMap<String, FakeAzureResponse>>,
    requests: Mutex<Vec<ReceivedAzureRequest>>,
}

impl FakeAzureServices {
    pub(crate) const ENTRA: &str = "login.microsoftonline.com";
    pub(crate) const ARM: &str = "management.azure.com";
    pub(crate) const VAULT: &str = "kv.vault.azure.net";

    /// Sets the response of `place`: a host, or a host with a path.
    pub(crate) fn set_response(&self, place: &str, answer: FakeAzureResponse) {
        self.responses.lock().insert(place.to_owned(), answer);
    }

    /// Restores the normal response of `place`.
    pub(crate) fn clear_response(&self, place: &str) {
        self.responses.lock().remove(place);
    }

    pub(crate) fn requests_to(&self, host: &str) -> Vec<ReceivedAzureRequest> {
        self.requests.lock().iter().filter(|request| request.host == host).cloned().collect()
    }

    fn respond(&self, request: &Request) -> FakeAzureResponse {
        let (host, path) = (request.url().host_str().unwrap().to_owned(), request.url().path());
        let answers = self.responses.lock();
        let of_path = answers.get(&format!("{host}{path}"));
        if let Some(answer) = of_path.or_else(|| answers.get(&host)) {
            return answer.clone();
        }
        drop(answers);
        if host == Self::ENTRA {
            return FakeAzureResponse::token_response(self.requests_to(&host).len());
        }
        let bearer = request.headers().get_optional_str(&AUTHORIZATION).unwrap_or_default();
        assert!(bearer.contains(MARKER), "each call has a token");
        FakeAzureResponse::ok(json!({"location": "westeurope"}))
    }
}

#[async_trait]
impl HttpClient for FakeAzureServices {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let body: &azure_core::Bytes = match request.body() {
            azure_core::http::Body::Bytes(bytes) => bytes,
            azure_core::http::Body::SeekableStream(_) => panic!("no request has a stream"),
        };
        let received = ReceivedAzureRequest {
            host: request.url().host_str().unwrap().to_owned(),
            path: request.url().path().to_owned(),
            method: request.method(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        };
        let answer = self.respond(request);
        self.requests.lock().push(received);
        match answer {
            FakeAzureResponse::Reply(status, pairs, body) => {
                let mut headers = Headers::new();
                for (name, value) in pairs {
                    headers.insert(name, value);
                }
                let (status, body) = (StatusCode::from(status), body.to_string());
                Ok(AsyncRawResponse::from_bytes(status, headers, body))
            }
            FakeAzureResponse::Broken => {
                let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                Err(azure_core::Error::new(ErrorKind::Io, error))
            }
            FakeAzureResponse::NoResponse => std::future::pending().await,
        }
    }
}

/// The fake Azure with a credential file in a temporary directory.
pub(crate) struct CanaryFixture {
    pub(crate) azure: Arc<FakeAzureServices>,
    pub(crate) clock: ManualClock,
    pub(crate) metrics: CanaryMetrics,
    directory: TempDir,
}

impl CanaryFixture {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let azure =
            Arc::new(FakeAzureServices { responses: Mutex::default(), requests: Mutex::default() });
        let shared: SharedClock = Arc::new(clock.clone());
        let metrics = CanaryMetrics::new(Component::Disk, shared);
        Self { azure, clock, metrics, directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("disk-credentials")
    }

    pub(crate) fn shared_clock(&self) -> SharedClock {
        Arc::new(self.clock.clone())
    }

    /// Writes a credential with a new certificate, valid this many minutes after the first one.
    pub(crate) fn write_credential(&self, minutes: u64) {
        self.write_file(&credential_document(minutes).to_string());
    }

    pub(crate) fn write_file(&self, content: &str) {
        let fresh = self.directory.path().join("fresh");
        std::fs::write(&fresh, content).unwrap();
        std::fs::rename(fresh, self.path()).unwrap();
    }

    pub(crate) fn settings(&self) -> CanarySettings {
        let endpoints = Cloud::Public.endpoints().unwrap();
        let line = "GET https://management.azure.com/subscriptions/s/disks?api-version=2023-10-02";
        CanarySettings {
            component: Component::Disk,
            endpoints,
            credential_location: CredentialFileLocation::File(self.path()),
            call: Some(GrantedCall::parse(line, endpoints).unwrap()),
            probes: Vec::new(),
            interval: Duration::from_mins(1),
            token_interval: Duration::from_mins(10),
            probe_interval: Duration::from_mins(10),
            failure_threshold: FailureThreshold::HOPS,
        }
    }

    pub(crate) fn parts(&self) -> CanaryDependencies {
        let settings = AzureTransportSettings {
            retry: CanaryDependencies::RETRY,
            ..AzureTransportSettings::default()
        };
        let client: Arc<dyn HttpClient> = Arc::<FakeAzureServices>::clone(&self.azure);
        let transport = AzureTransport::from_http_client(client, &settings, self.shared_clock());
        let mut options = TokenTransportOptions::default();
        options.clock = self.shared_clock();
        options.retry = Some(CanaryDependencies::token_retry());
        options.client.transport = Some(transport.without_rate_limit());
        CanaryDependencies {
            clock: self.shared_clock(),
            token_transport: TokenTransport::new(options),
            transport,
            metrics: self.metrics.clone(),
        }
    }

    pub(crate) fn canary(&self, settings: CanarySettings) -> IdentityCanary {
        IdentityCanary::new(settings, self.parts())
    }

    /// Runs all tasks until they wait.
    pub(crate) async fn run_until_idle(&self) {
        for _ in 0..3 {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            // The single blocking thread runs this after all file reads that were queued before.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        }
    }

    /// Advances the clock until `reached` returns true.
    pub(crate) async fn advance_until(&self, mut reached: impl FnMut() -> bool) {
        let started = self.clock.monotonic();
        while !reached() {
            self.run_until_idle().await;
            if let Some(due) = self.clock.time_until_next_deadline() {
                self.clock.advance(due);
            }
            let spent = self.clock.monotonic().saturating_sub(started);
            assert!(spent < Duration::from_hours(24), "the condition does not hold within a day");
        }
    }

    /// Advances the clock by `duration`.
    pub(crate) async fn advance(&self, duration: Duration) {
        let end = self.clock.monotonic() + duration;
        while self.clock.monotonic() < end {
            self.run_until_idle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            self.clock.advance(self.clock.time_until_next_deadline().unwrap_or(left).min(left));
        }
        self.run_until_idle().await;
    }

    /// The value of the metric with this name and labels.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let page = self.render_metrics();
        let found = page.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(' '))?;
        found.parse().ok()
    }

    pub(crate) fn render_metrics(&self) -> String {
        lanyard_telemetry::MetricsPage::build(|registry| self.metrics.register(registry)).render()
    }
}

static KEY: LazyLock<rcgen::KeyPair> =
    LazyLock::new(|| rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap());

/// The PEM of a key and a certificate with this serial number; it contains the marker only as base64.
fn pem_bundle(number: u64) -> String {
    let mut params = rcgen::CertificateParams::new(vec!["disk".to_owned()]).unwrap();
    params.serial_number = Some(number.into());
    let certificate = params.self_signed(&*KEY).unwrap();
    format!("{}{}", KEY.serialize_pem(), certificate.pem())
}

fn credential_document(minutes: u64) -> Value {
    let begin: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    json!({
        "client_id": "22222222-2222-4222-8222-222222222222",
        "tenant_id": "11111111-1111-4111-8111-111111111111",
        "client_secret": STANDARD.encode(pem_bundle(minutes + 1)),
        "client_secret_url": format!("https://example.com/?sig={MARKER}"),
        "authentication_endpoint": "https://login.microsoftonline.com/",
        "not_before": (begin + Duration::from_mins(minutes)).to_string(),
        "not_after": "2027-04-01T00:00:00Z",
        "renew_after": "2027-02-15T00:00:00Z",
    })
}
