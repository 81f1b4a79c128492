//! Error responses of the data plane.
//!
//! The envelope is `{"error":{"code","message","innererror":{"code"}}}`; clients branch on the two codes. The
//! reference is "Azure Key Vault REST API error codes".

use http::StatusCode;
use serde_json::{Value, json};

use super::object_kind::KeyVaultObjectKind;
use super::vault::EmulatedVault;
use crate::request::ServiceReply;
use crate::token::AuthenticatedCaller;

/// An error with its two codes.
#[derive(Debug)]
pub(crate) enum VaultServiceError<'a> {
    /// The request has no token: the reply is the challenge.
    Challenge {
        /// The token service: authority and tenant.
        authority: String,
        /// The required resource of tokens.
        resource: String,
    },
    /// The token is invalid; the code is one of the `AKV` series.
    InvalidToken {
        /// The token service: authority and tenant.
        authority: String,
        /// The required resource of tokens.
        resource: String,
        /// The problem, beginning with a code of the `AKV` series.
        message: String,
    },
    /// No vault has this host name.
    VaultNotFound {
        /// The host name.
        host: &'a str,
    },
    /// No role assignment grants the action.
    DeniedByRole {
        caller: &'a AuthenticatedCaller,
        /// The data action.
        action: &'a str,
        /// The scope at which it was evaluated.
        scope: &'a str,
        vault: &'a EmulatedVault,
        /// Why no assignment grants it.
        nearest_miss: String,
    },
    /// No access policy grants the permission.
    DeniedByPolicy {
        caller: &'a AuthenticatedCaller,
        /// The kind of object.
        kind: KeyVaultObjectKind,
        /// The permission, such as `get`.
        permission: &'a str,
        vault: &'a EmulatedVault,
    },
    /// The object or version does not exist.
    NotFound {
        /// The kind of object.
        kind: KeyVaultObjectKind,
        /// The name, with the version if the request has one.
        name: String,
    },
    /// The version is disabled.
    ObjectDisabled {
        /// The kind of object.
        kind: KeyVaultObjectKind,
        name: &'a str,
    },
    /// The key must not be used for this operation, or not at this time.
    KeyOperationForbidden {
        /// The operation, such as `encrypt`.
        operation: &'a str,
        /// The reason.
        restriction: KeyRestriction,
    },
    /// The name belongs to a deleted object.
    DeletedButRecoverable {
        /// The kind of object.
        kind: KeyVaultObjectKind,
        name: &'a str,
    },
    /// The object belongs to a certificate and is changed through it.
    ManagedByCertificate { name: &'a str },
    /// The request is malformed.
    BadParameter(String),
}

/// The reason why a key operation is forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRestriction {
    /// The key is disabled.
    Disabled,
    /// `nbf` is in the future.
    NotYetValid,
    /// `exp` has passed.
    Expired,
    /// The operation is not among the key's operations.
    NotPermitted,
}

impl KeyRestriction {
    /// The `innererror.code` of the vault's `Forbidden` reply.
    const fn inner_error_code(self) -> &'static str {
        match self {
            Self::Disabled => "KeyDisabled",
            Self::NotYetValid => "KeyNotYetValid",
            Self::Expired => "KeyExpired",
            Self::NotPermitted => "KeyOperationForbidden",
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::Disabled => "the key is disabled",
            Self::NotYetValid => "the key is not valid yet",
            Self::Expired => "the key has expired",
            Self::NotPermitted => "it is not one of the key's operations",
        }
    }
}

impl VaultServiceError<'_> {
    /// Converts the error to a reply; the request log records the codes.
    pub(crate) fn to_reply(&self) -> ServiceReply {
        let (status, code, inner) = self.status_and_codes();
        let mut error = json!({ "code": code, "message": self.message() });
        if let (Some(inner), Value::Object(fields)) = (&inner, &mut error) {
            fields.insert("innererror".to_owned(), json!({ "code": inner }));
        }
        let reply = ServiceReply::json(status, &json!({ "error": error }))
            .with_rejection_reason(inner.unwrap_or_else(|| code.to_owned()));
        match self {
            Self::Challenge { authority, resource } => reply.with_header(
                "www-authenticate",
                format!("Bearer authorization=\"{authority}\", resource=\"{resource}\""),
            ),
            Self::InvalidToken { authority, resource, message } => reply
                .with_header(
                    "www-authenticate",
                    format!(
                        "Bearer authorization=\"{authority}\", resource=\"{resource}\", error=\"invalid_token\""
                    ),
                )
                .with_rejection_reason(message.as_str()),
            _ => reply,
        }
    }

    fn status_and_codes(&self) -> (StatusCode, &'static str, Option<String>) {
        let inner = |code: &str| Some(code.to_owned());
        match self {
            Self::Challenge { .. } | Self::InvalidToken { .. } => {
                (StatusCode::UNAUTHORIZED, "Unauthorized", None)
            }
            Self::VaultNotFound { .. } => (StatusCode::NOT_FOUND, "VaultNotFound", None),
            Self::DeniedByRole { .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner("ForbiddenByRbac"))
            }
            Self::DeniedByPolicy { .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner("AccessDenied"))
            }
            Self::NotFound { kind, .. } => (StatusCode::NOT_FOUND, kind.not_found_code(), None),
            Self::ObjectDisabled { kind, .. } => (
                StatusCode::FORBIDDEN,
                "Forbidden",
                Some(format!("{}Disabled", kind.error_code_prefix())),
            ),
            Self::KeyOperationForbidden { restriction: because, .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner(because.inner_error_code()))
            }
            Self::DeletedButRecoverable { .. } => {
                (StatusCode::CONFLICT, "Conflict", inner("ObjectIsDeletedButRecoverable"))
            }
            Self::ManagedByCertificate { .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner("ObjectIsManaged"))
            }
            Self::BadParameter(_) => (StatusCode::BAD_REQUEST, "BadParameter", None),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Challenge { .. } => "AKV10000: the request carries no bearer token".to_owned(),
            Self::InvalidToken { message, .. } | Self::BadParameter(message) => message.clone(),
            Self::VaultNotFound { host } => {
                format!("no vault of this world has the host name `{host}`")
            }
            Self::DeniedByRole { caller, action, scope, vault, nearest_miss: miss } => [
                "The caller is not authorized to perform the action on the resource.".to_owned(),
                "Role assignments take some minutes to take effect after they were changed."
                    .to_owned(),
                format!(
                    "Caller: appid={};oid={};iss=https://sts.windows.net/{}/",
                    caller.app_id, caller.object_id, caller.tenant
                ),
                format!("Action: '{action}'"),
                format!("Resource: '{scope}'"),
                format!("Assignment: (not found) {miss}"),
                "DenyAssignmentId: null".to_owned(),
                "DecisionReason: null".to_owned(),
                format!("Vault: {};location={}", vault.name, vault.location),
            ]
            .join("\r\n"),
            Self::DeniedByPolicy { caller, kind, permission, vault } => format!(
                "The principal 'appid={};oid={};iss=https://sts.windows.net/{}/' does not have {} {permission} permission on key vault '{};location={}'.",
                caller.app_id,
                caller.object_id,
                caller.tenant,
                kind.collection(),
                vault.name,
                vault.location
            ),
            Self::NotFound { kind, name } => {
                format!("The vault has no {} `{name}`.", kind.noun())
            }
            Self::ObjectDisabled { kind, name } => {
                format!("The {} `{name}` is disabled: get is not allowed.", kind.noun())
            }
            Self::KeyOperationForbidden { operation, restriction: because } => {
                format!("The operation {operation} is not allowed: {}.", because.reason())
            }
            Self::DeletedButRecoverable { kind, name } => format!(
                "The {} `{name}` is deleted and can be recovered; until it is purged its name cannot be used.",
                kind.noun()
            ),
            Self::ManagedByCertificate { name } => format!(
                "The secret `{name}` belongs to a certificate and is changed through the certificate only."
            ),
        }
    }
}
