//! Turns the results of repeated checks of one hop or probe into a reportable status: a pure state
//! machine.
//!
//! The rules:
//!
//! 1. A success and a definitive error ([`ProofErrorKind::Definitive`]) change the status
//!    immediately.
//! 2. Transient errors are counted. The status becomes bad after [`FailureThreshold::failures`]
//!    consecutive errors over at least [`FailureThreshold::duration`]; until then it does not
//!    change.
//! 3. A bad status keeps its error and its start time while the error code stays the same. A
//!    transient error does not replace the error of a bad status, except by rule 5.
//! 4. A throttled request ([`ProofErrorKind::Throttled`]) proves nothing, so the status does not
//!    change however long the throttling lasts. The throttling is reported in addition to the
//!    status: after the threshold of rule 2, or immediately if the status is unknown or if the
//!    service asks for a pause of at least [`FailureThreshold::duration`]. The report ends with the
//!    next request that is not throttled.
//! 5. When the checked object is replaced ([`CheckTracker::mark_replaced`]), the status still
//!    describes the previous object. The status stays until the first conclusive check of the new
//!    object, at most until the threshold of rule 2; it becomes unknown if throttling prevents that
//!    check.

use std::time::Duration;

use jiff::Timestamp;

use crate::proof_error::{ProofError, ProofErrorKind};

/// How many transient errors over which time change the status to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureThreshold {
    /// The number of consecutive failures.
    pub failures: u32,
    /// The minimum time between the first and the last of these failures.
    pub duration: Duration,
}

impl FailureThreshold {
    /// For the hops of the identity: a node restart or short API throttling is not reported.
    pub const HOPS: Self = Self { failures: 3, duration: Duration::from_mins(5) };
    /// For probes, which run every ten minutes.
    pub const PROBES: Self = Self { failures: 3, duration: Duration::from_mins(30) };
}

/// A point in time by two clocks: wall time for reports, monotonic time for measuring durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Duration,
}

/// The status of a hop or probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CheckStatus {
    /// No check has had a conclusive result yet.
    #[default]
    Unknown,
    /// The last conclusive check succeeded.
    Good { since: Timestamp },
    /// The check fails.
    Bad { error: ProofError, since: Timestamp },
}

/// The status of one hop or probe, with failures that are not reported yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CheckTracker {
    status: CheckStatus,
    failure_streak: Option<CheckFailureStreak>,
    throttling_period: Option<ThrottlingPeriod>,
    /// Whether `status` describes an object that was replaced since.
    describes_previous: bool,
}

/// Consecutive transient failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckFailureStreak {
    failures: u32,
    first_failure: ClockReading,
}

/// A period in which the service throttles, with its start and its number of throttled requests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ThrottlingPeriod {
    failure_streak: CheckFailureStreak,
    /// The first error of the period; from the first report on, the reported error.
    error: ProofError,
    is_reported: bool,
}

impl CheckFailureStreak {
    const fn starting_at(first_failure: ClockReading) -> Self {
        Self { failures: 0, first_failure }
    }

    /// Counts one more failure; returns whether the streak reached the threshold.
    fn add_failure(&mut self, now: ClockReading, threshold: FailureThreshold) -> bool {
        self.failures = self.failures.saturating_add(1);
        let lasted = now.monotonic.saturating_sub(self.first_failure.monotonic);
        self.failures >= threshold.failures && lasted >= threshold.duration
    }
}

impl ThrottlingPeriod {
    const fn starting_at(error: ProofError, first: ClockReading) -> Self {
        Self { failure_streak: CheckFailureStreak::starting_at(first), error, is_reported: false }
    }

    /// Reports the period from now on, with the error of the first call.
    fn mark_reported(&mut self, error: ProofError) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.error = error;
        }
    }
}

impl CheckTracker {
    pub(crate) const fn status(&self) -> &CheckStatus {
        &self.status
    }

    pub(crate) const fn is_good(&self) -> bool {
        matches!(self.status, CheckStatus::Good { .. })
    }

    /// Whether the last check succeeded.
    pub(crate) const fn last_try_succeeded(&self) -> bool {
        self.is_good() && self.failure_streak.is_none() && self.throttling_period.is_none()
    }

    /// The throttling error and the start of the period, if throttling is reported.
    pub(crate) fn throttled(&self) -> Option<(&ProofError, Timestamp)> {
        let throttling =
            self.throttling_period.as_ref().filter(|throttling| throttling.is_reported)?;
        Some((&throttling.error, throttling.failure_streak.first_failure.wall))
    }

    /// Records the result of a check.
    pub(crate) fn record(
        &mut self,
        outcome: Result<(), ProofError>,
        now: ClockReading,
        threshold: FailureThreshold,
    ) {
        match outcome {
            Ok(()) => self.record_success(now),
            Err(error) => self.record_failure(error, now, threshold),
        }
    }

    /// Resets the status to unknown.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Marks the status as that of a replaced object (rule 5).
    pub(crate) fn mark_replaced(&mut self) {
        self.describes_previous = true;
        if let Some(throttling) = &mut self.throttling_period {
            throttling.is_reported = true;
            self.clear_if_replaced();
        }
    }

    /// Whether the status is known and describes a replaced object.
    pub(crate) fn is_about_replaced(&self) -> bool {
        self.describes_previous && self.status != CheckStatus::Unknown
    }

    /// Resets the status if it describes a replaced object.
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
        error: ProofError,
        now: ClockReading,
        threshold: FailureThreshold,
    ) {
        if error.is_throttled() {
            self.clear_if_replaced();
        }
        match error.kind {
            ProofErrorKind::Definitive => self.record_definitive_error(error, now),
            ProofErrorKind::Transient => {
                let run = self.failure_streak.get_or_insert(CheckFailureStreak::starting_at(now));
                let since = run.first_failure.wall;
                if run.add_failure(now, threshold) {
                    let is_outdated = std::mem::take(&mut self.describes_previous);
                    // Transient errors of different objects continue one failure.
                    let stays = |known: &ProofError| {
                        !is_outdated || known.kind == ProofErrorKind::Transient
                    };
                    if !matches!(&self.status, CheckStatus::Bad { error, .. } if stays(error)) {
                        self.status = CheckStatus::Bad { error, since };
                    }
                }
            }
            ProofErrorKind::Throttled => {
                let outlasts_threshold = error.requests_pause_of_at_least(threshold.duration);
                let first = || ThrottlingPeriod::starting_at(error.clone(), now);
                let throttling = self.throttling_period.get_or_insert_with(first);
                if throttling.failure_streak.add_failure(now, threshold)
                    || outlasts_threshold
                    || self.status == CheckStatus::Unknown
                {
                    throttling.mark_reported(error);
                }
            }
        }
    }

    fn record_definitive_error(&mut self, error: ProofError, now: ClockReading) {
        (self.failure_streak, self.throttling_period, self.describes_previous) =
            (None, None, false);
        let is_same = |status: &CheckStatus| matches!(status, CheckStatus::Bad { error: known, .. } if known.has_same_cause(&error));
        if !is_same(&self.status) {
            self.status = CheckStatus::Bad { error, since: now.wall };
        }
    }
}

#[cfg(test)]
mod tests;
