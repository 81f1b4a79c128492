//! When to look at a file again: a pure timetable on monotonic time.

use std::time::Duration;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The file events have come to rest, or have gone on for long enough.
    Settled,
    /// It is time for a glance.
    Poll,
    /// The file has not been read for a long time.
    Backstop,
}

/// How often and how soon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    pub(super) poll: Duration,
    pub(super) quiet: Duration,
    pub(super) patience: Duration,
    pub(super) backstop: Duration,
}

/// The timetable of one file.
#[derive(Debug)]
pub(super) struct Schedule {
    intervals: Intervals,
    poll_at: Duration,
    backstop_at: Duration,
    burst: Option<Burst>,
}

/// File events that have come and not yet been answered.
#[derive(Debug)]
struct Burst {
    first: Duration,
    last: Duration,
}

impl Schedule {
    /// A timetable for a file that was read at `now`.
    pub(super) fn starting_at(now: Duration, intervals: Intervals) -> Self {
        let poll_at = now.saturating_add(intervals.poll);
        let backstop_at = now.saturating_add(intervals.backstop);
        Self { intervals, poll_at, backstop_at, burst: None }
    }

    /// A file event came.
    pub(super) fn note_event(&mut self, now: Duration) {
        match &mut self.burst {
            Some(burst) => burst.last = now,
            None => self.burst = Some(Burst { first: now, last: now }),
        }
    }

    /// The file was looked at.
    pub(super) fn note_poll(&mut self, now: Duration) {
        self.poll_at = now.saturating_add(self.intervals.poll);
    }

    /// The file was read: what came before has been answered.
    pub(super) fn note_read(&mut self, now: Duration) {
        self.burst = None;
        self.backstop_at = now.saturating_add(self.intervals.backstop);
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Duration {
        let settled = self.settled_at().unwrap_or(Duration::MAX);
        settled.min(self.poll_at).min(self.backstop_at)
    }

    /// What is due at `now`, the most pressing first.
    pub(super) fn due(&self, now: Duration) -> Option<Due> {
        if self.settled_at().is_some_and(|at| at <= now) {
            return Some(Due::Settled);
        }
        if self.backstop_at <= now {
            return Some(Due::Backstop);
        }
        (self.poll_at <= now).then_some(Due::Poll)
    }

    fn settled_at(&self) -> Option<Duration> {
        let burst = self.burst.as_ref()?;
        let quiet = burst.last.saturating_add(self.intervals.quiet);
        Some(quiet.min(burst.first.saturating_add(self.intervals.patience)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn schedule() -> Schedule {
        let intervals = Intervals {
            poll: ms(1_000),
            quiet: ms(100),
            patience: ms(250),
            backstop: ms(21_600_000),
        };
        Schedule::starting_at(ms(0), intervals)
    }

    #[test]
    fn one_event_is_answered_once_it_has_been_quiet() {
        let mut schedule = schedule();
        schedule.note_event(ms(10));
        assert_eq!(schedule.next(), ms(110));
        assert_eq!(schedule.due(ms(109)), None);
        assert_eq!(schedule.due(ms(110)), Some(Due::Settled));
        schedule.note_read(ms(110));
        assert_eq!(schedule.due(ms(110)), None);
    }

    #[test]
    fn events_without_end_are_answered_all_the_same() {
        let mut schedule = schedule();
        for at in (0..=240).step_by(40) {
            schedule.note_event(ms(at));
            assert_eq!(schedule.due(ms(at)), None);
        }
        assert_eq!(schedule.next(), ms(250));
        assert_eq!(schedule.due(ms(250)), Some(Due::Settled));
    }

    #[test]
    fn the_backstop_counts_from_the_last_read() {
        let mut schedule = schedule();
        schedule.note_read(ms(5_000));
        schedule.note_poll(ms(21_604_500));
        assert_eq!(schedule.due(ms(21_604_999)), None);
        assert_eq!(schedule.due(ms(21_605_000)), Some(Due::Backstop));
    }

    #[test]
    fn polls_come_at_their_interval() {
        let mut schedule = schedule();
        assert_eq!(schedule.next(), ms(1_000));
        assert_eq!(schedule.due(ms(1_000)), Some(Due::Poll));
        schedule.note_poll(ms(1_007));
        assert_eq!(schedule.next(), ms(2_007));
    }
}
