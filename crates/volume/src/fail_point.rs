//! Injects failures and crashes into volume operations.
//!
//! Unit tests let a chosen call that changes the disk fail, as after a crash. The crash matrix
//! names a [`VolumeStep`] at which a real process kills itself (feature `crash-points`).

use std::io;

use crate::volume_step::VolumeStep;

/// Counts the calls that change the disk and fails every call after the allowed number, as after a
/// crash (so clean-up fails too). Outside tests it never fails.
#[derive(Debug, Clone, Default)]
pub struct FailPoint {
    #[cfg(test)]
    remaining_calls: Option<std::sync::Arc<std::sync::atomic::AtomicUsize>>,
    #[cfg(test)]
    fails_once: bool,
    #[cfg(feature = "crash-points")]
    crash_point: Option<CrashPoint>,
}

impl FailPoint {
    /// Lets `calls` calls pass and fails all later ones.
    #[cfg(test)]
    pub(crate) fn failing_after(calls: usize) -> Self {
        Self { remaining_calls: Some(std::sync::Arc::new(calls.into())), ..Self::default() }
    }

    /// Lets `calls` calls pass, fails one, and lets all later ones pass.
    #[cfg(test)]
    pub(crate) fn failing_once_after(calls: usize) -> Self {
        Self { fails_once: true, ..Self::failing_after(calls) }
    }

    /// Kills the process at a step.
    #[cfg(feature = "crash-points")]
    #[cfg_attr(not(test), expect(clippy::needless_update, reason = "tests have more fields"))]
    pub fn crashing_at(crash_point: Option<CrashPoint>) -> Self {
        Self { crash_point, ..Self::default() }
    }

    /// Whether all further calls fail.
    #[cfg(test)]
    pub(crate) fn is_exhausted(&self) -> bool {
        use std::sync::atomic::Ordering::SeqCst;
        self.remaining_calls.as_ref().is_some_and(|left| left.load(SeqCst) == 0)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "only tests crash")]
    pub(crate) fn count_call(&self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn count_call(&self) -> io::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let Some(left) = &self.remaining_calls else { return Ok(()) };
        left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).map(|_| ()).map_err(
            |_spent| {
                if self.fails_once {
                    left.store(usize::MAX, SeqCst);
                }
                io::Error::other("crashed here")
            },
        )
    }

    /// Marks the point before a step. If the crash point names the step, the process kills itself.
    #[cfg(feature = "crash-points")]
    pub fn reach_step(&self, step: VolumeStep) {
        if let Some(crash) = &self.crash_point {
            crash.kill_if_reached(step);
        }
    }

    /// Does nothing without the feature `crash-points`.
    #[cfg(not(feature = "crash-points"))]
    pub const fn reach_step(&self, _step: VolumeStep) {}
}

#[cfg(feature = "crash-points")]
pub use point::{CrashPoint, ParseCrashPointError};

#[cfg(feature = "crash-points")]
mod point {
    use std::str::FromStr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::VolumeStep;

    /// The step at which the process kills itself: the name of a step, or `step#2` for the second
    /// time that it is reached.
    #[derive(Debug, Clone)]
    pub struct CrashPoint {
        step: VolumeStep,
        remaining_hits: Arc<AtomicUsize>,
    }

    impl CrashPoint {
        pub(super) fn kill_if_reached(&self, step: VolumeStep) {
            if step != self.step || self.remaining_hits.fetch_sub(1, Ordering::SeqCst) != 1 {
                return;
            }
            tracing::warn!(%step, "killing this process at the configured crash point");
            if kill_process(getpid(), Signal::KILL).is_ok() {
                loop {
                    std::thread::park();
                }
            }
        }
    }

    impl FromStr for CrashPoint {
        type Err = ParseCrashPointError;

        fn from_str(text: &str) -> Result<Self, Self::Err> {
            let invalid = || ParseCrashPointError { text: text.to_owned() };
            let (name, time) = text.split_once('#').unwrap_or((text, "1"));
            let step = VolumeStep::ALL.iter().copied().find(|step| step.name() == name);
            let time = time.parse().ok().filter(|time| *time > 0).ok_or_else(invalid)?;
            Ok(Self {
                step: step.ok_or_else(invalid)?,
                remaining_hits: Arc::new(AtomicUsize::new(time)),
            })
        }
    }

    /// The error for text that does not name a crash point.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    #[error("{text:?} is not the name of a step, optionally followed by `#` and a number")]
    pub struct ParseCrashPointError {
        /// The rejected text.
        pub text: String,
    }
}
