//! The token proxy of AKS identity bindings: token requests go to the cluster's API server, which forwards
//! them to Entra.
//!
//! The request is the one that Entra would receive; only its route differs. The API server recognises
//! requests for the proxy by the server name of the TLS handshake (SNI), which is derived from the cluster's
//! id. The id is among the names of the API server's certificate.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::{AsyncRawResponse, HttpClient, Request, Url};
use lanyard_clock::ErrorHint;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::tls::TlsInfo;
use tokio::sync::Mutex;
use x509_parser::extensions::GeneralName;

/// The address and trust settings of a cluster's token proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenProxySettings {
    /// The URL of the proxy (`--token-proxy-url`); defaults to the API server's name inside the cluster.
    pub url: Option<String>,
    /// The server name of the handshake (`--sni-name`); computed from the names in the API server's
    /// certificate by default.
    pub server_name: Option<String>,
    /// A PEM file with the only trusted roots, the cluster's CA. It is read for each request, because
    /// clusters rotate it, and must exist. With `None` the system roots are trusted.
    pub ca_file: Option<PathBuf>,
}

/// Errors of the token proxy.
///
/// All callers that wait for one request share its error, so it can be cloned.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TokenProxyError {
    /// The address of the proxy is not an `https` URL with a host.
    #[error("the token proxy's url is not an https url without user name, query and fragment")]
    Address,
    /// The server name is not a DNS name.
    #[error("the token proxy's server name is not a host name")]
    ServerName,
    /// The CA file cannot be read.
    #[error("cannot read the token proxy's roots in {}", path.display())]
    CaFile {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The HTTP client cannot be built, usually because the CA file contains no PEM certificates.
    #[error("the http client for the token proxy cannot be built")]
    Client(#[source] Arc<reqwest::Error>),
    /// The API server did not respond, so the server name could not be computed.
    #[error("the API server at {url} did not present its certificate")]
    NoCertificate {
        /// The URL of the request.
        url: Url,
        /// The error of the request, if it failed.
        #[source]
        source: Option<Arc<reqwest::Error>>,
    },
    /// The API server's certificate does not name the cluster.
    #[error(
        "no name in the API server's certificate has the form \
         {CLUSTER_PREFIX}<id>{CLUSTER_SUFFIX}"
    )]
    NoClusterId,
}

impl TokenProxyError {
    /// Finds a token proxy error in the source chain of an SDK error.
    pub(crate) fn of(error: &Error) -> Option<&Self> {
        error.downcast_ref()
    }

    /// Whether the cause is the API server and not the settings of the proxy.
    pub(crate) const fn is_outage(&self) -> bool {
        matches!(self, Self::NoCertificate { .. })
    }
}

impl ErrorHint for TokenProxyError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Address => "write it as https://host:port",
            Self::ServerName => "give the SNI name that AKS documents for the cluster",
            Self::CaFile { .. } | Self::Client(_) => {
                "give the cluster's CA as a file of -----BEGIN CERTIFICATE----- blocks"
            }
            Self::NoCertificate { .. } => {
                "check the way to the API server, or give --sni-name so that it is not asked"
            }
            Self::NoClusterId => {
                "the cluster is not one of AKS with identity bindings; give --sni-name if it is"
            }
        }))
    }
}

/// The client of a cluster's token proxy.
///
/// [`Self::into_client`] converts it to the HTTP client of a [`TokenTransport`](crate::TokenTransport). It
/// sends no request before the first token request.
#[derive(Debug)]
pub struct TokenProxy {
    url: Url,
    ca_file: Option<PathBuf>,
    state: Mutex<TokenProxyState>,
    /// The number of failures to determine the server name.
    failures: AtomicU64,
}

/// Cached results.
#[derive(Default)]
struct TokenProxyState {
    server_name: Option<String>,
    /// The last failure to determine the server name.
    failure: Option<TokenProxyError>,
    client: Option<ProxyHttpClient>,
}

/// A client, and the roots that it was built with.
struct ProxyHttpClient {
    client: Arc<dyn HttpClient>,
    roots: Option<Vec<u8>>,
}

/// The client is rebuilt often; its roots are public.
impl fmt::Debug for TokenProxyState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Known")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl TokenProxy {
    /// Parses the settings.
    ///
    /// # Errors
    ///
    /// Returns [`TokenProxyError::Address`] or [`TokenProxyError::ServerName`].
    pub fn parse(settings: TokenProxySettings) -> Result<Self, TokenProxyError> {
        let text = settings.url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let url: Url = text.unwrap_or(API_SERVER).parse().or(Err(TokenProxyError::Address))?;
        let plain = url.scheme() == "https"
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !plain {
            return Err(TokenProxyError::Address);
        }
        let server_name = settings.server_name.as_deref().map(str::trim);
        let server_name = server_name.filter(|name| !name.is_empty()).map(str::to_owned);
        if server_name.as_deref().is_some_and(|name| !is_host_name(name)) {
            return Err(TokenProxyError::ServerName);
        }
        let method = Mutex::new(TokenProxyState { server_name, ..TokenProxyState::default() });
        Ok(Self { url, ca_file: settings.ca_file, state: method, failures: AtomicU64::new(0) })
    }

    /// Converts the proxy to an HTTP client that sends every request to the proxy, whatever its host.
    pub fn into_client(self) -> Arc<dyn HttpClient> {
        Arc::new(self)
    }

    /// The client for the current roots, and the server name.
    async fn client_and_server_name(
        &self,
    ) -> Result<(Arc<dyn HttpClient>, String), TokenProxyError> {
        let failures = self.failures.load(Ordering::Acquire);
        let roots = self.load_roots().await?;
        let mut known = self.state.lock().await;
        let server_name = if let Some(name) = &known.server_name {
            name.clone()
        } else {
            // The previous holder of the lock has just failed, and all waiting callers would fail one after
            // the other.
            if self.failures.load(Ordering::Acquire) != failures
                && let Some(failure) = &known.failure
            {
                return Err(failure.clone());
            }
            let name = match self.fetch_server_name(roots.as_deref()).await {
                Ok(name) => name,
                Err(failure) => {
                    known.failure = Some(failure.clone());
                    self.failures.fetch_add(1, Ordering::Release);
                    return Err(failure);
                }
            };
            tracing::info!(url = %self.url, server_name = name, "found the token proxy");
            known.server_name.insert(name).clone()
        };
        if let Some(trusting) = &known.client
            && trusting.roots == roots
        {
            return Ok((Arc::clone(&trusting.client), server_name));
        }
        let resolver = Arc::new(ProxyResolver::of(&self.url));
        let builder = with_roots(client_builder(), roots.as_deref())?.dns_resolver(resolver);
        let client = builder.build().map_err(http_client_error)?;
        let client: Arc<dyn HttpClient> = Arc::new(client);
        known.client = Some(ProxyHttpClient { client: Arc::clone(&client), roots });
        Ok((client, server_name))
    }

    async fn load_roots(&self) -> Result<Option<Vec<u8>>, TokenProxyError> {
        let Some(path) = &self.ca_file else { return Ok(None) };
        tokio::fs::read(path).await.map(Some).map_err(|source| TokenProxyError::CaFile {
            path: path.clone(),
            source: Arc::new(source),
        })
    }

    async fn fetch_server_name(&self, roots: Option<&[u8]>) -> Result<String, TokenProxyError> {
        let certificate = self.fetch_certificate(roots).await?;
        let cluster = parse_cluster_id(&certificate).ok_or(TokenProxyError::NoClusterId)?;
        Ok(server_name_of(&cluster))
    }

    /// Fetches the certificate that the API server presents under its own name, in DER.
    async fn fetch_certificate(&self, roots: Option<&[u8]>) -> Result<Vec<u8>, TokenProxyError> {
        let client = with_roots(client_builder().tls_info(true), roots)?.build();
        let client = client.map_err(http_client_error)?;
        let failed = |source| TokenProxyError::NoCertificate { url: self.url.clone(), source };
        let answer = client.get(self.url.clone()).timeout(CERTIFICATE_TIMEOUT).send().await;
        let answer = answer.map_err(|error| failed(Some(Arc::new(error))))?;
        let shown = answer.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
        shown.map(<[u8]>::to_vec).ok_or_else(|| failed(None))
    }
}

#[async_trait]
impl HttpClient for TokenProxy {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let method = self.client_and_server_name().await;
        let (client, server_name) =
            method.map_err(|error| Error::new(ErrorKind::Credential, error))?;
        let mut request = request.clone();
        let Some(url) = proxied_url(&self.url, request.url(), &server_name) else {
            return Err(Error::new(ErrorKind::Credential, TokenProxyError::ServerName));
        };
        *request.url_mut() = url;
        request.insert_header("host", host_of(&self.url));
        client.execute_request(&request).await
    }
}

/// Resolves the server name, which is not in DNS, to the address of the proxy.
#[derive(Debug)]
struct ProxyResolver {
    host: String,
    port: u16,
}

impl ProxyResolver {
    fn of(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Self { host, port: url.port_or_known_default().unwrap_or(443) }
    }
}

impl Resolve for ProxyResolver {
    fn resolve(&self, _name: Name) -> Resolving {
        let (host, port) = (self.host.clone(), self.port);
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), port)).await?;
            let found: Vec<SocketAddr> = found.collect();
            Ok::<Addrs, _>(Box::new(found.into_iter()))
        })
    }
}

/// HTTP/1.1, which permits that the host of a request differs from the name of the handshake.
fn client_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .https_only(true)
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
}

fn with_roots(
    builder: reqwest::ClientBuilder,
    roots: Option<&[u8]>,
) -> Result<reqwest::ClientBuilder, TokenProxyError> {
    let Some(pem) = roots else { return Ok(builder) };
    let roots = reqwest::Certificate::from_pem_bundle(pem).map_err(http_client_error)?;
    Ok(builder.tls_certs_only(roots))
}

fn http_client_error(error: reqwest::Error) -> TokenProxyError {
    TokenProxyError::Client(Arc::new(error))
}

/// The URL of a token request through the proxy: path and query are kept, below the path of the proxy.
fn proxied_url(proxy: &Url, requested: &Url, server_name: &str) -> Option<Url> {
    let mut url = proxy.clone();
    url.set_host(Some(server_name)).ok()?;
    let below = requested.path().trim_start_matches('/');
    url.set_path(&format!("{}/{below}", proxy.path().trim_end_matches('/')));
    url.set_query(requested.query());
    Some(url)
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The cluster's id among the DNS names of the API server's certificate (DER).
fn parse_cluster_id(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(name) => cluster_id_in(name).map(str::to_owned),
        _ => None,
    })
}

fn cluster_id_in(name: &str) -> Option<&str> {
    let id = name.strip_prefix(CLUSTER_PREFIX)?.strip_suffix(CLUSTER_SUFFIX)?;
    (!id.is_empty()).then_some(id)
}

/// The server name of a cluster: a digest of its id, in lower-case base32 with the extended hex alphabet (RFC
/// 4648, 7) and without padding, which fits one DNS label.
fn server_name_of(cluster: &str) -> String {
    let digest = digest(&SHA256, format!("{CLUSTER_ID_SALT}{cluster}").as_bytes());
    format!("{SERVER_NAME_PREFIX}{}{SERVER_NAME_DOMAIN}", base32_hex(digest.as_ref()))
}

fn base32_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut held, mut bits) = (0_u32, 0_u32);
    let mut push = |value: u32| {
        // Five bits are always a digit of this radix.
        text.extend(char::from_digit(value & 0x1f, 32));
    };
    for byte in bytes {
        held = (held << 8 | u32::from(*byte)) & 0xffff;
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            push(held >> bits);
        }
    }
    if bits > 0 {
        push(held << (5 - bits));
    }
    text
}

fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// The API server's address inside every cluster.
const API_SERVER: &str = "https://kubernetes.default.svc.cluster.local";
const CLUSTER_PREFIX: &str = "hcp-kubernetes.";
const CLUSTER_SUFFIX: &str = ".svc.cluster.local";
const CLUSTER_ID_SALT: &str = "identity-binding";
/// A DNS label starts with a letter (RFC 1035, 2.3.1).
const SERVER_NAME_PREFIX: &str = "a";
const SERVER_NAME_DOMAIN: &str = ".ests.aks";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Shorter than the timeout of a token request, so that its error names this cause.
const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_hex_matches_rfc_4648_in_lower_case_without_padding() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "co"),
            (b"fo", "cpng"),
            (b"foo", "cpnmu"),
            (b"foob", "cpnmuog"),
            (b"fooba", "cpnmuoj1"),
            (b"foobar", "cpnmuoj1e8"),
        ] {
            assert_eq!(base32_hex(bytes), text);
        }
    }

    #[test]
    fn the_server_name_is_one_label_under_the_domain_and_differs_by_cluster() {
        let name = server_name_of("696995ccb303450001b31a18");
        let label = name.strip_suffix(".ests.aks").unwrap();
        assert_eq!(label.len(), 53);
        assert!(label.starts_with('a') && is_host_name(&name), "{name}");
        assert_ne!(name, server_name_of("abc123def456"));
    }

    #[test]
    fn the_cluster_id_is_the_middle_of_its_name() {
        let cases = [
            (
                "hcp-kubernetes.696995ccb303450001b31a18.svc.cluster.local",
                Some("696995ccb303450001b31a18"),
            ),
            ("hcp-kubernetes..svc.cluster.local", None),
            ("kubernetes.default.svc.cluster.local", None),
            ("hcp-kubernetes.svc.cluster.local", None),
        ];
        for (name, id) in cases {
            assert_eq!(cluster_id_in(name), id, "{name}");
        }
    }

    #[test]
    fn a_request_keeps_its_path_below_that_of_the_proxy() {
        let requested: Url =
            "https://login.microsoftonline.com/t/oauth2/v2.0/token?x=1".parse().unwrap();
        for (proxy, url) in [
            ("https://api.local", "https://sni.ests.aks/t/oauth2/v2.0/token?x=1"),
            (
                "https://10.0.0.1:6443/base/",
                "https://sni.ests.aks:6443/base/t/oauth2/v2.0/token?x=1",
            ),
        ] {
            let proxy: Url = proxy.parse().unwrap();
            assert_eq!(proxied_url(&proxy, &requested, "sni.ests.aks").unwrap().as_str(), url);
        }
    }

    #[tokio::test]
    async fn concurrent_requests_share_the_error_of_a_failed_lookup() {
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.crt");
        std::fs::write(&ca_file, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
            .unwrap();
        let settings = TokenProxySettings {
            url: Some("https://127.0.0.1:9".to_owned()),
            ca_file: Some(ca_file),
            ..TokenProxySettings::default()
        };
        let proxy = TokenProxy::parse(settings).unwrap();
        // Hold the lock until all requests wait for it.
        let known = proxy.state.lock().await;
        let clients = async {
            let clients = tokio::join!(
                proxy.client_and_server_name(),
                proxy.client_and_server_name(),
                proxy.client_and_server_name()
            );
            [clients.0, clients.1, clients.2].map(|method| method.err().unwrap())
        };
        let release = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            drop(known);
        };
        let (failures, ()) = tokio::join!(clients, release);
        for failure in failures {
            assert!(matches!(failure, TokenProxyError::Client(_)), "{failure:?}");
            assert!(!failure.is_outage());
        }
    }

    #[test]
    fn invalid_proxy_settings_are_rejected() {
        let parse = |url: &str, name: &str| {
            let (url, server_name) = (Some(url.to_owned()), Some(name.to_owned()));
            TokenProxy::parse(TokenProxySettings { url, server_name, ca_file: None })
        };
        assert!(parse("", "").is_ok());
        assert!(parse("https://10.0.0.1:6443", "a.ests.aks").is_ok());
        for url in ["http://a", "not a url", "https://u:p@a", "https://a/?q=1"] {
            assert!(matches!(parse(url, ""), Err(TokenProxyError::Address)), "{url}");
        }
        for name in ["a b", "a..b", "a/b", "a_b"] {
            assert!(matches!(parse("", name), Err(TokenProxyError::ServerName)), "{name:?}");
        }
    }
}
