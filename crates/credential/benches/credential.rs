//! What a token costs: cached, cold and across a rotation.
//!
//! `cargo bench -p lanyard-credential`. No network: the token endpoint answers in process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops at the first surprise")]

use std::fmt;
use std::fs;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::http::headers::Headers;
use azure_core::http::{
    AsyncRawResponse, ClientOptions, HttpClient, Request, StatusCode, Transport,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lanyard_clock::{Clock as _, SystemClock};
use lanyard_credential::{
    CredentialFile, FileOptions, ReloadingCertificateCredential, ReloadingCertificateOptions,
    TokenTransportOptions,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// As long as a real token.
const TOKEN_LENGTH: usize = 1_500;
const CALLERS: usize = 10_000;

/// A token endpoint in process, which takes `latency` for every answer.
struct Endpoint {
    requests: AtomicUsize,
    latency: Duration,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Endpoint")
    }
}

#[async_trait]
impl HttpClient for Endpoint {
    async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if !self.latency.is_zero() {
            SystemClock::new().sleep(self.latency).await;
        }
        let token = "t".repeat(TOKEN_LENGTH);
        let body = format!(r#"{{"expires_in":86400,"access_token":"{token}"}}"#);
        Ok(AsyncRawResponse::from_bytes(StatusCode::Ok, Headers::new(), body))
    }
}

/// A credential over the endpoint, with a file of its own.
struct World {
    runtime: Runtime,
    folder: TempDir,
    endpoint: Arc<Endpoint>,
    credential: Arc<ReloadingCertificateCredential>,
}

impl World {
    fn new(latency: Duration) -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity.json");
        fs::write(&path, document(0)).unwrap();
        let endpoint = Arc::new(Endpoint { requests: AtomicUsize::new(0), latency });
        let client: Arc<dyn HttpClient> = Arc::<Endpoint>::clone(&endpoint);
        let mut transport = TokenTransportOptions::default();
        transport.client =
            ClientOptions { transport: Some(Transport::new(client)), ..ClientOptions::default() };
        let options = ReloadingCertificateOptions::over(transport);
        let opening = ReloadingCertificateCredential::open(path, options);
        let credential = runtime.block_on(opening).unwrap();
        Self { runtime, folder, endpoint, credential }
    }

    /// A credential that holds tokens for this many scopes.
    fn holding(scopes: usize) -> Self {
        let world = Self::new(Duration::ZERO);
        for number in 0..scopes {
            let scope = scope(number);
            world.runtime.block_on(world.credential.get_token(&[&scope], None)).unwrap();
        }
        world
    }
}

fn scope(number: usize) -> String {
    format!("https://service-{number}.example.net/.default")
}

/// A credential document; versions differ in one field that means nothing.
fn document(version: usize) -> String {
    let secret = STANDARD.encode(concat!(
        include_str!("../tests/fixtures/leaf.pkcs8.key"),
        include_str!("../tests/fixtures/leaf.pem"),
        include_str!("../tests/fixtures/intermediate.pem"),
    ));
    format!(
        r#"{{"client_id":"client","tenant_id":"tenant","client_secret":"{secret}","authentication_endpoint":"https://login.example/","not_before":"2026-11-01T00:00:00Z","object_id":"{version}"}}"#
    )
}

/// Takes a token that is there: the future is ready at once.
fn cached(credential: &dyn TokenCredential, scopes: &[&str]) -> AccessToken {
    let future = pin!(credential.get_token(scopes, None));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(token) => token.unwrap(),
        Poll::Pending => panic!("the token is not cached"),
    }
}

fn cached_token(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cached");
    for scopes in [1, 1_000] {
        let world = World::holding(scopes);
        let credential: &dyn TokenCredential = &*world.credential;
        let scope = scope(scopes / 2);
        group.bench_function(BenchmarkId::new("get_token", scopes), |bencher| {
            bencher.iter(|| cached(black_box(credential), black_box(&[&scope])));
        });
        group.bench_function(BenchmarkId::new("with_cached_token", scopes), |bencher| {
            bencher.iter(|| world.credential.with_cached_token(black_box(&scope), str::len));
        });
    }
    group.finish();
}

fn threads(criterion: &mut Criterion) {
    let world = World::holding(1);
    let clock = SystemClock::new();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut group = criterion.benchmark_group("threads");
    group.throughput(Throughput::Elements(1));
    for count in 1..=2 * cores {
        group.bench_function(BenchmarkId::new("get_token", count), |bencher| {
            bencher.iter_custom(|iterations| {
                let each = iterations.div_ceil(u64::try_from(count).unwrap());
                let start = clock.monotonic();
                thread::scope(|threads| {
                    for _ in 0..count {
                        threads.spawn(|| {
                            let scope = scope(0);
                            for _ in 0..each {
                                black_box(cached(&*world.credential, &[&scope]));
                            }
                        });
                    }
                });
                clock.monotonic().saturating_sub(start)
            });
        });
    }
    group.finish();
}

fn cold_callers(criterion: &mut Criterion) {
    let world = World::new(Duration::from_millis(20));
    let mut group = criterion.benchmark_group("cold");
    group.sample_size(10);
    let mut number = 0;
    group.bench_function(BenchmarkId::new("callers", CALLERS), |bencher| {
        bencher.iter(|| {
            number += 1;
            let before = world.endpoint.requests.load(Ordering::Relaxed);
            world.runtime.block_on(async {
                let callers: Vec<_> = (0..CALLERS)
                    .map(|_| {
                        let (credential, scope) = (Arc::clone(&world.credential), scope(number));
                        tokio::spawn(async move { credential.get_token(&[&scope], None).await })
                    })
                    .collect();
                for caller in callers {
                    caller.await.unwrap().unwrap();
                }
            });
            assert_eq!(world.endpoint.requests.load(Ordering::Relaxed), before + 1);
        });
    });
    group.finish();
}

fn reload(criterion: &mut Criterion) {
    let world = World::new(Duration::ZERO);
    let path = world.folder.path().join("followed.json");
    fs::write(&path, document(0)).unwrap();
    let mut options = FileOptions::default();
    options.events = false;
    let opening = CredentialFile::open(&path, options, SystemClock::shared());
    let file = world.runtime.block_on(opening).unwrap();
    let mut version = 0;
    criterion.bench_function("reload/pem_rsa_2048_chain_of_2", |bencher| {
        bencher.iter(|| {
            version += 1;
            fs::write(&path, document(version)).unwrap();
            world.runtime.block_on(file.reload())
        });
    });
}

criterion_group!(benches, cached_token, threads, cold_callers, reload);
criterion_main!(benches);
