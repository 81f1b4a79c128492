//! What is remembered about the looks at one volume.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_keyvault::RetryClass;
use serde::{Deserialize, Serialize};

use super::interval::PollInterval;
use super::rotation_policy::{OlderVersion, RefreshRequest, RotationPolicy};

/// The clock of one volume: when it was looked at, how that went, and what the class wished.
///
/// Whoever fills the volume keeps it: [`PollHistory::began`] before the provider is asked, then
/// [`PollHistory::record_success`], [`PollHistory::record_failure`] or [`PollHistory::turned_away`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PollHistory {
    record: Option<PollRecord>,
    last_attempt: Option<Timestamp>,
    restored_at: Option<Timestamp>,
    failure_streak: Option<FailureStreak>,
    /// For how long nobody asks, where the last look was turned away.
    suppressed_for: Option<Duration>,
}

/// What of a [`PollHistory`] survives the process, in the marker of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollRecord {
    /// When the provider was last asked with success.
    pub checked: Timestamp,
    /// The wish for a refresh that this look has fulfilled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<RefreshRequest>,
    /// The interval that the class asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<PollInterval>,
    /// The older credentials that were accepted because the class says so; each is accepted once.
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
    /// The clock of a volume that this process has not filled: what its marker says, or nothing
    /// where it has none, as with a volume that another driver mounted.
    pub fn restored(record: Option<PollRecord>, now: Timestamp) -> Self {
        Self { record, restored_at: Some(now), ..Self::default() }
    }

    /// The provider is about to be asked.
    pub const fn record_attempt(&mut self, now: Timestamp) {
        self.last_attempt = Some(now);
        self.restored_at = None;
        self.suppressed_for = None;
    }

    /// The volume holds what the provider gave, who was asked at `began`: content is as old as
    /// the question. `accepted` are the older credentials that were let through.
    pub fn record_success(
        &mut self,
        began: Timestamp,
        wishes: &RotationPolicy,
        accepted: impl IntoIterator<Item = OlderVersion>,
    ) {
        let before = self.record.take().map(|record| record.accepted_older).unwrap_or_default();
        let accepted_older =
            before.into_iter().chain(accepted).filter(|it| wishes.accept_older.contains(it));
        self.record = Some(PollRecord {
            checked: began,
            refreshed: wishes.refresh.clone(),
            interval: wishes.interval,
            accepted_older: accepted_older.collect(),
        });
        self.record_attempt(began);
        self.failure_streak = None;
    }

    /// The volume was not brought up to date.
    pub fn record_failure(&mut self, began: Timestamp, retry: RetryClass) {
        let count = self.failure_streak.map_or(0, |failing| failing.count).saturating_add(1);
        self.failure_streak = Some(FailureStreak { count, retry });
        self.record_attempt(began);
    }

    /// Nobody was asked, because others have found out that there is no answer, and nobody asks for
    /// another `pause`. That is no failure of the volume's own.
    pub const fn record_suppressed(&mut self, began: Timestamp, pause: Duration) {
        self.record_attempt(began);
        self.suppressed_for = Some(pause);
    }

    /// What is to be written into the marker; nothing before the first success.
    pub const fn record(&self) -> Option<&PollRecord> {
        self.record.as_ref()
    }

    /// When the provider was last asked with success.
    pub fn last_success(&self) -> Option<Timestamp> {
        self.record.as_ref().map(|record| record.checked)
    }

    /// How many times in a row it went wrong.
    pub fn failure_count(&self) -> u32 {
        self.failure_streak.map_or(0, |failing| failing.count)
    }

    /// The interval that the class asked for when it was last seen.
    pub fn interval(&self) -> Option<PollInterval> {
        self.record.as_ref().and_then(|record| record.interval)
    }

    /// Whether this older credential may be taken: the class says so and it was not done before.
    pub fn may_accept_older(&self, older: &OlderVersion, wishes: &RotationPolicy) -> bool {
        let is_used = self.record.as_ref().is_some_and(|it| it.accepted_older.contains(older));
        wishes.accept_older.contains(older) && !is_used
    }

    /// When anybody last looked, whether it went well or not.
    pub fn last_attempt(&self) -> Option<Timestamp> {
        self.last_attempt.or_else(|| self.last_success())
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

    pub(super) fn has_served_refresh(&self, wish: &RefreshRequest) -> bool {
        self.record.as_ref().is_some_and(|record| record.refreshed.as_ref() == Some(wish))
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
        assert!(
            clock.may_accept_older(&older, &class),
            "the annotation was taken away and set again"
        );
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
        assert_eq!(resumed.last_success(), Some(at(7)));
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
