//! How token requests travel: one pipeline, our own retry, one cool-down per authority.

pub(crate) mod cool_down;
pub(crate) mod retry;
pub(crate) mod scrub;
pub(crate) mod sender;

pub use retry::RetrySettings;
