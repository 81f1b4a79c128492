//! What a failed request tells.

use azure_core::error::ErrorKind;
use azure_core::http::RawResponse;
use lanyard_azure::{CoolingCause, CoolingError, Refusal};
use lanyard_credential::reply;

use crate::error::{VaultError, VaultReply};

/// Classifies an error of the clients.
pub(crate) fn vault_error(error: azure_core::Error) -> VaultError {
    if let Some(CoolingError { host, because, remaining }) = CoolingError::of(&error) {
        let (host, remaining) = (host.clone(), *remaining);
        return match because {
            CoolingCause::Throttled => VaultError::CoolingDown { host, remaining },
            CoolingCause::Busy => VaultError::Busy { host, wait: remaining },
            CoolingCause::Outage => VaultError::LeftAlone { host, remaining },
        };
    }
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
    let retry_after =
        || response.and_then(|response| reply::retry_after_as_told(response.headers()));
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

fn reply_of(status: u16, response: Option<&RawResponse>) -> VaultReply {
    let body: &[u8] = response.map_or(&[], |response| response.body());
    let Refusal { code, inner_code, message } = Refusal::parse(body);
    VaultReply { status, code, inner_code, message }
}
