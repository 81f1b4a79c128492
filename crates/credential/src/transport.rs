//! The transport of token requests: one pipeline, its own retry policy, and for each authority one cool-down
//! and one rate limit.

pub(crate) mod cool_down;
pub(crate) mod redact;
pub(crate) mod request_limiter;
pub(crate) mod retry;
pub(crate) mod sender;

pub use request_limiter::RequestLimits;
pub use retry::RetrySettings;
