//! Error responses of the data plane.
//!
//! The envelope is `{"error":{"code","message","innererror":{"code"}}}`; clients branch on the two codes. The
//! reference is "Azure Key Vault REST API error codes".

use http::StatusCode;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::network_rules::FirewallRejection;
use lanyard_emulator_state::vaults::object_kind::KeyVaultObjectKind;
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use serde_json::{Value, json};

/// An error reply of a vault, with the values for its message.
#[derive(Debug)]
pub(crate) enum VaultServiceError<'a> {
    /// The request has no token: the reply is the challenge.
    Challenge {
        /// The URL of the token service, with the tenant.
        authority: String,
        /// The resource that tokens must be issued for, such as `https://vault.azure.net`.
        resource: String,
    },
    /// The token is invalid; the code is one of the `AKV` series.
    InvalidToken {
        /// The URL of the token service, with the tenant.
        authority: String,
        /// The resource that tokens must be issued for.
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
        /// The scope for which the action was evaluated.
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
    /// The vault's firewall does not admit the client.
    RejectedByFirewall {
        caller: &'a AuthenticatedCaller,
        rejection: FirewallRejection,
        vault: &'a EmulatedVault,
    },
    /// The object or version does not exist.
    NotFound {
        /// The kind of object.
        kind: KeyVaultObjectKind,
        /// The name, with the version if the request has one.
        name: String,
    },
    /// No deleted object has the name.
    DeletedNotFound {
        /// The kind of object.
        kind: KeyVaultObjectKind,
        name: &'a str,
    },
    /// Something other than an object does not exist, such as a certificate issuer.
    OtherNotFound { code: &'static str, message: String },
    /// The version of a secret is disabled.
    SecretDisabled,
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
    /// The request conflicts with the state of an object.
    Conflict(String),
    /// Purge protection is enabled.
    PurgeProtected { vault: &'a EmulatedVault },
    /// The object belongs to a certificate and is changed through it.
    ManagedByCertificate {
        /// The kind of object.
        kind: KeyVaultObjectKind,
        name: &'a str,
    },
    /// The request is malformed.
    BadParameter(String),
    /// The emulator does not implement the operation or a part of it.
    NotImplemented(String),
    /// A key or certificate could not be used: a defect of the emulator.
    Internal(String),
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

    fn message(self, operation: &str) -> String {
        let state = match self {
            Self::Disabled => "a disabled",
            Self::NotYetValid => "a not yet valid",
            Self::Expired => "an expired",
            Self::NotPermitted => {
                return format!("Operation {operation} is not permitted on this key.");
            }
        };
        format!("Operation {operation} is not allowed on {state} key.")
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
            Self::RejectedByFirewall { rejection, .. } => (
                StatusCode::FORBIDDEN,
                "Forbidden",
                inner(match rejection {
                    FirewallRejection::PublicAccessDisabled => "ForbiddenByConnection",
                    FirewallRejection::AddressNotPermitted(_) => "ForbiddenByFirewall",
                }),
            ),
            Self::NotFound { kind, .. } | Self::DeletedNotFound { kind, .. } => {
                (StatusCode::NOT_FOUND, kind.not_found_code(), None)
            }
            Self::OtherNotFound { code, .. } => (StatusCode::NOT_FOUND, code, None),
            Self::SecretDisabled => (StatusCode::FORBIDDEN, "Forbidden", inner("SecretDisabled")),
            Self::KeyOperationForbidden { restriction: because, .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner(because.inner_error_code()))
            }
            Self::DeletedButRecoverable { .. } => {
                (StatusCode::CONFLICT, "Conflict", inner("ObjectIsDeletedButRecoverable"))
            }
            Self::Conflict(_) => (StatusCode::CONFLICT, "Conflict", None),
            Self::PurgeProtected { .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner("ForbiddenByPolicy"))
            }
            Self::ManagedByCertificate { .. } => {
                (StatusCode::FORBIDDEN, "Forbidden", inner("ObjectIsManaged"))
            }
            Self::BadParameter(_) => (StatusCode::BAD_REQUEST, "BadParameter", None),
            Self::NotImplemented(_) => {
                (StatusCode::NOT_IMPLEMENTED, "NotImplementedByEmulator", None)
            }
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", None),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Challenge { .. } => {
                "AKV10000: Request is missing a Bearer or PoP token.".to_owned()
            }
            Self::InvalidToken { message, .. }
            | Self::BadParameter(message)
            | Self::NotImplemented(message)
            | Self::Internal(message)
            | Self::OtherNotFound { message, .. }
            | Self::Conflict(message) => message.clone(),
            Self::VaultNotFound { host } => {
                format!("No vault of this emulator has the host name `{host}`.")
            }
            Self::DeniedByRole { .. }
            | Self::DeniedByPolicy { .. }
            | Self::RejectedByFirewall { .. } => self.denial_message(),
            Self::NotFound { kind, name } => {
                let noun = kind.noun();
                format!(
                    "A {noun} with (name/id) {name} was not found in this key vault. If you recently \
                     deleted this {noun} you may be able to recover it using the correct recovery \
                     command. For help resolving this issue, please see \
                     https://go.microsoft.com/fwlink/?linkid=2125182"
                )
            }
            Self::DeletedNotFound { kind, name } => {
                format!("Deleted {} not found: {name}", kind.error_code_prefix())
            }
            Self::SecretDisabled => "Operation get is not allowed on a disabled secret.".to_owned(),
            Self::KeyOperationForbidden { operation, restriction } => {
                restriction.message(operation)
            }
            Self::DeletedButRecoverable { kind, name } => format!(
                "{} {name} is currently in a deleted but recoverable state, and its name cannot be \
                 reused; in this state, the {} can only be recovered or purged.",
                kind.error_code_prefix(),
                kind.noun()
            ),
            Self::PurgeProtected { vault } => format!(
                "Operation \"purge\" is not allowed because purge protection is enabled for this vault. \
                 Key Vault service will automatically purge it after the retention period has passed.\r\n\
                 Vault: {};location={}",
                vault.name, vault.location
            ),
            Self::ManagedByCertificate { kind, name } => format!(
                "The {} `{name}` is managed by the certificate of the same name, and can only be changed \
                 through it.",
                kind.noun()
            ),
        }
    }

    /// Returns the message of a 403 reply, which names the caller and the vault as Azure does.
    fn denial_message(&self) -> String {
        let caller_text = |caller: &AuthenticatedCaller| {
            format!(
                "appid={};oid={};iss=https://sts.windows.net/{}/",
                caller.app_id, caller.object_id, caller.tenant
            )
        };
        let vault_text =
            |vault: &EmulatedVault| format!("{};location={}", vault.name, vault.location);
        match self {
            Self::DeniedByRole { caller, action, scope, vault, nearest_miss: miss } => [
                "Caller is not authorized to perform action on resource.".to_owned(),
                "If role assignments, deny assignments or role definitions were changed recently, \
                 please observe propagation time."
                    .to_owned(),
                format!("Caller: {}", caller_text(caller)),
                format!("Action: '{action}'"),
                format!("Resource: '{scope}'"),
                format!("Assignment: (not found) {miss}"),
                "DenyAssignmentId: null".to_owned(),
                "DecisionReason: null".to_owned(),
                format!("Vault: {}", vault_text(vault)),
            ]
            .join("\r\n"),
            Self::DeniedByPolicy { caller, kind, permission, vault } => format!(
                "The user, group or application '{}' does not have {} {permission} permission on key \
                 vault '{}'. For help resolving this issue, please see \
                 https://go.microsoft.com/fwlink/?linkid=2125287",
                caller_text(caller),
                kind.collection(),
                vault_text(vault)
            ),
            Self::RejectedByFirewall { caller, rejection, vault } => {
                let reason = match rejection {
                    FirewallRejection::PublicAccessDisabled => {
                        "Public network access is disabled and request is not from a trusted service \
                         nor via an approved private link."
                            .to_owned()
                    }
                    FirewallRejection::AddressNotPermitted(address) => format!(
                        "Client address is not authorized and caller is not a trusted service.\r\n\
                         Client address: {address}"
                    ),
                };
                format!(
                    "{reason}\r\nCaller: {}\r\nVault: {}",
                    caller_text(caller),
                    vault_text(vault)
                )
            }
            _ => String::new(),
        }
    }
}

/// Returns the 500 reply for a defect of the emulator.
pub(super) fn internal_error_reply(error: &impl std::error::Error) -> ServiceReply {
    VaultServiceError::Internal(error.to_string()).to_reply()
}
