//! The token proxy of an identity binding against a server that records handshakes and requests.

#![cfg(test)]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use azure_core::credentials::TokenCredential as _;
use azure_core::http::{Method, Request, Transport};
use lanyard_clock::ErrorHint as _;
use lanyard_credential::{
    InMemoryTokenCredential, TokenError, TokenProxy, TokenProxySettings, TokenTransport,
    TokenTransportOptions,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const CLUSTER: &str = "hcp-kubernetes.696995ccb303450001b31a18.svc.cluster.local";
/// Computed independently: `a`, base32hex of SHA-256 of the salt and the id, and the domain.
const SERVER_NAME: &str = "aeaf29ip1hi5q38ebc3u4daum81u0unk52t5bg50j25234fmuj78g.ests.aks";
const JWT: &str = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6bnM6c2EifQ.cGxhbnRlZA";

/// The server name of each handshake, and the request.
type RecordedHandshakes = Arc<Mutex<Vec<(Option<String>, String)>>>;

/// Creates a cluster CA, and an API server certificate for these names.
fn issue_certificate(names: &[&str]) -> (String, ServerConfig) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let chain = vec![leaf.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    (root.pem(), config)
}

async fn serve(config: ServerConfig) -> (SocketAddr, RecordedHandshakes) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (acceptor, shown) = (TlsAcceptor::from(Arc::new(config)), RecordedHandshakes::default());
    let observed = Arc::clone(&shown);
    drop(tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let name = stream.get_ref().1.server_name().map(str::to_owned);
            let mut request = vec![0; 16_384];
            let Ok(length) = stream.read(&mut request).await else { continue };
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            observed.lock().unwrap().push((name, request));
            let body = r#"{"token_type":"Bearer","access_token":"t","expires_in":3600}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // A client that only fetched the certificate may have disconnected.
            drop(stream.write_all(format!("{head}{body}").as_bytes()).await);
            drop(stream.shutdown().await);
        }
    }));
    (address, shown)
}

fn transport_through_proxy(
    address: SocketAddr,
    ca_file: &Path,
    server_name: Option<&str>,
) -> TokenTransport {
    let mut settings = TokenProxySettings::default();
    settings.url = Some(format!("https://{address}"));
    settings.ca_file = Some(ca_file.to_owned());
    settings.server_name = server_name.map(str::to_owned);
    let proxy = TokenProxy::parse(settings).unwrap();
    let mut options = TokenTransportOptions::default();
    options.client.transport = Some(Transport::new(proxy.into_client()));
    TokenTransport::new(options)
}

async fn request_token(method: &TokenTransport) -> Result<String, TokenError> {
    let authority = "https://login.microsoftonline.com/".parse().unwrap();
    let (tenant, client) = ("tenant".parse().unwrap(), "client".parse().unwrap());
    let credential =
        InMemoryTokenCredential::new(tenant, client, &authority, JWT.as_bytes(), method).unwrap();
    match credential.get_token(&["https://vault.azure.net/.default"], None).await {
        Ok(token) => Ok(token.token.secret().to_owned()),
        Err(error) => Err(TokenError::of(&error).unwrap().clone()),
    }
}

/// The messages of an error and of its causes.
fn error_chain(error: &TokenError) -> String {
    let mut message = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        message = format!("{message}: {cause}");
        next = cause.source();
    }
    message
}

#[tokio::test]
async fn token_requests_go_to_the_api_server_with_the_cluster_server_name() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.crt");
    let (root, config) = issue_certificate(&["127.0.0.1", "kubernetes", CLUSTER, SERVER_NAME]);
    fs::write(&ca_file, root).unwrap();
    let (address, shown) = serve(config).await;
    let method = transport_through_proxy(address, &ca_file, None);
    assert_eq!(request_token(&method).await.unwrap(), "t");
    assert_eq!(request_token(&method).await.unwrap(), "t");
    let shown = shown.lock().unwrap();
    let [(poll, _), (name, request), (repeated, _)] = &shown[..] else { panic!("{shown:?}") };
    // One fetch of the certificate, by address and thus without a server name, for the lifetime of the proxy.
    assert_eq!(poll.as_deref(), None);
    assert_eq!(name.as_deref(), Some(SERVER_NAME));
    assert_eq!(repeated.as_deref(), Some(SERVER_NAME));
    assert!(request.starts_with("POST /tenant/oauth2/v2.0/token HTTP/1.1\r\n"), "{request}");
    let host = format!("host: {address}\r\n");
    assert_eq!(request.to_ascii_lowercase().matches("host: ").count(), 1, "{request}");
    assert!(request.to_ascii_lowercase().contains(&host), "{request}");
}

#[tokio::test]
async fn rotated_ca_is_used_by_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.crt");
    let name = "proxy.example";
    let (old, config) = issue_certificate(&[name]);
    let (first, _) = serve(config).await;
    fs::write(&ca_file, &old).unwrap();
    assert_eq!(
        request_token(&transport_through_proxy(first, &ca_file, Some(name))).await.unwrap(),
        "t"
    );
    let (new, config) = issue_certificate(&[name]);
    let (second, shown) = serve(config).await;
    let method = transport_through_proxy(second, &ca_file, Some(name));
    let error = request_token(&method).await.unwrap_err();
    assert!(error.is_outage(), "{error}");
    assert!(shown.lock().unwrap().is_empty(), "nothing is said to who is not trusted");
    fs::write(&ca_file, &new).unwrap();
    assert_eq!(request_token(&method).await.unwrap(), "t");
}

#[tokio::test]
async fn absent_ca_file_fails_without_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.crt");
    let name = "proxy.example";
    let (root, config) = issue_certificate(&[name]);
    let (address, shown) = serve(config).await;
    let method = transport_through_proxy(address, &ca_file, Some(name));
    let error = request_token(&method).await.unwrap_err();
    let message = error_chain(&error);
    assert!(message.contains("cannot read the token proxy's roots"), "{message}");
    assert!(message.contains(ca_file.to_str().unwrap()), "{message}");
    assert!(error.hint().unwrap().contains("the cluster's CA"), "{:?}", error.hint());
    assert!(shown.lock().unwrap().is_empty(), "no handshake with other roots");
    fs::write(&ca_file, root).unwrap();
    assert_eq!(request_token(&method).await.unwrap(), "t");
}

#[tokio::test]
async fn missing_cluster_name_error_suggests_sni_name() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.crt");
    let (root, config) = issue_certificate(&["127.0.0.1", "kubernetes.default.svc"]);
    fs::write(&ca_file, root).unwrap();
    let (address, _) = serve(config).await;
    let error = request_token(&transport_through_proxy(address, &ca_file, None)).await.unwrap_err();
    let message = error_chain(&error);
    assert!(message.contains("no name in the API server's certificate"), "{message}");
    assert!(error.hint().unwrap().contains("--sni-name"), "{:?}", error.hint());
}

#[tokio::test]
async fn concurrent_requests_share_a_failed_server_name_lookup() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    drop(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *counted.lock().unwrap() += 1;
            drop(stream);
        }
    }));
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.crt");
    fs::write(&ca_file, issue_certificate(&["localhost"]).0).unwrap();
    let mut settings = TokenProxySettings::default();
    settings.url = Some(format!("https://{address}"));
    settings.ca_file = Some(ca_file);
    let client = TokenProxy::parse(settings).unwrap().into_client();
    let request = Request::new("https://login.example/t/token".parse().unwrap(), Method::Post);
    let all = (0..8).map(|_| client.execute_request(&request));
    let outcomes = futures::future::join_all(all).await;
    assert!(outcomes.iter().all(Result::is_err));
    assert_eq!(*asked.lock().unwrap(), 1);
    // Later callers send a new request.
    client.execute_request(&request).await.unwrap_err();
    assert_eq!(*asked.lock().unwrap(), 2);
}
