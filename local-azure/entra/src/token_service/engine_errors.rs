//! Errors of the engine in the formats of the token service and the metadata service.

use http::StatusCode;
use lanyard_emulator_core::emulated_service::{EngineError, management_error_reply};
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

use super::error::AadstsCode;

/// An error of the engine as the token service writes it. Entra throttles with a body that is not JSON.
pub(super) fn token_service_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::Throttled { .. } => {
            ServiceReply::text(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests")
        }
        EngineError::Injected { status, code: None, message }
            if matches!(status.as_u16(), 503 | 504) =>
        {
            oauth_error(status, "temporarily_unavailable", message)
        }
        other => oauth_service_error(other),
    }
}

/// An error of the engine as the metadata service writes it.
pub(crate) fn metadata_service_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::Injected { status, code: None, message }
            if matches!(status.as_u16(), 404 | 410) =>
        {
            oauth_error(status, "not_found", message)
        }
        other => oauth_service_error(other),
    }
}

/// An error of the engine with the members of an OAuth error (RFC 6749, 5.2).
pub(crate) fn oauth_service_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::NotImplemented { message, .. } => {
            oauth_error(StatusCode::NOT_IMPLEMENTED, "not_implemented", &message)
        }
        EngineError::Injected { status, code, message } => {
            oauth_error(status, code.unwrap_or_else(|| oauth_code(status)), message)
        }
        EngineError::Throttled { .. } => oauth_error(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_requests",
            "The rate limit of the metadata service has been reached.",
        ),
        EngineError::TokenService { code, now, ids } => AadstsCode::from_number(code)
            .with_description("An injected fault refuses this request.")
            .to_reply(now, None, ids),
        EngineError::BodyTooLarge { .. } => management_error_reply(error),
    }
}

fn oauth_error(status: StatusCode, code: &str, message: &str) -> ServiceReply {
    ServiceReply::json(status, &json!({ "error": code, "error_description": message }))
}

fn oauth_code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "too_many_requests",
        400..=499 => "invalid_request",
        _ => "server_error",
    }
}
