//! The load generator: each connection sends its next request as soon as the last response is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use tokio::task::JoinSet;

use super::https_connection::{FullResponse, HttpVersion, HttpsTarget, PreparedRequest};
use crate::process_usage::processor_time;
use crate::waiting::sleep;

/// The `number`-th request of the connection `connection`.
pub(super) type RequestSource = Arc<dyn Fn(RequestNumber) -> PreparedRequest + Send + Sync>;

/// The position of a request in a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestNumber {
    /// The index of the connection, from 0.
    pub(super) connection: usize,
    /// The index of the request on its connection, from 0.
    pub(super) request: usize,
}

/// The requests of a list in turn. Each connection starts at another one.
pub(super) fn requests_in_turn(requests: Vec<PreparedRequest>) -> RequestSource {
    Arc::new(move |number: RequestNumber| {
        let at = number.connection * CONNECTION_OFFSET + number.request;
        requests[at % requests.len()].clone()
    })
}

/// The distance between the first requests of two connections in [`requests_in_turn`].
const CONNECTION_OFFSET: usize = 31;

/// The extent of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadShape {
    pub(super) version: HttpVersion,
    pub(super) connections: usize,
    /// How long requests are sent before they count.
    pub(super) warm_up: Duration,
    /// How long requests count.
    pub(super) window: Duration,
}

/// The measurements of a load.
#[derive(Debug)]
pub(super) struct LoadResult {
    /// Completed requests per second.
    pub(super) rate: f64,
    /// The 99th percentile of the time until the response was complete, in milliseconds.
    pub(super) slow_percentile: f64,
    /// The server's processor time for each request, in microseconds.
    pub(super) server_time: f64,
    /// The load generator's part of the machine's processor time, in percent.
    pub(super) generator_share: f64,
}

/// Opens the connections, sends requests for the duration of the load, and measures the process `server`.
/// Fails on the first response with an error status.
pub(super) async fn measure_load(
    target: &HttpsTarget,
    shape: LoadShape,
    source: &RequestSource,
    server: u32,
) -> Result<LoadResult, Failed> {
    let clock = SystemClock::new();
    let mut opened = Vec::with_capacity(shape.connections);
    for _ in 0..shape.connections {
        opened.push(target.connect(shape.version).await?);
    }
    let begin = clock.monotonic() + shape.warm_up;
    let end = begin + shape.window;
    let mut workers = JoinSet::new();
    for (connection, mut opened) in opened.into_iter().enumerate() {
        let source = Arc::clone(source);
        workers.spawn(async move {
            let mut latencies: Vec<Duration> = Vec::new();
            let mut sent = clock.monotonic();
            for request in 0.. {
                let prepared = source(RequestNumber { connection, request });
                require_success(&prepared, &opened.send(&prepared).await?)?;
                let done = clock.monotonic();
                if done > end {
                    break;
                }
                if sent >= begin {
                    latencies.push(done.saturating_sub(sent));
                }
                sent = done;
            }
            Ok::<_, Failed>(latencies)
        });
    }
    let generator = std::process::id();
    sleep(begin.saturating_sub(clock.monotonic())).await;
    let before = (processor_time(server)?, processor_time(generator)?);
    sleep(end.saturating_sub(clock.monotonic())).await;
    let after = (processor_time(server)?, processor_time(generator)?);
    let mut latencies = Vec::new();
    while let Some(worker) = workers.join_next().await {
        latencies.extend(worker??);
    }
    let used = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    LoadResult::new(latencies, shape.window, used)
}

impl LoadResult {
    /// `used` is the processor time of the server and of the load generator.
    fn new(
        mut latencies: Vec<Duration>,
        window: Duration,
        used: (Duration, Duration),
    ) -> Result<Self, Failed> {
        latencies.sort_unstable();
        let slow = latencies.get(latencies.len() * 99 / 100).ok_or("no request was completed")?;
        let count = super::count_to_f64(latencies.len());
        let cores = super::count_to_f64(std::thread::available_parallelism()?.get());
        Ok(Self {
            rate: count / window.as_secs_f64(),
            slow_percentile: slow.as_secs_f64() * 1e3,
            server_time: used.0.as_secs_f64() * 1e6 / count,
            generator_share: used.1.as_secs_f64() * 100.0 / (window.as_secs_f64() * cores),
        })
    }
}

/// Sends each request of a list once, on several connections.
pub(super) async fn send_all(
    target: &HttpsTarget,
    requests: Vec<PreparedRequest>,
) -> Result<(), Failed> {
    let (requests, next) = (Arc::new(requests), Arc::new(AtomicUsize::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..FILL_CONNECTIONS.min(requests.len()) {
        let mut connection = target.connect(HttpVersion::Http1).await?;
        let (requests, next) = (Arc::clone(&requests), Arc::clone(&next));
        workers.spawn(async move {
            while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                require_success(request, &connection.send(request).await?)?;
            }
            Ok::<_, Failed>(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

/// The number of connections of [`send_all`]: requests that arrive during a commit of the state share the
/// next one.
const FILL_CONNECTIONS: usize = 64;

/// Fails on a response with an error status. The message contains the response and no part of the request but
/// method and path, because the headers contain tokens.
pub(super) fn require_success(
    request: &PreparedRequest,
    response: &FullResponse,
) -> Result<(), Failed> {
    if response.status.is_success() {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&response.body);
    let (method, path, status) = (&request.method, request.path.path(), response.status);
    Err(format!("{method} {path}: {status}: {body}").into())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http::{HeaderMap, Method, Request, Response, StatusCode};
    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto;
    use parking_lot::Mutex;
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::suites::measure_azure::server_certificate::ServerCertificate;

    const HOST: &str = "vault.test";

    /// A TLS server that records the paths of requests, and has no `/missing`.
    struct TestServer {
        address: SocketAddr,
        authority_pem: String,
        paths: Arc<Mutex<Vec<String>>>,
    }

    impl TestServer {
        async fn start() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let certificate =
                ServerCertificate::issue(HOST, directory.path()).expect("a certificate");
            let chain = CertificateDer::pem_file_iter(&certificate.chain_file).expect("a file");
            let chain = chain.collect::<Result<_, _>>().expect("certificates");
            let key = PrivateKeyDer::from_pem_file(&certificate.key_file).expect("a key");
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let mut config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("the provider supports them")
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .expect("the key is that of the certificate");
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let paths = Arc::default();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            tokio::spawn(accept(listener, acceptor, Arc::clone(&paths)));
            Self { address, authority_pem: certificate.authority_pem, paths }
        }

        fn target(&self) -> HttpsTarget {
            HttpsTarget::direct(self.address, HOST, &self.authority_pem).expect("a certificate")
        }
    }

    async fn accept(listener: TcpListener, acceptor: TlsAcceptor, paths: Arc<Mutex<Vec<String>>>) {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, paths) = (acceptor.clone(), Arc::clone(&paths));
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.expect("the client trusts it");
                let service = service_fn(|request: Request<Incoming>| {
                    let path = request.uri().path().to_owned();
                    let status = match path.as_str() {
                        "/missing" => StatusCode::NOT_FOUND,
                        _ => StatusCode::OK,
                    };
                    paths.lock().push(path);
                    let mut response = Response::new(Full::new(Bytes::from_static(b"body")));
                    *response.status_mut() = status;
                    std::future::ready(Ok::<_, Infallible>(response))
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    }

    fn get(path: &str) -> PreparedRequest {
        PreparedRequest {
            method: Method::GET,
            path: path.parse().expect("a path"),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    #[tokio::test]
    async fn load_counts_the_responses_of_both_http_versions() {
        let server = TestServer::start().await;
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            let shape = LoadShape {
                version,
                connections: 3,
                warm_up: Duration::ZERO,
                window: Duration::from_millis(100),
            };
            let source = requests_in_turn(vec![get("/a"), get("/b")]);
            let found = measure_load(&server.target(), shape, &source, std::process::id()).await;
            let found = found.expect("every response is a success");
            let sent = super::super::count_to_f64(std::mem::take(&mut *server.paths.lock()).len());
            // The last response of each connection comes after the end.
            assert!(found.rate * 0.1 <= sent && found.rate * 0.1 >= sent - 6.0, "{found:?} {sent}");
            assert!(found.slow_percentile > 0.0 && found.slow_percentile <= 100.0, "{found:?}");
        }
    }

    #[tokio::test]
    async fn all_requests_are_sent_once() {
        let server = TestServer::start().await;
        let requests = (0..300).map(|number| get(&format!("/{number:03}"))).collect();
        send_all(&server.target(), requests).await.expect("every response is a success");
        let mut paths = server.paths.lock().clone();
        paths.sort_unstable();
        let expected: Vec<_> = (0..300).map(|number| format!("/{number:03}")).collect();
        assert_eq!(paths, expected);
    }

    #[tokio::test]
    async fn error_status_fails_the_load() {
        let server = TestServer::start().await;
        let failed = send_all(&server.target(), vec![get("/missing?secret=a")]).await;
        let failed = failed.expect_err("the response is an error");
        assert_eq!(failed.message(), Some("GET /missing: 404 Not Found: body"));
    }
}
