//! The polls of one volume.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::RetryClass;
use lanyard_provider::{OlderVersion, PollInterval, RefreshRequest, RotationPolicy};
use serde::{Deserialize, Serialize};

/// The polls of one volume: when it was polled, with which outcome, and what its class requested.
///
/// The caller records each poll with [`PollHistory::record_attempt`], then with
/// [`PollHistory::record_success`], [`PollHistory::record_failure`] or
/// [`PollHistory::record_suppressed`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PollHistory {
    record: Option<PollRecord>,
    last_attempt: Option<Timestamp>,
    restored_at: Option<Timestamp>,
    failure_streak: Option<FailureStreak>,
    /// How long polls are suppressed, if the last one was.
    suppressed_for: Option<Duration>,
}

/// The part of a [`PollHistory`] that the volume's marker stores, so that it survives the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollRecord {
    /// When the last successful poll of the volume started.
    pub checked: Timestamp,
    /// The refresh request that this poll served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<RefreshRequest>,
    /// The interval that the class set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<PollInterval>,
    /// The older credentials that were accepted because the class allows it. Each is accepted once.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub accepted_older: BTreeSet<OlderVersion>,
}

/// Failures since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailureStreak {
    pub(super) count: u32,
    pub(super) retry: RetryClass,
}

impl FailureStreak {
    /// Whether the service asked for a pause.
    pub(super) const fn is_throttled(self) -> bool {
        matches!(self.retry, RetryClass::Throttled { .. })
    }
}

impl PollHistory {
    /// The history of a volume that another process filled. `record` comes from its marker and is
    /// `None` if it has none, for example because another driver mounted the volume.
    pub fn restored(record: Option<PollRecord>, now: Timestamp) -> Self {
        Self { record, restored_at: Some(now), ..Self::default() }
    }

    /// Records that the provider is about to be asked.
    pub const fn record_attempt(&mut self, now: Timestamp) {
        self.last_attempt = Some(now);
        self.restored_at = None;
        self.suppressed_for = None;
    }

    /// Records that the volume has the content of a request that started at `started_at`. `accepted` are
    /// the older credentials that were accepted.
    pub fn record_success(
        &mut self,
        started_at: Timestamp,
        policy: &RotationPolicy,
        accepted: impl IntoIterator<Item = OlderVersion>,
    ) {
        let before = self.record.take().map(|record| record.accepted_older).unwrap_or_default();
        let accepted_older =
            before.into_iter().chain(accepted).filter(|it| policy.accept_older.contains(it));
        self.record = Some(PollRecord {
            checked: started_at,
            refreshed: policy.refresh.clone(),
            interval: policy.interval,
            accepted_older: accepted_older.collect(),
        });
        self.record_attempt(started_at);
        self.failure_streak = None;
    }

    /// Records that the volume was not updated.
    pub fn record_failure(&mut self, started_at: Timestamp, retry: RetryClass) {
        let count = self.failure_streak.map_or(0, |failing| failing.count).saturating_add(1);
        self.failure_streak = Some(FailureStreak { count, retry });
        self.record_attempt(started_at);
    }

    /// Records a poll that was suppressed, because other requests found the source unavailable;
    /// none is sent for another `pause`. It does not count as a failure of the volume.
    pub const fn record_suppressed(&mut self, started_at: Timestamp, pause: Duration) {
        self.record_attempt(started_at);
        self.suppressed_for = Some(pause);
    }

    /// The record for the marker; `None` before the first success.
    pub const fn record(&self) -> Option<&PollRecord> {
        self.record.as_ref()
    }

    /// When the last successful poll of the volume started; `None` before the first success.
    pub fn last_success_started_at(&self) -> Option<Timestamp> {
        self.record.as_ref().map(|record| record.checked)
    }

    /// The number of failures in a row.
    pub fn failure_count(&self) -> u32 {
        self.failure_streak.map_or(0, |failing| failing.count)
    }

    /// The interval that the class set at the last success.
    pub fn interval(&self) -> Option<PollInterval> {
        self.record.as_ref().and_then(|record| record.interval)
    }

    /// Whether this older credential may be accepted: the class allows it, and it was not accepted
    /// before.
    pub fn may_accept_older(&self, older: &OlderVersion, policy: &RotationPolicy) -> bool {
        let is_used = self.record.as_ref().is_some_and(|it| it.accepted_older.contains(older));
        policy.accept_older.contains(older) && !is_used
    }

    /// When the volume was last polled, with or without success.
    pub fn last_attempt(&self) -> Option<Timestamp> {
        self.last_attempt.or_else(|| self.last_success_started_at())
    }

    pub(super) const fn failure_streak(&self) -> Option<FailureStreak> {
        self.failure_streak
    }

    pub(super) const fn suppressed_for(&self) -> Option<Duration> {
        self.suppressed_for
    }

    pub(super) const fn restored_at(&self) -> Option<Timestamp> {
        self.restored_at
    }

    pub(super) fn has_served_refresh(&self, request: &RefreshRequest) -> bool {
        self.record.as_ref().is_some_and(|record| record.refreshed.as_ref() == Some(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn policy_accepting(accept_older: &[&str]) -> RotationPolicy {
        let accept_older = accept_older.iter().map(|text| text.parse().unwrap()).collect();
        RotationPolicy { accept_older, ..RotationPolicy::default() }
    }

    #[test]
    fn an_older_credential_is_accepted_once_while_the_annotation_stands() {
        let older: OlderVersion = "secret/cpo@v1".parse().unwrap();
        let class = policy_accepting(&["secret/cpo@v1"]);
        let mut clock = PollHistory::default();
        assert!(clock.may_accept_older(&older, &class));
        clock.record_success(at(1), &class, [older.clone()]);
        assert!(!clock.may_accept_older(&older, &class));
        clock.record_success(at(2), &class, []);
        assert!(!clock.may_accept_older(&older, &class), "it was used up");

        clock.record_success(at(3), &policy_accepting(&[]), []);
        assert!(clock.may_accept_older(&older, &class), "the annotation was removed and set again");
        assert!(!clock.may_accept_older(&"secret/cpo@v2".parse().unwrap(), &class));
    }

    #[test]
    fn record_survives_serialisation() {
        let mut clock = PollHistory::default();
        assert_eq!(clock.record(), None);
        let class = RotationPolicy {
            interval: Some("5m".parse().unwrap()),
            refresh: RefreshRequest::of("now"),
            ..policy_accepting(&["secret/a@1"])
        };
        clock.record_success(at(7), &class, ["secret/a@1".parse().unwrap()]);
        let text = serde_json::to_string(clock.record().unwrap()).unwrap();
        let record: PollRecord = serde_json::from_str(&text).unwrap();
        let resumed = PollHistory::restored(Some(record), at(9));
        assert_eq!(resumed.record(), clock.record());
        assert_eq!(resumed.last_success_started_at(), Some(at(7)));
        assert_eq!(resumed.interval(), class.interval);

        let least: PollRecord =
            serde_json::from_str(r#"{"checked": "2026-11-21T12:00:00Z"}"#).unwrap();
        assert_eq!(least.refreshed, None);
    }

    #[test]
    fn a_success_ends_the_count_of_failures() {
        let mut clock = PollHistory::default();
        clock.record_failure(at(1), RetryClass::Transient);
        clock.record_failure(at(2), RetryClass::Transient);
        assert_eq!((clock.failure_count(), clock.last_attempt()), (2, Some(at(2))));
        clock.record_success(at(3), &RotationPolicy::default(), []);
        assert_eq!(clock.failure_count(), 0);
    }
}
