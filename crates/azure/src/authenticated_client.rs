//! An HTTP client that authenticates as one identity, and the errors of Azure services.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::{Context, Method, Pipeline, PipelineSendOptions, RawResponse, Request, Url};
use lanyard_clock::{ErrorCodeTable, ErrorHint, ErrorReply, RetryClass};
use lanyard_credential::{TokenError, reply};
use lanyard_vocabulary::Cloud;
use lanyard_vocabulary::cloud::CloudEndpoints;

use crate::bearer_token_policy::BearerTokenPolicy;
use crate::error_codes::table_of_host;
use crate::error_details::AzureErrorDetails;
use crate::rate_limited_client::ThrottledError;
use crate::reply_limit::ReplyTooLarge;
use crate::response_headers::ResponseHeaders;
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
    /// The headers that callers use.
    pub headers: ResponseHeaders,
}

/// A request of an [`AuthenticatedClient`].
#[derive(Debug)]
pub(crate) struct ClientRequest<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) body: Option<&'a serde_json::Value>,
    /// Further headers, by their name in lower case.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Whether the messages of errors end with the correlation id. Without it, two equal failures have equal
    /// texts.
    pub(crate) names_correlation_id: bool,
}

/// The code of an error reply without one.
pub(crate) const NO_CODE: &str = "(no code)";

/// The text before the correlation id in a message.
const CORRELATION_ID: &str = " (correlation id ";

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
    /// A URL in the reply, to be requested next, is not one of the service. It gets no token.
    #[error("{target}: the reply names a URL of another host: `{host}`")]
    ForeignUrl {
        /// The target: method, host and path.
        target: String,
        /// The scheme and the host of the URL, or `no URL`.
        host: String,
    },
    /// A list has too many pages.
    #[error("{target}: the list has more than {limit} pages")]
    TooManyPages {
        /// The target: method, host and path.
        target: String,
        /// The number of pages that were read.
        limit: usize,
    },
    /// The reply is longer than any that the service sends.
    #[error("{target}: the reply has more than {limit} bytes")]
    ReplyTooLarge {
        /// The target: method, host and path.
        target: String,
        /// The largest reply that is read, in bytes.
        limit: usize,
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

    /// The correlation id of the reply, which finds the request in the activity log. Only the errors of
    /// [`ArmClient`](crate::ArmClient)'s typed requests have one; their messages end with it.
    pub fn correlation_id(&self) -> Option<&str> {
        let (Self::Unauthorized { message, .. }
        | Self::Forbidden { message, .. }
        | Self::NotFound { message, .. }
        | Self::UnexpectedStatus { message, .. }) = self
        else {
            return None;
        };
        message.rsplit_once(CORRELATION_ID)?.1.strip_suffix(')')
    }

    /// Whether repeating the request can succeed. For token errors the credential's own error decides; errors of
    /// other credential types count as transient.
    pub fn class(&self) -> RetryClass {
        match self {
            Self::Token { source, .. } => {
                TokenError::of(source).map_or(RetryClass::Transient, TokenError::retry_class)
            }
            Self::Throttled { pause, .. } => RetryClass::Throttled { after: *pause },
            Self::Malformed { .. } | Self::Unreachable { .. } => RetryClass::Transient,
            _ => {
                self.reply().map_or(RetryClass::Invalid, |(table, reply)| table.retry_class(reply))
            }
        }
    }

    /// The hint of a caller that knows which permission the request needs: `grant` is the next step if the
    /// identity lacks a permission.
    pub fn permission_hint(&self, grant: &'static str) -> Option<Cow<'static, str>> {
        match self.reply() {
            Some((table, reply)) => Some(table.permission_hint(reply, grant)),
            None => self.hint(),
        }
    }

    /// The error reply, with the error codes of its service; `None` if the service did not reply with an error.
    fn reply(&self) -> Option<(&'static ErrorCodeTable, ErrorReply<'_>)> {
        let (Self::Unauthorized { target, code, message }
        | Self::Forbidden { target, code, message }
        | Self::NotFound { target, code, message }
        | Self::UnexpectedStatus { target, code, message, .. }) = self
        else {
            return None;
        };
        let (_, location) = target.split_once(' ')?;
        let host = location.split('/').next()?;
        let code = Some(code.as_str()).filter(|code| *code != NO_CODE);
        Some((table_of_host(host), ErrorReply { status: self.status(), code, message }))
    }
}

impl ErrorHint for AzureCallError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        if let Some((table, reply)) = self.reply() {
            return Some(table.hint(reply));
        }
        Some(Cow::Borrowed(match self {
            Self::InvalidTarget { .. } => {
                "give a resource id beginning with /subscriptions/, or an https URL of ARM or a vault"
            }
            Self::Token { .. } => "check the cause: it contains Entra's error code and a hint",
            Self::TooManyPages { .. } => "narrow the list with a filter or a smaller scope",
            Self::Throttled { .. } => "wait; other callers share the limit of this identity",
            Self::Unreachable { .. } => "check HTTPS_PROXY, DNS and the trusted roots",
            _ => "check that no proxy or gateway answers in the service's place",
        }))
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
        let headers = Vec::new();
        let names_correlation_id = false;
        self.send_request(ClientRequest { method, url, body, headers, names_correlation_id }).await
    }

    /// Sends a request with further headers.
    pub(crate) async fn send_request(
        &self,
        parts: ClientRequest<'_>,
    ) -> Result<AzureResponse, AzureCallError> {
        let ClientRequest { method, url, body, headers, names_correlation_id } = parts;
        // Messages name only host and path: a query may contain a signature, and a URL a password.
        let location = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
        if url.scheme() != "https" {
            let target = format!("{}://{location}", url.scheme());
            return Err(AzureCallError::InvalidTarget { target });
        }
        let target = format!("{method} {location}");
        let mut request = Request::new(url.clone(), method);
        request.insert_header("accept", "application/json");
        for (name, value) in headers {
            request.insert_header(name, value);
        }
        if let Some(body) = body {
            request.insert_header("content-type", "application/json");
            request.set_body(body.to_string());
        }
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        match self.pipeline.send(&Context::new(), &mut request, Some(options)).await {
            Ok(response) => parse_response(&target, &response, names_correlation_id),
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
    if let Some(ReplyTooLarge { limit }) = ReplyTooLarge::of(&source) {
        return AzureCallError::ReplyTooLarge { target, limit: *limit };
    }
    match ThrottledError::of(&source) {
        Some(error) => AzureCallError::Throttled { target, pause: Some(error.remaining) },
        None => AzureCallError::Unreachable { target, source },
    }
}

fn parse_response(
    target: &str,
    response: &RawResponse,
    names_correlation_id: bool,
) -> Result<AzureResponse, AzureCallError> {
    let status: u16 = response.status().into();
    let bytes: &[u8] = response.body();
    let headers = ResponseHeaders::parse(response.headers());
    if (200..300).contains(&status) {
        if bytes.is_empty() {
            return Ok(AzureResponse { status, body: serde_json::Value::Null, headers });
        }
        return match serde_json::from_slice(bytes) {
            Ok(body) => Ok(AzureResponse { status, body, headers }),
            Err(_) => Err(AzureCallError::Malformed { target: target.to_owned(), status }),
        };
    }
    let target = target.to_owned();
    let details = AzureErrorDetails::parse(bytes);
    let code = details.most_specific_code().unwrap_or(NO_CODE).to_owned();
    let mut message = details.message;
    if let Some(id) = headers.correlation_id.filter(|_| names_correlation_id) {
        message = format!("{message}{CORRELATION_ID}{})", reply::excerpt_text(&id));
    }
    Err(match status {
        401 => AzureCallError::Unauthorized { target, code, message },
        403 => AzureCallError::Forbidden { target, code, message },
        404 => AzureCallError::NotFound { target, code, message },
        429 => AzureCallError::Throttled { target, pause: headers.retry_after },
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

    #[test]
    fn too_large_reply_is_not_requested_again() {
        let source = azure_core::Error::new(ErrorKind::Other, ReplyTooLarge { limit: 8 });
        let error = call_error_from_send("GET x", source);
        assert_eq!(error.to_string(), "GET x: the reply has more than 8 bytes");
        assert_eq!(error.class(), RetryClass::Invalid);
    }

    fn parse_body_with_status(
        status: u16,
        body: &'static str,
    ) -> Result<AzureResponse, AzureCallError> {
        let status = StatusCode::from(status);
        parse_response(
            "GET /subscriptions/s",
            &RawResponse::from_bytes(status, Headers::new(), body),
            false,
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
    fn hint_follows_the_code_of_the_service() {
        const VAULT: &str = "GET harbour.vault.azure.net/keys/k";
        const ARM: &str = "PUT management.azure.com/subscriptions/s";
        const GRAPH: &str = "POST graph.microsoft.com/v1.0/applications";
        for (target, status, code, expected) in [
            (VAULT, 403, "ForbiddenByFirewall", "network rules"),
            (VAULT, 403, "ForbiddenByConnection", "private endpoint"),
            (VAULT, 403, "KeyDisabled", "enable"),
            (VAULT, 403, "KeyOperationForbidden", "key_ops"),
            (VAULT, 403, "ForbiddenByRbac", "assign `Key Vault"),
            (ARM, 403, "AuthorizationFailed", "assign a role"),
            (ARM, 403, "RequestDisallowedByPolicy", "exemption from the policy"),
            (ARM, 403, "ForbiddenByTheMoon", "no advice; the service says: no"),
            (ARM, 404, "SubscriptionNotFound", "subscription id"),
            (ARM, 404, "TheMoonNotFound", "no advice; the service says: no"),
            (GRAPH, 403, "Authorization_RequestDenied", "Graph permission"),
            (GRAPH, 403, "AuthorizationFailed", "no advice; the service says: no"),
        ] {
            let body = serde_json::json!({"error": {"code": code, "message": "no"}}).to_string();
            let raw = RawResponse::from_bytes(StatusCode::from(status), Headers::new(), body);
            let hint = parse_response(target, &raw, false).unwrap_err().hint().unwrap();
            assert!(hint.contains(expected), "{code}: {hint}");
            let is_about_roles = hint.contains("assign");
            assert_eq!(is_about_roles, expected.contains("assign"), "{code}: {hint}");
        }
    }

    #[test]
    fn quota_is_permanent_although_its_code_is_that_of_a_busy_cluster() {
        let error = |message: &str| AzureCallError::UnexpectedStatus {
            target: "PUT x".to_owned(),
            status: 409,
            code: "OperationNotAllowed".to_owned(),
            message: message.to_owned(),
        };
        assert_eq!(
            error("exceeding approved Total Regional Cores Quota").class(),
            RetryClass::Denied
        );
        assert_eq!(error("another operation is in progress").class(), RetryClass::Busy);
    }

    #[test]
    fn throttling_keeps_the_pause_and_gateways_are_transient() {
        let target = || "GET x".to_owned();
        let pause = Some(Duration::from_secs(7));
        let throttled = AzureCallError::Throttled { target: target(), pause };
        assert_eq!(throttled.class(), RetryClass::Throttled { after: pause });
        let malformed = AzureCallError::Malformed { target: target(), status: 200 };
        assert_eq!(malformed.class(), RetryClass::Transient);
        let foreign = AzureCallError::ForeignUrl { target: target(), host: "x".to_owned() };
        assert_eq!(foreign.class(), RetryClass::Invalid);
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
            let error = parse_response("/x", &raw, false).unwrap_err();
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

    #[test]
    fn only_errors_of_typed_requests_end_with_the_correlation_id() {
        for (status, expected) in
            [(403, Some("c-1")), (404, Some("c-1")), (409, Some("c-1")), (429, None)]
        {
            let failed = |names_correlation_id| {
                let mut headers = Headers::new();
                headers.insert("x-ms-correlation-request-id", "c-1");
                let body = r#"{"error":{"code":"X","message":"no"}}"#;
                let raw = RawResponse::from_bytes(StatusCode::from(status), headers, body);
                parse_response("GET /x", &raw, names_correlation_id).unwrap_err()
            };
            let error = failed(true);
            assert_eq!(error.correlation_id(), expected, "{error}");
            assert_eq!(error.to_string().ends_with(" (correlation id c-1)"), expected.is_some());
            assert_eq!(failed(false).correlation_id(), None);
        }
    }
}
