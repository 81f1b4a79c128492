//! The state of a watch and how it continues after each outcome. Pure.

use std::time::Duration;

use lanyard_clock::Backoff;

use crate::call::ApiError;

/// The state of a watch: resource version, consecutive failures and refusals.
#[derive(Debug, Default)]
pub(super) struct WatchCursor {
    /// The version to resume from; `None` if a list is needed.
    version: Option<String>,
    /// The number of consecutive failures.
    failures: u32,
    /// The consecutive refusals of lists and of watches, which need separate permissions.
    list_refusals: RefusalCount,
    watch_refusals: RefusalCount,
    /// Whether a watch was refused and none has started since.
    is_watch_refused: bool,
}

/// The number of consecutive refusals with the same status.
#[derive(Debug, Default)]
struct RefusalCount {
    count: u32,
    status: Option<u16>,
}

/// The outcome of a list or a watch.
#[derive(Debug)]
pub(super) enum WatchOutcome {
    /// The list is complete, as of this version.
    Listed { version: String },
    /// A watch that was refused before has started; a list must recover the changes missed meanwhile.
    PermissionRestored,
    /// The watch ended without an error: its timeout expired, or a proxy closed the connection.
    Ended { version: String, duration: Duration, had_events: bool },
    /// The list or the watch could not start, or failed later. `version` is `None` for a list.
    Failed { error: ApiError, version: Option<String>, duration: Duration, had_events: bool },
}

impl WatchOutcome {
    /// The outcome of a list that failed.
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
    /// The version to resume from; `None` if a list is needed.
    pub(super) fn version(&self) -> Option<String> {
        self.version.clone()
    }

    /// The number of consecutive failures.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// The number of consecutive refusals with the same status.
    pub(super) fn refusals(&self) -> u32 {
        self.list_refusals.count.max(self.watch_refusals.count)
    }

    /// Whether a watch was refused and none has started since.
    pub(super) const fn is_watch_refused(&self) -> bool {
        self.is_watch_refused
    }

    /// Records an outcome and returns the delay before the next list or watch. `chance` (0 to 1) adds
    /// jitter for watches that failed together.
    ///
    /// A list is the most expensive request, so two lists never follow each other without a delay: neither
    /// a complete list nor a watch that ends immediately resets the back-off.
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
            WatchOutcome::Ended { version, duration: lasted, had_events } => {
                self.version = Some(version);
                let is_short = lasted < MIN_HEALTHY_WATCH;
                if had_events || !is_short {
                    self.failures = 0;
                }
                if is_short { self.delay(BACKOFF, chance) } else { Duration::ZERO }
            }
            WatchOutcome::Failed { error, version, duration: lasted, had_events } => {
                let is_list = version.is_none();
                let refusals =
                    if is_list { &mut self.list_refusals } else { &mut self.watch_refusals };
                refusals.record_error(&error);
                self.is_watch_refused |= self.watch_refusals.count > 0;
                // An unreadable event is lost; only a list recovers the object.
                let needs_list = error.is_expired() || matches!(error, ApiError::Unreadable { .. });
                self.version = version.filter(|_| !needs_list);
                if lasted >= MIN_HEALTHY_WATCH || (had_events && !needs_list) {
                    self.failures = 0;
                }
                let class = error.retry_class();
                let passes = class.is_temporary() || error.is_expired();
                let pause = self.delay(if passes { BACKOFF } else { REFUSED_BACKOFF }, chance);
                class.requested_delay().map_or(pause, |asked| asked.max(pause))
            }
        }
    }

    fn delay(&mut self, backoff: Backoff, chance: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        backoff.delay_with_jitter(self.failures, chance)
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

/// A watch that ends sooner than this did not end by its timeout.
const MIN_HEALTHY_WATCH: Duration = Duration::from_secs(5);
const MIN_DELAY: Duration = Duration::from_millis(200);
const BACKOFF: Backoff = Backoff::new(MIN_DELAY, Duration::from_secs(10));
/// The back-off after a refusal: a CRD may be installed and a permission granted at any time.
const REFUSED_BACKOFF: Backoff = Backoff::new(MIN_DELAY, Duration::from_mins(1));

#[cfg(test)]
mod tests;
