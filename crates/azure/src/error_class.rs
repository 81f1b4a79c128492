//! What a caller can do about an error of Azure. Does no I/O.

use std::time::Duration;

use lanyard_credential::{RetryClass, TokenError};

use crate::authenticated_client::AzureCallError;
use crate::long_running::OperationError;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request may succeed unchanged in a moment.
    Transient,
    /// Azure limits the request rate.
    Throttled {
        /// The time until the next request, if Azure named one.
        pause: Option<Duration>,
    },
    /// Another operation changes the same resource or one that it refers to. Repeat the request when that
    /// operation has ended.
    Busy,
    /// Azure does not know a new object everywhere yet. Repeat the request for some minutes; then the object is
    /// missing.
    Propagating,
    /// The resource has changed since it was read. Read it, and decide again from its new state.
    PreconditionFailed,
    /// The same request fails again until the cause is removed.
    Permanent,
}

/// Codes of requests that collide with another operation.
const BUSY_CODES: [&str; 10] = [
    "AnotherOperationInProgress",
    "CanceledAndSupersededDueToAnotherOperation",
    "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
    "ConflictingConcurrentWriteNotAllowed",
    "OperationPreempted",
    "ReferencedResourceNotProvisioned",
    "ResourceGroupBeingDeleted",
    "RetryableError",
    "RetryableErrorDueToAnotherOperation",
    "StorageAccountOperationInProgress",
];

/// Codes of requests that refer to an object that Azure may not know everywhere yet.
const PROPAGATING_CODES: [&str; 5] = [
    "CustomKubeletIdentityMissingPermissionError",
    "ParentResourceNotFound",
    "PrincipalNotFound",
    "RoleDefinitionDoesNotExist",
    // The name of a custom role that was deleted a moment ago.
    "RoleDefinitionWithSameNameExists",
];

const PRECONDITION_CODES: [&str; 3] = ["ConditionNotMet", "EtagMismatch", "PreconditionFailed"];

const THROTTLED_CODES: [&str; 3] =
    ["ResourceRequestsThrottled", "SubscriptionRequestsThrottled", "TooManyRequests"];

const TRANSIENT_CODES: [&str; 7] = [
    "GatewayTimeout",
    "InternalExecutionError",
    "InternalServerError",
    "NetworkingInternalOperationError",
    "ServerTimeout",
    "ServiceUnavailable",
    "Timeout",
];

impl ErrorClass {
    /// The class of an error reply, or of a failed operation, which has a code but no status. The code
    /// decides before the status.
    pub fn of_reply(status: Option<u16>, code: &str) -> Self {
        let is_one_of = |codes: &[&str]| codes.iter().any(|it| it.eq_ignore_ascii_case(code));
        // AKS uses this code for a cluster that another operation changes; other statuses mean a rule.
        let is_busy_cluster = status.is_none_or(|status| status == 409)
            && code.eq_ignore_ascii_case("OperationNotAllowed");
        if is_one_of(&BUSY_CODES) || is_busy_cluster {
            Self::Busy
        } else if is_one_of(&PROPAGATING_CODES) {
            Self::Propagating
        } else if is_one_of(&PRECONDITION_CODES) || status == Some(412) {
            Self::PreconditionFailed
        } else if is_one_of(&THROTTLED_CODES) || status == Some(429) {
            Self::Throttled { pause: None }
        } else if is_one_of(&TRANSIENT_CODES) || matches!(status, Some(408 | 500 | 502..=504)) {
            Self::Transient
        } else {
            Self::Permanent
        }
    }

    /// Like [`ErrorClass::of_reply`]. Compute providers use `OperationNotAllowed` for quotas, too, which only the
    /// message distinguishes.
    fn of_error(status: Option<u16>, code: &str, message: &str) -> Self {
        let is_quota = message.to_ascii_lowercase().contains("quota");
        match Self::of_reply(status, code) {
            Self::Busy if is_quota => Self::Permanent,
            class => class,
        }
    }

    fn of_token(source: &azure_core::Error) -> Self {
        match TokenError::of(source).map(TokenError::retry_class) {
            Some(RetryClass::Throttled { after }) => Self::Throttled { pause: after },
            Some(RetryClass::Transient) | None => Self::Transient,
            Some(_) => Self::Permanent,
        }
    }
}

impl AzureCallError {
    /// What the caller can do about the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Token { source, .. } => ErrorClass::of_token(source),
            Self::Throttled { pause, .. } => ErrorClass::Throttled { pause: *pause },
            Self::Malformed { .. } | Self::Unreachable { .. } => ErrorClass::Transient,
            Self::InvalidTarget { .. }
            | Self::ForeignUrl { .. }
            | Self::TooManyPages { .. }
            | Self::ReplyTooLarge { .. } => ErrorClass::Permanent,
            Self::Unauthorized { code, message, .. }
            | Self::Forbidden { code, message, .. }
            | Self::NotFound { code, message, .. }
            | Self::UnexpectedStatus { code, message, .. } => {
                ErrorClass::of_error(self.status(), code, message)
            }
        }
    }
}

impl OperationError {
    /// What the caller can do about the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Failed { code, message, .. } => ErrorClass::of_error(None, code, message),
            Self::TimedOut { .. } => ErrorClass::Busy,
            Self::Call(error) => error.class(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_decides_before_the_status() {
        use ErrorClass::{Busy, Permanent, PreconditionFailed, Propagating, Transient};
        let throttled = ErrorClass::Throttled { pause: None };
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
            (Some(409), "OperationNotAllowed", Busy),
            (Some(400), "OperationNotAllowed", Permanent),
            (Some(409), "ResourceGroupBeingDeleted", Busy),
            (Some(400), "PrincipalNotFound", Propagating),
            (Some(400), "principalnotfound", Propagating),
            (Some(404), "ParentResourceNotFound", Propagating),
            (Some(400), "RoleDefinitionDoesNotExist", Propagating),
            (Some(412), "", PreconditionFailed),
            (Some(409), "EtagMismatch", PreconditionFailed),
            (Some(429), "", throttled),
            (Some(503), "TooManyRequests", throttled),
            (Some(408), "", Transient),
            (Some(500), "(no code)", Transient),
            (Some(504), "GatewayTimeout", Transient),
            (None, "InternalServerError", Transient),
            (Some(501), "", Permanent),
            (Some(403), "AuthorizationFailed", Permanent),
            (Some(404), "ResourceNotFound", Permanent),
            (Some(409), "InvalidResourceGroupLocation", Permanent),
            (Some(409), "RoleAssignmentExists", Permanent),
            (Some(409), "RoleAssignmentUpdateNotPermitted", Permanent),
            (Some(400), "PropertyChangeNotAllowed", Permanent),
            (Some(400), "PublicIPCountLimitReached", Permanent),
            (Some(409), "MissingSubscriptionRegistration", Permanent),
            (None, "", Permanent),
        ] {
            assert_eq!(ErrorClass::of_reply(status, code), expected, "{status:?} {code}");
        }
    }

    #[test]
    fn quota_is_permanent_although_its_code_is_that_of_a_busy_cluster() {
        let error = |message: &str| AzureCallError::UnexpectedStatus {
            target: "PUT x".to_owned(),
            status: 409,
            code: "OperationNotAllowed".to_owned(),
            message: message.to_owned(),
        };
        assert_eq!(
            error("exceeding approved Total Regional Cores quota").class(),
            ErrorClass::Permanent
        );
        assert_eq!(error("another operation is in progress").class(), ErrorClass::Busy);
    }

    #[test]
    fn throttling_keeps_the_pause_and_gateways_are_transient() {
        let target = || "GET x".to_owned();
        let pause = Some(Duration::from_secs(7));
        let throttled = AzureCallError::Throttled { target: target(), pause };
        assert_eq!(throttled.class(), ErrorClass::Throttled { pause });
        let malformed = AzureCallError::Malformed { target: target(), status: 200 };
        assert_eq!(OperationError::Call(malformed).class(), ErrorClass::Transient);
        let foreign = AzureCallError::ForeignUrl { target: target(), host: "x".to_owned() };
        assert_eq!(foreign.class(), ErrorClass::Permanent);
    }
}
