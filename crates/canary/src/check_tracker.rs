//! What is known of something that is tried again and again: a pure state machine.
//!
//! The rules:
//!
//! 1. A success is told at once, and so is trouble of somebody who knows ([`ProofErrorKind::Definitive`]).
//! 2. Trouble on the way is counted, and told once it came [`FailureThreshold::failures`] times in a row
//!    over [`FailureThreshold::duration`]. Until then what was known stays known.
//! 3. What is told stays as it was told while it has the same code, its beginning included. Trouble
//!    on the way says nothing new about what is known to be bad, but for rule 5.
//! 4. A service that wants to be left alone ([`ProofErrorKind::Throttled`]) says nothing: what was known
//!    stays known however long it lasts. It is counted as in rule 2, and then told beside what is
//!    known, until somebody answers; at once where nothing is known, for it is why, and where it is
//!    to last as long as that by its own word: nobody asks before.
//! 5. What is known of something that was replaced ([`CheckTracker::mark_replaced`]) is not known of what took its
//!    place. It stands while that is tried, within the patience of rule 2; where a service that
//!    throttles keeps it from being tried, nothing is known.

use std::time::Duration;

use jiff::Timestamp;

use crate::proof_error::{ProofError, ProofErrorKind};

/// How long trouble that may pass by itself is only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureThreshold {
    /// How many tries in a row have to fail.
    pub failures: u32,
    /// Over what time.
    pub duration: Duration,
}

impl FailureThreshold {
    /// For the hops of the identity: a node that restarts or an API that throttles is no news.
    pub const HOPS: Self = Self { failures: 3, duration: Duration::from_mins(5) };
    /// For probes, which are made every ten minutes.
    pub const PROBES: Self = Self { failures: 3, duration: Duration::from_mins(30) };
}

/// A moment, by both clocks: the wall's leaves the process, the monotonic one measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Duration,
}

/// What is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CheckStatus {
    /// Nothing.
    #[default]
    Unknown,
    /// It works.
    Good { since: Timestamp },
    /// It does not.
    Bad { error: ProofError, since: Timestamp },
}

/// What is known of one thing, and what has not been told yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CheckTracker {
    status: CheckStatus,
    failure_streak: Option<CheckFailureStreak>,
    throttling_period: Option<ThrottlingPeriod>,
    /// Whether what is known is of something that was replaced.
    describes_previous: bool,
}

/// Failures in a row that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckFailureStreak {
    failures: u32,
    first_failure: ClockReading,
}

/// Since when, and how often, nobody answers because somebody asked too much.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ThrottlingPeriod {
    failure_streak: CheckFailureStreak,
    /// What was said first, and then what is told.
    error: ProofError,
    is_reported: bool,
}

impl CheckFailureStreak {
    const fn starting_at(first_failure: ClockReading) -> Self {
        Self { failures: 0, first_failure }
    }

    /// One more. Whether it is worth telling.
    fn add_failure(&mut self, now: ClockReading, patience: FailureThreshold) -> bool {
        self.failures = self.failures.saturating_add(1);
        let lasted = now.monotonic.saturating_sub(self.first_failure.monotonic);
        self.failures >= patience.failures && lasted >= patience.duration
    }
}

impl ThrottlingPeriod {
    const fn starting_at(error: ProofError, first: ClockReading) -> Self {
        Self { failure_streak: CheckFailureStreak::starting_at(first), error, is_reported: false }
    }

    /// It is told from now on, in the words that it was told in first.
    fn mark_reported(&mut self, trouble: ProofError) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.error = trouble;
        }
    }
}

impl CheckTracker {
    /// What is known.
    pub(crate) const fn status(&self) -> &CheckStatus {
        &self.status
    }

    pub(crate) const fn is_good(&self) -> bool {
        matches!(self.status, CheckStatus::Good { .. })
    }

    /// Whether the last try succeeded.
    pub(crate) const fn last_try_succeeded(&self) -> bool {
        self.is_good() && self.failure_streak.is_none() && self.throttling_period.is_none()
    }

    /// That nobody may ask, and since when, where that is told.
    pub(crate) fn throttled(&self) -> Option<(&ProofError, Timestamp)> {
        let throttling =
            self.throttling_period.as_ref().filter(|throttling| throttling.is_reported)?;
        Some((&throttling.error, throttling.failure_streak.first_failure.wall))
    }

    /// A try came to something.
    pub(crate) fn record(
        &mut self,
        outcome: Result<(), ProofError>,
        now: ClockReading,
        patience: FailureThreshold,
    ) {
        match outcome {
            Ok(()) => self.record_success(now),
            Err(trouble) => self.record_failure(trouble, now, patience),
        }
    }

    /// Nothing is known any more.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// What is tried was replaced by another: what is known is of the one before.
    pub(crate) fn mark_replaced(&mut self) {
        self.describes_previous = true;
        if let Some(throttling) = &mut self.throttling_period {
            throttling.is_reported = true;
            self.clear_if_replaced();
        }
    }

    /// Whether what is known is of what was replaced.
    pub(crate) fn is_about_replaced(&self) -> bool {
        self.describes_previous && self.status != CheckStatus::Unknown
    }

    /// Nothing is known where it was known of something else.
    fn clear_if_replaced(&mut self) {
        if std::mem::take(&mut self.describes_previous) {
            self.status = CheckStatus::Unknown;
        }
    }

    fn record_success(&mut self, now: ClockReading) {
        (self.failure_streak, self.throttling_period, self.describes_previous) =
            (None, None, false);
        if !self.is_good() {
            self.status = CheckStatus::Good { since: now.wall };
        }
    }

    fn record_failure(
        &mut self,
        trouble: ProofError,
        now: ClockReading,
        patience: FailureThreshold,
    ) {
        if trouble.is_throttled() {
            self.clear_if_replaced();
        }
        match trouble.kind {
            ProofErrorKind::Definitive => self.record_definitive_error(trouble, now),
            ProofErrorKind::Transient => {
                let run = self.failure_streak.get_or_insert(CheckFailureStreak::starting_at(now));
                let since = run.first_failure.wall;
                if run.add_failure(now, patience) {
                    let is_outdated = std::mem::take(&mut self.describes_previous);
                    // Trouble on the way is one story, whatever is tried on it.
                    let stays =
                        |told: &ProofError| !is_outdated || told.kind == ProofErrorKind::Transient;
                    if !matches!(&self.status, CheckStatus::Bad { error, .. } if stays(error)) {
                        self.status = CheckStatus::Bad { error: trouble, since };
                    }
                }
            }
            ProofErrorKind::Throttled => {
                let is_to_last = trouble.asks_for_at_least(patience.duration);
                let first = || ThrottlingPeriod::starting_at(trouble.clone(), now);
                let throttling = self.throttling_period.get_or_insert_with(first);
                if throttling.failure_streak.add_failure(now, patience)
                    || is_to_last
                    || self.status == CheckStatus::Unknown
                {
                    throttling.mark_reported(trouble);
                }
            }
        }
    }

    fn record_definitive_error(&mut self, trouble: ProofError, now: ClockReading) {
        (self.failure_streak, self.throttling_period, self.describes_previous) =
            (None, None, false);
        let is_told = |told: &CheckStatus| matches!(told, CheckStatus::Bad { error: told, .. } if told.has_same_cause(&trouble));
        if !is_told(&self.status) {
            self.status = CheckStatus::Bad { error: trouble, since: now.wall };
        }
    }
}

#[cfg(test)]
mod tests;
