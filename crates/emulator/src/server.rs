//! The listener: one port that is a proxy for Azure's names, the metadata service and the control
//! API at once.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use lanyard_clock::SharedClock;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::authority::LocalAuthority;
use crate::binding::is_server_name;
use crate::doors::Door;
use crate::engine::{Answer, Engine};
use crate::request::{Reply, Request, Scheme, normal_path};

/// How large a body may be: a vault takes 25 KB, a certificate import somewhat more.
const BODY_LIMIT: usize = 4 << 20;
/// How long a shutdown waits for clients that do not finish.
const GRACE: Duration = Duration::from_secs(5);

/// How many connections are open at once; more wait in the queue of the system.
pub(crate) const CONNECTIONS: usize = 1024;
/// How long the listener rests after it could not accept a connection: until a file descriptor
/// is free again, every attempt would fail at once.
const REST: Duration = Duration::from_millis(50);

/// The first byte of a TLS connection: the content type `handshake`.
const TLS_HANDSHAKE: u8 = 0x16;

/// Everything that a connection needs.
#[derive(Clone)]
pub(crate) struct Gate {
    engine: Arc<Engine>,
    tls: TlsAcceptor,
    /// Whether names other than loopback ones may address the port itself.
    remote: bool,
}

impl Gate {
    /// A gate whose TLS speaks for Azure's names.
    pub(crate) fn new(engine: Arc<Engine>, remote: bool) -> Result<Self, rustls::Error> {
        let resolver: Arc<LocalAuthority> = Arc::clone(&engine.authority);
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { engine, tls: TlsAcceptor::from(Arc::new(config)), remote })
    }
}

/// Where connections come from.
pub(crate) trait Accept: Send {
    /// The next connection, and who made it.
    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }
}

/// Serves at most `most` connections at once until `stop` says so, then lets the requests in
/// flight finish. `clock` is that of the clients outside, whatever clock the world runs on.
pub(crate) async fn serve(
    mut listener: impl Accept,
    gate: Gate,
    clock: SharedClock,
    most: usize,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = accept_one(&mut listener, &room) => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopped(&mut stop) => break,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                is_failing = false;
                let served = connection(stream, peer.ip(), gate.clone(), stop.clone());
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
                    () = clock.sleep(REST) => {}
                    () = stopped(&mut stop) => break,
                }
            }
        }
    }
    drop(listener);
    let grace = clock.sleep(GRACE);
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        () = grace => {}
    }
}

/// The next connection, once there is room for it. Nothing is lost if this is dropped halfway: a
/// connection is taken from the queue last.
async fn accept_one(
    listener: &mut impl Accept,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

/// Ready once the server shall stop, or is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// A tunnel that a client asked for: taken over once its `CONNECT` is answered.
type AskedTunnel = Arc<Mutex<Option<hyper::upgrade::OnUpgrade>>>;

async fn connection(stream: TcpStream, peer: IpAddr, gate: Gate, mut stop: watch::Receiver<bool>) {
    // Without it, Nagle's algorithm and delayed acknowledgements add 40 ms to small requests.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let mut first = [0_u8; 1];
    let peeked = tokio::select! {
        peeked = stream.peek(&mut first) => peeked,
        () = stopped(&mut stop) => return,
    };
    match peeked {
        Ok(1) if first[0] == TLS_HANDSHAKE => return intercepted(stream, gate, stop).await,
        Ok(1) => {}
        _ => return,
    }
    let asked = AskedTunnel::default();
    let service = service_fn(|request| {
        let (gate, asked) = (gate.clone(), Arc::clone(&asked));
        async move { at_port(gate, peer, &asked, request).await }
    });
    let mut served = pin!(
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stopped(&mut stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    let tunnel = asked.lock().take();
    if let Some(tunnel) = tunnel
        && let Ok(upgraded) = tunnel.await
    {
        intercepted(TokioIo::new(upgraded), gate, stop).await;
    }
}

/// Speaks TLS in the name of the Azure host that the client asks for.
async fn intercepted<S>(stream: S, gate: Gate, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = tokio::select! {
        handshake = gate.tls.accept(stream) => handshake,
        () = stopped(&mut stop) => return,
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
        async move { in_tunnel(gate, &name, request).await }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stopped(&mut stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an intercepted connection ended early");
    }
}

/// The reply never comes: the connection ends.
#[derive(Debug, thiserror::Error)]
enum Reset {
    #[error("the connection was reset by an injected fault")]
    Injected,
    #[error("the runtime ended before the reply was ready")]
    Interrupted(#[source] tokio::task::JoinError),
}

type HttpReply = http::Response<Full<Bytes>>;

async fn at_port(
    gate: Gate,
    peer: IpAddr,
    asked: &AskedTunnel,
    mut request: http::Request<Incoming>,
) -> Result<HttpReply, Reset> {
    if request.method() == Method::CONNECT {
        let host = host_of(request.uri().host().unwrap_or_default());
        let port = request.uri().port_u16().unwrap_or(443);
        if let Some(refusal) = gate.engine.refuse_tunnel(&host, port) {
            return Ok(rendered(refusal, false));
        }
        *asked.lock() = Some(hyper::upgrade::on(&mut request));
        return Ok(rendered(Reply::empty(StatusCode::OK), false));
    }
    if let Some(host) = request.uri().host() {
        return answered(&gate, Scheme::Http, host_of(host), Door::Proxy, request).await;
    }
    let host = host_header(&request);
    let door = if !gate.remote && !is_loopback(&host) {
        Door::ForeignName
    } else if peer.is_loopback() {
        Door::Port
    } else {
        Door::RemotePort
    };
    answered(&gate, Scheme::Http, host, door, request).await
}

async fn in_tunnel(
    gate: Gate,
    name: &str,
    request: http::Request<Incoming>,
) -> Result<HttpReply, Reset> {
    // Clients of a token proxy go on naming the token service, or name the API server.
    if is_server_name(name) {
        return answered(&gate, Scheme::Https, name.to_owned(), Door::TokenProxy, request).await;
    }
    let host = request.uri().host().map_or_else(|| host_header(&request), host_of);
    let door = if host == name { Door::Tunnel } else { Door::Misdirected };
    answered(&gate, Scheme::Https, host, door, request).await
}

async fn answered(
    gate: &Gate,
    scheme: Scheme,
    host: String,
    door: Door,
    request: http::Request<Incoming>,
) -> Result<HttpReply, Reset> {
    let head = request.method() == Method::HEAD;
    let engine = Arc::clone(&gate.engine);
    let request = match read(scheme, host, request).await {
        Ok(request) => request,
        Err(bodiless) => {
            let reply = Reply::text(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is larger than 4 MiB, or it broke off\n",
            );
            return Ok(rendered(engine.refuse(&bodiless, reply.because("body")), head));
        }
    };
    // Writing files and making keys would hold up the other connections of this thread.
    let slow = engine.is_stored() || request.path.starts_with("/lanyard/");
    let answer = if slow {
        tokio::task::spawn_blocking(move || engine.answer(&request, door))
            .await
            .map_err(Reset::Interrupted)?
    } else {
        engine.answer(&request, door)
    };
    let Answer { reply, delay, reset } = answer;
    if !delay.is_zero() {
        gate.engine.clock.sleep(delay).await;
    }
    if reset { Err(Reset::Injected) } else { Ok(rendered(reply, head)) }
}

/// Reads a request completely; without its body, if that is too large or breaks off.
async fn read(
    scheme: Scheme,
    host: String,
    request: http::Request<Incoming>,
) -> Result<Request, Request> {
    let (parts, body) = request.into_parts();
    let mut request = Request {
        method: parts.method,
        scheme,
        host,
        path: normal_path(parts.uri.path()),
        query: query(&parts.uri),
        headers: parts.headers,
        body: Bytes::new(),
    };
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => {
            request.body = body.to_bytes();
            Ok(request)
        }
        Err(_) => Err(request),
    }
}

fn query(uri: &Uri) -> Vec<(String, String)> {
    let text = uri.query().unwrap_or_default();
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

fn rendered(reply: Reply, head: bool) -> HttpReply {
    let length = reply.body.len();
    let mut response = http::Response::new(Full::new(if head { Bytes::new() } else { reply.body }));
    *response.status_mut() = reply.status;
    for (name, value) in reply.headers {
        response.headers_mut().append(name, value);
    }
    if head && reply.status != StatusCode::NO_CONTENT {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}

/// A host in lower case, without the brackets of IPv6 and without the dot of a complete name.
fn host_of(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

fn host_header(request: &http::Request<Incoming>) -> String {
    let text = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let authority = text.and_then(|text| text.parse::<http::uri::Authority>().ok());
    authority.map(|authority| host_of(authority.host())).unwrap_or_default()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
