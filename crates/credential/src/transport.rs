//! How token requests travel: one pipeline, our own retry, and for each authority one
//! cool-down and one queue.

pub(crate) mod cool_down;
pub(crate) mod retry;
pub(crate) mod redact;
pub(crate) mod sender;
pub(crate) mod request_limiter;

pub use retry::RetrySettings;
pub use request_limiter::RequestLimits;
