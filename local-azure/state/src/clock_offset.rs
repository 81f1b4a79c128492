//! The emulated time: the emulator's clock with an offset, or stopped.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The difference between emulated time and clock. Clients use their own clock: if the emulated time is far
/// ahead, they see tokens from the future.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockOffset {
    /// How far the emulated time is ahead of the clock, in milliseconds.
    ahead_milliseconds: i64,
    /// The emulated time at which the clock was stopped; `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped_at: Option<Timestamp>,
}

impl ClockOffset {
    /// The emulated time at clock time `clock`.
    pub fn emulated_time(self, clock: Timestamp) -> Timestamp {
        self.stopped_at.unwrap_or_else(|| {
            let ahead = SignedDuration::from_millis(self.ahead_milliseconds);
            clock.checked_add(ahead).unwrap_or(clock)
        })
    }

    /// Whether the emulated time is stopped.
    pub const fn is_stopped(self) -> bool {
        self.stopped_at.is_some()
    }

    /// How far the emulated time is ahead, in milliseconds.
    pub const fn ahead_milliseconds(self) -> i64 {
        self.ahead_milliseconds
    }

    /// Advances the emulated time. Returns `None` if the offset would exceed a hundred years, so that later
    /// sums of times cannot overflow.
    pub fn advance_by(self, by: SignedDuration) -> Option<Self> {
        let millis = i64::try_from(by.as_millis()).ok()?;
        let stopped_at = match self.stopped_at {
            Some(at) => Some(at.checked_add(by).ok()?),
            None => None,
        };
        let ahead_milliseconds = self
            .ahead_milliseconds
            .checked_add(millis)
            .filter(|ahead| ahead.unsigned_abs() <= MAX_OFFSET_MILLISECONDS)?;
        Some(Self { ahead_milliseconds, stopped_at })
    }

    /// Stops the emulated time at `now`, which is emulated time.
    #[must_use]
    pub fn stop_at(self, now: Timestamp) -> Self {
        Self { stopped_at: Some(self.stopped_at.unwrap_or(now)), ..self }
    }

    /// Resumes the emulated time from where it stopped, at clock time `clock`.
    #[must_use]
    pub fn resume_from(self, clock: Timestamp) -> Self {
        match self.stopped_at {
            None => self,
            Some(at) => {
                let ahead = at.duration_since(clock).as_millis();
                Self { ahead_milliseconds: i64::try_from(ahead).unwrap_or(0), stopped_at: None }
            }
        }
    }
}

/// A hundred years.
const MAX_OFFSET_MILLISECONDS: u64 = 100 * 366 * 86_400 * 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_time_continues_from_where_it_was_moved_or_stopped() {
        let clock: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let later = |hours| clock + SignedDuration::from_hours(hours);
        let azure = ClockOffset::default().advance_by(SignedDuration::from_hours(2)).unwrap();
        assert_eq!(azure.emulated_time(clock), later(2));
        let stopped = azure.stop_at(azure.emulated_time(clock));
        assert_eq!(stopped.emulated_time(later(5)), later(2));
        let moved = stopped.advance_by(SignedDuration::from_hours(1)).unwrap();
        assert_eq!(moved.emulated_time(later(5)), later(3));
        let started = moved.resume_from(later(5));
        assert_eq!(
            (started.emulated_time(later(5)), started.emulated_time(later(6))),
            (later(3), later(4))
        );
        assert!(ClockOffset::default().advance_by(SignedDuration::MAX).is_none());
    }
}
