//! The connections to the Kubernetes API: HTTP/2, and few of them.
//!
//! A node that starts asks for hundreds of objects at once and then watches a namespace for every
//! few of its pods. With HTTP/1.1 each watch would hold a connection, and so would each of the calls
//! at work, and a handshake costs an API server more than the answer.

mod throttle;

use std::fmt;
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

use crate::access::AccessError;

/// Clients of one API server, each with a connection of its own.
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

    /// The client that asks over it.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Begins one watch after the other: only when the first has its connection, others can share
    /// it. Who begins while there is none dials for itself.
    pub async fn start<T>(&self, watch: impl Future<Output = T>) -> T {
        let _turn = self.dial_lock.lock().await;
        watch.await
    }
}

impl fmt::Debug for WatchConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WatchConnection").finish_non_exhaustive()
    }
}

impl ApiConnections {
    /// Connections that are opened when something is asked.
    pub(crate) fn of(config: &Config) -> Result<Self, AccessError> {
        let watch = || build_client(config, WATCH_KEEP_ALIVE).map(WatchConnection::of);
        let watches: Result<Vec<_>, _> = (0..WATCH_CONNECTIONS).map(|_| watch()).collect();
        Ok(Self { calls: build_client(config, CALL_KEEP_ALIVE)?, watches: watches?.into() })
    }

    /// Everything goes through this client.
    pub(crate) fn with_client(client: Client) -> Self {
        Self { watches: Arc::from([WatchConnection::of(client.clone())]), calls: client }
    }

    /// For whatever is over soon.
    pub(crate) const fn for_calls(&self) -> &Client {
        &self.calls
    }

    /// For a watch; `subject` is what is watched.
    pub(crate) fn for_watch(&self, subject: &str) -> &WatchConnection {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        let count = u64::try_from(self.watches.len()).unwrap_or(1);
        let place = usize::try_from(hasher.finish() % count).unwrap_or_default();
        &self.watches[place]
    }
}

/// How a connection is seen to be dead.
#[derive(Debug, Clone, Copy)]
struct KeepAliveSettings {
    interval: Duration,
    timeout: Duration,
}

fn build_client(config: &Config, pings: KeepAliveSettings) -> Result<Client, AccessError> {
    let refused = |source: kube::Error| AccessError::Client { source: Box::new(source) };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    // A frame must not wait for the acknowledgement of the one before it.
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
        // It counts from the last beginning, and a watch outlives it.
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

/// How many connections watches are spread over. An API server allows a hundred streams on each
/// (k8s.io/apiserver `secure_serving.go`), what is beyond waits without a word, and a node has at
/// most some hundred pods, each of which may be in a namespace of its own.
const WATCH_CONNECTIONS: usize = 4;

/// Silence is ordinary on a watch, so a dead connection shows by its pings alone. Both times are
/// client-go's.
const WATCH_KEEP_ALIVE: KeepAliveSettings =
    KeepAliveSettings { interval: Duration::from_secs(30), timeout: Duration::from_secs(15) };
/// A call that gets no answer must find its connection dead before its time is up, so that its next
/// try has another one.
const CALL_KEEP_ALIVE: KeepAliveSettings =
    KeepAliveSettings { interval: Duration::from_secs(4), timeout: Duration::from_secs(4) };

#[cfg(test)]
mod tests;
