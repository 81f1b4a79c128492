//! How an error is told in one line.

use std::error::Error;

/// An error and its causes, joined by `: `.
///
/// A cause that says only what stands there already is left out: transparent errors, and those of
/// SDKs that repeat what is inside them.
///
/// ```
/// use lanyard_vocabulary::causes;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("could not read the class")]
/// struct Outer(#[source] std::io::Error);
///
/// let error = Outer(std::io::Error::other("disk full"));
/// assert_eq!(causes(&error), "could not read the class: disk full");
/// ```
pub fn format_error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let told = cause.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        next = cause.source();
    }
    text
}
