//! A proxy that records every request and forwards it unchanged.
//!
//! It runs between a client and the local or real Azure, so both sides of a comparison get real responses,
//! and the comparison uses the requests as they were sent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::proxied_request::ProxiedRequest;

/// The recording proxy did not start.
#[derive(Debug, Error)]
pub(crate) enum RecordingProxyError {
    #[error("the recording proxy could not listen on loopback")]
    Listen(#[source] std::io::Error),
    #[error("the CA of the recording proxy could not be generated")]
    Authority(#[source] rcgen::Error),
    #[error("the HTTP client of the recording proxy could not be built")]
    Client(#[source] reqwest::Error),
}

/// Where the recording proxy forwards requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct ForwardTarget {
    /// The proxy of the local Azure; `None` for a direct connection.
    pub(crate) proxy: Option<String>,
    /// The certificates to trust, in PEM; `None` for the system's.
    pub(crate) roots: Option<Vec<u8>>,
}

/// A running recording proxy. It ends with the runtime on which it was started.
#[derive(Debug)]
pub(crate) struct RecordingProxy {
    address: SocketAddr,
    authority_pem: String,
    requests: Arc<Mutex<Vec<ProxiedRequest>>>,
}

/// State that all connections share.
struct RecordingProxyState {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    client: reqwest::Client,
    requests: Arc<Mutex<Vec<ProxiedRequest>>>,
}

/// The address of IMDS, however a request reached the proxy.
const IMDS_ADDRESS: &str = "169.254.169.254";

impl RecordingProxy {
    pub(crate) async fn start(upstream: &ForwardTarget) -> Result<Self, RecordingProxyError> {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(RecordingProxyError::Listen)?;
        let address = listener.local_addr().map_err(RecordingProxyError::Listen)?;
        let key = rcgen::KeyPair::generate().map_err(RecordingProxyError::Authority)?;
        let mut parameters =
            rcgen::CertificateParams::new([]).map_err(RecordingProxyError::Authority)?;
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "conformance recorder");
        let roots = parameters.self_signed(&key).map_err(RecordingProxyError::Authority)?.pem();
        let record = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::new(RecordingProxyState {
            issuer: rcgen::Issuer::new(parameters, key),
            client: forwarding_client(upstream).map_err(RecordingProxyError::Client)?,
            requests: Arc::clone(&record),
        });
        tokio::spawn(accept_connections(listener, shared));
        Ok(Self { address, authority_pem: roots, requests: record })
    }

    /// The URL of the proxy. Plain HTTP requests to it are forwarded to IMDS.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The CA certificate that clients must trust, in PEM.
    pub(crate) fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// Returns the requests that were recorded since the last call.
    pub(crate) fn take_requests(&self) -> Vec<ProxiedRequest> {
        std::mem::take(&mut self.requests.lock())
    }
}

fn forwarding_client(upstream: &ForwardTarget) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    if let Some(proxy) = &upstream.proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy)?);
    }
    if let Some(roots) = &upstream.roots {
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(roots)?);
    }
    builder.build()
}

async fn accept_connections(listener: TcpListener, shared: Arc<RecordingProxyState>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { serve_plain_connection(stream, shared).await });
    }
}

async fn serve_plain_connection(stream: TcpStream, shared: Arc<RecordingProxyState>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            if request.method() == Method::CONNECT {
                Ok::<_, Infallible>(open_tunnel(request, shared))
            } else {
                let base = format!("http://{IMDS_ADDRESS}");
                Ok(forward_request(request, &base, &shared).await)
            }
        }
    });
    // An aborted connection leaves no recorded request, which the comparison reports.
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    drop(connection.with_upgrades().await);
}

fn open_tunnel(
    request: Request<Incoming>,
    shared: Arc<RecordingProxyState>,
) -> Response<Full<Bytes>> {
    let Some(host) = request.uri().host().map(str::to_owned) else {
        return bad_gateway_response("CONNECT needs a host");
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await
            && let Some(acceptor) = tls_acceptor(&host, &shared.issuer)
            && let Ok(stream) = acceptor.accept(TokioIo::new(upgraded)).await
        {
            let base = format!("https://{host}");
            let service = service_fn(move |request: Request<Incoming>| {
                let (base, shared) = (base.clone(), Arc::clone(&shared));
                async move { Ok::<_, Infallible>(forward_request(request, &base, &shared).await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            drop(connection.await);
        }
    });
    Response::new(Full::default())
}

fn tls_acceptor(
    host: &str,
    issuer: &rcgen::Issuer<'static, rcgen::KeyPair>,
) -> Option<TlsAcceptor> {
    let key = rcgen::KeyPair::generate().ok()?;
    let leaf =
        rcgen::CertificateParams::new([host.to_owned()]).ok()?.signed_by(&key, issuer).ok()?;
    let certificate = CertificateDer::from(leaf);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .ok()?;
    Some(TlsAcceptor::from(Arc::new(config)))
}

async fn forward_request(
    request: Request<Incoming>,
    base: &str,
    shared: &RecordingProxyState,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return bad_gateway_response("the request ended early");
    };
    let Some(url) = target_url(base, &parts.uri) else {
        return bad_gateway_response("the request has no readable target");
    };
    shared.requests.lock().push(ProxiedRequest {
        method: parts.method.to_string(),
        url: url.clone(),
        headers: header_pairs(&parts.headers),
        body: body.to_vec(),
    });
    let answer = shared
        .client
        .request(parts.method, url)
        .headers(end_to_end_headers(&parts.headers))
        .body(body)
        .send()
        .await;
    match answer {
        Ok(answer) => copy_response(answer).await,
        Err(_) => bad_gateway_response("Azure did not respond"),
    }
}

async fn copy_response(answer: reqwest::Response) -> Response<Full<Bytes>> {
    let (status, headers) = (answer.status(), end_to_end_headers(answer.headers()));
    let Ok(body) = answer.bytes().await else {
        return bad_gateway_response("Azure's answer ended early");
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Joins the base with path and query. Requests to a proxy have absolute URIs, which name the host.
fn target_url(base: &str, uri: &Uri) -> Option<Url> {
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    match uri.authority() {
        Some(authority) => format!("http://{authority}{path}").parse().ok(),
        None => format!("{base}{path}").parse().ok(),
    }
}

fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect()
}

/// Removes headers that belong to one connection (RFC 9110, section 7.6.1).
fn end_to_end_headers(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [CONNECTION, HOST, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers
}

fn bad_gateway_response(why: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(why));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_url_is_absolute_or_joined_to_the_base() {
        let absolute = "http://169.254.169.254/metadata?a=1".parse().expect("a good URI");
        let origin = "/metadata?a=1".parse().expect("a good URI");
        for uri in [absolute, origin] {
            let url = target_url("http://169.254.169.254", &uri).expect("a good target");
            assert_eq!(url.as_str(), "http://169.254.169.254/metadata?a=1");
        }
    }

    #[tokio::test]
    async fn unforwardable_request_is_recorded_and_gets_bad_gateway() {
        let nowhere = ForwardTarget { proxy: Some("http://127.0.0.1:9".to_owned()), roots: None };
        let recorder = RecordingProxy::start(&nowhere).await.expect("loopback has a port");
        let client = reqwest::Client::builder()
            .no_proxy()
            .proxy(reqwest::Proxy::all(recorder.url()).expect("a good proxy"))
            .tls_certs_only([reqwest::Certificate::from_pem(recorder.authority_pem().as_bytes())
                .expect("a good certificate")])
            .build()
            .expect("a good client");
        let answer = client.get("https://vault.azure.net/secrets/a?x=1").send().await;
        assert_eq!(answer.expect("the recorder answers").status(), StatusCode::BAD_GATEWAY);
        let record = recorder.take_requests();
        assert_eq!(record.len(), 1);
        assert_eq!(record[0].url.as_str(), "https://vault.azure.net/secrets/a?x=1");
        assert!(recorder.take_requests().is_empty());
    }
}
