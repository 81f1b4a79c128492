//! Whether a volume is due: pure.

use std::time::Duration;

use jiff::Timestamp;

use super::backoff::backoff_after_failures;
use super::interval::PollInterval;
use super::jitter::DeterministicJitter;
use super::poll_history::PollHistory;
use super::poll_wait::{healthy_wait, min_gap};
use super::proof_state::ProofState;
use super::rotation_policy::RefreshRequest;
use crate::provider::{ObjectTimestamps, Urgency};

/// Everything that a decision is made from.
#[derive(Debug, Clone, Copy)]
pub struct PollInputs<'a> {
    /// The id of the volume: it only spreads volumes over time.
    pub volume_id: &'a str,
    /// What is remembered.
    pub history: &'a PollHistory,
    /// The interval of the class, or else of the node.
    pub interval: PollInterval,
    /// What is known about the times of the objects that are mounted.
    pub timestamps: &'a [ObjectTimestamps],
    /// The wish for a refresh that the class carries now, and when this node first saw it there.
    /// Nothing where the class was not looked at, as at a republish.
    pub refresh: Option<(&'a RefreshRequest, Timestamp)>,
    /// Whether the provider can be asked without the kubelet.
    pub proofs: ProofState,
}

/// Whether a volume is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollDecision {
    /// Ask the provider now.
    Due {
        /// With which urgency.
        urgency: Urgency,
        /// Why.
        reason: PollReason,
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
pub enum PollReason {
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
    NeverPolled,
    /// It was looked at in the future: the clock was set back.
    ClockSetBack,
}

impl<'a> PollInputs<'a> {
    /// The look of a kubelet's publish on a mounted volume: the pod's proofs are fresh, and the
    /// class is not asked for, so that a volume that is not due costs nothing.
    pub fn at_republish(
        volume_id: &'a str,
        history: &'a PollHistory,
        interval: PollInterval,
        timestamps: &'a [ObjectTimestamps],
    ) -> Self {
        let interval = history.interval().unwrap_or(interval);
        Self { volume_id, history, interval, timestamps, refresh: None, proofs: ProofState::Usable }
    }
}

/// Decides whether a volume is due at `now`. The table stands in the documentation of
/// [`crate::rotation`].
pub fn decide_poll(now: Timestamp, look: &PollInputs<'_>) -> PollDecision {
    let (since, reason) = next_poll(now, look);
    if since > now {
        return PollDecision::NotBefore(since);
    }
    if look.proofs == ProofState::Awaited {
        return PollDecision::AwaitsProofs { since };
    }
    let is_refresh = reason == PollReason::Refresh || pending_refresh(look).is_some();
    let urgency = if is_refresh { Urgency::ForceRefresh } else { Urgency::Rotation };
    PollDecision::Due { urgency, reason, since }
}

/// When the next look is due, and why.
fn next_poll(now: Timestamp, look: &PollInputs<'_>) -> (Timestamp, PollReason) {
    let PollInputs { volume_id, history: clock, interval, .. } = *look;
    let Some(looked) = clock.last_attempt() else {
        return (earliest_after_restart(look, now).unwrap_or(now), PollReason::NeverPolled);
    };
    if looked > now {
        return (now, PollReason::ClockSetBack);
    }
    let earliest = saturating_after(looked, min_gap(interval));
    let retry_after = |pause| {
        saturating_after(
            looked,
            DeterministicJitter::of("retry", volume_id, looked).lengthen(pause, 5),
        )
    };
    if let Some(pause) = clock.suppressed_for() {
        // Nobody can be asked sooner, whoever wishes it; then one is, and all others soon after it.
        return (retry_after(pause.max(min_gap(interval))), PollReason::Retry);
    }
    let wished = pending_refresh(look).map(|(wish, noticed)| {
        let spread = DeterministicJitter::of(wish.as_str(), volume_id, noticed)
            .offset_within(REFRESH_SPREAD);
        (saturating_after(noticed, spread).max(earliest), PollReason::Refresh)
    });
    let Some(failing) = clock.failure_streak() else {
        // The last look may have come to nothing, neither a success nor a failure.
        let (due, reason) = next_regular_poll(look, now);
        return wished.into_iter().fold((due.max(earliest), reason), earlier_poll);
    };
    let pause = backoff_after_failures(interval, failing.count, failing.retry);
    let retry = retry_after(pause);
    // Somebody who has mended the cause asks for a refresh and need not wait; but a pause that
    // the service asked for is kept.
    let is_mended = pending_refresh(look).is_some_and(|(_, noticed)| noticed > looked);
    wished
        .filter(|_| is_mended && !failing.is_throttled())
        .into_iter()
        .fold((retry.max(earliest), PollReason::Retry), earlier_poll)
}

/// When the next look is due in health and without a wish.
fn next_regular_poll(look: &PollInputs<'_>, now: Timestamp) -> (Timestamp, PollReason) {
    let Some(checked) = look.history.last_success() else {
        return (earliest_after_restart(look, now).unwrap_or(now), PollReason::NeverPolled);
    };
    let (wait, reason) = healthy_wait(look.interval, look.timestamps.iter().copied(), checked);
    // Never sooner: volumes that share an object and were filled together would read it each time
    // when the first of them is due.
    let wait = DeterministicJitter::of("poll", look.volume_id, checked).lengthen(wait, 10);
    let due = saturating_after(checked, wait);
    (earliest_after_restart(look, now).map_or(due, |resumption| due.max(resumption)), reason)
}

/// The earliest time for a volume that this process has not looked at yet: after a restart that
/// took long, all of them are overdue.
fn earliest_after_restart(look: &PollInputs<'_>, now: Timestamp) -> Option<Timestamp> {
    let resumed = look.history.restored_at().filter(|resumed| *resumed <= now)?;
    let range = (look.interval.duration() / 10).min(RESTART_SPREAD);
    Some(saturating_after(
        resumed,
        DeterministicJitter::of("resume", look.volume_id, resumed).offset_within(range),
    ))
}

fn earlier_poll(
    one: (Timestamp, PollReason),
    other: (Timestamp, PollReason),
) -> (Timestamp, PollReason) {
    if other.0 < one.0 { other } else { one }
}

/// The wish for a refresh that is not fulfilled.
fn pending_refresh<'a>(look: &PollInputs<'a>) -> Option<(&'a RefreshRequest, Timestamp)> {
    look.refresh.filter(|(wish, _)| !look.history.has_served_refresh(wish))
}

fn saturating_after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Over how long the volumes of a class are spread when it asks for a refresh.
const REFRESH_SPREAD: Duration = Duration::from_secs(5);

/// Over how long at most the overdue volumes of a node are spread after a restart.
const RESTART_SPREAD: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
