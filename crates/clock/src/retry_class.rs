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
        !self.is_permanent() && !matches!(self, Self::PreconditionFailed)
    }

    /// Whether the same action fails until an operator or the caller removes the cause.
    pub const fn is_permanent(self) -> bool {
        matches!(self, Self::Denied | Self::Invalid)
    }

    /// The time until the next request, if the service named one.
    pub const fn requested_delay(self) -> Option<Duration> {
        if let Self::Throttled { after } = self { after } else { None }
    }

    /// The class of a reply that names this time until the next request (`Retry-After`).
    #[must_use]
    pub const fn with_requested_delay(self, after: Option<Duration>) -> Self {
        match self {
            Self::Throttled { .. } => Self::Throttled { after },
            Self::Transient if after.is_some() => Self::Throttled { after },
            class => class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passing_errors_take_a_requested_delay() {
        let after = Some(Duration::from_secs(7));
        let throttled = RetryClass::Throttled { after: None };
        for (class, expected) in [
            (RetryClass::Transient, RetryClass::Throttled { after }),
            (throttled, RetryClass::Throttled { after }),
            (RetryClass::Busy, RetryClass::Busy),
            (RetryClass::Denied, RetryClass::Denied),
        ] {
            assert_eq!(class.with_requested_delay(after), expected);
            assert_eq!(class.with_requested_delay(None), class);
        }
    }
}
