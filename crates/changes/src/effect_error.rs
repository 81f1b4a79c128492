//! The errors of effects.

use std::borrow::Cow;
use std::error::Error;

use lanyard_clock::{ErrorHint, RetryClass};

/// A request of an effect failed.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct EffectError {
    /// Whether the same request can succeed later.
    pub class: RetryClass,
    /// What the error says about the resource.
    pub cause: EffectErrorCause,
    hint: Option<Cow<'static, str>>,
    source: Box<dyn Error + Send + Sync>,
}

/// What the error of a request says about the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectErrorCause {
    /// The service rejected the request and did nothing, or it gave no reply.
    Rejected,
    /// The operation that the service had accepted ended without success.
    OperationFailed,
    /// The resource, or what contains it, does not exist.
    NotFound,
    /// Another resource is in the way, or has the same content. `after_accepting` as in `OperationFailed`.
    Conflict {
        /// Whether the service had accepted the operation.
        after_accepting: bool,
    },
    /// The service still works on the operation after the longest wait.
    StillRunning,
}

impl EffectError {
    /// The error of a service.
    pub fn new(
        class: RetryClass,
        cause: EffectErrorCause,
        source: impl Error + ErrorHint + Send + Sync + 'static,
    ) -> Self {
        let hint = source.hint();
        Self { class, cause, hint, source: Box::new(source) }
    }

    /// The error with the hint of the effect, which knows what the request was for.
    #[must_use]
    pub fn with_hint(self, hint: Option<Cow<'static, str>>) -> Self {
        Self { hint, ..self }
    }
}

impl ErrorHint for EffectError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        self.hint.clone()
    }
}
