//! The schedule of polls and reads: pure computation on monotonic time.

use std::time::Duration;

/// An action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DueAction {
    /// File events have paused or continued for the maximum time, or the interval of unconditional reads has passed.
    Read,
    /// The interval of polls has passed.
    Poll,
}

/// The intervals of the schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct FollowIntervals {
    pub(super) poll_interval: Duration,
    pub(super) debounce: Duration,
    pub(super) max_debounce: Duration,
    pub(super) resync_interval: Duration,
}

/// The schedule of one file.
#[derive(Debug)]
pub(super) struct ReadSchedule {
    intervals: FollowIntervals,
    poll_at: Duration,
    resync_at: Duration,
    pending_events: Option<EventBurst>,
}

/// File events that arrived since the last read.
#[derive(Debug)]
struct EventBurst {
    first: Duration,
    last: Duration,
}

impl ReadSchedule {
    /// Creates the schedule of a file that was read at `now`.
    pub(super) fn starting_at(now: Duration, intervals: FollowIntervals) -> Self {
        let poll_at = now.saturating_add(intervals.poll_interval);
        let resync_at = now.saturating_add(intervals.resync_interval);
        Self { intervals, poll_at, resync_at, pending_events: None }
    }

    /// Records a file event.
    pub(super) fn record_event(&mut self, now: Duration) {
        match &mut self.pending_events {
            Some(burst) => burst.last = now,
            None => self.pending_events = Some(EventBurst { first: now, last: now }),
        }
    }

    /// Records a poll.
    pub(super) fn record_poll(&mut self, now: Duration) {
        self.poll_at = now.saturating_add(self.intervals.poll_interval);
    }

    /// Records a read, which covers all earlier events.
    pub(super) fn record_read(&mut self, now: Duration) {
        self.pending_events = None;
        self.resync_at = now.saturating_add(self.intervals.resync_interval);
    }

    /// When the next action is due.
    pub(super) fn next_due_at(&self) -> Duration {
        self.read_due_at().min(self.poll_at)
    }

    /// The most urgent action that is due at `now`.
    pub(super) fn due(&self, now: Duration) -> Option<DueAction> {
        if self.read_due_at() <= now {
            return Some(DueAction::Read);
        }
        (self.poll_at <= now).then_some(DueAction::Poll)
    }

    fn read_due_at(&self) -> Duration {
        let Some(burst) = &self.pending_events else { return self.resync_at };
        let quiet = burst.last.saturating_add(self.intervals.debounce);
        let settled = quiet.min(burst.first.saturating_add(self.intervals.max_debounce));
        settled.min(self.resync_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn schedule() -> ReadSchedule {
        let intervals = FollowIntervals {
            poll_interval: ms(1_000),
            debounce: ms(100),
            max_debounce: ms(250),
            resync_interval: ms(21_600_000),
        };
        ReadSchedule::starting_at(ms(0), intervals)
    }

    #[test]
    fn event_triggers_a_read_after_the_debounce() {
        let mut schedule = schedule();
        schedule.record_event(ms(10));
        assert_eq!(schedule.next_due_at(), ms(110));
        assert_eq!(schedule.due(ms(109)), None);
        assert_eq!(schedule.due(ms(110)), Some(DueAction::Read));
        schedule.record_read(ms(110));
        assert_eq!(schedule.due(ms(110)), None);
    }

    #[test]
    fn continuous_events_trigger_a_read_after_the_maximum_debounce() {
        let mut schedule = schedule();
        for at in (0..=240).step_by(40) {
            schedule.record_event(ms(at));
            assert_eq!(schedule.due(ms(at)), None);
        }
        assert_eq!(schedule.next_due_at(), ms(250));
        assert_eq!(schedule.due(ms(250)), Some(DueAction::Read));
    }

    #[test]
    fn resync_interval_counts_from_the_last_read() {
        let mut schedule = schedule();
        schedule.record_read(ms(5_000));
        schedule.record_poll(ms(21_604_500));
        assert_eq!(schedule.due(ms(21_604_999)), None);
        assert_eq!(schedule.due(ms(21_605_000)), Some(DueAction::Read));
    }

    #[test]
    fn polls_are_due_at_their_interval() {
        let mut schedule = schedule();
        assert_eq!(schedule.next_due_at(), ms(1_000));
        assert_eq!(schedule.due(ms(1_000)), Some(DueAction::Poll));
        schedule.record_poll(ms(1_007));
        assert_eq!(schedule.next_due_at(), ms(2_007));
    }
}
