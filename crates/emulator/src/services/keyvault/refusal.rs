//! What the data plane says when it does not do what was asked.
//!
//! The envelope is `{"error":{"code","message","innererror":{"code"}}}`; clients branch on the two
//! codes. The reference is "Azure Key Vault REST API error codes".

use http::StatusCode;
use serde_json::{Value, json};

use super::kind::ObjectKind;
use super::vault::Vault;
use crate::request::Reply;
use crate::token::Caller;

/// A refusal with its two codes.
#[derive(Debug)]
pub(crate) enum Refusal<'a> {
    /// No token came: the answer is the challenge.
    Challenge {
        /// Where tokens are obtained: authority and tenant.
        authority: String,
        /// What tokens have to be for.
        resource: String,
    },
    /// The token does not count here; the code is one of the `AKV` series.
    Token {
        /// Where tokens are obtained: authority and tenant.
        authority: String,
        /// What tokens have to be for.
        resource: String,
        /// What is wrong, beginning with a code of the `AKV` series.
        message: String,
    },
    /// No vault has this host name.
    NoVault {
        /// The host name.
        host: &'a str,
    },
    /// No role assignment grants the action.
    ByRole {
        /// Who asked.
        caller: &'a Caller,
        /// The data action.
        action: &'a str,
        /// The scope at which it was evaluated.
        scope: &'a str,
        /// The vault.
        vault: &'a Vault,
        /// Why no assignment grants it.
        miss: String,
    },
    /// No access policy grants the permission.
    ByPolicy {
        /// Who asked.
        caller: &'a Caller,
        /// The kind of object.
        kind: ObjectKind,
        /// The permission, such as `get`.
        permission: &'a str,
        /// The vault.
        vault: &'a Vault,
    },
    /// There is no such object or version.
    NotFound {
        /// The kind of object.
        kind: ObjectKind,
        /// The name, with the version if one was asked for.
        name: String,
    },
    /// The version is disabled.
    Disabled {
        /// The kind of object.
        kind: ObjectKind,
        /// The name.
        name: &'a str,
    },
    /// The key may not be used for this, or not now.
    Forbidden {
        /// The operation, such as `encrypt`.
        operation: &'a str,
        /// Why not.
        because: KeyRestriction,
    },
    /// The name belongs to a deleted object.
    Recoverable {
        /// The kind of object.
        kind: ObjectKind,
        /// The name.
        name: &'a str,
    },
    /// The object belongs to a certificate and is changed through it.
    Managed {
        /// The name.
        name: &'a str,
    },
    /// The request is not well-formed.
    BadParameter(String),
}

/// Why a key is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRestriction {
    /// It is disabled.
    Disabled,
    /// `nbf` is to come.
    NotYetValid,
    /// `exp` has passed.
    Expired,
    /// It is not one of the key's operations.
    NotPermitted,
}

impl KeyRestriction {
    const fn code(self) -> &'static str {
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

impl Refusal<'_> {
    /// The refusal as a reply; the ledger keeps the codes.
    pub(crate) fn reply(&self) -> Reply {
        let (status, code, inner) = self.codes();
        let mut error = json!({ "code": code, "message": self.message() });
        if let (Some(inner), Value::Object(fields)) = (&inner, &mut error) {
            fields.insert("innererror".to_owned(), json!({ "code": inner }));
        }
        let reply = Reply::json(status, &json!({ "error": error }))
            .because(inner.unwrap_or_else(|| code.to_owned()));
        match self {
            Self::Challenge { authority, resource } => reply.with_header(
                "www-authenticate",
                format!("Bearer authorization=\"{authority}\", resource=\"{resource}\""),
            ),
            Self::Token { authority, resource, message } => reply
                .with_header(
                    "www-authenticate",
                    format!(
                        "Bearer authorization=\"{authority}\", resource=\"{resource}\", error=\"invalid_token\""
                    ),
                )
                .because(message.as_str()),
            _ => reply,
        }
    }

    fn codes(&self) -> (StatusCode, &'static str, Option<String>) {
        let inner = |code: &str| Some(code.to_owned());
        match self {
            Self::Challenge { .. } | Self::Token { .. } => {
                (StatusCode::UNAUTHORIZED, "Unauthorized", None)
            }
            Self::NoVault { .. } => (StatusCode::NOT_FOUND, "VaultNotFound", None),
            Self::ByRole { .. } => (StatusCode::FORBIDDEN, "Forbidden", inner("ForbiddenByRbac")),
            Self::ByPolicy { .. } => (StatusCode::FORBIDDEN, "Forbidden", inner("AccessDenied")),
            Self::NotFound { kind, .. } => (StatusCode::NOT_FOUND, kind.not_found_code(), None),
            Self::Disabled { kind, .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", Some(format!("{}Disabled", kind.title())))
            }
            Self::Forbidden { because, .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner(because.code()))
            }
            Self::Recoverable { .. } => {
                (StatusCode::CONFLICT, "Conflict", inner("ObjectIsDeletedButRecoverable"))
            }
            Self::Managed { .. } => (StatusCode::FORBIDDEN, "Forbidden", inner("ObjectIsManaged")),
            Self::BadParameter(_) => (StatusCode::BAD_REQUEST, "BadParameter", None),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Challenge { .. } => "AKV10000: the request carries no bearer token".to_owned(),
            Self::Token { message, .. } | Self::BadParameter(message) => message.clone(),
            Self::NoVault { host } => format!("no vault of this world has the host name `{host}`"),
            Self::ByRole { caller, action, scope, vault, miss } => [
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
            Self::ByPolicy { caller, kind, permission, vault } => format!(
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
            Self::Disabled { kind, name } => {
                format!("The {} `{name}` is disabled: get is not allowed.", kind.noun())
            }
            Self::Forbidden { operation, because } => {
                format!("The operation {operation} is not allowed: {}.", because.reason())
            }
            Self::Recoverable { kind, name } => format!(
                "The {} `{name}` is deleted and can be recovered; until it is purged its name cannot be used.",
                kind.noun()
            ),
            Self::Managed { name } => format!(
                "The secret `{name}` belongs to a certificate and is changed through the certificate only."
            ),
        }
    }
}
