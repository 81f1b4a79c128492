//! Decides which failures of a watch are logged as a warning. Pure.

use std::mem::{Discriminant, discriminant};

use crate::call::ApiError;

/// The last logged failure of a watch.
#[derive(Debug, Default)]
pub(super) struct LoggedFailure(Option<WatchFailureKind>);

/// The kind of a failure. Consecutive failures of the same kind are logged once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchFailureKind {
    /// All errors that may pass by themselves count as one kind.
    Transient,
    /// An administrator must act: grant the permission to list or to watch, or install the CRD.
    Permanent { error: Discriminant<ApiError>, status: Option<u16>, is_list: bool },
}

impl LoggedFailure {
    /// Whether to log this failure: it is the first in a row, or of another kind than the last one.
    pub(super) fn should_log(&mut self, error: &ApiError, is_list: bool, failures: u32) -> bool {
        let kind = WatchFailureKind::of(error, is_list);
        self.0.replace(kind) != Some(kind) || failures == 1
    }
}

impl WatchFailureKind {
    fn of(error: &ApiError, is_list: bool) -> Self {
        if error.retry_class().is_temporary() {
            return Self::Transient;
        }
        let status = match error {
            ApiError::Refused { status, .. } => Some(*status),
            _ => error.refusal_status(),
        };
        Self::Permanent { error: discriminant(error), status, is_list }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_error(status: u16) -> ApiError {
        let (action, message) = ("watch x".to_owned(), "no".to_owned());
        ApiError::Refused { action, status, reason: String::new(), message, retry_after: None }
    }

    fn connection_error() -> ApiError {
        ApiError::Unreached { action: "watch x".to_owned(), problem: "reset".to_owned() }
    }

    fn timeout_error() -> ApiError {
        ApiError::TimedOut { action: "watch x".to_owned(), deadline: std::time::Duration::ZERO }
    }

    /// Which of these consecutive failures are logged.
    fn logged_failures(failures_in_order: &[(ApiError, bool)]) -> Vec<bool> {
        let mut failure_log = LoggedFailure::default();
        let should_log = |(failures, (error, is_list)): (u32, &(ApiError, bool))| {
            failure_log.should_log(error, *is_list, failures)
        };
        (1..).zip(failures_in_order).map(should_log).collect()
    }

    #[test]
    fn failure_of_another_kind_is_logged() {
        let of_watch = |error| (error, false);
        // The API server restarts and then denies access.
        let restart = [
            connection_error(),
            timeout_error(),
            status_error(503),
            status_error(403),
            status_error(403),
        ]
        .map(of_watch);
        assert_eq!(logged_failures(&restart), [true, false, false, true, false]);
        let back = [
            status_error(403),
            connection_error(),
            connection_error(),
            status_error(403),
            status_error(401),
        ]
        .map(of_watch);
        assert_eq!(logged_failures(&back), [true, true, false, true, true]);
        let gone = ApiError::NotServed { action: "watch x".to_owned(), message: String::new() };
        assert_eq!(
            logged_failures(&[status_error(404), gone.clone(), gone].map(of_watch)),
            [true, true, false]
        );
        // Lists and watches need separate permissions; connection errors of both are one kind.
        let rights =
            [(status_error(403), true), (status_error(403), false), (status_error(403), false)];
        assert_eq!(logged_failures(&rights), [true, true, false]);
        assert_eq!(
            logged_failures(&[(connection_error(), true), (connection_error(), false)]),
            [true, false]
        );
    }

    #[test]
    fn first_failure_after_success_is_logged() {
        let mut failure_log = LoggedFailure::default();
        for failures in [1, 1, 1] {
            assert!(failure_log.should_log(&status_error(403), false, failures));
        }
    }
}
