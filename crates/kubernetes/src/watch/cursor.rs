//! Where a watch stands, and how it goes on from each end. Pure.

use std::time::Duration;

use crate::call::{ApiError, backoff};

/// Where a watch stands.
#[derive(Debug, Default)]
pub(super) struct WatchCursor {
    /// The version to go on from; nothing before a list, and after what only a list mends.
    version: Option<String>,
    /// How often in a row nothing came of it.
    failures: u32,
    /// How often in a row lists and watches were refused: each is a right of its own.
    list_refusals: RefusalCount,
    watch_refusals: RefusalCount,
    /// Whether a watch was refused and none has begun since.
    is_watch_refused: bool,
}

/// How often in a row something was refused with the same status.
#[derive(Debug, Default)]
struct RefusalCount {
    count: u32,
    status: Option<u16>,
}

/// How a list or a watch ended.
#[derive(Debug)]
pub(super) enum WatchOutcome {
    /// Everything was told, as of this version.
    Listed { version: String },
    /// What was refused before has begun: what was missed meanwhile only a list tells.
    PermissionRestored,
    /// As every watch does, or cut on its way.
    Ended { version: String, duration: Duration, had_events: bool },
    /// It could not begin, or broke, perhaps after it had gone on for a while.
    Failed { error: ApiError, version: Option<String>, duration: Duration, had_events: bool },
}

impl WatchOutcome {
    /// The end of a list that did not tell everything.
    pub(super) const fn list_failed(error: ApiError) -> Self {
        Self::Failed { error, version: None, duration: Duration::ZERO, had_events: false }
    }

    pub(super) const fn error(&self) -> Option<&ApiError> {
        match self {
            Self::Failed { error, .. } => Some(error),
            Self::Listed { .. } | Self::PermissionRestored | Self::Ended { .. } => None,
        }
    }
}

impl WatchCursor {
    /// The version to go on from; nothing where only a list helps.
    pub(super) fn version(&self) -> Option<String> {
        self.version.clone()
    }

    /// How often in a row nothing came of it.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// How often in a row the kind was refused with the same status.
    pub(super) fn refusals(&self) -> u32 {
        self.list_refusals.count.max(self.watch_refusals.count)
    }

    /// Whether a watch was refused and none has begun since.
    pub(super) const fn is_watch_refused(&self) -> bool {
        self.is_watch_refused
    }

    /// Goes on from an end: after what pause. `chance` (0 to 1) spreads those that broke together.
    ///
    /// A list is the dearest question of all, so none follows another at once, whatever a short
    /// watch in between told: a list alone is no success. Neither is a watch that ends as soon as
    /// it began, for who watches again at once asks again and again.
    pub(super) fn record_outcome(&mut self, end: WatchOutcome, chance: f64) -> Duration {
        match end {
            WatchOutcome::Listed { version } => {
                self.version = Some(version);
                self.list_refusals = RefusalCount::default();
                Duration::ZERO
            }
            WatchOutcome::PermissionRestored => {
                self.version = None;
                self.watch_refusals = RefusalCount::default();
                self.is_watch_refused = false;
                Duration::ZERO
            }
            WatchOutcome::Ended { version, duration: lasted, had_events: told } => {
                self.version = Some(version);
                let is_short = lasted < MIN_HEALTHY_WATCH;
                if told || !is_short {
                    self.failures = 0;
                }
                if is_short { self.backoff_delay(MAX_DELAY, chance) } else { Duration::ZERO }
            }
            WatchOutcome::Failed { error, version, duration: lasted, had_events: told } => {
                let is_list = version.is_none();
                let refusals =
                    if is_list { &mut self.list_refusals } else { &mut self.watch_refusals };
                refusals.record_error(&error);
                self.is_watch_refused |= self.watch_refusals.count > 0;
                // What cannot be read is lost, and only a list tells it again.
                let needs_list = error.is_expired() || matches!(error, ApiError::Unreadable { .. });
                self.version = version.filter(|_| !needs_list);
                if lasted >= MIN_HEALTHY_WATCH || (told && !needs_list) {
                    self.failures = 0;
                }
                let passes = error.is_transient() || error.is_expired();
                let longest = if passes { MAX_DELAY } else { MAX_REFUSED_DELAY };
                let pause = self.backoff_delay(longest, chance);
                error.retry_after().map_or(pause, |asked| asked.max(pause))
            }
        }
    }

    fn backoff_delay(&mut self, longest: Duration, chance: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        backoff(self.failures, MIN_DELAY, longest, chance)
    }
}

impl RefusalCount {
    fn record_error(&mut self, error: &ApiError) {
        let status = error.refusal_status();
        let is_the_same = self.status == status;
        self.count = match status {
            Some(_) if is_the_same => self.count.saturating_add(1),
            Some(_) => 1,
            None => 0,
        };
        self.status = status;
    }
}

/// A watch that ends sooner than this was not ended by its time.
const MIN_HEALTHY_WATCH: Duration = Duration::from_secs(5);
const MIN_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// A kind that is not served may be installed; a right that is missing may be given.
const MAX_REFUSED_DELAY: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
