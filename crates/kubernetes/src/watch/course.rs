//! Where a watch stands, and how it goes on from each end. Pure.

use std::time::Duration;

use crate::call::{ApiError, backoff};

/// Where a watch stands.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// The version to go on from; nothing before a list, and after what only a list mends.
    version: Option<String>,
    /// How often in a row nothing came of it.
    failures: u32,
    /// How often in a row lists and watches were refused: each is a right of its own.
    lists: Refusals,
    watches: Refusals,
    /// Whether a watch was refused and none has begun since.
    is_watch_refused: bool,
}

/// How often in a row something was refused with the same status.
#[derive(Debug, Default)]
struct Refusals {
    count: u32,
    status: Option<u16>,
}

/// How a list or a watch ended.
#[derive(Debug)]
pub(super) enum End {
    /// Everything was told, as of this version.
    Listed { version: String },
    /// What was refused before has begun: what was missed meanwhile only a list tells.
    Allowed,
    /// As every watch does, or cut on its way.
    Over { version: String, lasted: Duration, told: bool },
    /// It could not begin, or broke, perhaps after it had gone on for a while.
    Broken { error: ApiError, version: Option<String>, lasted: Duration, told: bool },
}

impl End {
    /// The end of a list that did not tell everything.
    pub(super) const fn of_list(error: ApiError) -> Self {
        Self::Broken { error, version: None, lasted: Duration::ZERO, told: false }
    }

    pub(super) const fn error(&self) -> Option<&ApiError> {
        match self {
            Self::Broken { error, .. } => Some(error),
            Self::Listed { .. } | Self::Allowed | Self::Over { .. } => None,
        }
    }
}

impl Course {
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
        self.lists.count.max(self.watches.count)
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
    pub(super) fn after(&mut self, end: End, chance: f64) -> Duration {
        match end {
            End::Listed { version } => {
                self.version = Some(version);
                self.lists = Refusals::default();
                Duration::ZERO
            }
            End::Allowed => {
                self.version = None;
                self.watches = Refusals::default();
                self.is_watch_refused = false;
                Duration::ZERO
            }
            End::Over { version, lasted, told } => {
                self.version = Some(version);
                let is_short = lasted < SHORTEST_WATCH;
                if told || !is_short {
                    self.failures = 0;
                }
                if is_short { self.pause(LONGEST_PAUSE, chance) } else { Duration::ZERO }
            }
            End::Broken { error, version, lasted, told } => {
                let is_list = version.is_none();
                let refusals = if is_list { &mut self.lists } else { &mut self.watches };
                refusals.note(&error);
                self.is_watch_refused |= self.watches.count > 0;
                // What cannot be read is lost, and only a list tells it again.
                let needs_list = error.is_expiry() || matches!(error, ApiError::Unreadable { .. });
                self.version = version.filter(|_| !needs_list);
                if lasted >= SHORTEST_WATCH || (told && !needs_list) {
                    self.failures = 0;
                }
                let passes = error.is_transient() || error.is_expiry();
                let longest = if passes { LONGEST_PAUSE } else { LONGEST_REFUSED };
                let pause = self.pause(longest, chance);
                error.retry_after().map_or(pause, |asked| asked.max(pause))
            }
        }
    }

    fn pause(&mut self, longest: Duration, chance: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        backoff(self.failures, FIRST_PAUSE, longest, chance)
    }
}

impl Refusals {
    fn note(&mut self, error: &ApiError) {
        let status = error.refusal();
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
const SHORTEST_WATCH: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A kind that is not served may be installed; a right that is missing may be given.
const LONGEST_REFUSED: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
