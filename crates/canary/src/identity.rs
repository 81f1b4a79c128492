//! The state of one identity, from which the canary builds its status report. Does no I/O.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_api::canary_report::{
    CanaryProbeReport, CanaryStatusReport, HopFailure, LoadedCredential,
};
use lanyard_vocabulary::{Component, Hop};

use crate::check_tracker::{CheckStatus, CheckTracker, ClockReading, FailureThreshold};
use crate::probe::{ProbeKind, ProbeOutcome};
use crate::proof_error::ProofError;

/// The results of all hops and probes of one component's identity.
#[derive(Debug, Clone)]
pub(crate) struct IdentityState {
    component: Component,
    failure_threshold: FailureThreshold,
    credential: Option<LoadedCredential>,
    /// The previous credential, while the status of the Entra token hop still describes it.
    replaced_credential: Option<LoadedCredential>,
    hops: BTreeMap<Hop, CheckTracker>,
    probes: BTreeMap<ProbeKind, ProbeState>,
}

#[derive(Debug, Clone, Default)]
struct ProbeState {
    tracker: CheckTracker,
    /// The message of the last successful probe.
    message: String,
}

impl IdentityState {
    /// Creates a state in which these hops are unknown. Hops are proven in the order of [`Hop`].
    pub(crate) fn new(
        component: Component,
        hops: &[Hop],
        failure_threshold: FailureThreshold,
    ) -> Self {
        let hops = hops.iter().map(|hop| (*hop, CheckTracker::default())).collect();
        Self {
            component,
            failure_threshold,
            credential: None,
            replaced_credential: None,
            hops,
            probes: BTreeMap::new(),
        }
    }

    /// Records the loaded credential. If its certificate or client id changed, the status of the
    /// Entra token hop still describes the previous credential.
    pub(crate) fn set_credential(&mut self, credential: LoadedCredential) {
        let before = self.credential.replace(credential);
        if !is_same_certificate(before.as_ref(), self.credential.as_ref())
            && let Some(track) = self.hops.get_mut(&Hop::EntraToken)
        {
            if !track.is_about_replaced() {
                self.replaced_credential = before;
            }
            track.mark_replaced();
        }
    }

    /// The credential that the report names: all reported results are true of this credential. While
    /// the status of the Entra token hop describes a replaced credential, this is the replaced one;
    /// otherwise the report would claim results for the new credential that Entra never gave.
    fn reported_credential(&self) -> Option<&LoadedCredential> {
        let is_of_replaced =
            self.hops.get(&Hop::EntraToken).is_some_and(CheckTracker::is_about_replaced);
        let replaced = self.replaced_credential.as_ref().filter(|_| is_of_replaced);
        replaced.or(self.credential.as_ref())
    }

    /// Records the result of a hop.
    pub(crate) fn record_hop(
        &mut self,
        hop: Hop,
        outcome: Result<(), ProofError>,
        now: ClockReading,
    ) {
        if let Some(track) = self.hops.get_mut(&hop) {
            track.record(outcome, now, self.failure_threshold);
        }
    }

    /// Resets a hop to unknown, because it can no longer be tried.
    pub(crate) fn clear_hop(&mut self, hop: Hop) {
        if let Some(track) = self.hops.get_mut(&hop) {
            track.reset();
        }
    }

    /// Records the result of a probe.
    pub(crate) fn record_probe(
        &mut self,
        kind: ProbeKind,
        outcome: ProbeOutcome,
        now: ClockReading,
    ) {
        let probed = self.probes.entry(kind).or_default();
        match outcome {
            Ok(message) => {
                probed.message = message;
                probed.tracker.record(Ok(()), now, FailureThreshold::PROBES);
            }
            Err(error) => probed.tracker.record(Err(error), now, FailureThreshold::PROBES),
        }
    }

    /// Whether the last try of every hop succeeded.
    pub(crate) fn is_proven(&self) -> bool {
        self.hops.values().all(CheckTracker::last_try_succeeded)
    }

    /// Whether a hop is good; `None` if its status is unknown.
    pub(crate) fn is_hop_good(&self, hop: Hop) -> Option<bool> {
        status_as_bool(self.hops.get(&hop)?)
    }

    pub(crate) fn hops(&self) -> impl Iterator<Item = Hop> {
        self.hops.keys().copied()
    }

    /// Whether a probe is good; `None` if its status is unknown.
    pub(crate) fn is_probe_good(&self, kind: ProbeKind) -> Option<bool> {
        status_as_bool(&self.probes.get(&kind)?.tracker)
    }

    /// Builds the status report.
    pub(crate) fn facts(&self) -> CanaryStatusReport {
        let good_hops = self.hops.iter().take_while(|(_, track)| track.is_good());
        CanaryStatusReport {
            component: self.component.name().to_owned(),
            last_good_hop: good_hops.last().map(|(hop, _)| hop.name().to_owned()),
            failure: self.hops.iter().find_map(|(hop, track)| hop_failure(*hop, track)),
            throttled: self.hops.iter().find_map(|(hop, track)| hop_throttling(*hop, track)),
            credential: self.reported_credential().cloned(),
            probes: self
                .probes
                .iter()
                .filter_map(|(kind, probed)| probe_facts(*kind, probed))
                .collect(),
        }
    }
}

fn status_as_bool(track: &CheckTracker) -> Option<bool> {
    match track.status() {
        CheckStatus::Unknown => None,
        CheckStatus::Good { .. } => Some(true),
        CheckStatus::Bad { .. } => Some(false),
    }
}

fn hop_failure(hop: Hop, track: &CheckTracker) -> Option<HopFailure> {
    let CheckStatus::Bad { error, since } = track.status() else { return None };
    Some(hop_report(hop, error, *since))
}

fn hop_throttling(hop: Hop, track: &CheckTracker) -> Option<HopFailure> {
    let (error, since) = track.throttled()?;
    Some(hop_report(hop, error, since))
}

fn hop_report(hop: Hop, error: &ProofError, since: Timestamp) -> HopFailure {
    HopFailure {
        hop: hop.name().to_owned(),
        code: error.code.clone(),
        message: error.message.clone(),
        hint: error.hint.clone(),
        since,
    }
}

fn probe_facts(kind: ProbeKind, probed: &ProbeState) -> Option<CanaryProbeReport> {
    let name = kind.name().to_owned();
    match probed.tracker.status() {
        CheckStatus::Unknown => None,
        CheckStatus::Good { since } => Some(match probed.tracker.throttled() {
            None => CanaryProbeReport {
                name,
                good: true,
                reason: ProbeKind::GOOD.to_owned(),
                message: probed.message.clone(),
                hint: String::new(),
                since: *since,
            },
            Some((error, throttled_since)) => CanaryProbeReport {
                name,
                good: true,
                reason: error.code.clone(),
                message: format!(
                    "{}; not checked again since {throttled_since}: {}",
                    probed.message, error.message
                ),
                hint: error.hint.clone(),
                since: *since,
            },
        }),
        CheckStatus::Bad { error, since } => Some(CanaryProbeReport {
            name,
            good: false,
            reason: error.code.clone(),
            message: error.message.clone(),
            hint: error.hint.clone(),
            since: *since,
        }),
    }
}

/// Whether the report holds any result besides the component and its credential.
pub(crate) fn has_findings(facts: &CanaryStatusReport) -> bool {
    facts.last_good_hop.is_some()
        || facts.failure.is_some()
        || facts.throttled.is_some()
        || !facts.probes.is_empty()
}

/// Merges the report with the previously published one, which another process may have written: an
/// unchanged failure, throttling or probe result keeps its start time (failures and throttling also
/// their message), and results of the same credential that this process has not checked yet are
/// kept.
pub(crate) fn merge_with_previous(
    mut facts: CanaryStatusReport,
    before: &CanaryStatusReport,
) -> CanaryStatusReport {
    restore_unknown(&mut facts, before);
    for (now, before) in
        [(&mut facts.failure, &before.failure), (&mut facts.throttled, &before.throttled)]
    {
        if let (Some(now), Some(before)) = (now, before)
            && (&now.hop, &now.code) == (&before.hop, &before.code)
        {
            now.clone_from(before);
        }
    }
    for now in &mut facts.probes {
        let is_same = |it: &&CanaryProbeReport| {
            (&it.name, it.good, &it.reason) == (&now.name, now.good, &now.reason)
        };
        if let Some(before) = before.probes.iter().find(is_same) {
            now.since = before.since;
        }
    }
    facts
}

/// Fills hops after the last successful one, and probes, that have no result yet with the
/// previously published results.
fn restore_unknown(facts: &mut CanaryStatusReport, before: &CanaryStatusReport) {
    if !is_same_certificate(facts.credential.as_ref(), before.credential.as_ref()) {
        return;
    }
    let is_checked =
        |old: &&CanaryProbeReport| facts.probes.iter().any(|probe| probe.name == old.name);
    let unchecked: Vec<_> = before.probes.iter().filter(|old| !is_checked(old)).cloned().collect();
    facts.probes.extend(unchecked);
    facts.probes.sort_by(|one, other| one.name.cmp(&other.name));
    if facts.failure.is_some() {
        return;
    }
    let last_good = facts.last_good_hop.as_deref().and_then(hop_position);
    let is_unknown = |hop: &str| hop_position(hop) > last_good;
    facts.failure = before.failure.clone().filter(|failure| is_unknown(&failure.hop));
    if facts.throttled.is_none() {
        facts.throttled = before.throttled.clone().filter(|throttled| is_unknown(&throttled.hop));
    }
    let came_further = |hop: &&String| hop_position(hop) > last_good;
    if let Some(further) = before.last_good_hop.as_ref().filter(came_further)
        && (facts.failure.is_some() || before.failure.is_none())
    {
        facts.last_good_hop = Some(further.clone());
    }
}

/// Whether both have the same certificate and client id; the other fields of the credential file do
/// not count.
fn is_same_certificate(one: Option<&LoadedCredential>, other: Option<&LoadedCredential>) -> bool {
    one.zip(other).is_some_and(|(one, other)| {
        (&one.client_id, &one.thumbprint) == (&other.client_id, &other.thumbprint)
    })
}

/// The position of a hop in the order of [`Hop::CERTIFICATE_PATH`].
fn hop_position(hop: &str) -> Option<usize> {
    Hop::CERTIFICATE_PATH.iter().position(|known| known.name() == hop)
}

#[cfg(test)]
mod tests;
