//! Formats an error with its causes in one line.

use std::error::Error;

/// Formats an error and its causes, joined by `: `.
///
/// A cause whose text is already in the line is omitted: transparent errors, and errors of SDKs that repeat
/// their source.
///
/// ```
/// use lanyard_vocabulary::format_error_chain;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("could not read the class")]
/// struct Outer(#[source] std::io::Error);
///
/// let error = Outer(std::io::Error::other("disk full"));
/// assert_eq!(format_error_chain(&error), "could not read the class: disk full");
/// ```
pub fn format_error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
