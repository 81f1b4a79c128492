//! The managed identity of the host: a virtual machine, a scale set or an app.

pub(crate) mod endpoint;
mod endpoint_kind;
pub(crate) mod error;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{RawResponse, Transport, Url};
use lanyard_clock::ErrorHint;

use self::endpoint::{
    IMDS_BASE_URL, ManagedIdentityEndpoint, ManagedIdentityId, ManagedIdentityRequest,
};
use self::error::ManagedIdentityError;
use crate::entra::response::parse_token_response;
use crate::secret::SecretText;
use crate::token::engine::TokenEngine;
use crate::token::engine_credential::engine_credential;
use crate::token::error::TokenError;
use crate::token::request::{TokenKey, TokenVariant};
use crate::token::source::{IssuedToken, TokenSource};
use crate::transport::request_limiter::RequestLimits;
use crate::transport::retry::RetrySettings;
use crate::transport::sender::{TokenTransport, TokenTransportOptions};

/// The endpoint and the identity: the values of the environment variables that Azure sets. The program reads
/// them and passes them in.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ManagedIdentitySettings {
    /// The identity to use; if absent, the host must have only one (`AZURE_CLIENT_ID` by convention).
    pub identity: Option<ManagedIdentityId>,
    /// `IDENTITY_ENDPOINT`: with [`Self::identity_header`], the credential uses App Service instead of IMDS.
    pub identity_endpoint: Option<String>,
    /// `IDENTITY_HEADER`: the secret that App Service expects.
    pub identity_header: Option<SecretText>,
    /// `IDENTITY_SERVER_THUMBPRINT`: set by Service Fabric, whose endpoint is not supported.
    pub identity_server_thumbprint: Option<String>,
    /// `IMDS_ENDPOINT`: set by the Azure Arc agent, whose endpoint is not supported.
    pub imds_endpoint: Option<String>,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: replaces `http://169.254.169.254`.
    pub imds_host: Option<String>,
}

/// Errors of creating a managed identity credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagedIdentitySettingsError {
    /// An endpoint variable does not contain a URL.
    #[error("{variable} is not an http or https url")]
    Endpoint {
        /// The name of the variable.
        variable: &'static str,
        /// The parse error; `None` if the scheme is not allowed.
        #[source]
        source: Option<url::ParseError>,
    },
    /// One of the two App Service variables is set without the other.
    #[error("{missing} is not set, but {present} is")]
    IncompleteAppService {
        /// The variable that is set.
        present: &'static str,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// The variables belong to a host whose endpoint is not supported.
    #[error("{variable} is set: the managed identity of {host} is not supported")]
    UnsupportedHost {
        /// The variable that identifies the host.
        variable: &'static str,
        /// The name of the host.
        host: &'static str,
    },
    /// The HTTP client could not be built.
    #[error("the http client for the managed identity endpoint could not be built")]
    Client(#[source] reqwest::Error),
}

impl ErrorHint for ManagedIdentitySettingsError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Endpoint { .. } => Some("write it as http://host:port".into()),
            Self::IncompleteAppService { .. } => {
                Some("the platform sets both or neither: pass both on, or unset the one".into())
            }
            Self::UnsupportedHost { .. } => Some(
                "use a certificate or workload identity here; if the program does not run on \
                 such a host, unset the variable"
                    .into(),
            ),
            Self::Client(_) => None,
        }
    }
}

/// The transport to this host's managed identity endpoint. It never uses a proxy.
#[derive(Debug, Clone)]
pub struct ManagedIdentityTransport(TokenTransport);

impl ManagedIdentityTransport {
    /// Creates a transport with its own HTTP client; the transport of `options` is not used.
    ///
    /// # Errors
    ///
    /// Returns [`ManagedIdentitySettingsError::Client`] if the HTTP client cannot be built.
    pub fn new(options: TokenTransportOptions) -> Result<Self, ManagedIdentitySettingsError> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(ManagedIdentitySettingsError::Client)?;
        Ok(Self::with_http_transport(options, Transport::new(Arc::new(client))))
    }

    /// Creates a transport over the caller's HTTP client. The caller guarantees that it uses no proxy.
    pub fn with_http_transport(mut options: TokenTransportOptions, transport: Transport) -> Self {
        options.retry.get_or_insert_with(RetrySettings::for_managed_identity);
        options.limits.get_or_insert_with(RequestLimits::for_managed_identity);
        Self(TokenTransport::with_http_transport(options, transport))
    }
}

/// Authenticates with the managed identity of the host.
///
/// The credential uses IMDS (API version 2018-02-01) or, if `IDENTITY_ENDPOINT` and `IDENTITY_HEADER` are
/// given, App Service (2019-08-01). It recognises Azure Arc and Service Fabric by their variables and rejects
/// them. Its requests never go through a proxy, whatever the environment configures: the response contains a
/// token, which a proxy would see in plain text.
#[derive(Debug)]
pub struct ManagedIdentityCredential {
    engine: TokenEngine<ManagedIdentitySource>,
}

impl ManagedIdentityCredential {
    /// Creates a credential with its own HTTP client, without a proxy; the transport of `options` is not
    /// used.
    ///
    /// # Errors
    ///
    /// Returns a [`ManagedIdentitySettingsError`] if a setting is malformed.
    pub fn new(
        settings: ManagedIdentitySettings,
        options: TokenTransportOptions,
    ) -> Result<Arc<Self>, ManagedIdentitySettingsError> {
        Self::with_shared_transport(settings, &ManagedIdentityTransport::new(options)?)
    }

    /// Creates a credential that shares connections, rate limits and cool-downs with the host's other
    /// credentials: the endpoint's rate limits apply to the whole host.
    ///
    /// # Errors
    ///
    /// Returns a [`ManagedIdentitySettingsError`] if a setting is malformed.
    pub fn with_shared_transport(
        settings: ManagedIdentitySettings,
        transport: &ManagedIdentityTransport,
    ) -> Result<Arc<Self>, ManagedIdentitySettingsError> {
        let transport = transport.0.clone();
        let identity = settings.identity.clone();
        let source = ManagedIdentitySource {
            endpoint: resolve_endpoint(settings)?,
            identity,
            transport: transport.clone(),
        };
        Ok(Arc::new(Self { engine: TokenEngine::new(source, &transport) }))
    }
}

engine_credential!(ManagedIdentityCredential, cached_token, health, is_ready);

#[derive(Debug)]
struct ManagedIdentitySource {
    endpoint: ManagedIdentityEndpoint,
    identity: Option<ManagedIdentityId>,
    transport: TokenTransport,
}

#[async_trait]
impl TokenSource for ManagedIdentitySource {
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError> {
        reject_unsupported(&key.variant)?;
        let url = self.endpoint.token_url(key.resource(), self.identity.as_ref());
        let question = ManagedIdentityRequest { endpoint: &self.endpoint, url };
        let answer = self.transport.send(&question).await?;
        let response = &answer.response;
        if !response.status().is_success() {
            return Err(TokenError::ManagedIdentity(Arc::new(self.error_from_response(response))));
        }
        let now = self.transport.clock().now();
        let token = parse_token_response(response.body(), now).map_err(|problem| {
            TokenError::Unreadable {
                endpoint: crate::entra::error::display_url(self.endpoint.url()),
                status: response.status().into(),
                problem,
            }
        })?;
        Ok(IssuedToken {
            text: token.text,
            requested_at: answer.requested_at,
            expires_in: token.expires_in,
            refresh_in: token.refresh_in,
            generation: 0,
        })
    }
}

impl ManagedIdentitySource {
    fn error_from_response(&self, response: &RawResponse) -> ManagedIdentityError {
        let secrets: Vec<&str> = self.endpoint.secret().into_iter().collect();
        let now = self.transport.clock().now();
        let (kind, url) = (self.endpoint.kind(), self.endpoint.url());
        ManagedIdentityError::from_response(kind, url, &secrets, response, now)
    }
}

/// Rejects request options that the endpoints do not support: they know one tenant and cache tokens
/// themselves, so the options would have no effect.
fn reject_unsupported(variant: &TokenVariant) -> Result<(), TokenError> {
    let wanted = if variant.tenant.is_some() {
        "another tenant"
    } else if variant.claims.is_some() {
        "claims"
    } else if variant.continuous_access {
        "continuous access evaluation"
    } else {
        return Ok(());
    };
    Err(TokenError::Unsupported { endpoint: "a managed identity endpoint", wanted })
}

fn resolve_endpoint(
    settings: ManagedIdentitySettings,
) -> Result<ManagedIdentityEndpoint, ManagedIdentitySettingsError> {
    let half =
        |present, missing| ManagedIdentitySettingsError::IncompleteAppService { present, missing };
    let header = settings.identity_header.filter(|header| !header.is_empty());
    let endpoint = settings.identity_endpoint.filter(|endpoint| !endpoint.is_empty());
    let is_set = |value: Option<String>| value.is_some_and(|value| !value.is_empty());
    // Azure Arc passes the secret in a file, by a challenge, and sets no header; Service Fabric sets App
    // Service's variables, but has another API and its own certificate.
    let unsupported = match (&endpoint, &header) {
        (Some(_), None) if is_set(settings.imds_endpoint) => Some(("IMDS_ENDPOINT", "azure arc")),
        (Some(_), Some(_)) if is_set(settings.identity_server_thumbprint) => {
            Some(("IDENTITY_SERVER_THUMBPRINT", "service fabric"))
        }
        _ => None,
    };
    if let Some((variable, host)) = unsupported {
        return Err(ManagedIdentitySettingsError::UnsupportedHost { variable, host });
    }
    match (endpoint, header) {
        (Some(endpoint), Some(header)) => Ok(ManagedIdentityEndpoint::app_service(
            parse_url("IDENTITY_ENDPOINT", &endpoint)?,
            header,
        )),
        (Some(_), None) => Err(half("IDENTITY_ENDPOINT", "IDENTITY_HEADER")),
        (None, Some(_)) => Err(half("IDENTITY_HEADER", "IDENTITY_ENDPOINT")),
        (None, None) => {
            let host = settings.imds_host.filter(|host| !host.is_empty());
            let host = host.as_deref().unwrap_or(IMDS_BASE_URL);
            Ok(ManagedIdentityEndpoint::imds(parse_url("AZURE_POD_IDENTITY_AUTHORITY_HOST", host)?))
        }
    }
}

fn parse_url(variable: &'static str, text: &str) -> Result<Url, ManagedIdentitySettingsError> {
    let refuse = |source| ManagedIdentitySettingsError::Endpoint { variable, source };
    let url: Url = text.trim().parse().map_err(|error| refuse(Some(error)))?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        Ok(url)
    } else {
        Err(refuse(None))
    }
}

/// A link-local address answers immediately or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
