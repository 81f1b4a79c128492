//! The hints of errors.

use std::borrow::Cow;

/// An error, or a single problem of an invalid input, that can suggest what its reader does next.
///
/// ```
/// use std::borrow::Cow;
///
/// use lanyard_clock::ErrorHint;
///
/// #[derive(Debug)]
/// struct PortInUse(u16);
///
/// impl ErrorHint for PortInUse {
///     fn hint(&self) -> Option<Cow<'static, str>> {
///         Some(Cow::Borrowed("choose another port"))
///     }
/// }
///
/// assert_eq!(PortInUse(80).hint().as_deref(), Some("choose another port"));
/// ```
pub trait ErrorHint {
    /// Returns the next step of the reader, usually to repair the cause: a phrase in the imperative, without a
    /// full stop and without secrets. `None` if the error message already says everything.
    fn hint(&self) -> Option<Cow<'static, str>> {
        None
    }

    /// Whether an input of the user causes the error, such as a flag or a file, and not the environment.
    fn is_invalid_input(&self) -> bool {
        false
    }
}
