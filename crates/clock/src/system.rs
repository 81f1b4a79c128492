//! The clock of the operating system.

use std::sync::Arc;
use std::time::Duration;
#[cfg(not(target_os = "linux"))]
use std::time::Instant;

use jiff::Timestamp;

use crate::{Clock, SharedClock, SleepFuture};

/// The clock of the operating system; sleeping needs a tokio runtime with time enabled.
///
/// A suspended host, for example a laptop or a paused virtual machine, does not stop the expiry of a token.
/// On Linux the monotonic time therefore includes suspension (`CLOCK_BOOTTIME`), and a sleep whose deadline
/// passed during suspension ends at most one minute after the host resumes. On other systems, monotonic time
/// and sleep stop during suspension.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Origin,
}

impl SystemClock {
    /// Creates a clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self { origin: Origin::now() }
    }

    /// Creates a shared system clock.
    pub fn shared() -> SharedClock {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that sleeps")]
    fn sleep(&self, duration: Duration) -> SleepFuture {
        let clock = *self;
        let deadline = clock.monotonic().saturating_add(duration);
        Box::pin(async move {
            // The runtime's timers stop during suspension, so a long sleep checks the clock repeatedly.
            loop {
                let left = deadline.saturating_sub(clock.monotonic());
                tokio::time::sleep(left.min(MAX_TIMER_SLEEP)).await;
                if left <= MAX_TIMER_SLEEP {
                    return;
                }
            }
        })
    }
}

/// The maximum time for which a sleep relies on timers that do not include suspension.
const MAX_TIMER_SLEEP: Duration = Duration::from_mins(1);

/// The start of a clock's monotonic time.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy)]
struct Origin(Duration);

#[cfg(target_os = "linux")]
impl Origin {
    fn now() -> Self {
        Self(time_since_boot())
    }

    fn elapsed(self) -> Duration {
        time_since_boot().saturating_sub(self.0)
    }
}

/// The time since boot, including suspension.
#[cfg(target_os = "linux")]
fn time_since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    // The kernel counts from zero, so the reading is never negative.
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// The start of a clock's monotonic time.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
struct Origin(Instant);

#[cfg(not(target_os = "linux"))]
impl Origin {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now() -> Self {
        Self(Instant::now())
    }

    fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_time_never_goes_back() {
        let clock = SystemClock::new();
        let readings: Vec<_> = (0..1_000).map(|_| clock.monotonic()).collect();
        assert!(readings.is_sorted());
        assert!(readings.last().is_some_and(|last| *last < Duration::from_mins(1)));
    }

    /// `/proc/uptime` includes suspension (proc(5)); `CLOCK_MONOTONIC` does not.
    #[cfg(target_os = "linux")]
    #[test]
    fn monotonic_time_includes_host_suspension() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            text.split(' ').next().unwrap().parse().map(Duration::from_secs_f64).unwrap()
        };
        let (before, now, after) = (uptime(), time_since_boot(), uptime());
        let rounding = Duration::from_millis(10);
        assert!(
            before <= now + rounding && now <= after + rounding,
            "{before:?} {now:?} {after:?}"
        );
    }

    #[tokio::test]
    async fn sleep_lasts_at_least_the_requested_duration() {
        let clock = SystemClock::new();
        let wanted = Duration::from_millis(5);
        clock.sleep(wanted).await;
        assert!(clock.monotonic() >= wanted);
    }
}
