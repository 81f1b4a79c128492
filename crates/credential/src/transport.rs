//! How token requests travel: one pipeline, our own retry, and for each authority one
//! cool-down and one queue.

pub(crate) mod cool_down;
pub(crate) mod retry;
pub(crate) mod scrub;
pub(crate) mod sender;
pub(crate) mod turns;

pub use retry::RetrySettings;
pub use turns::RequestLimits;
