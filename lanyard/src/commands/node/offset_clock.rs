//! A clock with an offset, for the crash tests: they check what a process does an hour later without waiting.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::{Clock, SharedClock, SleepFuture};

/// A clock whose wall time is ahead of another clock. Monotonic time and sleeps are unchanged.
#[derive(Debug)]
pub(super) struct OffsetClock {
    pub(super) clock: SharedClock,
    pub(super) offset: Duration,
}

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        self.clock.now().saturating_add(self.offset).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> SleepFuture {
        self.clock.sleep(duration)
    }
}
