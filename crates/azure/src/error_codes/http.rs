//! Replies whose status says what to do, whatever their code is.

use lanyard_clock::ErrorCodeGroup;
use lanyard_clock::RetryClass::{Denied, Invalid, PreconditionFailed, Transient};

use super::{Row, THROTTLED};

/// The rows of all services.
pub(super) const HTTP: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://www.rfc-editor.org/rfc/rfc9110#section-15",
    rows: &[
        Row::of_status(
            &[(429, 429)],
            THROTTLED,
            "The service throttles the caller.",
            "wait; other callers share the limit of this identity or of this service",
        ),
        Row::of_status(
            &[(408, 408), (500, 500), (502, 599)],
            Transient,
            "The service or a gateway in front of it failed.",
            "wait, and check the status of the service in the region",
        ),
        Row::of_status(
            &[(412, 412)],
            PreconditionFailed,
            "The resource has changed since it was read.",
            "run the command again: it reads the resource first",
        ),
        Row::of_status(
            &[(407, 407)],
            Denied,
            "The proxy requires a sign-in.",
            "check HTTPS_PROXY: the proxy wants a user name and a password",
        ),
        Row::of_status(
            &[(413, 413)],
            Invalid,
            "The request is too large for the service or a gateway in front of it.",
            "make the object smaller",
        ),
        Row::without_code(
            Denied,
            "Another server answered, because errors of the service have a code.",
            "check that no proxy or gateway answers in the service's place",
        ),
        Row::new(
            &["NotImplementedByEmulator", "FeatureNotSupportedByEmulator"],
            Invalid,
            "The local Azure does not have the operation or a part of it.",
            "use an operation that `lanyard azure operations` lists, or Azure itself",
        ),
    ],
};
