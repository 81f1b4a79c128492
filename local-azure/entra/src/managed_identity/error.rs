//! The errors of the data plane of managed identities.

use http::StatusCode;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

/// The action that a caller needs on each user-assigned identity.
pub(super) const ASSIGN_ACTION: &str =
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action";

/// An error reply of the MSI data plane.
#[derive(Debug)]
pub(super) enum IdentityServiceError<'a> {
    /// The request has no valid token for the service.
    Unauthenticated {
        /// The URL of the tenant whose tokens are accepted.
        authority: String,
        message: String,
    },
    /// The query of the URL is incomplete or not the issued one.
    InvalidUrl,
    /// The credential of the URL was not renewed in time.
    UrlExpired,
    /// The caller lacks [`ASSIGN_ACTION`].
    Unauthorized { caller: &'a AuthenticatedCaller, scope: &'a AccessScope },
    /// The request is malformed.
    BadRequest(String),
    /// The identity does not exist.
    IdentityNotFound(&'a str),
    /// The target of a move has an identity or an identity URL.
    TargetHasIdentity(&'a str),
    /// The emulator does not implement a part of the request.
    NotImplemented(&'a str),
    /// A key or certificate could not be used: a defect of the emulator.
    Internal(String),
}

impl IdentityServiceError<'_> {
    pub(super) fn to_reply(&self) -> ServiceReply {
        let (status, code) = self.status_and_code();
        let body = json!({ "error": { "code": code, "message": self.message() } });
        let reply = ServiceReply::json(status, &body).with_rejection_reason(code);
        match self {
            Self::Unauthenticated { authority, .. } => reply
                .with_header("www-authenticate", format!("Bearer authorization=\"{authority}\"")),
            _ => reply,
        }
    }

    const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthenticated { .. } => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::InvalidUrl => (StatusCode::FORBIDDEN, "InvalidIdentityUrl"),
            Self::UrlExpired => (StatusCode::FORBIDDEN, "IdentityUrlExpired"),
            Self::Unauthorized { .. } => (StatusCode::FORBIDDEN, "AuthorizationFailed"),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::IdentityNotFound(_) => (StatusCode::NOT_FOUND, "IdentityNotFound"),
            Self::TargetHasIdentity(_) => (StatusCode::CONFLICT, "Conflict"),
            Self::NotImplemented(_) => (StatusCode::NOT_IMPLEMENTED, "NotImplementedByEmulator"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Unauthenticated { message, .. }
            | Self::BadRequest(message)
            | Self::Internal(message) => message.clone(),
            Self::InvalidUrl => {
                "The query parameters of the URL are not those that Azure Resource \
                                 Manager or an earlier credential returned. Keep all of them."
                    .to_owned()
            }
            Self::UrlExpired => {
                "The time `cannot_renew_after` has passed: the URL returns no more \
                                 credentials. Update the resource, so that Azure Resource Manager \
                                 issues a new URL."
                    .to_owned()
            }
            Self::Unauthorized { caller, scope } => format!(
                "The client '{}' with object id '{}' does not have authorization to perform action \
                 '{ASSIGN_ACTION}' over scope '{scope}'.",
                caller.app_id, caller.object_id
            ),
            Self::IdentityNotFound(id) => format!("The managed identity '{id}' was not found."),
            Self::TargetHasIdentity(id) => {
                format!("The resource '{id}' already has an identity or an identity URL.")
            }
            Self::NotImplemented(what) => {
                format!("lanyard's local Azure does not implement {what}.")
            }
        }
    }
}
