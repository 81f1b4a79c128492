//! An HTTP client that authenticates as one identity, and the errors of Azure services.

use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::{Context, Method, Pipeline, PipelineSendOptions, RawResponse, Request, Url};
use lanyard_credential::reply;
use lanyard_vocabulary::Cloud;
use lanyard_vocabulary::cloud::CloudEndpoints;

use crate::bearer_token_policy::BearerTokenPolicy;
use crate::error_details::AzureErrorDetails;
use crate::rate_limited_client::ThrottledError;
use crate::transport::AzureTransport;

/// Sends requests for one identity and one token scope.
#[derive(Debug, Clone)]
pub struct AuthenticatedClient {
    pipeline: Pipeline,
}

/// A successful reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureResponse {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body; null if it is empty.
    pub body: serde_json::Value,
}

/// A request to an Azure service failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AzureCallError {
    /// The target is not a valid URL or resource id.
    #[error("`{target}` is not a valid target")]
    InvalidTarget {
        /// The target as it was given.
        target: String,
    },
    /// The credential returned no token.
    #[error("no token for {target}")]
    Token {
        /// The target: method, host and path.
        target: String,
        /// The error of the credential.
        #[source]
        source: azure_core::Error,
    },
    /// The service rejected the token (HTTP 401).
    #[error("{target}: 401 {code}: {message}")]
    Unauthorized {
        /// The target: method, host and path.
        target: String,
        /// The error code of the service.
        code: String,
        /// The error message of the service.
        message: String,
    },
    /// The identity lacks a permission (HTTP 403).
    #[error("{target}: 403 {code}: {message}")]
    Forbidden {
        /// The target: method, host and path.
        target: String,
        /// The error code of the service.
        code: String,
        /// The error message of the service; it names the action and the scope.
        message: String,
    },
    /// The resource does not exist (HTTP 404). The identity has the permission to read it, unless
    /// the code concerns the subscription: Azure checks that the subscription exists before the
    /// permission.
    #[error("{target}: 404 {code}: {message}")]
    NotFound {
        /// The target: method, host and path.
        target: String,
        /// The error code of the service.
        code: String,
        /// The error message of the service.
        message: String,
    },
    /// The service throttles requests (HTTP 429), or the transport sends it no requests for a while.
    #[error("{target}: throttled{}", pause.map(|p| format!(" for {}s", p.as_secs())).unwrap_or_default())]
    Throttled {
        /// The target: method, host and path.
        target: String,
        /// The time until the next request is allowed, if the service named one.
        pause: Option<Duration>,
    },
    /// Any other error status.
    #[error("{target}: {status} {code}: {message}")]
    UnexpectedStatus {
        /// The target: method, host and path.
        target: String,
        /// The HTTP status.
        status: u16,
        /// The error code of the service.
        code: String,
        /// The error message of the service.
        message: String,
    },
    /// A success status with a body that is not JSON: a proxy or gateway answered.
    #[error("{target}: {status}, but the body is not what the service sends")]
    Malformed {
        /// The target: method, host and path.
        target: String,
        /// The HTTP status.
        status: u16,
    },
    /// No reply arrived.
    #[error("{target}: no reply")]
    Unreachable {
        /// The target: method, host and path.
        target: String,
        /// The error of the connection.
        #[source]
        source: azure_core::Error,
    },
}

impl AzureCallError {
    /// The HTTP status, if the service replied with an error.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Unauthorized { .. } => Some(401),
            Self::Forbidden { .. } => Some(403),
            Self::NotFound { .. } => Some(404),
            Self::UnexpectedStatus { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error code, if the service replied with an error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Unauthorized { code, .. }
            | Self::Forbidden { code, .. }
            | Self::NotFound { code, .. }
            | Self::UnexpectedStatus { code, .. } => Some(code),
            _ => None,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::InvalidTarget { .. } => {
                "give a resource id beginning with /subscriptions/, or an https URL of ARM or a vault"
            }
            Self::Token { .. } => "check the cause: it contains Entra's error code and a hint",
            Self::Unauthorized { .. } => {
                "compare the token's audience and tenant with the subscription's"
            }
            Self::Forbidden { code, .. } => AzureErrorDetails::non_role_hint(code).unwrap_or(
                "assign a role with the named action at the named scope, then wait up to 10 minutes",
            ),
            Self::NotFound { code, .. } if code.contains("Subscription") => {
                "check the subscription id, and that the token's tenant is the subscription's"
            }
            Self::NotFound { .. } => "the identity has the permission; check the names in the id",
            Self::Malformed { .. } => {
                "check that no proxy or gateway answers in the service's place"
            }
            Self::Throttled { .. } => "wait; other callers share the limit of this identity",
            Self::UnexpectedStatus { code, .. } if code.starts_with("MissingApiVersion") => {
                "add ?api-version=... to the URL"
            }
            Self::UnexpectedStatus { .. } => "look up the error code in the documentation of the service",
            Self::Unreachable { .. } => "check HTTPS_PROXY, DNS and the trusted roots",
        }
    }
}

impl AuthenticatedClient {
    /// Creates a client that sends tokens of `credential` for `scope`.
    pub fn new(
        scope: String,
        credential: Arc<dyn TokenCredential>,
        transport: &AzureTransport,
    ) -> Self {
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            transport.client_options(),
            Vec::new(),
            vec![Arc::new(BearerTokenPolicy::new(credential, scope))],
            None,
        );
        Self { pipeline }
    }

    /// The token scope for a URL of Azure Resource Manager, a vault or a managed HSM in any cloud;
    /// `None` for other hosts.
    pub fn scope_of(url: &Url) -> Option<String> {
        let known = Cloud::ALL.into_iter().filter_map(Cloud::endpoints);
        known.into_iter().find_map(|endpoints| Self::scope_in_cloud(url, endpoints))
    }

    /// The token scope for such a URL in the cloud with these endpoints.
    pub fn scope_in_cloud(url: &Url, endpoints: &CloudEndpoints) -> Option<String> {
        let host = url.host_str()?;
        if host.eq_ignore_ascii_case(endpoints.arm_host) {
            return Some(arm_scope(endpoints));
        }
        let suffixes = [endpoints.vault_suffix, endpoints.managed_hsm_suffix];
        let is_in = |suffix: &&str| host.strip_suffix(*suffix).is_some_and(|it| it.ends_with('.'));
        suffixes.into_iter().find(is_in).map(|suffix| format!("https://{suffix}/.default"))
    }

    /// Sends a GET request.
    pub async fn fetch(&self, url: &Url) -> Result<AzureResponse, AzureCallError> {
        self.send(Method::Get, url, None).await
    }

    /// Sends a request with any method, and `body` as JSON.
    pub async fn send(
        &self,
        method: Method,
        url: &Url,
        body: Option<&serde_json::Value>,
    ) -> Result<AzureResponse, AzureCallError> {
        // Messages name only host and path: a query may contain a signature, and a URL a password.
        let location = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
        if url.scheme() != "https" {
            return Err(AzureCallError::InvalidTarget {
                target: format!("{}://{location}", url.scheme()),
            });
        }
        let target = format!("{method} {location}");
        let mut request = Request::new(url.clone(), method);
        request.insert_header("accept", "application/json");
        if let Some(body) = body {
            request.insert_header("content-type", "application/json");
            request.set_body(body.to_string());
        }
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        match self.pipeline.send(&Context::new(), &mut request, Some(options)).await {
            Ok(response) => parse_response(&target, &response),
            Err(error) => Err(call_error_from_send(&target, error)),
        }
    }
}

/// The token scope of Azure Resource Manager. Its audience ends with a slash, so the scope contains
/// two, as in the Azure SDK for Go.
pub(crate) fn arm_scope(endpoints: &CloudEndpoints) -> String {
    format!("{}//.default", endpoints.arm_audience)
}

fn call_error_from_send(target: &str, source: azure_core::Error) -> AzureCallError {
    let target = target.to_owned();
    if *source.kind() == ErrorKind::Credential {
        return AzureCallError::Token { target, source };
    }
    match ThrottledError::of(&source) {
        Some(error) => AzureCallError::Throttled { target, pause: Some(error.remaining) },
        None => AzureCallError::Unreachable { target, source },
    }
}

fn parse_response(target: &str, response: &RawResponse) -> Result<AzureResponse, AzureCallError> {
    let status: u16 = response.status().into();
    let bytes: &[u8] = response.body();
    if (200..300).contains(&status) {
        if bytes.is_empty() {
            return Ok(AzureResponse { status, body: serde_json::Value::Null });
        }
        return match serde_json::from_slice(bytes) {
            Ok(body) => Ok(AzureResponse { status, body }),
            Err(_) => Err(AzureCallError::Malformed { target: target.to_owned(), status }),
        };
    }
    let target = target.to_owned();
    let details = AzureErrorDetails::parse(bytes);
    let code = details.most_specific_code().unwrap_or("(no code)").to_owned();
    let message = details.message;
    Err(match status {
        401 => AzureCallError::Unauthorized { target, code, message },
        403 => AzureCallError::Forbidden { target, code, message },
        404 => AzureCallError::NotFound { target, code, message },
        429 => AzureCallError::Throttled {
            target,
            pause: reply::retry_after_from_headers(response.headers()),
        },
        _ => AzureCallError::UnexpectedStatus { target, status, code, message },
    })
}

#[cfg(test)]
mod tests {
    use azure_core::http::StatusCode;
    use azure_core::http::headers::Headers;

    use super::*;

    #[test]
    fn the_scope_follows_the_host_in_every_cloud() {
        let scope = |text: &str| AuthenticatedClient::scope_of(&text.parse().unwrap());
        let arm = Some("https://management.core.windows.net//.default".to_owned());
        assert_eq!(scope("https://management.azure.com/subscriptions"), arm);
        let vault = Some("https://vault.usgovcloudapi.net/.default".to_owned());
        assert_eq!(scope("https://kv.vault.usgovcloudapi.net/secrets/x"), vault);
        let module = Some("https://managedhsm.azure.net/.default".to_owned());
        assert_eq!(scope("https://hsm.managedhsm.azure.net/keys/x"), module);
        assert_eq!(scope("https://evilvault.azure.net/secrets/x"), None);
        assert_eq!(scope("https://example.com/"), None);
    }

    fn parse_body_with_status(
        status: u16,
        body: &'static str,
    ) -> Result<AzureResponse, AzureCallError> {
        let status = StatusCode::from(status);
        parse_response(
            "GET /subscriptions/s",
            &RawResponse::from_bytes(status, Headers::new(), body),
        )
    }

    #[test]
    fn error_keeps_the_code_and_message_of_the_service() {
        let body = r#"{"error":{"code":"AuthorizationFailed","message":"no 'a/read' over '/s'"}}"#;
        let error = parse_body_with_status(403, body).unwrap_err();
        assert!(
            matches!(&error, AzureCallError::Forbidden { code, .. } if code == "AuthorizationFailed")
        );
        assert_eq!(
            error.to_string(),
            "GET /subscriptions/s: 403 AuthorizationFailed: no 'a/read' over '/s'"
        );
    }

    #[test]
    fn vault_error_code_is_the_inner_error_code() {
        let body = r#"{"error":{"code":"Forbidden","message":"no","innererror":{"code":"ForbiddenByRbac"}}}"#;
        let error = parse_body_with_status(403, body).unwrap_err();
        assert_eq!((error.status(), error.code()), (Some(403), Some("ForbiddenByRbac")));
    }

    #[test]
    fn hint_names_a_role_only_when_a_role_helps() {
        for (code, word) in [
            ("ForbiddenByFirewall", "network rules"),
            ("ForbiddenByConnection", "private endpoints"),
            ("KeyDisabled", "enable"),
            ("ForbiddenByRbac", "assign a role"),
        ] {
            let body = serde_json::json!({"error": {"code": "Forbidden", "message": "no",
                "innererror": {"code": code}}});
            let raw =
                RawResponse::from_bytes(StatusCode::Forbidden, Headers::new(), body.to_string());
            let hint = parse_response("GET /x", &raw).unwrap_err().hint();
            assert!(hint.contains(word), "{code}: {hint}");
        }
    }

    #[test]
    fn html_error_page_of_a_gateway_is_truncated() {
        let error = parse_body_with_status(502, "<html>bad gateway</html>").unwrap_err();
        assert_eq!(
            error.to_string(),
            "GET /subscriptions/s: 502 (no code): <html>bad gateway</html>"
        );
    }

    #[test]
    fn echoed_authorization_header_is_redacted_from_errors() {
        const TOKEN: &str =
            "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJwbGFudGVkLW1hcmtlciJ9.c2lnbmF0dXJlLXBsYW50ZWQ";
        let page = format!("<pre>Authorization: Bearer {TOKEN}</pre>");
        let json = serde_json::json!({"error": {"code": "X", "message": page}}).to_string();
        for body in [page, json] {
            let status = StatusCode::from(502);
            let raw = RawResponse::from_bytes(status, Headers::new(), body);
            let error = parse_response("/x", &raw).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("eyJ") && !text.contains("c2lnbmF0"), "{text}");
        }
    }

    #[test]
    fn a_sign_in_page_with_status_200_is_no_success() {
        let error = parse_body_with_status(200, "<html>please sign in</html>").unwrap_err();
        assert!(matches!(error, AzureCallError::Malformed { status: 200, .. }), "{error}");
    }

    #[test]
    fn an_empty_success_is_a_success() {
        assert_eq!(parse_body_with_status(204, "").unwrap().body, serde_json::Value::Null);
    }
}
