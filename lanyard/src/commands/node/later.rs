//! A clock that is ahead, for the crash matrix: what a process does an hour later is seen at once.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::{Clock, SharedClock, Sleep};

/// A clock whose wall time is ahead of another's. Nothing takes longer or shorter on it.
#[derive(Debug)]
pub(super) struct LaterClock {
    pub(super) clock: SharedClock,
    pub(super) ahead: Duration,
}

impl Clock for LaterClock {
    fn now(&self) -> Timestamp {
        self.clock.now().saturating_add(self.ahead).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.clock.sleep(duration)
    }
}
