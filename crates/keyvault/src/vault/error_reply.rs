//! Classifies failed requests.

use azure_core::error::ErrorKind;
use azure_core::http::RawResponse;
use lanyard_azure::{AzureErrorDetails, ReplyTooLarge, ThrottleCause, ThrottledError};
use lanyard_credential::reply;

use crate::error::{VaultErrorDetails, VaultReadError};

/// Classifies an error of the clients.
pub(crate) fn classify_client_error(error: azure_core::Error) -> VaultReadError {
    if let Some(ThrottledError { host, cause: because, remaining }) = ThrottledError::of(&error) {
        let (host, remaining) = (host.clone(), *remaining);
        return match because {
            ThrottleCause::Throttled => VaultReadError::ThrottledCoolDown { host, remaining },
            ThrottleCause::LocalRateLimit => {
                VaultReadError::RequestQueueFull { host, wait: remaining }
            }
            ThrottleCause::CircuitOpen => VaultReadError::CircuitOpen { host, remaining },
        };
    }
    if ReplyTooLarge::of(&error).is_some() {
        return VaultReadError::Malformed { problem: "it is larger than a vault sends" };
    }
    match error.kind() {
        ErrorKind::HttpResponse { status, raw_response, .. } => {
            error_for_status(u16::from(*status), raw_response.as_deref())
        }
        ErrorKind::Credential => VaultReadError::Token { source: error },
        // Errors of the client itself have no source: a URL without TLS, a challenge that names another host.
        // Errors of lower layers have one.
        ErrorKind::Other | ErrorKind::DataConversion
            if std::error::Error::source(&error).is_none() =>
        {
            VaultReadError::UntrustedVault { source: error }
        }
        // The source may quote the response.
        ErrorKind::DataConversion => {
            VaultReadError::Malformed { problem: "it is not the JSON of a list" }
        }
        _ => VaultReadError::Unreachable { source: error },
    }
}

fn error_for_status(status: u16, response: Option<&RawResponse>) -> VaultReadError {
    let reply = parse_error_reply(status, response);
    let retry_after =
        || response.and_then(|response| reply::retry_after_from_headers(response.headers()));
    let is_disabled = reply.inner_code.as_ref().is_some_and(|code| code.ends_with("Disabled"));
    match status {
        401 => VaultReadError::Unauthorized(reply),
        403 if is_disabled => VaultReadError::Disabled(reply),
        403 => VaultReadError::Forbidden(reply),
        404 => VaultReadError::NotFound(reply),
        429 => VaultReadError::Throttled { retry_after: retry_after(), reply },
        408 | 500..=599 => VaultReadError::Unavailable { retry_after: retry_after(), reply },
        _ => VaultReadError::Unexpected(reply),
    }
}

fn parse_error_reply(status: u16, response: Option<&RawResponse>) -> VaultErrorDetails {
    let body: &[u8] = response.map_or(&[], |response| response.body());
    let AzureErrorDetails { code, inner_code, message } = AzureErrorDetails::parse(body);
    VaultErrorDetails { status, code, inner_code, message }
}
