//! The transport to Azure, built from settings.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::{ClientOptions, HttpClient, RetryOptions, Transport as SdkTransport};
use lanyard_clock::{ErrorHint, SharedClock};

use crate::circuit_breaker::CircuitBreakerPolicy;
use crate::host_queue::{FlowId, RequestPriority};
use crate::rate_limited_client::{RateLimitedClient, RequestPolicy};
use crate::rate_limiter::RequestRate;
use crate::reply_limit::ReplyLimitClient;
use crate::retry::RetryPolicy;

/// The settings of an [`AzureTransport`].
#[derive(Clone, Default)]
pub struct AzureTransportSettings {
    /// The URL of the proxy for https; `None` for direct connections.
    pub https_proxy: Option<String>,
    /// Hosts that are connected to without the proxy, in the format of `NO_PROXY`.
    pub no_proxy: Option<String>,
    /// PEM certificates that are trusted instead of the system's roots.
    pub trusted_roots_pem: Option<Vec<u8>>,
    /// The rate limit for each host.
    pub rate: RequestRate,
    /// The retry policy for failed requests.
    pub retry: RetryPolicy,
    /// The circuit breaker for failing hosts; `None` disables it. A short-lived command does not
    /// need one.
    pub breaker: Option<CircuitBreakerPolicy>,
}

/// Omits the proxy URL, which may contain a password.
impl fmt::Debug for AzureTransportSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AzureTransportSettings")
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
    /// The proxy URL is invalid.
    #[error("the proxy URL is invalid")]
    Proxy {
        /// The error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// The trusted certificates cannot be parsed.
    #[error("the trusted certificates are not PEM certificates")]
    Roots {
        /// The error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// TLS cannot be set up, usually because the system has no trusted roots.
    #[error("the https client cannot be set up")]
    Client {
        /// The error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
}

impl ErrorHint for AzureTransportError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Proxy { .. } => "set HTTPS_PROXY to a URL such as http://127.0.0.1:8444",
            Self::Roots { .. } => "give a file with -----BEGIN CERTIFICATE----- blocks",
            Self::Client { .. } => "install ca-certificates or point SSL_CERT_FILE at a bundle",
        }))
    }
}

/// The transport to Azure. It is cheap to clone; clones share connections, rate limits and
/// cool-downs.
#[derive(Debug, Clone)]
pub struct AzureTransport {
    unlimited_client: Arc<dyn HttpClient>,
    limited_client: RateLimitedClient,
}

/// The timeout of the Azure SDK's default client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const READ_TIMEOUT: Duration = Duration::from_mins(1);

impl AzureTransport {
    /// Builds the transport.
    ///
    /// # Errors
    ///
    /// [`AzureTransportError`] if a setting is invalid.
    pub fn new(
        settings: &AzureTransportSettings,
        clock: SharedClock,
    ) -> Result<Self, AzureTransportError> {
        Self::with_wrapped_client(settings, clock, |client| client)
    }

    /// Builds the transport around a wrapped HTTP client, which sees each request as it is sent,
    /// for example to count requests.
    ///
    /// # Errors
    ///
    /// As [`AzureTransport::new`].
    pub fn with_wrapped_client(
        settings: &AzureTransportSettings,
        clock: SharedClock,
        wrap: impl FnOnce(Arc<dyn HttpClient>) -> Arc<dyn HttpClient>,
    ) -> Result<Self, AzureTransportError> {
        // `no_proxy` keeps reqwest from reading the environment: only `settings` count.
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

    /// Builds a transport over any HTTP client, for tests and benchmarks.
    pub fn from_http_client(
        client: Arc<dyn HttpClient>,
        settings: &AzureTransportSettings,
        clock: SharedClock,
    ) -> Self {
        let client: Arc<dyn HttpClient> = Arc::new(ReplyLimitClient(client));
        let request_policy =
            RequestPolicy { rate: settings.rate, retry: settings.retry, breaker: settings.breaker };
        let limited_client = RateLimitedClient::new(Arc::clone(&client), clock, request_policy);
        Self { unlimited_client: client, limited_client }
    }

    /// The transport without rate limit and retries, for credentials, which have their own.
    pub fn without_rate_limit(&self) -> SdkTransport {
        SdkTransport::new(Arc::clone(&self.unlimited_client))
    }

    /// Client options for the Azure SDK: this transport, without the SDK's retries.
    pub fn client_options(&self) -> ClientOptions {
        self.client_options_with_priority(RequestPriority::default(), FlowId::default())
    }

    /// Client options with a priority and a flow for the requests to each host.
    pub fn client_options_with_priority(
        &self,
        priority: RequestPriority,
        flow: FlowId,
    ) -> ClientOptions {
        ClientOptions {
            transport: Some(SdkTransport::new(Arc::new(
                self.limited_client.with_priority(priority, flow),
            ))),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use azure_core::Bytes;
    use azure_core::http::headers::Headers;
    use azure_core::http::{AsyncRawResponse, Method, Request, StatusCode, Url};
    use futures::TryStreamExt as _;
    use jiff::Timestamp;
    use lanyard_clock::ManualClock;

    use super::*;
    use crate::reply_limit::ReplyTooLarge;

    const MEBIBYTE: usize = 1 << 20;

    /// An HTTP client whose replies have this number of pieces of one mebibyte.
    #[derive(Debug)]
    struct RepliesInPieces(usize);

    #[async_trait]
    impl HttpClient for RepliesInPieces {
        async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
            let piece = Bytes::from(vec![b'x'; MEBIBYTE]);
            let pieces = futures::stream::iter(
                (0..self.0).map(move |_| azure_core::Result::Ok(piece.clone())),
            );
            Ok(AsyncRawResponse::new(StatusCode::Ok, Headers::new(), Box::pin(pieces)))
        }
    }

    #[tokio::test]
    async fn replies_above_64_mebibytes_are_an_error_for_each_client_of_the_transport() {
        for (pieces, expected) in [(64, Ok(64 * MEBIBYTE)), (65, Err(64 * MEBIBYTE))] {
            let clock = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
            let client = Arc::new(RepliesInPieces(pieces));
            let settings = AzureTransportSettings::default();
            let transport = AzureTransport::from_http_client(client, &settings, clock);
            let limited: Arc<dyn HttpClient> = Arc::new(transport.limited_client.clone());
            for client in [&transport.unlimited_client, &limited] {
                let url = Url::parse("https://management.azure.com/").unwrap();
                let reply = client.execute_request(&Request::new(url, Method::Get)).await.unwrap();
                let body = reply.into_body();
                let read =
                    body.try_fold(0_usize, |sum, piece| async move { Ok(sum + piece.len()) }).await;
                let read = read.map_err(|error| ReplyTooLarge::of(&error).unwrap().limit);
                assert_eq!(read, expected);
            }
        }
    }
}
