//! The listener: one port serves as the proxy for Azure's names, the metadata service and the control API.

mod connection_activity;
mod intercepted_tls;
mod open_connections;
mod reply_delivery;
mod request_body;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, Method, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use lanyard_clock::SharedClock;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::fault_rules::ReplyDelivery;
use lanyard_emulator_state::identity_binding::is_proxy_server_name;
use lanyard_emulator_state::request::{HTTPS_PORT, RequestScheme, ServiceReply, ServiceRequest};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::connection_activity::{ConnectionActivity, RequestInFlight};
pub use self::connection_activity::{FIRST_REQUEST_TIMEOUT, IDLE_TIMEOUT};
pub use self::open_connections::{MAX_CONNECTIONS, REQUEST_GRACE};
use self::open_connections::{PeerConnections, UnusedConnections};
use self::reply_delivery::{ConnectionReset, ReplyBody, ResettableStream};
pub use self::request_body::BODY_TIMEOUT;
use self::request_body::{BodyError, read_body};
use crate::engine::{EmulatorEngine, EngineReply, RequestProgress, state_write_failed_reply};
use crate::exclusive_writes::EXCLUSIVE_WRITE_TIME;
use crate::ingress::{Ingress, PROXY_TARGET_HEADER, ProxyTarget};

const CONTROL_PATH: &str = "/lanyard/";
/// Handling a larger body takes so long that it would block the other connections of a thread.
const LARGE_BODY_BYTES: usize = 1 << 20;
/// How long a shutdown, or the end of an idle connection, waits for replies that are being sent.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

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
}

lanyard_vocabulary::debug_fields!(ConnectionContext);

impl ConnectionContext {
    /// Creates the context, with TLS certificates for Azure's names.
    pub fn new(engine: Arc<EmulatorEngine>, remote: bool) -> Result<Self, rustls::Error> {
        let tls = TlsAcceptor::from(Arc::new(intercepted_tls::tls_config(&engine)?));
        Ok(Self { engine, tls, allow_foreign_names: remote })
    }
}

/// One connection, which its requests share.
struct Connection {
    context: ConnectionContext,
    peer: IpAddr,
    /// The real clock.
    clock: SharedClock,
    stop: watch::Receiver<bool>,
    /// Whether the connection has to be reset.
    reset: ConnectionReset,
    activity: ConnectionActivity,
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
    context: ConnectionContext,
    clock: SharedClock,
    most: usize,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(most));
    let peers = PeerConnections::default();
    let mut unused = UnusedConnections::default();
    let mut connections = JoinSet::new();
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = wait_for_stop(&mut stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                is_failing = false;
                let waiting = wait_for_permit(&room, &mut unused, &clock);
                let permit = tokio::select! {
                    permit = waiting => permit,
                    () = wait_for_stop(&mut stop) => break,
                };
                let peer = peer.ip().to_canonical();
                let Some(counted) = peers.open(peer) else {
                    tracing::debug!(%peer, "a connection is closed: its peer has too many");
                    continue;
                };
                let activity = ConnectionActivity::default();
                let connection = Connection {
                    context: context.clone(),
                    peer,
                    clock: SharedClock::clone(&clock),
                    stop: stop.clone(),
                    reset: ConnectionReset::default(),
                    activity: activity.clone(),
                };
                let served = serve_connection(stream, Arc::new(connection));
                let task = connections.spawn(async move {
                    served.await;
                    drop((permit, counted));
                });
                unused.add(task, activity, clock.monotonic());
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

/// Waits until another connection may be open. Meanwhile, connections that send no request are closed.
async fn wait_for_permit(
    room: &Arc<Semaphore>,
    unused: &mut UnusedConnections,
    clock: &SharedClock,
) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
            return Some(permit);
        }
        let remaining = unused.close_oldest(clock.monotonic());
        let next_close = async {
            match remaining {
                Some(remaining) => clock.sleep(remaining).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            permit = Arc::clone(room).acquire_owned() => return permit.ok(),
            () = next_close => {}
        }
    }
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

async fn serve_connection(stream: TcpStream, connection: Arc<Connection>) {
    // Otherwise Nagle's algorithm and delayed acknowledgements add 40 ms to small requests.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let mut first = [0_u8; 1];
    if !matches!(connection.within_first_timeout(stream.peek(&mut first)).await, Some(Ok(1))) {
        return;
    }
    let stream = ResettableStream::new(stream, connection.reset.clone());
    if first[0] == TLS_HANDSHAKE {
        return serve_intercepted_tls(stream, connection).await;
    }
    let asked = RequestedTunnel::default();
    let service = service_fn(|request| {
        let (connection, asked) = (Arc::clone(&connection), Arc::clone(&asked));
        async move { handle_port_request(&connection, &asked, request).await }
    });
    let builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    connection.run_to_end(served).await;
    let tunnel = asked.lock().take();
    if let Some(TunnelRequest { upgrade, is_half_closed }) = tunnel
        && let Ok(upgraded) = upgrade.await
    {
        let stream = TokioIo::new(upgraded);
        if is_half_closed {
            serve_half_closed(stream, connection.stop.clone()).await;
        } else {
            serve_intercepted_tls(stream, connection).await;
        }
    }
}

impl Connection {
    /// The result of the start of a connection; `None` if it takes too long, or if the server must stop.
    async fn within_first_timeout<T>(&self, start: impl Future<Output = T>) -> Option<T> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            started = start => Some(started),
            () = async { self.clock.sleep(FIRST_REQUEST_TIMEOUT).await } => None,
            () = wait_for_stop(&mut stop) => None,
        }
    }

    /// Handles the requests of a connection until it ends. A connection that is idle for too long, or that the
    /// server must stop, may complete the replies that are being sent.
    async fn run_to_end<C: GracefulConnection<Error: fmt::Display>>(&self, served: C) {
        let (mut served, mut stop) = (pin!(served), self.stop.clone());
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = self.activity.wait_until_idle(&self.clock) => {
                served.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = served => ended,
                    () = self.clock.sleep(SHUTDOWN_GRACE) => return,
                }
            }
            () = wait_for_stop(&mut stop) => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
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
async fn serve_intercepted_tls<S>(stream: S, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let accepted = connection.context.tls.accept(stream);
    let Some(handshake) = connection.within_first_timeout(accepted).await else { return };
    let stream = match handshake {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
    };
    let name = stream.get_ref().1.server_name().unwrap_or_default().to_ascii_lowercase();
    let service = service_fn(|request| {
        let (connection, name) = (Arc::clone(&connection), name.clone());
        async move { handle_tunnel_request(&connection, &name, request).await }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    connection.run_to_end(builder.serve_connection(TokioIo::new(stream), service)).await;
}

/// No reply is sent: the connection is closed.
#[derive(Debug, thiserror::Error)]
enum ConnectionAborted {
    #[error("the connection was reset by an injected fault")]
    FaultInjected,
    #[error("the connection closed before the end of the body of its request")]
    BodyInterrupted,
    #[error("the client sent the body of its request too slowly")]
    BodyTimedOut,
    #[error("the runtime ended before the reply was ready")]
    Interrupted(#[source] tokio::task::JoinError),
}

type HttpResponse = http::Response<ReplyBody>;

async fn handle_port_request(
    connection: &Connection,
    asked: &RequestedTunnel,
    mut request: http::Request<Incoming>,
) -> Result<HttpResponse, ConnectionAborted> {
    let in_flight = connection.activity.begin_request();
    let (peer, engine) = (connection.peer, &connection.context.engine);
    if request.method() == Method::CONNECT {
        let host = normalize_host(request.uri().host().unwrap_or_default());
        let port = request.uri().port_u16().unwrap_or(443);
        if has_several_hosts(request.headers()) {
            let request = ServiceRequest::connect(&host, port);
            let reply = engine.record_rejection(&request, several_hosts_reply());
            return Ok(connection.complete_response(reply, false, in_flight));
        }
        if let Some(rejection) = engine.reject_tunnel(&host, port) {
            return Ok(connection.complete_response(rejection, false, in_flight));
        }
        let is_half_closed = engine.half_closes_tunnel(&host);
        let upgrade = hyper::upgrade::on(&mut request);
        *asked.lock() = Some(TunnelRequest { upgrade, is_half_closed });
        let reply = ServiceReply::empty(StatusCode::OK);
        return Ok(connection.complete_response(reply, false, in_flight));
    }
    if let Some(authority) = request.uri().authority() {
        let origin =
            RequestOrigin::plain(peer, RequestAuthority::of_uri(authority), Ingress::Proxy);
        return respond(connection, origin, request, in_flight).await;
    }
    let authority = RequestAuthority::from_header(&request);
    if !connection.context.allow_foreign_names && !is_loopback(&authority.host) {
        let origin = RequestOrigin::plain(peer, authority, Ingress::ForeignHostName);
        return respond(connection, origin, request, in_flight).await;
    }
    if let Some(ProxyTarget { host, path }) = proxy_target(&engine.clouds, &request) {
        let authority = RequestAuthority::of_host(host);
        let mut origin = RequestOrigin::plain(peer, authority, Ingress::ProxyTarget);
        origin.path = Some(path);
        return respond(connection, origin, request, in_flight).await;
    }
    // A web page with DNS rebinding has the address of this machine, and the name of its own site.
    let is_local = peer.is_loopback() && is_loopback(&authority.host);
    let ingress = if is_local { Ingress::Port } else { Ingress::RemotePort };
    let origin = RequestOrigin::plain(peer, authority, ingress);
    respond(connection, origin, request, in_flight).await
}

fn proxy_target(clouds: &AzureClouds, request: &http::Request<Incoming>) -> Option<ProxyTarget> {
    let header = request.headers().get(PROXY_TARGET_HEADER)?.to_str().ok()?;
    ProxyTarget::parse(clouds, header, request.uri().path())
}

async fn handle_tunnel_request(
    connection: &Connection,
    name: &str,
    request: http::Request<Incoming>,
) -> Result<HttpResponse, ConnectionAborted> {
    let in_flight = connection.activity.begin_request();
    let peer = connection.peer;
    // Clients of a token proxy name the token service or the API server as the host.
    if is_proxy_server_name(name) {
        let authority = RequestAuthority::of_host(name.to_owned());
        let origin = RequestOrigin::encrypted(peer, authority, Ingress::TokenProxy);
        return respond(connection, origin, request, in_flight).await;
    }
    let authority = match request.uri().authority() {
        Some(authority) => RequestAuthority::of_uri(authority),
        None => RequestAuthority::from_header(&request),
    };
    let ingress = if authority.host == name { Ingress::Tunnel } else { Ingress::MisdirectedTunnel };
    let origin = RequestOrigin::encrypted(peer, authority, ingress);
    respond(connection, origin, request, in_flight).await
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

    /// The request without its body.
    fn into_request(self, clouds: &AzureClouds, parts: http::request::Parts) -> ServiceRequest {
        let path = self.path.as_deref().unwrap_or_else(|| parts.uri.path());
        let RequestAuthority { host, port } = self.authority;
        ServiceRequest {
            method: parts.method,
            scheme: self.scheme,
            client_ip: Some(self.peer),
            path: clouds.request_path(&host, path),
            host,
            port: port.unwrap_or(HTTPS_PORT),
            query: parse_query(&parts.uri),
            headers: parts.headers,
            body: Bytes::new(),
        }
    }
}

async fn respond(
    connection: &Connection,
    origin: RequestOrigin,
    request: http::Request<Incoming>,
    in_flight: RequestInFlight,
) -> Result<HttpResponse, ConnectionAborted> {
    let head = request.method() == Method::HEAD;
    let engine = Arc::clone(&connection.context.engine);
    let ingress = origin.ingress;
    let (parts, body) = request.into_parts();
    let mut request = origin.into_request(&engine.clouds, parts);
    if has_several_hosts(&request.headers) {
        let reply = engine.record_rejection(&request, several_hosts_reply());
        return Ok(connection.complete_response(reply, head, in_flight));
    }
    match read_body(&engine, ingress, &request, body, &connection.clock).await {
        Ok(body) => request.body = body,
        Err(BodyError::Rejected(answer)) => {
            return Ok(connection.complete_response(answer.reply, head, in_flight));
        }
        Err(BodyError::TooLarge { most }) => {
            let reply = engine.reject_large_body(&request, ingress, most);
            return Ok(connection.complete_response(reply, head, in_flight));
        }
        Err(BodyError::Interrupted) => return Err(ConnectionAborted::BodyInterrupted),
        Err(BodyError::TimedOut) => return Err(ConnectionAborted::BodyTimedOut),
    }
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
    let EngineReply { mut reply, commit, delay, delivery, exclusive_write } = answer;
    if let Err(error) = commit.wait().await {
        reply = state_write_failed_reply(&error);
    }
    if !delay.is_zero() {
        connection.context.engine.clock.sleep(delay).await;
    }
    if exclusive_write.is_some() {
        connection.clock.sleep(EXCLUSIVE_WRITE_TIME).await;
    }
    if delivery == ReplyDelivery::ResetBeforeHeaders {
        connection.reset.request();
        return Err(ConnectionAborted::FaultInjected);
    }
    Ok(connection.http_response(reply, head, delivery, in_flight))
}

fn parse_query(uri: &Uri) -> Vec<(String, String)> {
    let text = uri.query().unwrap_or_default();
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

impl Connection {
    fn complete_response(
        &self,
        reply: ServiceReply,
        head: bool,
        in_flight: RequestInFlight,
    ) -> HttpResponse {
        self.http_response(reply, head, ReplyDelivery::Complete, in_flight)
    }

    fn http_response(
        &self,
        reply: ServiceReply,
        head: bool,
        delivery: ReplyDelivery,
        in_flight: RequestInFlight,
    ) -> HttpResponse {
        let length = reply.body.len();
        let (body, delivery) =
            if head { (Bytes::new(), ReplyDelivery::Complete) } else { (reply.body, delivery) };
        let clock = &self.context.engine.clock;
        let body = ReplyBody::new(body, delivery, clock, &self.reset, in_flight);
        let mut response = http::Response::new(body);
        *response.status_mut() = reply.status;
        *response.headers_mut() = *reply.headers;
        if head && reply.status != StatusCode::NO_CONTENT {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        response
    }
}

/// Whether a request has more than one `Host`, so that two servers could understand it differently.
fn has_several_hosts(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().nth(1).is_some()
}

fn several_hosts_reply() -> ServiceReply {
    ServiceReply::text(StatusCode::BAD_REQUEST, "the request has more than one Host header\n")
        .with_rejection_reason("several Host headers")
}

/// Normalizes a host to lower case, without the brackets of IPv6 and without a trailing dot.
fn normalize_host(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
