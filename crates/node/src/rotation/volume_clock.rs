//! What is remembered about the looks at one volume.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_keyvault::RetryClass;
use serde::{Deserialize, Serialize};

use super::interval::PollInterval;
use super::wishes::{ClassWishes, OlderVersion, RefreshWish};

/// The clock of one volume: when it was looked at, how that went, and what the class wished.
///
/// Whoever fills the volume keeps it: [`VolumeClock::began`] before the provider is asked, then
/// [`VolumeClock::succeeded`], [`VolumeClock::failed`] or [`VolumeClock::turned_away`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeClock {
    record: Option<CheckRecord>,
    attempted: Option<Timestamp>,
    resumed: Option<Timestamp>,
    failing: Option<Failing>,
    /// For how long nobody asks, where the last look was turned away.
    turned_away: Option<Duration>,
}

/// What of a [`VolumeClock`] survives the process, in the marker of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckRecord {
    /// When the provider was last asked with success.
    pub checked: Timestamp,
    /// The wish for a refresh that this look has fulfilled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<RefreshWish>,
    /// The interval that the class asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<PollInterval>,
    /// The older credentials that were accepted because the class says so; each is accepted once.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub accepted_older: BTreeSet<OlderVersion>,
}

/// Failures since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failing {
    pub(super) count: u32,
    pub(super) retry: RetryClass,
}

impl Failing {
    /// Whether the service asked for a pause.
    pub(super) const fn is_throttled(self) -> bool {
        matches!(self.retry, RetryClass::Throttled { .. })
    }
}

impl VolumeClock {
    /// The clock of a volume that this process has not filled: what its marker says, or nothing
    /// where it has none, as with a volume that another driver mounted.
    pub fn resumed(record: Option<CheckRecord>, now: Timestamp) -> Self {
        Self { record, resumed: Some(now), ..Self::default() }
    }

    /// The provider is about to be asked.
    pub const fn began(&mut self, now: Timestamp) {
        self.attempted = Some(now);
        self.resumed = None;
        self.turned_away = None;
    }

    /// The volume holds what the provider gave, who was asked at `began`: content is as old as
    /// the question. `accepted` are the older credentials that were let through.
    pub fn succeeded(
        &mut self,
        began: Timestamp,
        wishes: &ClassWishes,
        accepted: impl IntoIterator<Item = OlderVersion>,
    ) {
        let before = self.record.take().map(|record| record.accepted_older).unwrap_or_default();
        let accepted_older =
            before.into_iter().chain(accepted).filter(|it| wishes.accept_older.contains(it));
        self.record = Some(CheckRecord {
            checked: began,
            refreshed: wishes.refresh.clone(),
            interval: wishes.interval,
            accepted_older: accepted_older.collect(),
        });
        self.began(began);
        self.failing = None;
    }

    /// The volume was not brought up to date.
    pub fn failed(&mut self, began: Timestamp, retry: RetryClass) {
        let count = self.failing.map_or(0, |failing| failing.count).saturating_add(1);
        self.failing = Some(Failing { count, retry });
        self.began(began);
    }

    /// Nobody was asked, because others have found out that there is no answer, and nobody asks for
    /// another `pause`. That is no failure of the volume's own.
    pub const fn turned_away(&mut self, began: Timestamp, pause: Duration) {
        self.began(began);
        self.turned_away = Some(pause);
    }

    /// What is to be written into the marker; nothing before the first success.
    pub const fn record(&self) -> Option<&CheckRecord> {
        self.record.as_ref()
    }

    /// When the provider was last asked with success.
    pub fn checked(&self) -> Option<Timestamp> {
        self.record.as_ref().map(|record| record.checked)
    }

    /// How many times in a row it went wrong.
    pub fn failures(&self) -> u32 {
        self.failing.map_or(0, |failing| failing.count)
    }

    /// The interval that the class asked for when it was last seen.
    pub fn interval(&self) -> Option<PollInterval> {
        self.record.as_ref().and_then(|record| record.interval)
    }

    /// Whether this older credential may be taken: the class says so and it was not done before.
    pub fn may_accept(&self, older: &OlderVersion, wishes: &ClassWishes) -> bool {
        let is_used = self.record.as_ref().is_some_and(|it| it.accepted_older.contains(older));
        wishes.accept_older.contains(older) && !is_used
    }

    /// When anybody last looked, whether it went well or not.
    pub fn looked(&self) -> Option<Timestamp> {
        self.attempted.or_else(|| self.checked())
    }

    pub(super) const fn failing(&self) -> Option<Failing> {
        self.failing
    }

    pub(super) const fn turned_away_for(&self) -> Option<Duration> {
        self.turned_away
    }

    pub(super) const fn resumed_at(&self) -> Option<Timestamp> {
        self.resumed
    }

    pub(super) fn has_fulfilled(&self, wish: &RefreshWish) -> bool {
        self.record.as_ref().is_some_and(|record| record.refreshed.as_ref() == Some(wish))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn wishes(accept_older: &[&str]) -> ClassWishes {
        let accept_older = accept_older.iter().map(|text| text.parse().unwrap()).collect();
        ClassWishes { accept_older, ..ClassWishes::default() }
    }

    #[test]
    fn an_older_credential_is_accepted_once_while_the_annotation_stands() {
        let older: OlderVersion = "secret/cpo@v1".parse().unwrap();
        let class = wishes(&["secret/cpo@v1"]);
        let mut clock = VolumeClock::default();
        assert!(clock.may_accept(&older, &class));
        clock.succeeded(at(1), &class, [older.clone()]);
        assert!(!clock.may_accept(&older, &class));
        clock.succeeded(at(2), &class, []);
        assert!(!clock.may_accept(&older, &class), "it was used up");

        clock.succeeded(at(3), &wishes(&[]), []);
        assert!(clock.may_accept(&older, &class), "the annotation was taken away and set again");
        assert!(!clock.may_accept(&"secret/cpo@v2".parse().unwrap(), &class));
    }

    #[test]
    fn the_record_comes_back_as_it_was_written() {
        let mut clock = VolumeClock::default();
        assert_eq!(clock.record(), None);
        let class = ClassWishes {
            interval: Some("5m".parse().unwrap()),
            refresh: RefreshWish::of("now"),
            ..wishes(&["secret/a@1"])
        };
        clock.succeeded(at(7), &class, ["secret/a@1".parse().unwrap()]);
        let text = serde_json::to_string(clock.record().unwrap()).unwrap();
        let record: CheckRecord = serde_json::from_str(&text).unwrap();
        let resumed = VolumeClock::resumed(Some(record), at(9));
        assert_eq!(resumed.record(), clock.record());
        assert_eq!(resumed.checked(), Some(at(7)));
        assert_eq!(resumed.interval(), class.interval);

        let least: CheckRecord =
            serde_json::from_str(r#"{"checked": "2026-11-21T12:00:00Z"}"#).unwrap();
        assert_eq!(least.refreshed, None);
    }

    #[test]
    fn a_success_ends_the_count_of_failures() {
        let mut clock = VolumeClock::default();
        clock.failed(at(1), RetryClass::Transient);
        clock.failed(at(2), RetryClass::Transient);
        assert_eq!((clock.failures(), clock.looked()), (2, Some(at(2))));
        clock.succeeded(at(3), &ClassWishes::default(), []);
        assert_eq!(clock.failures(), 0);
    }
}
