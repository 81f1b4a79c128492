//! What a failed request tells.

use std::time::Duration;

use azure_core::error::ErrorKind;
use azure_core::http::RawResponse;
use azure_core::http::headers::{HeaderName, Headers};
use serde::Deserialize;

use crate::error::{VaultError, VaultReply};

/// Classifies an error of the clients.
pub(crate) fn vault_error(error: azure_core::Error) -> VaultError {
    match error.kind() {
        ErrorKind::HttpResponse { status, raw_response, .. } => {
            refusal(u16::from(*status), raw_response.as_deref())
        }
        ErrorKind::Credential => VaultError::Token { source: error },
        // What the client itself refuses has no cause: a URL without TLS, a challenge that names
        // another host. What a layer below it refuses has one.
        ErrorKind::Other | ErrorKind::DataConversion
            if std::error::Error::source(&error).is_none() =>
        {
            VaultError::Untrusted { source: error }
        }
        // The cause may quote what came.
        ErrorKind::DataConversion => {
            VaultError::Malformed { problem: "it is not the JSON of a list" }
        }
        _ => VaultError::Unreachable { source: error },
    }
}

fn refusal(status: u16, response: Option<&RawResponse>) -> VaultError {
    let reply = reply_of(status, response);
    let retry_after = || response.and_then(|response| retry_after(response.headers()));
    let is_disabled = reply.inner_code.as_ref().is_some_and(|code| code.ends_with("Disabled"));
    match status {
        401 => VaultError::Unauthorized(reply),
        403 if is_disabled => VaultError::Disabled(reply),
        403 => VaultError::Forbidden(reply),
        404 => VaultError::NotFound(reply),
        429 => VaultError::Throttled { retry_after: retry_after(), reply },
        408 | 500..=599 => VaultError::Unavailable { retry_after: retry_after(), reply },
        _ => VaultError::Unexpected(reply),
    }
}

#[derive(Debug, Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorDetail,
}

#[derive(Debug, Default, Deserialize)]
struct ErrorDetail {
    code: Option<String>,
    message: Option<String>,
    innererror: Option<Box<Self>>,
}

fn reply_of(status: u16, response: Option<&RawResponse>) -> VaultReply {
    let body: &[u8] = response.map_or(&[], |response| response.body());
    let detail = serde_json::from_slice::<ErrorBody>(body).unwrap_or_default().error;
    // A proxy may answer with a page of its own, whose beginning says whose it is.
    let message = detail.message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    VaultReply {
        status,
        code: detail.code,
        inner_code: detail.innererror.and_then(|inner| inner.code),
        message: message.chars().take(VaultReply::LONGEST_MESSAGE).collect(),
    }
}

/// The pause that a service asks for: milliseconds in Azure's own headers, else whole seconds. A
/// date cannot be read without a clock, and no vault sends one.
fn retry_after(headers: &Headers) -> Option<Duration> {
    let number = |name: &'static str| {
        headers.get_optional_str(&HeaderName::from_static(name))?.trim().parse::<u64>().ok()
    };
    number("retry-after-ms")
        .or_else(|| number("x-ms-retry-after-ms"))
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))
}
