//! Error responses of Microsoft Graph.
//!
//! Clients branch on `error.code`; the Azure CLI shows and searches only `error.message`. Reference: "Microsoft
//! Graph error responses and resource types". Messages that clients search are those of the service.

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

/// An error of Microsoft Graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GraphError {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Code and property of the more specific error in `details`.
    detail: Option<(&'static str, String)>,
}

/// The outcome of a Graph operation.
pub(super) type GraphResult = Result<ServiceReply, GraphError>;

/// The ids and the time that every error contains.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorContext<'a> {
    pub(super) now: Timestamp,
    pub(super) request_id: &'a str,
    /// The id that the client sent, if any.
    pub(super) client_request_id: Option<&'a str>,
}

impl GraphError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), detail: None }
    }

    /// A request that the directory rejects.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Request_BadRequest", message)
    }

    /// A request that is malformed, before the directory processes it.
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A query that the directory does not support.
    pub(super) fn unsupported_query(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Request_UnsupportedQuery", message)
    }

    /// An object that does not exist, by the key in the request.
    pub(super) fn not_found(key: impl std::fmt::Display) -> Self {
        let message = format!(
            "Resource '{key}' does not exist or one of its queried reference-property objects are not present."
        );
        Self::new(StatusCode::NOT_FOUND, "Request_ResourceNotFound", message)
    }

    /// A key in the path that is neither an object id nor an alternate key.
    pub(super) fn invalid_object_id(key: &str) -> Self {
        Self::bad_request(format!("Invalid object identifier '{key}'."))
    }

    /// A request that the caller's permissions do not allow.
    pub(super) fn denied() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "Authorization_RequestDenied",
            "Insufficient privileges to complete the operation.",
        )
    }

    /// A part of Microsoft Graph that the emulator does not implement.
    pub(super) fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplementedByEmulator", message)
    }

    /// A value that another object has already.
    pub(super) fn value_in_use(code: &'static str, property: &str) -> Self {
        let message =
            format!("Another object with the same value for property {property} already exists.");
        Self::new(StatusCode::BAD_REQUEST, code, message).with_detail("ObjectConflict", property)
    }

    /// A value that a property cannot have.
    pub(super) fn invalid_value(property: &str, resource: &str) -> Self {
        Self::bad_request(format!(
            "Invalid value specified for property '{property}' of resource '{resource}'."
        ))
        .with_detail("InvalidValue", property)
    }

    /// A missing property.
    pub(super) fn value_required(property: &str, resource: &str) -> Self {
        Self::bad_request(format!(
            "A value is required for property '{property}' of resource '{resource}'."
        ))
        .with_detail("InvalidValue", property)
    }

    /// Adds a more specific code for a property.
    #[must_use]
    pub(super) fn with_detail(mut self, code: &'static str, property: &str) -> Self {
        self.detail = Some((code, property.to_owned()));
        self
    }

    /// Converts the error to a reply; the request log records the code.
    pub(super) fn to_reply(&self, context: ErrorContext<'_>) -> ServiceReply {
        let body = self.to_json(context);
        ServiceReply::empty(self.status)
            .with_body("application/json", body.to_string())
            .with_rejection_reason(self.code)
    }

    /// The body of the error.
    fn to_json(&self, context: ErrorContext<'_>) -> Value {
        let mut error = json!({
            "code": self.code,
            "message": self.message,
            "innerError": {
                "date": context.now.strftime("%Y-%m-%dT%H:%M:%S").to_string(),
                "request-id": context.request_id,
                "client-request-id": context.client_request_id.unwrap_or(context.request_id),
            },
        });
        if let Some((code, property)) = &self.detail {
            error["details"] =
                json!([{ "code": code, "message": self.message, "target": property }]);
        }
        json!({ "error": error })
    }
}
