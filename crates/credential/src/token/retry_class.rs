//! Whether a request for a token can be repeated.

use std::time::Duration;

/// Whether repeating a request can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryClass {
    /// The request is invalid and stays invalid.
    Invalid,
    /// An operator has to change something first: a certificate, an assignment, a role, a file.
    Denied,
    /// The error may go away without a change.
    Transient,
    /// The request was throttled.
    Throttled {
        /// The requested retry delay, if the service sent one.
        after: Option<Duration>,
    },
}
