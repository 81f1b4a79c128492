use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A TLS API server with both HTTP versions that counts its connections.
struct FakeTlsApiServer {
    address: SocketAddr,
    certificate: Vec<u8>,
    connections: Arc<AtomicUsize>,
}

impl FakeTlsApiServer {
    async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let names = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = names.self_signed(&key).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        drop(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                drop(tokio::spawn(serve_connection(acceptor.clone(), stream)));
            }
        }));
        Self { address, certificate: certificate.to_vec(), connections }
    }

    fn config(&self) -> Config {
        let url = format!("https://localhost:{}", self.address.port());
        let mut config = Config::new(url.parse().unwrap());
        config.root_cert = Some(vec![self.certificate.clone()]);
        config
    }

    fn connection_count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve_connection(acceptor: TlsAcceptor, stream: tokio::net::TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = tower::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
        Ok::<_, std::convert::Infallible>(response_for(&request))
    });
    let server = auto::Builder::new(TokioExecutor::new());
    drop(server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await);
}

/// Throttled responses as an API server sends them: plain text from priority and fairness, a `Status` from
/// an overloaded handler.
fn response_for(
    request: &http::Request<hyper::body::Incoming>,
) -> http::Response<Full<bytes::Bytes>> {
    let text = format!("{:?}", request.version());
    let (status, seconds, text) = match request.uri().path() {
        "/plain" => (429, "7", "Too many requests, please try again later.".to_owned()),
        "/status" => {
            let text = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"message":"no","reason":"ServiceUnavailable"}"#;
            (503, "9", text.to_owned())
        }
        "/odd" => (429, "in a while", "no".to_owned()),
        _ => return http::Response::new(Full::from(text)),
    };
    let answer = http::Response::builder().status(status).header("Retry-After", seconds);
    answer.body(Full::from(text)).unwrap()
}

#[tokio::test]
async fn retry_after_header_reaches_the_error() {
    let server = FakeTlsApiServer::start().await;
    let connections = ApiConnections::of(&server.config()).unwrap();
    for (path, status, seconds, message) in [
        ("/plain", 429, Some(7), "Too many requests, please try again later."),
        ("/status", 503, Some(9), "no"),
        ("/odd", 429, None, "no"),
    ] {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let error = connections.for_calls().request_text(request).await.unwrap_err();
        let error = crate::ApiError::of(&error, "read x");
        assert_eq!(
            error.retry_class().requested_delay(),
            seconds.map(Duration::from_secs),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains(message) && text.contains(&status.to_string()), "{text}");
    }
}

async fn fetch_version(client: &Client) -> String {
    client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn concurrent_calls_share_a_connection() {
    let server = FakeTlsApiServer::start().await;
    let connections = ApiConnections::of(&server.config()).unwrap();
    assert_eq!(fetch_version(connections.for_calls()).await, "HTTP/2.0");
    let answers = join_all((0..30).map(|_| fetch_version(connections.for_calls()))).await;
    assert_eq!((answers.len(), server.connection_count()), (30, 1));
}

#[tokio::test]
async fn concurrent_watches_dial_once_per_connection() {
    let server = FakeTlsApiServer::start().await;
    let connections = ApiConnections::of(&server.config()).unwrap();
    let namespaces: Vec<String> = (0..60).map(|number| format!("ocm-{number}")).collect();
    let begun = namespaces.iter().map(|namespace| {
        let connection = connections.for_watch(namespace);
        connection.start(fetch_version(connection.client()))
    });
    assert!(join_all(begun).await.iter().all(|version| version == "HTTP/2.0"));
    assert_eq!(server.connection_count(), WATCH_CONNECTIONS);
}

#[test]
fn watches_of_full_node_stay_below_stream_limit() {
    let config = Config::new("http://localhost:1".parse().unwrap());
    let connections = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(async { ApiConnections::of(&config).unwrap() });
    let mut watches = [0_u32; WATCH_CONNECTIONS];
    for number in 0..250 {
        let chosen = connections.for_watch(&format!("ocm-{number}"));
        let is_chosen = |it: &WatchConnection| std::ptr::eq(it, chosen);
        watches[connections.watches.iter().position(is_chosen).unwrap()] += 1;
    }
    assert!(watches.iter().all(|count| *count < 100), "{watches:?}");
}
