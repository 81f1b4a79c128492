//! The listener: one port serves as the proxy for Azure's names, the metadata service and the control API.

mod intercepted_tls;
mod reply_delivery;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use lanyard_clock::SharedClock;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::fault_rules::ReplyDelivery;
use lanyard_emulator_state::identity_binding::is_proxy_server_name;
use lanyard_emulator_state::request::{HTTPS_PORT, RequestScheme, ServiceReply, ServiceRequest};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::reply_delivery::{ConnectionReset, ReplyBody, ResettableStream};
use crate::emulated_service::{EngineError, management_error_reply};
use crate::engine::{EmulatorEngine, EngineReply, RequestProgress, state_write_failed_reply};
use crate::ingress::{CONTROL_HEADER, Ingress, PROXY_TARGET_HEADER, ProxyTarget};

/// The maximum size of a body: a vault secret has 25 KB, a certificate import somewhat more.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// The maximum size of a body for the Blob service: official clients upload larger blobs in blocks.
const MAX_BLOB_BODY_BYTES: usize = 256 << 20;
/// The maximum size of a snapshot, in requests with the header of the control API. A web page cannot send it.
const MAX_SNAPSHOT_BYTES: usize = 1 << 30;
const SNAPSHOT_PATH: &str = "/lanyard/v1/snapshot";
const CONTROL_PATH: &str = "/lanyard/";
/// Handling a larger body takes so long that it would block the other connections of a thread.
const LARGE_BODY_BYTES: usize = 1 << 20;
/// How long a shutdown waits for connections to finish.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The maximum number of open connections; more wait in the system's queue.
pub const MAX_CONNECTIONS: usize = 1024;
/// The pause after a failed accept: until a file descriptor is free, every attempt would fail immediately.
pub const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The first byte of a TLS connection: the content type `handshake`.
const TLS_HANDSHAKE: u8 = 0x16;

/// State that all connections share.
#[derive(Clone)]
pub struct ConnectionContext {
    engine: Arc<EmulatorEngine>,
    tls: TlsAcceptor,
    /// Whether requests may address the port by names other than loopback names.
    allow_foreign_names: bool,
    /// Whether the connection has to be reset; each connection has its own.
    reset: ConnectionReset,
}

impl fmt::Debug for ConnectionContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConnectionContext").finish_non_exhaustive()
    }
}

impl ConnectionContext {
    /// Creates the context, with TLS certificates for Azure's names.
    pub fn new(engine: Arc<EmulatorEngine>, remote: bool) -> Result<Self, rustls::Error> {
        let tls = TlsAcceptor::from(Arc::new(intercepted_tls::tls_config(&engine)?));
        let reset = ConnectionReset::default();
        Ok(Self { engine, tls, allow_foreign_names: remote, reset })
    }

    /// The context of a new connection.
    fn for_new_connection(&self) -> Self {
        Self { reset: ConnectionReset::default(), ..self.clone() }
    }
}

/// A source of connections.
pub trait ConnectionListener: Send {
    /// Accepts the next connection, with the address of its peer.
    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl ConnectionListener for TcpListener {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }
}

/// Serves at most `most` concurrent connections until `stop` is set, then completes requests in flight.
/// `clock` is the real clock, independent of the emulated time.
pub async fn serve(
    mut listener: impl ConnectionListener,
    gate: ConnectionContext,
    clock: SharedClock,
    most: usize,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = accept_with_permit(&mut listener, &room) => accepted,
            Some(_) = connections.join_next() => continue,
            () = wait_for_stop(&mut stop) => break,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                is_failing = false;
                let gate = gate.for_new_connection();
                let served = serve_connection(stream, peer.ip(), gate, stop.clone());
                connections.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                if !is_failing {
                    tracing::warn!(%error, "connections cannot be accepted; trying on");
                }
                is_failing = true;
                tokio::select! {
                    () = clock.sleep(ACCEPT_RETRY_DELAY) => {}
                    () = wait_for_stop(&mut stop) => break,
                }
            }
        }
    }
    drop(listener);
    let grace = clock.sleep(SHUTDOWN_GRACE);
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        () = grace => {}
    }
}

/// Accepts the next connection as soon as a permit is free. Cancel safe: the connection is accepted last.
async fn accept_with_permit(
    listener: &mut impl ConnectionListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

/// Waits until the server must stop, or its handle is dropped.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// A requested tunnel, which starts after the reply to its `CONNECT`.
struct TunnelRequest {
    upgrade: hyper::upgrade::OnUpgrade,
    /// Whether a fault rule closes the direction to the client.
    is_half_closed: bool,
}

/// The requested tunnel of a connection.
type RequestedTunnel = Arc<Mutex<Option<TunnelRequest>>>;

async fn serve_connection(
    stream: TcpStream,
    peer: IpAddr,
    gate: ConnectionContext,
    mut stop: watch::Receiver<bool>,
) {
    // Otherwise Nagle's algorithm and delayed acknowledgements add 40 ms to small requests.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let mut first = [0_u8; 1];
    let peeked = tokio::select! {
        peeked = stream.peek(&mut first) => peeked,
        () = wait_for_stop(&mut stop) => return,
    };
    if !matches!(peeked, Ok(1)) {
        return;
    }
    let stream = ResettableStream::new(stream, gate.reset.clone());
    if first[0] == TLS_HANDSHAKE {
        return serve_intercepted_tls(stream, peer, gate, stop).await;
    }
    let asked = RequestedTunnel::default();
    let service = service_fn(|request| {
        let (gate, asked) = (gate.clone(), Arc::clone(&asked));
        async move { handle_port_request(gate, peer, &asked, request).await }
    });
    let mut served = pin!(
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = wait_for_stop(&mut stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    let tunnel = asked.lock().take();
    if let Some(TunnelRequest { upgrade, is_half_closed }) = tunnel
        && let Ok(upgraded) = upgrade.await
    {
        let stream = TokioIo::new(upgraded);
        if is_half_closed {
            serve_half_closed(stream, stop).await;
        } else {
            serve_intercepted_tls(stream, peer, gate, stop).await;
        }
    }
}

/// Sends the end of the stream, and discards what the client sends until it closes the connection.
async fn serve_half_closed<S>(mut stream: S, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let discarded = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    tokio::select! {
        ended = discarded => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a half-closed tunnel ended early");
            }
        }
        () = wait_for_stop(&mut stop) => {}
    }
}

/// Serves TLS with a certificate for the requested Azure host.
async fn serve_intercepted_tls<S>(
    stream: S,
    peer: IpAddr,
    gate: ConnectionContext,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = tokio::select! {
        handshake = gate.tls.accept(stream) => handshake,
        () = wait_for_stop(&mut stop) => return,
    };
    let stream = match handshake {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
    };
    let name = stream.get_ref().1.server_name().unwrap_or_default().to_ascii_lowercase();
    let service = service_fn(|request| {
        let (gate, name) = (gate.clone(), name.clone());
        async move { handle_tunnel_request(gate, peer, &name, request).await }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = wait_for_stop(&mut stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an intercepted connection ended early");
    }
}

/// No reply is sent: the connection is closed.
#[derive(Debug, thiserror::Error)]
enum ConnectionAborted {
    #[error("the connection was reset by an injected fault")]
    FaultInjected,
    #[error("the runtime ended before the reply was ready")]
    Interrupted(#[source] tokio::task::JoinError),
}

type HttpResponse = http::Response<ReplyBody>;

async fn handle_port_request(
    gate: ConnectionContext,
    peer: IpAddr,
    asked: &RequestedTunnel,
    mut request: http::Request<Incoming>,
) -> Result<HttpResponse, ConnectionAborted> {
    if request.method() == Method::CONNECT {
        let host = normalize_host(request.uri().host().unwrap_or_default());
        let port = request.uri().port_u16().unwrap_or(443);
        if let Some(rejection) = gate.engine.reject_tunnel(&host, port) {
            return Ok(gate.http_response(rejection, false, ReplyDelivery::Complete));
        }
        let is_half_closed = gate.engine.half_closes_tunnel(&host);
        let upgrade = hyper::upgrade::on(&mut request);
        *asked.lock() = Some(TunnelRequest { upgrade, is_half_closed });
        let reply = ServiceReply::empty(StatusCode::OK);
        return Ok(gate.http_response(reply, false, ReplyDelivery::Complete));
    }
    if let Some(authority) = request.uri().authority() {
        let origin =
            RequestOrigin::plain(peer, RequestAuthority::of_uri(authority), Ingress::Proxy);
        return respond(&gate, origin, request).await;
    }
    let authority = RequestAuthority::from_header(&request);
    if !gate.allow_foreign_names && !is_loopback(&authority.host) {
        let origin = RequestOrigin::plain(peer, authority, Ingress::ForeignHostName);
        return respond(&gate, origin, request).await;
    }
    if let Some(ProxyTarget { host, path }) = proxy_target(&gate.engine.clouds, &request) {
        let authority = RequestAuthority::of_host(host);
        let mut origin = RequestOrigin::plain(peer, authority, Ingress::ProxyTarget);
        origin.path = Some(path);
        return respond(&gate, origin, request).await;
    }
    let ingress = if peer.is_loopback() { Ingress::Port } else { Ingress::RemotePort };
    respond(&gate, RequestOrigin::plain(peer, authority, ingress), request).await
}

fn proxy_target(clouds: &AzureClouds, request: &http::Request<Incoming>) -> Option<ProxyTarget> {
    let header = request.headers().get(PROXY_TARGET_HEADER)?.to_str().ok()?;
    ProxyTarget::parse(clouds, header, request.uri().path())
}

async fn handle_tunnel_request(
    gate: ConnectionContext,
    peer: IpAddr,
    name: &str,
    request: http::Request<Incoming>,
) -> Result<HttpResponse, ConnectionAborted> {
    // Clients of a token proxy name the token service or the API server as the host.
    if is_proxy_server_name(name) {
        let authority = RequestAuthority::of_host(name.to_owned());
        let origin = RequestOrigin::encrypted(peer, authority, Ingress::TokenProxy);
        return respond(&gate, origin, request).await;
    }
    let authority = match request.uri().authority() {
        Some(authority) => RequestAuthority::of_uri(authority),
        None => RequestAuthority::from_header(&request),
    };
    let ingress = if authority.host == name { Ingress::Tunnel } else { Ingress::MisdirectedTunnel };
    respond(&gate, RequestOrigin::encrypted(peer, authority, ingress), request).await
}

/// The host and the port that a request names.
#[derive(Debug, Default)]
struct RequestAuthority {
    /// Normalized.
    host: String,
    /// `None` for the default port.
    port: Option<u16>,
}

impl RequestAuthority {
    const fn of_host(host: String) -> Self {
        Self { host, port: None }
    }

    fn of_uri(authority: &http::uri::Authority) -> Self {
        Self { host: normalize_host(authority.host()), port: authority.port_u16() }
    }

    /// The authority in the `Host` header; an empty host without a valid header.
    fn from_header(request: &http::Request<Incoming>) -> Self {
        let text = request.headers().get(HOST).and_then(|value| value.to_str().ok());
        let authority = text.and_then(|text| text.parse().ok());
        authority.as_ref().map(Self::of_uri).unwrap_or_default()
    }
}

/// How and from where a request arrived.
struct RequestOrigin {
    scheme: RequestScheme,
    peer: IpAddr,
    authority: RequestAuthority,
    /// The path that replaces that of the request; `None` if the request's own path applies.
    path: Option<String>,
    ingress: Ingress,
}

impl RequestOrigin {
    const fn plain(peer: IpAddr, authority: RequestAuthority, ingress: Ingress) -> Self {
        Self { scheme: RequestScheme::Http, peer, authority, path: None, ingress }
    }

    const fn encrypted(peer: IpAddr, authority: RequestAuthority, ingress: Ingress) -> Self {
        Self { scheme: RequestScheme::Https, peer, authority, path: None, ingress }
    }
}

async fn respond(
    gate: &ConnectionContext,
    origin: RequestOrigin,
    request: http::Request<Incoming>,
) -> Result<HttpResponse, ConnectionAborted> {
    let head = request.method() == Method::HEAD;
    let engine = Arc::clone(&gate.engine);
    let ingress = origin.ingress;
    let request = match read_request(&engine.clouds, origin, request).await {
        Ok(request) => request,
        Err(rejected) => {
            let reply = rejected.reply(&engine, ingress).with_rejection_reason("body");
            let reply = engine.record_rejection(&rejected.request, reply);
            return Ok(gate.http_response(reply, head, ReplyDelivery::Complete));
        }
    };
    // Creating keys and hashing large bodies would block the other connections of this thread.
    let blocking = |run: Box<dyn FnOnce() -> EngineReply + Send>| async move {
        tokio::task::spawn_blocking(run).await.map_err(ConnectionAborted::Interrupted)
    };
    let slow = request.path.starts_with(CONTROL_PATH) || request.body.len() > LARGE_BODY_BYTES;
    let answer = if slow {
        blocking(Box::new(move || engine.handle_request(&request, ingress))).await?
    } else {
        match engine.begin_request(&request, ingress) {
            RequestProgress::Complete(answer) => answer,
            RequestProgress::WorkSuspended(suspended) => {
                blocking(Box::new(move || engine.resume_request(&request, suspended))).await?
            }
            RequestProgress::WorkDue => {
                blocking(Box::new(move || engine.handle_request(&request, ingress))).await?
            }
        }
    };
    let EngineReply { mut reply, commit, delay, delivery } = answer;
    if let Err(error) = commit.wait().await {
        reply = state_write_failed_reply(&error);
    }
    if !delay.is_zero() {
        gate.engine.clock.sleep(delay).await;
    }
    if delivery == ReplyDelivery::ResetBeforeHeaders {
        gate.reset.request();
        return Err(ConnectionAborted::FaultInjected);
    }
    Ok(gate.http_response(reply, head, delivery))
}

/// A request whose body is larger than the limit, or incomplete.
struct RequestWithoutBody {
    request: ServiceRequest,
    /// The limit in bytes.
    most: usize,
}

impl RequestWithoutBody {
    /// The error in the format of the service that the request names.
    fn reply(&self, engine: &EmulatorEngine, ingress: Ingress) -> ServiceReply {
        let is_control = ingress == Ingress::Port && self.request.path.starts_with(CONTROL_PATH);
        let service = if is_control {
            Some(AzureService::Control)
        } else {
            engine.clouds.endpoint_of_host(&self.request.host).map(|endpoint| endpoint.service)
        };
        let error = EngineError::BodyTooLarge { most: self.most };
        match service {
            Some(service) => (engine.services.error_format(service))(error),
            None => management_error_reply(error),
        }
    }
}

/// Reads a complete request.
async fn read_request(
    clouds: &AzureClouds,
    origin: RequestOrigin,
    request: http::Request<Incoming>,
) -> Result<ServiceRequest, RequestWithoutBody> {
    let (parts, body) = request.into_parts();
    let path = origin.path.as_deref().unwrap_or_else(|| parts.uri.path());
    let is_restore = origin.ingress == Ingress::Port
        && parts.method == Method::PUT
        && path == SNAPSHOT_PATH
        && parts.headers.get(CONTROL_HEADER).is_some_and(|value| value == "1");
    let RequestAuthority { host, port } = origin.authority;
    let most = if is_restore { MAX_SNAPSHOT_BYTES } else { max_body_bytes(clouds, &host) };
    let mut request = ServiceRequest {
        method: parts.method,
        scheme: origin.scheme,
        client_ip: Some(origin.peer.to_canonical()),
        path: clouds.request_path(&host, path),
        host,
        port: port.unwrap_or(HTTPS_PORT),
        query: parse_query(&parts.uri),
        headers: parts.headers,
        body: Bytes::new(),
    };
    match Limited::new(body, most).collect().await {
        Ok(body) => {
            request.body = body.to_bytes();
            Ok(request)
        }
        Err(_) => Err(RequestWithoutBody { request, most }),
    }
}

fn max_body_bytes(clouds: &AzureClouds, host: &str) -> usize {
    if clouds.is_blob_host(host) { MAX_BLOB_BODY_BYTES } else { MAX_BODY_BYTES }
}

fn parse_query(uri: &Uri) -> Vec<(String, String)> {
    let text = uri.query().unwrap_or_default();
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

impl ConnectionContext {
    fn http_response(
        &self,
        reply: ServiceReply,
        head: bool,
        delivery: ReplyDelivery,
    ) -> HttpResponse {
        let length = reply.body.len();
        let (body, delivery) =
            if head { (Bytes::new(), ReplyDelivery::Complete) } else { (reply.body, delivery) };
        let body = ReplyBody::new(body, delivery, &self.engine.clock, &self.reset);
        let mut response = http::Response::new(body);
        *response.status_mut() = reply.status;
        *response.headers_mut() = *reply.headers;
        if head && reply.status != StatusCode::NO_CONTENT {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        response
    }
}

/// Normalizes a host to lower case, without the brackets of IPv6 and without a trailing dot.
fn normalize_host(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated_service::body_too_large_message;

    #[test]
    fn error_names_the_limit_that_applied() {
        let message = body_too_large_message(MAX_SNAPSHOT_BYTES);
        assert!(message.contains("larger than 1024 MiB"), "{message}");
    }
}
