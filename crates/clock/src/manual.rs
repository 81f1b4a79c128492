//! A clock that advances only on request, for tests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::{Clock, SleepFuture};

/// A clock that advances only on request, for tests.
///
/// Clones share the time. [`ManualClock::advance`] wakes all sleepers whose deadline has passed, in the order
/// of their deadlines.
#[derive(Debug, Clone)]
pub struct ManualClock {
    state: Arc<Mutex<ManualClockState>>,
}

#[derive(Debug)]
struct ManualClockState {
    start: Timestamp,
    elapsed: Duration,
    next_id: u64,
    sleepers: Vec<Sleeper>,
}

#[derive(Debug)]
struct Sleeper {
    id: u64,
    deadline: Duration,
    waker: Waker,
}

impl ManualClock {
    /// Creates a clock that stands at `start`.
    pub fn starting_at(start: Timestamp) -> Self {
        let state =
            ManualClockState { start, elapsed: Duration::ZERO, next_id: 0, sleepers: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Advances the clock and wakes the sleepers whose deadline has passed.
    pub fn advance(&self, duration: Duration) {
        let due = {
            let mut state = self.state.lock();
            state.elapsed = state.elapsed.saturating_add(duration);
            let elapsed = state.elapsed;
            let (mut due, waiting): (Vec<_>, Vec<_>) =
                state.sleepers.drain(..).partition(|sleeper| sleeper.deadline <= elapsed);
            state.sleepers = waiting;
            due.sort_by_key(|sleeper| (sleeper.deadline, sleeper.id));
            due
        };
        for sleeper in due {
            sleeper.waker.wake();
        }
    }

    /// The number of sleepers. Tests use it to detect that a task is idle.
    pub fn sleeper_count(&self) -> usize {
        self.state.lock().sleepers.len()
    }

    /// The time until the first deadline, if there is a sleeper.
    pub fn time_until_next_deadline(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.sleepers.iter().map(|s| s.deadline.saturating_sub(state.elapsed)).min()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let state = self.state.lock();
        state.start.checked_add(state.elapsed).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().elapsed
    }

    fn sleep(&self, duration: Duration) -> SleepFuture {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        let deadline = state.elapsed.saturating_add(duration);
        drop(state);
        Box::pin(ManualSleep { clock: self.clone(), id, deadline })
    }
}

struct ManualSleep {
    clock: ManualClock,
    id: u64,
    deadline: Duration,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state.lock();
        if self.deadline <= state.elapsed {
            return Poll::Ready(());
        }
        state.sleepers.retain(|sleeper| sleeper.id != self.id);
        let waker = context.waker().clone();
        state.sleepers.push(Sleeper { id: self.id, deadline: self.deadline, waker });
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        self.clock.state.lock().sleepers.retain(|sleeper| sleeper.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn sleeper_wakes_exactly_at_its_deadline() {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let counter = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&counter));
        let mut context = Context::from_waker(&waker);
        let mut sleep = clock.sleep(Duration::from_secs(10));

        assert!(sleep.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_millis(9_999));
        assert_eq!(counter.0.load(Ordering::SeqCst), 0);
        clock.advance(Duration::from_millis(1));
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
        assert!(sleep.as_mut().poll(&mut context).is_ready());
        assert_eq!(clock.now(), Timestamp::from_second(10).unwrap());
    }

    #[test]
    fn a_dropped_sleep_leaves_no_sleeper_behind() {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let waker = Waker::noop();
        let mut sleep = clock.sleep(Duration::from_secs(1));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        assert_eq!(clock.sleeper_count(), 1);
        assert_eq!(clock.time_until_next_deadline(), Some(Duration::from_secs(1)));
        drop(sleep);
        assert_eq!(clock.sleeper_count(), 0);
    }
}
