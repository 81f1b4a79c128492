//! What was said of a watch that does not get on. Pure.

use std::mem::{Discriminant, discriminant};

use crate::call::ApiError;

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct Told(Option<Kind>);

/// What kind of trouble it is: one that is followed by another one of its kind is said once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All that may pass by itself is one story.
    Passing,
    /// Somebody has to do something: about the right to list, or to watch, or whatever it is.
    Lasting { error: Discriminant<ApiError>, status: Option<u16>, is_list: bool },
}

impl Told {
    /// Whether this is to be said: it is the first trouble in a row, or another than was said last.
    pub(super) fn is_news(&mut self, error: &ApiError, is_list: bool, failures: u32) -> bool {
        let kind = Kind::of(error, is_list);
        self.0.replace(kind) != Some(kind) || failures == 1
    }
}

impl Kind {
    fn of(error: &ApiError, is_list: bool) -> Self {
        if error.is_transient() {
            return Self::Passing;
        }
        let status = match error {
            ApiError::Refused { status, .. } => Some(*status),
            _ => error.refusal(),
        };
        Self::Lasting { error: discriminant(error), status, is_list }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> ApiError {
        let (action, message) = ("watch x".to_owned(), "no".to_owned());
        ApiError::Refused { action, status, reason: String::new(), message, retry_after: None }
    }

    fn cut() -> ApiError {
        ApiError::Unreached { action: "watch x".to_owned(), problem: "reset".to_owned() }
    }

    fn late() -> ApiError {
        ApiError::TimedOut { action: "watch x".to_owned(), deadline: std::time::Duration::ZERO }
    }

    /// Which of these are said, where nothing comes of it in between.
    fn said(troubles: &[(ApiError, bool)]) -> Vec<bool> {
        let mut told = Told::default();
        let is_news = |(failures, (error, is_list)): (u32, &(ApiError, bool))| {
            told.is_news(error, *is_list, failures)
        };
        (1..).zip(troubles).map(is_news).collect()
    }

    #[test]
    fn trouble_of_another_kind_is_said_however_long_it_has_not_worked() {
        let of_watch = |error| (error, false);
        // A server starts anew, and takes a right away with that.
        let restart = [cut(), late(), refused(503), refused(403), refused(403)].map(of_watch);
        assert_eq!(said(&restart), [true, false, false, true, false]);
        let back = [refused(403), cut(), cut(), refused(403), refused(401)].map(of_watch);
        assert_eq!(said(&back), [true, true, false, true, true]);
        let gone = ApiError::NotServed { action: "watch x".to_owned(), message: String::new() };
        assert_eq!(said(&[refused(404), gone.clone(), gone].map(of_watch)), [true, true, false]);
        // The right to list is another one than that to watch; the way to the server is one.
        let rights = [(refused(403), true), (refused(403), false), (refused(403), false)];
        assert_eq!(said(&rights), [true, true, false]);
        assert_eq!(said(&[(cut(), true), (cut(), false)]), [true, false]);
    }

    #[test]
    fn the_first_trouble_after_it_worked_is_said() {
        let mut told = Told::default();
        for failures in [1, 1, 1] {
            assert!(told.is_news(&refused(403), false, failures));
        }
    }
}
