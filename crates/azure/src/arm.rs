//! Calls of Azure Resource Manager.

use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::{
    ClientOptions, Context, Method, Pipeline, PipelineSendOptions, RawResponse, Request, Url,
};
use lanyard_vocabulary::cloud::Endpoints;
use serde::Deserialize;

use crate::authorize::Authorize;
use crate::paced::{CoolingError, retry_after};
use crate::transport::Transport;

/// A client of Azure Resource Manager in one cloud, for one identity.
#[derive(Debug, Clone)]
pub struct ArmClient {
    endpoint: String,
    pipeline: Pipeline,
}

/// A successful reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmReply {
    /// The HTTP status.
    pub status: u16,
    /// The body, JSON where there is one.
    pub body: serde_json::Value,
}

/// Azure Resource Manager did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArmError {
    /// The path and the endpoint make no URL.
    #[error("`{path}` is not a path of Azure Resource Manager")]
    Path {
        /// The path as it was given.
        path: String,
    },
    /// No token could be had.
    #[error("no token for GET {path}")]
    Token {
        /// The path that was asked for.
        path: String,
        /// Why there is no token.
        #[source]
        source: azure_core::Error,
    },
    /// The token was not accepted (HTTP 401).
    #[error("GET {path}: 401 {code}: {message}")]
    Unauthorized {
        /// The path that was asked for.
        path: String,
        /// The service's code.
        code: String,
        /// The service's words.
        message: String,
    },
    /// The identity lacks a permission (HTTP 403).
    #[error("GET {path}: 403 {code}: {message}")]
    Forbidden {
        /// The path that was asked for.
        path: String,
        /// The service's code.
        code: String,
        /// The service's words; they name the action and the scope.
        message: String,
    },
    /// The identity may read the object, but it does not exist (HTTP 404).
    #[error("GET {path}: 404 {code}: {message}")]
    NotFound {
        /// The path that was asked for.
        path: String,
        /// The service's code.
        code: String,
        /// The service's words.
        message: String,
    },
    /// The service asked to be left alone (HTTP 429, or a cool-down still running).
    #[error("GET {path}: throttled{}", pause.map(|p| format!(" for {}s", p.as_secs())).unwrap_or_default())]
    Throttled {
        /// The path that was asked for.
        path: String,
        /// For how long, if the service said so.
        pause: Option<Duration>,
    },
    /// Another refusal.
    #[error("GET {path}: {status} {code}: {message}")]
    Refused {
        /// The path that was asked for.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The service's code.
        code: String,
        /// The service's words.
        message: String,
    },
    /// The reply did not arrive.
    #[error("GET {path}: no reply")]
    Unreachable {
        /// The path that was asked for.
        path: String,
        /// What broke.
        #[source]
        source: azure_core::Error,
    },
}

impl ArmError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Path { .. } => "use a resource id beginning with /subscriptions/",
            Self::Token { .. } => "see why Entra refused: the cause names its code and next step",
            Self::Unauthorized { .. } => {
                "compare the token's audience and tenant with the subscription's"
            }
            Self::Forbidden { .. } => {
                "assign a role with the named action at the named scope, then wait up to 10 minutes"
            }
            Self::NotFound { .. } => "the permission is there; check the names in the id",
            Self::Throttled { .. } => "wait; other callers share the limit of this identity",
            Self::Refused { .. } => "see the code of the service",
            Self::Unreachable { .. } => "check HTTPS_PROXY, DNS and the trusted roots",
        }
    }
}

impl ArmClient {
    /// A client for `credential` in the cloud with these endpoints.
    pub fn new(
        endpoints: &Endpoints,
        credential: Arc<dyn TokenCredential>,
        transport: &Transport,
    ) -> Self {
        Self::with_options(endpoints, credential, transport.client_options())
    }

    fn with_options(
        endpoints: &Endpoints,
        credential: Arc<dyn TokenCredential>,
        options: ClientOptions,
    ) -> Self {
        let authorize = Authorize::new(credential, Self::scope(endpoints));
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            options,
            Vec::new(),
            vec![Arc::new(authorize)],
            None,
        );
        Self { endpoint: endpoints.arm_url(), pipeline }
    }

    /// The scope of tokens for Azure Resource Manager. The audience carries a trailing slash, so
    /// the scope has two, as in the Azure SDK for Go.
    pub fn scope(endpoints: &Endpoints) -> String {
        format!("{}//.default", endpoints.arm_audience)
    }

    /// GET of `path` (a resource id or a collection below one) in `api_version`.
    pub async fn fetch(&self, path: &str, api_version: &str) -> Result<ArmReply, ArmError> {
        let mut url: Url = match format!("{}{path}", self.endpoint).parse() {
            Ok(url) if path.starts_with('/') => url,
            _ => return Err(ArmError::Path { path: path.to_owned() }),
        };
        url.query_pairs_mut().append_pair("api-version", api_version);
        let mut request = Request::new(url, Method::Get);
        request.insert_header("accept", "application/json");
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        match self.pipeline.send(&Context::new(), &mut request, Some(options)).await {
            Ok(response) => read_reply(path, &response),
            Err(error) => Err(unanswered(path, error)),
        }
    }
}

fn unanswered(path: &str, source: azure_core::Error) -> ArmError {
    let path = path.to_owned();
    if *source.kind() == ErrorKind::Credential {
        return ArmError::Token { path, source };
    }
    match source.downcast_ref::<CoolingError>() {
        Some(cooling) => ArmError::Throttled { path, pause: Some(cooling.remaining) },
        None => ArmError::Unreachable { path, source },
    }
}

#[derive(Debug, Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorDetail,
}

#[derive(Debug, Default, Deserialize)]
struct ErrorDetail {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// A gateway may answer with a page of HTML; a person needs its beginning only.
const LONGEST_EXCERPT: usize = 300;

fn read_reply(path: &str, response: &RawResponse) -> Result<ArmReply, ArmError> {
    let status: u16 = response.status().into();
    let bytes: &[u8] = response.body();
    if (200..300).contains(&status) {
        let body = serde_json::from_slice(bytes).unwrap_or(serde_json::Value::Null);
        return Ok(ArmReply { status, body });
    }
    let path = path.to_owned();
    let detail = serde_json::from_slice::<ErrorBody>(bytes).unwrap_or_default().error;
    let code = if detail.code.is_empty() { "(no code)".to_owned() } else { detail.code };
    let message = if detail.message.is_empty() {
        String::from_utf8_lossy(bytes).chars().take(LONGEST_EXCERPT).collect()
    } else {
        detail.message
    };
    Err(match status {
        401 => ArmError::Unauthorized { path, code, message },
        403 => ArmError::Forbidden { path, code, message },
        404 => ArmError::NotFound { path, code, message },
        429 => ArmError::Throttled { path, pause: retry_after(response.headers()) },
        _ => ArmError::Refused { path, status, code, message },
    })
}

#[cfg(test)]
mod tests {
    use azure_core::http::StatusCode;
    use azure_core::http::headers::Headers;

    use super::*;

    fn reply(status: u16, body: &'static str) -> Result<ArmReply, ArmError> {
        let status = StatusCode::from(status);
        read_reply("/subscriptions/s", &RawResponse::from_bytes(status, Headers::new(), body))
    }

    #[test]
    fn a_refusal_keeps_the_code_and_the_words_of_the_service() {
        let body = r#"{"error":{"code":"AuthorizationFailed","message":"no 'a/read' over '/s'"}}"#;
        let error = reply(403, body).unwrap_err();
        assert!(
            matches!(&error, ArmError::Forbidden { code, .. } if code == "AuthorizationFailed")
        );
        assert_eq!(
            error.to_string(),
            "GET /subscriptions/s: 403 AuthorizationFailed: no 'a/read' over '/s'"
        );
    }

    #[test]
    fn a_page_of_a_gateway_is_cut_and_named() {
        let error = reply(502, "<html>bad gateway</html>").unwrap_err();
        assert_eq!(
            error.to_string(),
            "GET /subscriptions/s: 502 (no code): <html>bad gateway</html>"
        );
    }

    #[test]
    fn an_empty_success_is_a_success() {
        assert_eq!(reply(204, "").unwrap().body, serde_json::Value::Null);
    }
}
