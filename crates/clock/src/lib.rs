//! Time as a parameter.
//!
//! Pure code never reads a clock, and everything that sleeps does so through a [`Clock`]. The
//! system clock serves programs; the manual clock (feature `test-util`) lets virtual hours run
//! in one process and makes tests exact.
//!
//! ```
//! use lanyard_clock::{Clock, SystemClock};
//!
//! let clock = SystemClock::shared();
//! let before = clock.monotonic();
//! assert!(clock.monotonic() >= before);
//! ```

#[cfg(feature = "test-util")]
mod manual;
mod system;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

#[cfg(feature = "test-util")]
pub use manual::ManualClock;
pub use system::SystemClock;

/// A clock that is shared between the parts of a program.
pub type SharedClock = Arc<dyn Clock>;

/// The future of [`Clock::sleep`].
pub type SleepFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of wall time, of monotonic time and of sleep.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall time: it may jump. Use it for stamps that leave the process.
    fn now(&self) -> Timestamp;

    /// The time since this clock began: it never goes back. Use it for ages and deadlines.
    fn monotonic(&self) -> Duration;

    /// A future that is ready once `duration` has passed on this clock.
    ///
    /// Dropping the future cancels the sleep.
    fn sleep(&self, duration: Duration) -> SleepFuture;
}
