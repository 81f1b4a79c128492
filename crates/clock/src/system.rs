//! The clock of the operating system.

use std::sync::Arc;
use std::time::Duration;
#[cfg(not(target_os = "linux"))]
use std::time::Instant;

use jiff::Timestamp;

use crate::{Clock, SharedClock, SleepFuture};

/// The clock of the operating system; sleeping needs a tokio runtime with time enabled.
///
/// A host that is suspended, as a laptop or a paused virtual machine, does not stop the expiry
/// of a token. On Linux the monotonic time therefore counts suspension (`CLOCK_BOOTTIME`), and a
/// sleep that was due meanwhile ends at most a minute after the host resumes. On other systems
/// both stand still while the host does.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Origin,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    pub fn new() -> Self {
        Self { origin: Origin::now() }
    }

    /// A clock to hand around.
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
            // The runtime's timers stand still during suspension, so a long sleep looks up.
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

/// How long a sleep relies on timers that do not count suspension.
const MAX_TIMER_SLEEP: Duration = Duration::from_mins(1);

/// Where the monotonic time of a clock begins.
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

/// The time since the host began, with the time that it was suspended.
#[cfg(target_os = "linux")]
fn time_since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    // The kernel counts from zero, so the reading is never negative.
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Where the monotonic time of a clock begins.
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

    /// `/proc/uptime` counts suspension (proc(5)), as `CLOCK_MONOTONIC` does not.
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
