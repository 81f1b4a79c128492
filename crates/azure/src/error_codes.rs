//! The error codes of Azure's services: what each code means, and what its reader does next.

mod arm;
mod blob;
mod graph;
mod http;
mod key_vault;
mod providers;

use std::borrow::Cow;

use azure_core::error::ErrorKind;
use lanyard_clock::{ErrorCodeRow as Row, ErrorCodeTable, ErrorHint as _, ErrorReply, RetryClass};
use lanyard_credential::TokenError;
use lanyard_vocabulary::Cloud;

pub use self::arm::ARM;
pub use self::blob::BLOB;
pub use self::graph::GRAPH;
pub use self::key_vault::KEY_VAULT;
use crate::error_details::AzureErrorDetails;

const THROTTLED: RetryClass = RetryClass::Throttled { after: None };

/// The table of the service at a host: that of Azure Resource Manager if no other service has the host.
pub(crate) fn table_of_host(host: &str) -> &'static ErrorCodeTable {
    let is_in = |suffix: &str| host.strip_suffix(suffix).is_some_and(|it| it.ends_with('.'));
    for endpoints in Cloud::ALL.into_iter().filter_map(Cloud::endpoints) {
        if is_in(endpoints.vault_suffix) || is_in(endpoints.managed_hsm_suffix) {
            return &KEY_VAULT;
        }
        if host == endpoints.graph_host {
            return &GRAPH;
        }
        if is_in(endpoints.storage_suffix) {
            return &BLOB;
        }
    }
    &ARM
}

/// The hint for an error of a client of the Azure SDK: that of the token, or that of the service's error code.
/// `grant` is the next step if the identity lacks a permission. `None` if the service did not reply with an error.
pub fn sdk_error_hint(
    table: &ErrorCodeTable,
    error: &azure_core::Error,
    grant: &'static str,
) -> Option<Cow<'static, str>> {
    if let Some(error) = TokenError::of(error) {
        return error.hint();
    }
    with_reply(error, |reply| table.permission_hint(reply, grant))
}

/// Whether a request of a client of the Azure SDK failed because the identity lacks a permission.
pub fn is_missing_permission(table: &ErrorCodeTable, error: &azure_core::Error) -> bool {
    let is_missing =
        |reply: ErrorReply<'_>| table.find(reply).is_some_and(|row| row.is_missing_permission);
    with_reply(error, is_missing).unwrap_or_default()
}

/// Passes on the reply of an error of the SDK; `None` if the service did not reply with an error.
fn with_reply<T>(
    error: &azure_core::Error,
    use_reply: impl FnOnce(ErrorReply<'_>) -> T,
) -> Option<T> {
    let ErrorKind::HttpResponse { status, error_code, raw_response } = error.kind() else {
        return None;
    };
    let body: &[u8] = raw_response.as_ref().map_or(&[], |response| response.body());
    let details = AzureErrorDetails::parse(body);
    // The Blob service has the code in a header.
    let code = details.most_specific_code().or(error_code.as_deref());
    Some(use_reply(ErrorReply { status: Some((*status).into()), code, message: &details.message }))
}

#[cfg(test)]
mod tests {
    use azure_core::http::headers::Headers;
    use azure_core::http::{RawResponse, StatusCode};

    use super::*;

    #[test]
    fn code_decides_before_the_status() {
        use RetryClass::{Busy, Denied, Invalid, PreconditionFailed, Propagating, Transient};
        for (status, code, expected) in [
            (Some(409), "AnotherOperationInProgress", Busy),
            (Some(429), "RetryableError", Busy),
            (Some(400), "ReferencedResourceNotProvisioned", Busy),
            (None, "CanceledAndSupersededDueToAnotherOperation", Busy),
            (
                Some(409),
                "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
                Busy,
            ),
            (Some(409), "OperationNotAllowed", Denied),
            (Some(400), "OperationNotAllowed", Denied),
            (Some(409), "ResourceGroupBeingDeleted", Busy),
            (Some(400), "PrincipalNotFound", Propagating),
            (Some(400), "principalnotfound", Propagating),
            (Some(404), "ParentResourceNotFound", Propagating),
            (Some(400), "RoleDefinitionDoesNotExist", Propagating),
            (Some(412), "", PreconditionFailed),
            (Some(409), "EtagMismatch", PreconditionFailed),
            (Some(429), "", THROTTLED),
            (Some(503), "TooManyRequests", THROTTLED),
            (Some(408), "", Transient),
            (Some(500), "(no code)", Transient),
            (Some(504), "GatewayTimeout", Transient),
            (None, "InternalServerError", Transient),
            (Some(501), "", Denied),
            (Some(403), "AuthorizationFailed", Denied),
            (Some(404), "ResourceNotFound", Invalid),
            (Some(409), "InvalidResourceGroupLocation", Invalid),
            (Some(409), "RoleAssignmentExists", Denied),
            (Some(409), "RoleAssignmentUpdateNotPermitted", Denied),
            (Some(400), "PropertyChangeNotAllowed", Invalid),
            (Some(400), "PublicIPCountLimitReached", Denied),
            (Some(409), "MissingSubscriptionRegistration", Denied),
            (None, "", Denied),
        ] {
            let code_of_reply = Some(code).filter(|code| !code.is_empty());
            let reply = ErrorReply { status, code: code_of_reply, message: "" };
            assert_eq!(ARM.retry_class(reply), expected, "{status:?} {code}");
        }
    }

    #[test]
    fn host_determines_the_table() {
        for (host, service) in [
            ("management.azure.com", ARM.service),
            ("harbour.vault.azure.net", KEY_VAULT.service),
            ("harbour.vault.usgovcloudapi.net", KEY_VAULT.service),
            ("pool.managedhsm.azure.net", KEY_VAULT.service),
            ("graph.microsoft.com", GRAPH.service),
            ("harbour.blob.core.windows.net", BLOB.service),
            ("unknown.example", ARM.service),
        ] {
            assert_eq!(table_of_host(host).service, service, "{host}");
        }
    }

    #[test]
    fn hint_for_an_error_of_the_sdk_follows_its_code() {
        let hint = |code: &str, body: &str| {
            let response = RawResponse::from_bytes(
                StatusCode::Forbidden,
                Headers::new(),
                body.as_bytes().to_vec(),
            );
            let kind = ErrorKind::HttpResponse {
                status: StatusCode::Forbidden,
                error_code: Some(code.to_owned()),
                raw_response: Some(Box::new(response)),
            };
            let error = azure_core::Error::with_message(kind, "no");
            sdk_error_hint(&BLOB, &error, "assign this role").unwrap()
        };
        let xml = "<Error><Message>Not permitted.</Message></Error>";
        assert_eq!(hint("AuthorizationPermissionMismatch", xml), "assign this role");
        assert!(hint("AuthorizationFailure", xml).contains("network rules"));
        assert!(hint("KeyBasedAuthenticationNotPermitted", xml).contains("account keys"));
        assert!(hint("TheMoonIsFull", xml).contains("Not permitted"));
        let unreachable = azure_core::Error::with_message(ErrorKind::Io, "reset");
        assert_eq!(sdk_error_hint(&BLOB, &unreachable, "assign this role"), None);
    }
}
