//! Whether an action that failed can be repeated.

use std::time::Duration;

/// Whether repeating an action that failed can succeed, and what must happen first.
///
/// All error types of lanyard classify their errors with it. How often and for how long a caller repeats the action
/// is a decision of the caller; see [`Backoff`](crate::Backoff).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryClass {
    /// The error may go away without a change.
    Transient,
    /// The service limits the request rate.
    Throttled {
        /// The time until the next request, if the service named one.
        after: Option<Duration>,
    },
    /// Another operation changes the same object or one that it refers to. Repeat the action when that operation has
    /// ended.
    Busy,
    /// The service does not know a new object everywhere yet. Repeat the action for some minutes; then the object is
    /// missing.
    Propagating,
    /// The object has changed since it was read. Read it, and decide again from its new state.
    PreconditionFailed,
    /// An operator has to change something first: a certificate, an assignment, a role, a file.
    Denied,
    /// The request is invalid and stays invalid.
    Invalid,
}

impl RetryClass {
    /// Whether the same request can succeed later without a change by an operator or by the caller.
    pub const fn is_temporary(self) -> bool {
        match self {
            Self::Transient | Self::Throttled { .. } | Self::Busy | Self::Propagating => true,
            Self::PreconditionFailed | Self::Denied | Self::Invalid => false,
        }
    }
}
