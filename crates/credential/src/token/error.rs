//! Errors of requesting a token.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use azure_core::error::ErrorKind;
use azure_core::http::RawResponse;
use jiff::Timestamp;
use lanyard_clock::ErrorHint;

use crate::assertion::AssertionError;
use crate::entra::error::EntraError;
use crate::managed_identity::error::ManagedIdentityError;
use crate::token_proxy::TokenProxyError;
use lanyard_clock::RetryClass;

/// The reason why a token request failed.
///
/// Callers of `azure_core::credentials::TokenCredential` receive an [`azure_core::Error`] of kind
/// `Credential`; [`TokenError::of`] finds this error inside it. If a service responded, its direct source is
/// an [`azure_core::Error`] of kind `HttpResponse` with status, code and response, as in the official
/// credentials.
///
/// All callers that wait for one request share its error, so it can be cloned.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The request has no scope, or more than one.
    #[error("a token is for exactly one scope, but {given} were given")]
    NotOneScope {
        /// The number of scopes.
        given: usize,
    },
    /// The scope is empty, or contains spaces or control characters.
    #[error("{scope:?} is not a scope")]
    InvalidScope {
        /// The beginning of the scope.
        scope: String,
    },
    /// The claims of the request are not a JSON object.
    #[error("the claims of the request are not a JSON object")]
    InvalidClaims,
    /// The token endpoint does not support a request option.
    #[error("{endpoint} cannot issue a token for {wanted}")]
    Unsupported {
        /// A description of the endpoint.
        endpoint: &'static str,
        /// A description of the request option.
        wanted: &'static str,
    },
    /// Entra rejected the request.
    #[error(transparent)]
    Refused(Arc<EntraError>),
    /// The managed identity endpoint rejected the request.
    #[error(transparent)]
    ManagedIdentity(Arc<ManagedIdentityError>),
    /// The endpoint reported success, but the response contains no usable token.
    #[error("{endpoint} answered with status {status}, but {problem}")]
    Unreadable {
        /// The URL without its query.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The problem of the response.
        problem: TokenResponseProblem,
    },
    /// No response arrived after all attempts.
    #[error("{endpoint} did not answer in {attempts} attempts")]
    Unreachable {
        /// The URL without its query.
        endpoint: String,
        /// The number of requests sent.
        attempts: u32,
        /// The error of the last request.
        #[source]
        source: Arc<azure_core::Error>,
    },
    /// No response arrived in time.
    #[error("{endpoint} did not answer within {} s in {attempts} attempts", limit.as_secs())]
    TimedOut {
        /// The URL without its query.
        endpoint: String,
        /// The number of requests sent.
        attempts: u32,
        /// The timeout of one request.
        limit: Duration,
    },
    /// The endpoint is in a cool-down that it requested.
    #[error(
        "{endpoint} requested a cool-down{}, which lasts another {} s",
        client.as_ref().map(|client| format!(" by application {client}")).unwrap_or_default(),
        remaining.as_secs()
    )]
    CoolingDown {
        /// The URL without its query.
        endpoint: String,
        /// The throttled application; `None` if the whole endpoint is throttled.
        client: Option<String>,
        /// The remaining cool-down.
        remaining: Duration,
    },
    /// Other requests of this process used up the endpoint's concurrency limit all the time.
    #[error("no request could be sent to {endpoint} within {} s: other requests used up its concurrency limit", waited.as_secs())]
    ConcurrencyLimitReached {
        /// The URL without its query.
        endpoint: String,
        /// How long the request waited for a permit.
        waited: Duration,
    },
    /// The certificate could not sign the client assertion.
    #[error("the certificate of generation {generation} cannot sign a token request")]
    Assertion {
        /// The generation of the credential file.
        generation: u64,
        /// The error of signing.
        #[source]
        source: Arc<AssertionError>,
    },
    /// The federated token file cannot be read.
    #[error("cannot read the federated token file {} ({variable})", path.display())]
    TokenFile {
        /// The path of the file.
        path: PathBuf,
        /// The environment variable that names the path by convention.
        variable: &'static str,
        /// The operating system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The federated token in memory is malformed.
    #[error("the federated token {problem}")]
    InMemoryToken {
        /// The problem of the token.
        problem: &'static str,
    },
    /// The federated token in memory has expired, so no request was sent to Entra.
    #[error("the federated token expired at {expired}")]
    InMemoryTokenExpired {
        /// The expiry of the token.
        expired: Timestamp,
    },
    /// The content of the federated token file is not a token.
    #[error("the federated token file {} ({variable}) {problem}", path.display())]
    TokenFileContent {
        /// The path of the file.
        path: PathBuf,
        /// The environment variable that names the path by convention.
        variable: &'static str,
        /// The problem of the token.
        problem: &'static str,
    },
    /// The caller's own timeout ([`TokenRequestContext::with_timeout`]) expired.
    ///
    /// [`TokenRequestContext::with_timeout`]: crate::TokenRequestContext::with_timeout
    #[error("no token came within the caller's {} ms", timeout.as_millis())]
    CallerTimeout {
        /// The caller's timeout.
        timeout: Duration,
    },
    /// The task that fetched the token ended without a result, because its runtime shut down.
    #[error("the runtime that asked for the token was shut down")]
    Abandoned,
    /// No tokio runtime is available for the request.
    #[error("a token has to be requested from within a tokio runtime")]
    NoRuntime,
}

/// The problem of a response that should contain a token. Never contains text of the response, which may be
/// the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenResponseProblem {
    /// The body is empty.
    #[error("its body is empty")]
    Empty,
    /// The body is not the expected JSON, or is truncated.
    #[error("its body is not a token response (line {line}, column {column})")]
    Malformed {
        /// The line of the syntax error.
        line: usize,
        /// The column of the syntax error.
        column: usize,
    },
    /// `access_token` is absent or empty.
    #[error("it holds no access_token")]
    NoToken,
    /// Neither `expires_in` nor `expires_on` is a number.
    #[error("it does not say when the token expires")]
    NoLifetime,
    /// The token expired before it arrived.
    #[error("the token in it has already expired")]
    Expired,
}

impl TokenError {
    /// Finds the token error in the source chain of an `azure_core` error.
    pub fn of(error: &azure_core::Error) -> Option<&Self> {
        let mut next: Option<&(dyn StdError + 'static)> = error.source();
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// A stable error code: Entra's code, such as `AADSTS700027`, or its `error` if it has no code; otherwise
    /// a code of this crate.
    pub fn code(&self) -> Cow<'static, str> {
        let word = match self {
            Self::Refused(error) => match error.code_name() {
                Some(code) => return Cow::Owned(code.into_owned()),
                None if error.status() == 429 => "TokenThrottled",
                None => "TokenRefused",
            },
            Self::ManagedIdentity(error) => match error.error() {
                Some(error) => return Cow::Owned(error.to_owned()),
                None => "TokenRefused",
            },
            Self::NotOneScope { .. } | Self::InvalidScope { .. } | Self::InvalidClaims => {
                "TokenRequestInvalid"
            }
            Self::Unsupported { .. } => "TokenRequestUnsupported",
            Self::Unreadable { .. } => "TokenAnswerUnreadable",
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::CallerTimeout { .. } => {
                "TokenServiceUnreachable"
            }
            Self::CoolingDown { .. } | Self::ConcurrencyLimitReached { .. } => "TokenThrottled",
            Self::Assertion { .. } => "AssertionFailed",
            Self::TokenFile { .. }
            | Self::TokenFileContent { .. }
            | Self::InMemoryToken { .. }
            | Self::InMemoryTokenExpired { .. } => "FederatedTokenUnusable",
            Self::Abandoned | Self::NoRuntime => "TokenRequestAbandoned",
        };
        Cow::Borrowed(word)
    }

    /// Whether repeating the request can succeed.
    pub fn retry_class(&self) -> RetryClass {
        match self {
            Self::Refused(error) => error.retry_class(),
            Self::ManagedIdentity(error) => error.retry_class(),
            Self::NotOneScope { .. }
            | Self::InvalidScope { .. }
            | Self::InvalidClaims
            | Self::Unsupported { .. }
            | Self::NoRuntime => RetryClass::Invalid,
            Self::Assertion { .. }
            | Self::TokenFile { .. }
            | Self::TokenFileContent { .. }
            | Self::InMemoryToken { .. } => RetryClass::Denied,
            Self::Unreadable { .. }
            | Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::ConcurrencyLimitReached { .. }
            | Self::InMemoryTokenExpired { .. }
            | Self::CallerTimeout { .. }
            | Self::Abandoned => RetryClass::Transient,
            Self::CoolingDown { remaining, .. } => {
                RetryClass::Throttled { after: Some(*remaining) }
            }
        }
    }

    /// Whether the request itself is invalid, so that a request for another scope may succeed.
    pub(crate) fn is_request_error(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_scope_error(),
            Self::ManagedIdentity(error) => {
                matches!(error.error(), Some("invalid_scope" | "invalid_resource"))
            }
            Self::NotOneScope { .. }
            | Self::InvalidScope { .. }
            | Self::InvalidClaims
            | Self::Unsupported { .. } => true,
            _ => false,
        }
    }

    /// Whether the cause is the token service and not the identity: the service was unreachable, failed or
    /// throttled, or another server answered. A rejection does not count, whatever its retry class.
    pub fn is_outage(&self) -> bool {
        let failed = |status: u16| status == 429 || status >= 500;
        match self {
            Self::Refused(error) => failed(error.status()),
            Self::ManagedIdentity(error) => error.status() == 410 || failed(error.status()),
            Self::Unreachable { source, .. } => {
                TokenProxyError::of(source).is_none_or(TokenProxyError::is_outage)
            }
            Self::Unreadable { .. }
            | Self::TimedOut { .. }
            | Self::CoolingDown { .. }
            | Self::ConcurrencyLimitReached { .. } => true,
            _ => false,
        }
    }

    /// Whether a token service rejected the identity.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::ManagedIdentity(_)) && !self.is_outage()
    }

    /// The error response of the service, if there is one, with secrets redacted from its body.
    pub fn response(&self) -> Option<&RawResponse> {
        match self {
            Self::Refused(error) => Some(error.response()),
            Self::ManagedIdentity(error) => Some(error.response()),
            _ => None,
        }
    }

    fn error_code(&self) -> Option<String> {
        match self {
            Self::Refused(error) => error.error().map(str::to_owned),
            Self::ManagedIdentity(error) => error.error().map(str::to_owned),
            _ => None,
        }
    }
}

impl ErrorHint for TokenError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let text = match self {
            Self::Refused(error) => return error.hint(),
            Self::ManagedIdentity(error) => return error.hint(),
            Self::NotOneScope { .. } => {
                "ask for one resource at a time, in the form <audience>/.default"
            }
            Self::InvalidScope { .. } => {
                "a scope is <audience>/.default, for example https://vault.azure.net/.default"
            }
            Self::InvalidClaims => {
                "pass the claims of the challenge, decoded from base64, as they came"
            }
            Self::Unsupported { .. } => {
                "use a certificate or federated credential where a tenant or claims are needed"
            }
            Self::Unreadable { .. } => {
                "a proxy or a captive portal may answer in the endpoint's place: send the same \
                 request with curl from this host and look at the answer"
            }
            Self::Unreachable { source, .. } if TokenProxyError::of(source).is_some() => {
                return TokenProxyError::of(source)?.hint();
            }
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                "check name resolution, the route, the proxy (HTTPS_PROXY, NO_PROXY) and the \
                 trusted CA from this host"
            }
            Self::CoolingDown { client: Some(_), .. } => {
                "the endpoint throttles this application: wait, and look for callers of it that do \
                 not cache"
            }
            Self::CoolingDown { client: None, .. } => {
                "the endpoint throttles this host: wait, and look for callers that do not cache"
            }
            Self::ConcurrencyLimitReached { .. } => {
                "look for slow answers of the endpoint and for callers with ever new scopes or \
                 tenants; the limits of the transport can be raised"
            }
            Self::Assertion { .. } => "check the credential file; its key must be RSA",
            Self::TokenFile { .. } => {
                "the workload identity webhook mounts this file: check the pod's \
                 azure.workload.identity/use label, its service account and the volume"
            }
            Self::TokenFileContent { .. } => {
                "the file must hold one service account token (a JWT) and nothing else"
            }
            Self::InMemoryToken { .. } => {
                "hand over one service account token (a JWT), as the kubelet gives it"
            }
            Self::InMemoryTokenExpired { .. } => {
                "wait for a newer token: the kubelet brings one when it publishes the volume again"
            }
            Self::NoRuntime => "call from async code that tokio runs",
            Self::CallerTimeout { .. } => {
                "wait longer; the request goes on, and the credential's health says how it ends"
            }
            Self::Abandoned => "ask again from a runtime that stays",
        };
        Some(text.into())
    }
}

impl From<TokenError> for azure_core::Error {
    fn from(error: TokenError) -> Self {
        let message = error.to_string();
        let Some(response) = error.response() else {
            return Self::new(ErrorKind::Credential, error);
        };
        let kind = ErrorKind::HttpResponse {
            status: response.status(),
            error_code: error.error_code(),
            raw_response: Some(Box::new(response.clone())),
        };
        Self::with_error(ErrorKind::Credential, Self::new(kind, error), message)
    }
}
