//! What was said of a watch that does not get on. Pure.

use std::mem::{Discriminant, discriminant};

use crate::call::ApiError;

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct LoggedFailure(Option<WatchFailureKind>);

/// What kind of trouble it is: one that is followed by another one of its kind is said once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchFailureKind {
    /// All that may pass by itself is one story.
    Transient,
    /// Somebody has to do something: about the right to list, or to watch, or whatever it is.
    Permanent { error: Discriminant<ApiError>, status: Option<u16>, is_list: bool },
}

impl LoggedFailure {
    /// Whether this is to be said: it is the first trouble in a row, or another than was said last.
    pub(super) fn should_log(&mut self, error: &ApiError, is_list: bool, failures: u32) -> bool {
        let kind = WatchFailureKind::of(error, is_list);
        self.0.replace(kind) != Some(kind) || failures == 1
    }
}

impl WatchFailureKind {
    fn of(error: &ApiError, is_list: bool) -> Self {
        if error.is_transient() {
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

    /// Which of these are said, where nothing comes of it in between.
    fn logged_failures(troubles: &[(ApiError, bool)]) -> Vec<bool> {
        let mut told = LoggedFailure::default();
        let is_news = |(failures, (error, is_list)): (u32, &(ApiError, bool))| {
            told.should_log(error, *is_list, failures)
        };
        (1..).zip(troubles).map(is_news).collect()
    }

    #[test]
    fn failure_of_another_kind_is_logged() {
        let of_watch = |error| (error, false);
        // A server starts anew, and takes a right away with that.
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
        // The right to list is another one than that to watch; the way to the server is one.
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
        let mut told = LoggedFailure::default();
        for failures in [1, 1, 1] {
            assert!(told.should_log(&status_error(403), false, failures));
        }
    }
}
