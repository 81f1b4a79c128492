//! The identity of the host: a virtual machine, a scale set or an app.

pub(crate) mod endpoint;
pub(crate) mod error;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::http::{RawResponse, Transport, Url};

use self::endpoint::{
    IMDS_BASE_URL, ManagedIdentityEndpoint, ManagedIdentityId, ManagedIdentityRequest,
};
use self::error::ManagedIdentityError;
use crate::entra::response::parse_token_response;
use crate::health::TokenHealth;
use crate::secret::SecretText;
use crate::token::engine::TokenEngine;
use crate::token::error::TokenError;
use crate::token::request::{TokenKey, TokenVariant};
use crate::token::source::{IssuedToken, TokenSource};
use crate::token::table::CachedToken;
use crate::transport::request_limiter::RequestLimits;
use crate::transport::retry::RetrySettings;
use crate::transport::sender::{TokenTransport, TokenTransportOptions};

/// Where the managed identity endpoint is and which identity is meant: the values of the
/// environment variables that Azure sets, read by the program and passed in.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ManagedIdentitySettings {
    /// Which identity; the host's only one if absent (`AZURE_CLIENT_ID` by convention).
    pub identity: Option<ManagedIdentityId>,
    /// `IDENTITY_ENDPOINT`: with [`Self::identity_header`], App Service is asked and not IMDS.
    pub identity_endpoint: Option<String>,
    /// `IDENTITY_HEADER`: the secret that App Service expects.
    pub identity_header: Option<SecretText>,
    /// `IDENTITY_SERVER_THUMBPRINT`: set by Service Fabric, whose endpoint is not supported.
    pub identity_server_thumbprint: Option<String>,
    /// `IMDS_ENDPOINT`: set by the agent of Azure Arc, whose endpoint is not supported.
    pub imds_endpoint: Option<String>,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: a stand-in for `http://169.254.169.254`.
    pub imds_host: Option<String>,
}

/// Why there can be no managed identity credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagedIdentitySettingsError {
    /// A variable that names an endpoint does not hold a URL.
    #[error("{variable} is not an http or https url")]
    Endpoint {
        /// The variable.
        variable: &'static str,
        /// What is wrong, where it is not the scheme.
        #[source]
        source: Option<url::ParseError>,
    },
    /// One of the two App Service variables is set without the other.
    #[error("{missing} is not set, but {present} is")]
    IncompleteAppService {
        /// The variable that is set.
        present: &'static str,
        /// The variable that is not.
        missing: &'static str,
    },
    /// The variables are those of a host whose endpoint speaks a dialect of its own.
    #[error("{variable} is set: the managed identity of {host} is not supported")]
    UnsupportedHost {
        /// The variable that gives the host away.
        variable: &'static str,
        /// The host, in words.
        host: &'static str,
    },
    /// The HTTP client could not be built.
    #[error("the http client for the managed identity endpoint could not be built")]
    Client(#[source] reqwest::Error),
}

impl ManagedIdentitySettingsError {
    /// What to do next.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Endpoint { .. } => Some("write it as http://host:port"),
            Self::IncompleteAppService { .. } => {
                Some("the platform sets both or neither: pass both on, or unset the one")
            }
            Self::UnsupportedHost { .. } => Some(
                "use a certificate or workload identity here; if the program does not run on \
                 such a host, unset the variable",
            ),
            Self::Client(_) => None,
        }
    }
}

/// The way to the managed identity endpoint of this host: it never goes through a proxy.
#[derive(Debug, Clone)]
pub struct ManagedIdentityTransport(TokenTransport);

impl ManagedIdentityTransport {
    /// A way with an HTTP client of its own; the transport of `options` is not used.
    ///
    /// # Errors
    ///
    /// [`ManagedIdentitySettingsError::BuildClient`] if the HTTP client cannot be built.
    pub fn new(options: TokenTransportOptions) -> Result<Self, ManagedIdentitySettingsError> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(ManagedIdentitySettingsError::Client)?;
        Ok(Self::with_http_transport(options, Transport::new(Arc::new(client))))
    }

    /// The same over an HTTP client of the caller's, who answers for it that it goes through no
    /// proxy.
    pub fn with_http_transport(mut options: TokenTransportOptions, transport: Transport) -> Self {
        options.retry.get_or_insert_with(RetrySettings::for_managed_identity);
        options.limits.get_or_insert_with(RequestLimits::for_managed_identity);
        Self(TokenTransport::with_http_transport(options, transport))
    }
}

/// A credential for the identity of the host.
///
/// It asks IMDS (API version 2018-02-01) or, where `IDENTITY_ENDPOINT` and `IDENTITY_HEADER` are
/// given, App Service (2019-08-01). Azure Arc and Service Fabric are recognised by their variables
/// and refused. Its requests never go through a proxy, whatever the
/// environment says: the answer is a token, and a proxy would see it in plain text.
#[derive(Debug)]
pub struct ManagedIdentityCredential {
    engine: TokenEngine<ManagedIdentitySource>,
}

impl ManagedIdentityCredential {
    /// A credential with an HTTP client of its own, without a proxy; the transport of `options`
    /// is not used.
    ///
    /// # Errors
    ///
    /// [`ManagedIdentitySettingsError`] if a setting is malformed.
    pub fn new(
        settings: ManagedIdentitySettings,
        options: TokenTransportOptions,
    ) -> Result<Arc<Self>, ManagedIdentitySettingsError> {
        Self::with_shared_transport(settings, &ManagedIdentityTransport::new(options)?)
    }

    /// A credential that shares connections, limits and cool-downs with the host's others: the
    /// endpoint's limits are those of the whole host.
    ///
    /// # Errors
    ///
    /// [`ManagedIdentitySettingsError`] if a setting is malformed.
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

    /// Lends the cached token for `scope` to `read`, without copying it; none if it has to be
    /// fetched first.
    pub fn with_cached_token<R>(&self, scope: &str, read: impl FnOnce(&str) -> R) -> Option<R> {
        self.engine.with_cached_token(scope, &TokenVariant::PLAIN, |token: &CachedToken| {
            read(token.expose())
        })
    }

    /// What is held and what happened.
    pub fn health(&self) -> TokenHealth {
        self.engine.health()
    }

    /// Whether tokens can be had, as far as is known without asking.
    pub fn is_ready(&self) -> bool {
        self.health().is_ready()
    }
}

#[async_trait]
impl TokenCredential for ManagedIdentityCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        self.engine.access_token(scopes, options).await
    }
}

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

/// The endpoints know one tenant and keep tokens of their own: what they cannot do must not look as
/// if it had been done.
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
    // Azure Arc hands out the secret in a file, by a challenge, and sets no header; Service Fabric
    // takes App Service's variables, with another API and a certificate of its own.
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

/// A link-local address answers at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
