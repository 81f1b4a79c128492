//! Whether a volume is due: pure.

use std::time::Duration;

use jiff::Timestamp;

use super::backoff::pause;
use super::cadence::{least_gap, wait};
use super::draw::Draw;
use super::interval::PollInterval;
use super::proof_state::ProofState;
use super::volume_clock::VolumeClock;
use super::wishes::RefreshWish;
use crate::provider::{Stamps, Urgency};

/// Everything that a decision is made from.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// The id of the volume: it only spreads volumes over time.
    pub volume_id: &'a str,
    /// What is remembered.
    pub clock: &'a VolumeClock,
    /// The interval of the class, or else of the node.
    pub interval: PollInterval,
    /// What is known about the times of the objects that are mounted.
    pub stamps: &'a [Stamps],
    /// The wish for a refresh that the class carries now, and when this node first saw it there.
    /// Nothing where the class was not looked at, as at a republish.
    pub refresh: Option<(&'a RefreshWish, Timestamp)>,
    /// Whether the provider can be asked without the kubelet.
    pub proofs: ProofState,
}

/// Whether a volume is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Ask the provider now.
    Due {
        /// With which urgency.
        urgency: Urgency,
        /// Why.
        reason: Reason,
        /// Since when it is due.
        since: Timestamp,
    },
    /// Not before this time, as far as is known now.
    NotBefore(Timestamp),
    /// It is due since then, but what the pod brought to prove who it is no longer serves: the
    /// kubelet's next publish brings a new one.
    AwaitsProofs {
        /// Since when it is due.
        since: Timestamp,
    },
}

/// Why a volume is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The interval has passed.
    Interval,
    /// An object is to be renewed about now.
    Renewal,
    /// An object will not be valid much longer.
    Expiry,
    /// An object is not valid any more.
    Expired,
    /// The annotation of the class asks for it.
    Refresh,
    /// It went wrong before.
    Retry,
    /// Nobody knows when it was looked at.
    NeverChecked,
    /// It was looked at in the future: the clock was set back.
    ClockSetBack,
}

impl<'a> Look<'a> {
    /// The look of a kubelet's publish on a mounted volume: the pod's proofs are fresh, and the
    /// class is not asked for, so that a volume that is not due costs nothing.
    pub fn at_republish(
        volume_id: &'a str,
        clock: &'a VolumeClock,
        interval: PollInterval,
        stamps: &'a [Stamps],
    ) -> Self {
        let interval = clock.interval().unwrap_or(interval);
        Self { volume_id, clock, interval, stamps, refresh: None, proofs: ProofState::Good }
    }
}

/// Decides whether a volume is due at `now`. The table stands in the documentation of
/// [`crate::rotation`].
pub fn decide(now: Timestamp, look: &Look<'_>) -> Decision {
    let (since, reason) = next(now, look);
    if since > now {
        return Decision::NotBefore(since);
    }
    if look.proofs == ProofState::Awaited {
        return Decision::AwaitsProofs { since };
    }
    let is_refresh = reason == Reason::Refresh || wish(look).is_some();
    let urgency = if is_refresh { Urgency::Refresh } else { Urgency::Rotation };
    Decision::Due { urgency, reason, since }
}

/// When the next look is due, and why.
fn next(now: Timestamp, look: &Look<'_>) -> (Timestamp, Reason) {
    let Look { volume_id, clock, interval, .. } = *look;
    let Some(looked) = clock.looked() else {
        return (resumption(look, now).unwrap_or(now), Reason::NeverChecked);
    };
    if looked > now {
        return (now, Reason::ClockSetBack);
    }
    let earliest = after(looked, least_gap(interval));
    let retry_after = |pause| after(looked, Draw::of("retry", volume_id, looked).beyond(pause, 5));
    if let Some(pause) = clock.turned_away_for() {
        // Nobody can be asked sooner, whoever wishes it; then one is, and all others soon after it.
        return (retry_after(pause.max(least_gap(interval))), Reason::Retry);
    }
    let wished = wish(look).map(|(wish, noticed)| {
        let spread = Draw::of(wish.as_str(), volume_id, noticed).within(REFRESH_SPREAD);
        (after(noticed, spread).max(earliest), Reason::Refresh)
    });
    let Some(failing) = clock.failing() else {
        // The last look may have come to nothing, neither a success nor a failure.
        let (due, reason) = regular(look, now);
        return wished.into_iter().fold((due.max(earliest), reason), earlier);
    };
    let pause = pause(interval, failing.count, failing.retry);
    let retry = retry_after(pause);
    // Somebody who has mended the cause asks for a refresh and need not wait; but a pause that
    // the service asked for is kept.
    let is_mended = wish(look).is_some_and(|(_, noticed)| noticed > looked);
    wished
        .filter(|_| is_mended && !failing.is_throttled())
        .into_iter()
        .fold((retry.max(earliest), Reason::Retry), earlier)
}

/// When the next look is due in health and without a wish.
fn regular(look: &Look<'_>, now: Timestamp) -> (Timestamp, Reason) {
    let Some(checked) = look.clock.checked() else {
        return (resumption(look, now).unwrap_or(now), Reason::NeverChecked);
    };
    let (wait, reason) = wait(look.interval, look.stamps.iter().copied(), checked);
    // Never sooner: volumes that share an object and were filled together would read it each time
    // when the first of them is due.
    let wait = Draw::of("poll", look.volume_id, checked).beyond(wait, 10);
    let due = after(checked, wait);
    (resumption(look, now).map_or(due, |resumption| due.max(resumption)), reason)
}

/// The earliest time for a volume that this process has not looked at yet: after a restart that
/// took long, all of them are overdue.
fn resumption(look: &Look<'_>, now: Timestamp) -> Option<Timestamp> {
    let resumed = look.clock.resumed_at().filter(|resumed| *resumed <= now)?;
    let range = (look.interval.duration() / 10).min(RESUMPTION_SPREAD);
    Some(after(resumed, Draw::of("resume", look.volume_id, resumed).within(range)))
}

fn earlier(one: (Timestamp, Reason), other: (Timestamp, Reason)) -> (Timestamp, Reason) {
    if other.0 < one.0 { other } else { one }
}

/// The wish for a refresh that is not fulfilled.
fn wish<'a>(look: &Look<'a>) -> Option<(&'a RefreshWish, Timestamp)> {
    look.refresh.filter(|(wish, _)| !look.clock.has_fulfilled(wish))
}

fn after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Over how long the volumes of a class are spread when it asks for a refresh.
const REFRESH_SPREAD: Duration = Duration::from_secs(5);

/// Over how long at most the overdue volumes of a node are spread after a restart.
const RESUMPTION_SPREAD: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
