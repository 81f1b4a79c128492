//! What a caller can do about an error of Azure. Does no I/O.

use std::time::Duration;

use lanyard_credential::{RetryClass, TokenError};

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

impl ErrorClass {
    /// The class of a failed token request.
    pub(crate) fn of_token(source: &azure_core::Error) -> Self {
        match TokenError::of(source).map(TokenError::retry_class) {
            Some(RetryClass::Throttled { after }) => Self::Throttled { pause: after },
            Some(RetryClass::Transient) | None => Self::Transient,
            Some(_) => Self::Permanent,
        }
    }
}
