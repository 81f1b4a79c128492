//! Injected errors in the format of each service.

use http::StatusCode;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::operations::AzureService;
use crate::request::ServiceReply;
use crate::services::blob::{injected_error_reply, server_busy_reply};

/// The body of an injected error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ErrorFormat {
    /// An error in the format of the service.
    #[default]
    Service,
    /// The HTML page of a gateway in front of the service.
    Html,
    Empty,
}

/// How long the client is asked to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestedWait {
    /// `Retry-After`.
    pub(super) seconds: Option<u32>,
    /// `retry-after-ms`.
    pub(super) milliseconds: Option<u32>,
}

impl RequestedWait {
    /// The given times, or else that of the rate limit, or else one second.
    pub(super) fn of_throttling(
        seconds: Option<u32>,
        milliseconds: Option<u32>,
        limit: Option<SignedDuration>,
    ) -> Self {
        if seconds.is_some() || milliseconds.is_some() {
            return Self { seconds, milliseconds };
        }
        let millis = limit.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or_default());
        let seconds = u32::try_from(millis.div_ceil(1_000).max(1)).unwrap_or(u32::MAX);
        Self { seconds: Some(seconds), milliseconds: None }
    }

    pub(super) fn add_headers(self, reply: ServiceReply) -> ServiceReply {
        let reply = match self.seconds {
            Some(seconds) => reply.with_header("retry-after", seconds.to_string()),
            None => reply,
        };
        match self.milliseconds {
            Some(milliseconds) => reply.with_header("retry-after-ms", milliseconds.to_string()),
            None => reply,
        }
    }

    /// The wait in whole seconds, for messages.
    fn text(self) -> String {
        let millis = self.milliseconds.map(|millis| millis.div_ceil(1_000));
        self.seconds.or(millis).unwrap_or(1).to_string()
    }
}

/// The page of a gateway that could not reach the service.
pub(super) fn gateway_page(status: StatusCode) -> ServiceReply {
    let page = format!(
        "<html>\r\n<head><title>{status}</title></head>\r\n<body>\r\n<center><h1>{status}</h1></center>\r\n\
         <hr><center>Microsoft-Azure-Application-Gateway/v2</center>\r\n</body>\r\n</html>\r\n"
    );
    ServiceReply::empty(status).with_body("text/html", page)
}

/// An error in the format of a service. Without a code, the one that belongs to the status.
pub(super) fn service_error_reply(
    service: AzureService,
    status: StatusCode,
    code: Option<&str>,
    message: Option<&str>,
) -> ServiceReply {
    let message = message.unwrap_or("A fault rule returned this error.");
    match service {
        AzureService::Entra | AzureService::Imds | AzureService::AppService => {
            let code = code.unwrap_or_else(|| oauth_code(service, status));
            ServiceReply::json(status, &json!({ "error": code, "error_description": message }))
        }
        AzureService::Blob | AzureService::StaticWebsite => {
            injected_error_reply(status, code.unwrap_or_else(|| storage_code(status)), message)
        }
        _ => {
            let code = code.unwrap_or_else(|| management_code(status));
            let body = json!({ "error": { "code": code, "message": message } });
            ServiceReply::json(status, &body)
        }
    }
}

fn oauth_code(service: AzureService, status: StatusCode) -> &'static str {
    match (service, status.as_u16()) {
        (AzureService::Imds, 404 | 410) => "not_found",
        (_, 429) => "too_many_requests",
        (_, 400..=499) => "invalid_request",
        (AzureService::Entra, 503 | 504) => "temporarily_unavailable",
        _ => "server_error",
    }
}

fn storage_code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "AuthorizationFailure",
        404 => "ResourceNotFound",
        409 => "ConflictingOperation",
        412 => "ConditionNotMet",
        400..=499 => "InvalidInput",
        503 => "ServerBusy",
        _ => "InternalError",
    }
}

fn management_code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        412 => "PreconditionFailed",
        429 => "TooManyRequests",
        502 => "BadGateway",
        503 => "ServiceUnavailable",
        504 => "GatewayTimeout",
        _ => "InternalServerError",
    }
}

/// Entra throttles with a body that is not JSON; the vaults, ARM and Microsoft Graph have their own codes, and
/// the Blob service its own status.
pub(super) fn throttled_reply(service: AzureService, wait: RequestedWait) -> ServiceReply {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let error = |code: &str, message: &str| {
        ServiceReply::json(status, &json!({ "error": { "code": code, "message": message } }))
    };
    let reply = match service {
        AzureService::Entra => ServiceReply::text(status, "Too Many Requests"),
        AzureService::Imds | AzureService::AppService => ServiceReply::json(
            status,
            &json!({
                "error": "too_many_requests",
                "error_description": "The rate limit of the metadata service has been reached.",
            }),
        ),
        AzureService::KeyVault => error(
            "Throttled",
            "Request was not processed because too many requests were received. Reason: \
             VaultRequestTypeLimitReached",
        ),
        AzureService::Arm => {
            let message = format!(
                "Number of requests for the subscription exceeded the limit. Please try again after \
                 '{}' seconds after additional tokens are available. Refer to \
                 https://aka.ms/arm-throttling for additional information.",
                wait.text()
            );
            error("SubscriptionRequestsThrottled", &message)
        }
        AzureService::Graph => ServiceReply::json(
            status,
            &json!({
                "error": {
                    "code": "TooManyRequests",
                    "message": "Please retry again later.",
                    "innerError": { "code": "429", "message": "Please retry after", "status": "429" },
                }
            }),
        ),
        AzureService::Blob | AzureService::StaticWebsite => server_busy_reply(),
        _ => error("TooManyRequests", "Too many requests."),
    };
    wait.add_headers(reply)
}
