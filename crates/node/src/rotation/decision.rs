//! Decides whether a poll is due. Pure functions.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_provider::{ObjectTimestamps, PollInterval, RefreshRequest, Urgency};

use super::backoff::backoff_after_failures;
use super::jitter::DeterministicJitter;
use super::pod_token_state::PodTokenState;
use super::poll_history::PollHistory;
use super::poll_wait::{healthy_wait, min_gap};

/// The inputs of a poll decision.
#[derive(Debug, Clone, Copy)]
pub struct PollInputs<'a> {
    /// The id of the volume. It only seeds the jitter.
    pub volume_id: &'a str,
    /// The polls so far.
    pub history: &'a PollHistory,
    /// The interval of the class, or else of the node.
    pub interval: PollInterval,
    /// The timestamps of the mounted objects, as far as they are known.
    pub timestamps: &'a [ObjectTimestamps],
    /// The refresh request of the class, and when this node first saw it. `None` if the class was
    /// not read, as at a republish.
    pub refresh: Option<(&'a RefreshRequest, Timestamp)>,
    /// Whether the provider can be asked without the kubelet.
    pub pod_tokens: PodTokenState,
}

/// Whether a poll is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollDecision {
    /// Ask the provider now.
    Due {
        /// The urgency of the request.
        urgency: Urgency,
        /// Why the poll is due.
        reason: PollReason,
        /// Since when the poll is due.
        since: Timestamp,
    },
    /// No poll is due before this time, as far as is known now.
    NotBefore(Timestamp),
    /// A poll is due, but the pod tokens have expired: it waits for the kubelet's next publish,
    /// which brings new ones.
    AwaitsPublish {
        /// Since when the poll is due.
        since: Timestamp,
    },
}

/// Why a poll is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PollReason {
    /// The interval has passed.
    Interval,
    /// The renewal time of an object is near.
    Renewal,
    /// An object expires soon.
    Expiry,
    /// An object has expired.
    Expired,
    /// The annotation of the class requests a refresh.
    Refresh,
    /// The last poll failed.
    Retry,
    /// No poll is recorded.
    NeverPolled,
    /// The last poll lies in the future: the clock was set back.
    ClockSetBack,
}

impl<'a> PollInputs<'a> {
    /// The inputs at a kubelet's publish of a mounted volume. The pod tokens are fresh, and the
    /// class is not read, so a volume that is not due costs nothing.
    pub fn at_republish(
        volume_id: &'a str,
        history: &'a PollHistory,
        interval: PollInterval,
        timestamps: &'a [ObjectTimestamps],
    ) -> Self {
        let interval = history.interval().unwrap_or(interval);
        Self {
            volume_id,
            history,
            interval,
            timestamps,
            refresh: None,
            pod_tokens: PodTokenState::Usable,
        }
    }
}

/// Decides whether a poll is due at `now`, by the table in the documentation of
/// [`crate::rotation`].
pub fn decide_poll(now: Timestamp, inputs: &PollInputs<'_>) -> PollDecision {
    let (since, reason) = next_poll(now, inputs);
    if since > now {
        return PollDecision::NotBefore(since);
    }
    if inputs.pod_tokens == PodTokenState::Expired {
        return PollDecision::AwaitsPublish { since };
    }
    let is_refresh = reason == PollReason::Refresh || pending_refresh(inputs).is_some();
    let urgency = if is_refresh { Urgency::ForceRefresh } else { Urgency::Rotation };
    PollDecision::Due { urgency, reason, since }
}

/// When the next poll is due, and why.
fn next_poll(now: Timestamp, inputs: &PollInputs<'_>) -> (Timestamp, PollReason) {
    let PollInputs { volume_id, history, interval, .. } = *inputs;
    let Some(last_attempt) = history.last_attempt() else {
        return (earliest_after_restart(inputs, now).unwrap_or(now), PollReason::NeverPolled);
    };
    if last_attempt > now {
        return (now, PollReason::ClockSetBack);
    }
    let earliest = saturating_after(last_attempt, min_gap(interval));
    let retry_after = |pause| {
        saturating_after(
            last_attempt,
            DeterministicJitter::of("retry", volume_id, last_attempt).lengthen(pause, 5),
        )
    };
    if let Some(pause) = history.suppressed_for() {
        // No volume may ask sooner, not even for a refresh. Then one probes the service, and the
        // others follow.
        return (retry_after(pause.max(min_gap(interval))), PollReason::Retry);
    }
    let refresh_due = pending_refresh(inputs).map(|(request, noticed)| {
        let spread = DeterministicJitter::of(request.as_str(), volume_id, noticed)
            .offset_within(REFRESH_SPREAD);
        (saturating_after(noticed, spread).max(earliest), PollReason::Refresh)
    });
    let Some(failing) = history.failure_streak() else {
        // The last poll may have ended without success or failure.
        let (due, reason) = next_regular_poll(inputs, now);
        return refresh_due.into_iter().fold((due.max(earliest), reason), earlier_poll);
    };
    let pause = backoff_after_failures(interval, failing.count, failing.retry);
    let retry = retry_after(pause);
    // A refresh request after the failure means that the cause was fixed, so the poll need not
    // wait. A pause that the service asked for still applies.
    let is_refresh_newer =
        pending_refresh(inputs).is_some_and(|(_, noticed)| noticed > last_attempt);
    refresh_due
        .filter(|_| is_refresh_newer && !failing.is_throttled())
        .into_iter()
        .fold((retry.max(earliest), PollReason::Retry), earlier_poll)
}

/// When the next poll of a healthy volume without a refresh request is due.
fn next_regular_poll(inputs: &PollInputs<'_>, now: Timestamp) -> (Timestamp, PollReason) {
    let Some(checked) = inputs.history.last_success_started_at() else {
        return (earliest_after_restart(inputs, now).unwrap_or(now), PollReason::NeverPolled);
    };
    let (wait, reason) = healthy_wait(inputs.interval, inputs.timestamps.iter().copied(), checked);
    // Jitter never shortens the wait: otherwise volumes that share an object and were filled
    // together would read it each time the first of them is due.
    let wait = DeterministicJitter::of("poll", inputs.volume_id, checked).lengthen(wait, 10);
    let due = saturating_after(checked, wait);
    (earliest_after_restart(inputs, now).map_or(due, |resumption| due.max(resumption)), reason)
}

/// The earliest poll of a volume that this process has not polled yet. After a long downtime all
/// volumes are overdue, so they are spread.
fn earliest_after_restart(inputs: &PollInputs<'_>, now: Timestamp) -> Option<Timestamp> {
    let resumed = inputs.history.restored_at().filter(|resumed| *resumed <= now)?;
    let range = (inputs.interval.duration() / 10).min(RESTART_SPREAD);
    Some(saturating_after(
        resumed,
        DeterministicJitter::of("resume", inputs.volume_id, resumed).offset_within(range),
    ))
}

fn earlier_poll(
    one: (Timestamp, PollReason),
    other: (Timestamp, PollReason),
) -> (Timestamp, PollReason) {
    if other.0 < one.0 { other } else { one }
}

/// The refresh request that no poll has served yet.
fn pending_refresh<'a>(inputs: &PollInputs<'a>) -> Option<(&'a RefreshRequest, Timestamp)> {
    inputs.refresh.filter(|(request, _)| !inputs.history.has_served_refresh(request))
}

fn saturating_after(start: Timestamp, wait: Duration) -> Timestamp {
    start.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// The time over which the volumes of a class are spread after a refresh request.
const REFRESH_SPREAD: Duration = Duration::from_secs(5);

/// The longest time over which the overdue volumes of a node are spread after a restart.
const RESTART_SPREAD: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
