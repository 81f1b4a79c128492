//! Connections of the load generator: TLS, directly or through a proxy, with HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use libtest_mimic::Failed;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The version of HTTP on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// A server, and how to connect to it.
#[derive(Debug, Clone)]
pub(super) struct HttpsTarget {
    address: SocketAddr,
    /// The host of the requests, which the server's certificate must name.
    host: String,
    connection_kind: ConnectionKind,
    roots: Arc<RootCertStore>,
}

/// How the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionKind {
    Direct,
    /// The address is a proxy, which opens a tunnel to the host.
    Tunnel,
}

/// A request that can be sent any number of times.
#[derive(Debug, Clone)]
pub(super) struct PreparedRequest {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A complete response.
#[derive(Debug)]
pub(super) struct FullResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// An open connection.
#[derive(Debug)]
pub(super) enum HttpsConnection {
    Http1 { sender: http1::SendRequest<Full<Bytes>>, host: HeaderValue },
    Http2 { sender: http2::SendRequest<Full<Bytes>>, authority: Authority },
}

impl HttpsTarget {
    /// A server at an address, with a certificate of this authority (in PEM) that names `host`.
    pub(super) fn direct(
        address: SocketAddr,
        host: &str,
        authority_pem: &str,
    ) -> Result<Self, Failed> {
        let connection_kind = ConnectionKind::Direct;
        let roots = trusted_roots(authority_pem)?;
        Ok(Self { address, host: host.to_owned(), connection_kind, roots })
    }

    /// A host behind an intercepting proxy, which has certificates of this authority (in PEM).
    pub(super) fn behind_proxy(
        proxy: SocketAddr,
        host: &str,
        authority_pem: &str,
    ) -> Result<Self, Failed> {
        let connection_kind = ConnectionKind::Tunnel;
        let roots = trusted_roots(authority_pem)?;
        Ok(Self { address: proxy, host: host.to_owned(), connection_kind, roots })
    }

    pub(super) async fn connect(&self, version: HttpVersion) -> Result<HttpsConnection, Failed> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream = match self.connection_kind {
            ConnectionKind::Direct => stream,
            ConnectionKind::Tunnel => open_tunnel(stream, &self.host).await?,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![version.protocol_name().to_vec()];
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Ok(match version {
            HttpVersion::Http1 => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                HttpsConnection::Http1 { sender, host: self.host.parse()? }
            }
            HttpVersion::Http2 => {
                let executor = TokioExecutor::new();
                let (sender, connection) = http2::handshake(executor, TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                HttpsConnection::Http2 { sender, authority: self.host.parse()? }
            }
        })
    }

    /// Sends one request on a connection of its own.
    pub(super) async fn send(&self, request: &PreparedRequest) -> Result<FullResponse, Failed> {
        self.connect(HttpVersion::Http1).await?.send(request).await
    }
}

impl HttpVersion {
    /// The name of the protocol in the TLS handshake (RFC 7301).
    const fn protocol_name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

impl HttpsConnection {
    /// Sends a request and reads the complete response.
    pub(super) async fn send(&mut self, request: &PreparedRequest) -> Result<FullResponse, Failed> {
        let (parts, body) = self.send_head(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(FullResponse { status: parts.status, headers: parts.headers, body })
    }

    async fn send_head(
        &mut self,
        prepared: &PreparedRequest,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = Request::new(Full::new(prepared.body.clone()));
        *request.method_mut() = prepared.method.clone();
        request.headers_mut().clone_from(&prepared.headers);
        match self {
            Self::Http1 { sender, host } => {
                *request.uri_mut() = Uri::from(prepared.path.clone());
                request.headers_mut().insert(HOST, host.clone());
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
            Self::Http2 { sender, authority } => {
                let mut parts = http::uri::Parts::default();
                parts.scheme = Some(Scheme::HTTPS);
                parts.authority = Some(authority.clone());
                parts.path_and_query = Some(prepared.path.clone());
                *request.uri_mut() = Uri::from_parts(parts)?;
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
        }
    }
}

fn trusted_roots(authority_pem: &str) -> Result<Arc<RootCertStore>, Failed> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority_pem.as_bytes())?)?;
    Ok(Arc::new(roots))
}

/// Opens a tunnel to port 443 of a host through a proxy.
async fn open_tunnel(stream: TcpStream, host: &str) -> Result<TcpStream, Failed> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let authority = format!("{host}:443");
    let request = Request::connect(&authority).header(HOST, &authority).body(Empty::<Bytes>::new());
    let response = sender.send_request(request?).await?;
    if !response.status().is_success() {
        return Err(format!("the proxy returned {} for {authority}", response.status()).into());
    }
    let upgraded = hyper::upgrade::on(response).await?;
    // The plain stream: the wrapper would make every read and write of the load generator slower. The server
    // sends nothing before the client's first message of the TLS handshake.
    match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) if parts.read_buf.is_empty() => Ok(parts.io.into_inner()),
        _ => Err(format!("the proxy sent data in the tunnel to {authority} unasked").into()),
    }
}
