//! The clock interface of lanyard, and what the error types of all crates share.
//!
//! Pure code never reads a clock, and all code that sleeps uses a [`Clock`]. Programs use the system clock;
//! tests use the manual clock (feature `test-util`), which simulates hours in one process and makes tests
//! exact.
//!
//! [`ErrorHint`], [`ErrorCodeTable`], [`RetryClass`] and [`Backoff`] are in this crate because every crate with errors for users may use them,
//! also the published ones.
//!
//! ```
//! use lanyard_clock::{Clock, SystemClock};
//!
//! let clock = SystemClock::shared();
//! let before = clock.monotonic();
//! assert!(clock.monotonic() >= before);
//! ```

#![warn(missing_docs)]

mod backoff;
mod error_codes;
mod hint;
#[cfg(feature = "test-util")]
mod manual;
mod retry_class;
mod system;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use backoff::{Backoff, period_with_jitter, requested_delay_with_jitter};
pub use error_codes::{ErrorCodeGroup, ErrorCodeRow, ErrorCodeTable, ErrorReply, RowCodes};
pub use hint::ErrorHint;
#[cfg(feature = "test-util")]
pub use manual::ManualClock;
pub use retry_class::RetryClass;
pub use system::SystemClock;

/// A clock that is shared between parts of a program.
pub type SharedClock = Arc<dyn Clock>;

/// The future of [`Clock::sleep`].
pub type SleepFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of wall time, monotonic time and sleep.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall time, which may jump. Use it for timestamps that leave the process.
    fn now(&self) -> Timestamp;

    /// The time since this clock was created, which never goes back. Use it for ages and deadlines.
    fn monotonic(&self) -> Duration;

    /// A future that is ready once `duration` has passed on this clock.
    ///
    /// Dropping the future cancels the sleep.
    fn sleep(&self, duration: Duration) -> SleepFuture;
}
