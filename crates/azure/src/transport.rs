//! Building the transport from settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::{ClientOptions, HttpClient, RetryOptions, Transport as SdkTransport};
use lanyard_clock::SharedClock;

use crate::circuit_breaker::CircuitBreakerPolicy;
use crate::host_queue::{FlowId, RequestPriority};
use crate::rate_limited_client::{RateLimitedClient, RequestPolicy};
use crate::rate_limiter::RequestRate;
use crate::retry::RetryPolicy;

/// Everything that decides how Azure is reached.
#[derive(Clone, Default)]
pub struct AzureTransportSettings {
    /// The proxy for https, as a URL; nothing for a direct connection.
    pub https_proxy: Option<String>,
    /// Hosts that are reached without the proxy, in the form of `NO_PROXY`.
    pub no_proxy: Option<String>,
    /// Certificates in PEM that are trusted instead of the system's roots.
    pub trusted_roots_pem: Option<Vec<u8>>,
    /// How fast a host is asked at most.
    pub rate: RequestRate,
    /// How failed requests are tried again.
    pub retry: RetryPolicy,
    /// When a host is left alone because it fails; nothing asks it for ever. A program that does
    /// one thing and ends has no use for it.
    pub breaker: Option<CircuitBreakerPolicy>,
}

/// An address of a proxy may hold a password.
impl fmt::Debug for AzureTransportSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TransportSettings")
            .field("https_proxy", &self.https_proxy.as_ref().map(|_| "set"))
            .field("no_proxy", &self.no_proxy)
            .field("rate", &self.rate)
            .field("retry", &self.retry)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}

/// The transport cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AzureTransportError {
    /// The proxy's address is none.
    #[error("the proxy's address is not one that can be used")]
    Proxy {
        /// What is wrong with it.
        #[source]
        source: reqwest::Error,
    },
    /// The trusted certificates cannot be read.
    #[error("the trusted certificates are not PEM certificates")]
    Roots {
        /// What is wrong with them.
        #[source]
        source: reqwest::Error,
    },
    /// TLS cannot be set up; most often the system has no trusted roots.
    #[error("the https client cannot be set up")]
    Client {
        /// What went wrong.
        #[source]
        source: reqwest::Error,
    },
}

impl AzureTransportError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Proxy { .. } => "set HTTPS_PROXY to a URL such as http://127.0.0.1:8444",
            Self::Roots { .. } => "give a file with -----BEGIN CERTIFICATE----- blocks",
            Self::Client { .. } => "install ca-certificates or point SSL_CERT_FILE at a bundle",
        }
    }
}

/// The way to Azure; cheap to clone, and all clones share connections, paces and cool-downs.
#[derive(Debug, Clone)]
pub struct AzureTransport {
    unlimited_client: Arc<dyn HttpClient>,
    limited_client: RateLimitedClient,
}

/// As the Azure SDK's own client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const READ_TIMEOUT: Duration = Duration::from_mins(1);

impl AzureTransport {
    /// Builds the transport.
    ///
    /// # Errors
    ///
    /// Where a setting cannot be used.
    pub fn new(
        settings: &AzureTransportSettings,
        clock: SharedClock,
    ) -> Result<Self, AzureTransportError> {
        Self::with_wrapped_client(settings, clock, |client| client)
    }

    /// The same around a client that sees each request as it is sent: to count what is asked.
    ///
    /// # Errors
    ///
    /// As [`AzureTransport::new`].
    pub fn with_wrapped_client(
        settings: &AzureTransportSettings,
        clock: SharedClock,
        wrap: impl FnOnce(Arc<dyn HttpClient>) -> Arc<dyn HttpClient>,
    ) -> Result<Self, AzureTransportError> {
        // `no_proxy` keeps reqwest from reading the environment: settings come from one place.
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if let Some(url) = &settings.https_proxy {
            let exceptions = settings.no_proxy.as_deref().and_then(reqwest::NoProxy::from_string);
            let proxy = reqwest::Proxy::https(url)
                .map_err(|source| AzureTransportError::Proxy { source })?
                .no_proxy(exceptions);
            builder = builder.proxy(proxy);
        }
        if let Some(pem) = &settings.trusted_roots_pem {
            let roots = reqwest::Certificate::from_pem_bundle(pem)
                .map_err(|source| AzureTransportError::Roots { source })?;
            builder = builder.tls_certs_only(roots);
        }
        let client = builder.build().map_err(|source| AzureTransportError::Client { source })?;
        Ok(Self::from_http_client(wrap(Arc::new(client)), settings, clock))
    }

    /// A transport over any HTTP client: for tests and for peers in a benchmark.
    pub fn from_http_client(
        client: Arc<dyn HttpClient>,
        settings: &AzureTransportSettings,
        clock: SharedClock,
    ) -> Self {
        let manners =
            RequestPolicy { rate: settings.rate, retry: settings.retry, breaker: settings.breaker };
        let limited_client = RateLimitedClient::new(Arc::clone(&client), clock, manners);
        Self { unlimited_client: client, limited_client }
    }

    /// The transport without pace and retry, for credentials: they own theirs.
    pub fn without_rate_limit(&self) -> SdkTransport {
        SdkTransport::new(Arc::clone(&self.unlimited_client))
    }

    /// Options for a client of the Azure SDK: this transport, and no retry of its own.
    pub fn client_options(&self) -> ClientOptions {
        self.client_options_with_priority(RequestPriority::default(), FlowId::default())
    }

    /// The same for a client whose requests go before or after others to the same host, and take
    /// turns with those of other askers.
    pub fn client_options_with_priority(
        &self,
        priority: RequestPriority,
        asker: FlowId,
    ) -> ClientOptions {
        ClientOptions {
            transport: Some(SdkTransport::new(Arc::new(
                self.limited_client.with_priority(priority, asker),
            ))),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        }
    }
}
