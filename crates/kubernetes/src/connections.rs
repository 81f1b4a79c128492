//! The HTTP/2 connections to the Kubernetes API.
//!
//! A starting node reads hundreds of objects at once and then watches a namespace for every few of its
//! pods. With HTTP/1.1 each watch and each concurrent call would hold a connection of its own, and a TLS
//! handshake costs the API server more than an answer.

mod throttle;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{ClientBuilder, ConfigExt};
use kube::{Client, Config};
use rustls_pki_types::ServerName;
use tokio::sync::Mutex;
use tower::{BoxError, ServiceBuilder};

use crate::access_error::AccessError;

/// Clients of one API server, each with its own connection: one for calls, several for watches.
#[derive(Clone)]
pub(crate) struct ApiConnections {
    calls: Client,
    watches: Arc<[WatchConnection]>,
}

/// A connection that several watches share.
pub struct WatchConnection {
    client: Client,
    dial_lock: Mutex<()>,
}

impl WatchConnection {
    const fn of(client: Client) -> Self {
        Self { client, dial_lock: Mutex::const_new(()) }
    }

    /// The client that uses this connection.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Starts watches one after the other, so that all but the first reuse the connection that the first
    /// opened. Concurrent starts would each open a connection.
    pub async fn start<T>(&self, watch: impl Future<Output = T>) -> T {
        let _turn = self.dial_lock.lock().await;
        watch.await
    }
}

lanyard_vocabulary::debug_fields!(WatchConnection);

impl ApiConnections {
    /// Builds clients that connect on their first request.
    pub(crate) fn of(config: &Config) -> Result<Self, AccessError> {
        let watch = || build_client(config, WATCH_KEEP_ALIVE).map(WatchConnection::of);
        let watches: Result<Vec<_>, _> = (0..WATCH_CONNECTIONS).map(|_| watch()).collect();
        Ok(Self { calls: build_client(config, CALL_KEEP_ALIVE)?, watches: watches?.into() })
    }

    /// Uses this client for calls and watches.
    pub(crate) fn with_client(client: Client) -> Self {
        Self { watches: Arc::from([WatchConnection::of(client.clone())]), calls: client }
    }

    /// The client for short calls.
    pub(crate) const fn for_calls(&self) -> &Client {
        &self.calls
    }

    /// The connection for a watch; `subject` is the watched resource.
    pub(crate) fn for_watch(&self, subject: &str) -> &WatchConnection {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        let count = u64::try_from(self.watches.len()).unwrap_or(1);
        let place = usize::try_from(hasher.finish() % count).unwrap_or_default();
        &self.watches[place]
    }
}

/// HTTP/2 pings that detect a dead connection.
#[derive(Debug, Clone, Copy)]
struct KeepAliveSettings {
    interval: Duration,
    timeout: Duration,
}

fn build_client(config: &Config, pings: KeepAliveSettings) -> Result<Client, AccessError> {
    let refused = |source: kube::Error| AccessError::Client { source: Box::new(source) };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    // Do not delay a frame until the previous one is acknowledged.
    http.set_nodelay(true);
    let tls = config.rustls_client_config().map_err(refused)?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone())
            .map_err(|source| AccessError::ServerName { name: name.clone(), source })?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let https = https.enable_all_versions().wrap_connector(http);
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(config.connect_timeout);
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        // hyper measures idleness from the last request start, and a watch lasts longer.
        .pool_idle_timeout(None)
        .http2_keep_alive_interval(pings.interval)
        .http2_keep_alive_timeout(pings.timeout)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(refused)?)
        .layer(config.extra_headers_layer().map_err(refused)?)
        .and_then(throttle::copy_retry_after)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// The number of connections for watches. An API server allows 100 streams per connection
/// (k8s.io/apiserver `secure_serving.go`); further requests wait without an error. A node has at most
/// some hundred pods, each of which may be in its own namespace.
const WATCH_CONNECTIONS: usize = 4;

/// A watch may be silent, so only pings detect its dead connection. Both values are client-go's.
const WATCH_KEEP_ALIVE: KeepAliveSettings =
    KeepAliveSettings { interval: Duration::from_secs(30), timeout: Duration::from_secs(15) };
/// Pings detect the dead connection of a call before the call times out, so that the next attempt opens
/// a new connection.
const CALL_KEEP_ALIVE: KeepAliveSettings =
    KeepAliveSettings { interval: Duration::from_secs(4), timeout: Duration::from_secs(4) };

#[cfg(test)]
mod tests;
