//! What a canary knows about its identity, and what it tells: pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_api::canary_report::{
    CanaryProbeReport, CanaryStatusReport, HopFailure, LoadedCredential,
};
use lanyard_vocabulary::{Component, Hop};

use crate::check_tracker::{CheckStatus, CheckTracker, ClockReading, FailureThreshold};
use crate::probe::{ProbeKind, ProbeOutcome};
use crate::proof_error::ProofError;

/// What is known about the identity of one component.
#[derive(Debug, Clone)]
pub(crate) struct IdentityState {
    component: Component,
    failure_threshold: FailureThreshold,
    credential: Option<LoadedCredential>,
    /// The one of which the hop at Entra is known, while that is not the loaded one.
    replaced_credential: Option<LoadedCredential>,
    hops: BTreeMap<Hop, CheckTracker>,
    probes: BTreeMap<ProbeKind, ProbeState>,
}

/// What is known of a probe.
#[derive(Debug, Clone, Default)]
struct ProbeState {
    tracker: CheckTracker,
    /// What a good one said.
    message: String,
}

impl IdentityState {
    /// Nothing is known yet of these hops. They are walked in their order.
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

    /// A credential is loaded. What is known of the hop at which another one is shown to Entra is
    /// not known of this one.
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

    /// The credential that everything told is true of. While what is known is of one that was
    /// replaced it is that one: who tells what is known of the old one as known of the new one tells
    /// of it what Entra never said, and everybody who reads it believes it from then on.
    fn reported_credential(&self) -> Option<&LoadedCredential> {
        let is_of_replaced =
            self.hops.get(&Hop::EntraToken).is_some_and(CheckTracker::is_about_replaced);
        let replaced = self.replaced_credential.as_ref().filter(|_| is_of_replaced);
        replaced.or(self.credential.as_ref())
    }

    /// A hop was walked.
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

    /// Nothing is known of a hop any more, because it cannot be walked.
    pub(crate) fn clear_hop(&mut self, hop: Hop) {
        if let Some(track) = self.hops.get_mut(&hop) {
            track.reset();
        }
    }

    /// A probe came to something.
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
            Err(trouble) => probed.tracker.record(Err(trouble), now, FailureThreshold::PROBES),
        }
    }

    /// Whether every hop was good at its last try.
    pub(crate) fn is_proven(&self) -> bool {
        self.hops.values().all(CheckTracker::last_try_succeeded)
    }

    /// Whether a hop is known to be good; nothing where it is known neither way.
    pub(crate) fn is_hop_good(&self, hop: Hop) -> Option<bool> {
        status_as_bool(self.hops.get(&hop)?)
    }

    /// The hops that are walked.
    pub(crate) fn hops(&self) -> impl Iterator<Item = Hop> {
        self.hops.keys().copied()
    }

    /// The same of a probe.
    pub(crate) fn is_probe_good(&self, kind: ProbeKind) -> Option<bool> {
        status_as_bool(&self.probes.get(&kind)?.tracker)
    }

    /// What is told.
    pub(crate) fn facts(&self) -> CanaryStatusReport {
        let walked = self.hops.iter().take_while(|(_, track)| track.is_good());
        CanaryStatusReport {
            component: self.component.name().to_owned(),
            last_good_hop: walked.last().map(|(hop, _)| hop.name().to_owned()),
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
    let CheckStatus::Bad { error: trouble, since } = track.status() else { return None };
    Some(hop_report(hop, trouble, *since))
}

fn hop_throttling(hop: Hop, track: &CheckTracker) -> Option<HopFailure> {
    let (trouble, since) = track.throttled()?;
    Some(hop_report(hop, trouble, since))
}

fn hop_report(hop: Hop, trouble: &ProofError, since: Timestamp) -> HopFailure {
    HopFailure {
        hop: hop.name().to_owned(),
        code: trouble.code.clone(),
        message: trouble.message.clone(),
        hint: trouble.hint.clone(),
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
            Some((trouble, throttled)) => CanaryProbeReport {
                name,
                good: true,
                reason: trouble.code.clone(),
                message: format!(
                    "{}; whether it still is so cannot be asked since {throttled}: {}",
                    probed.message, trouble.message
                ),
                hint: trouble.hint.clone(),
                since: *since,
            },
        }),
        CheckStatus::Bad { error: trouble, since } => Some(CanaryProbeReport {
            name,
            good: false,
            reason: trouble.code.clone(),
            message: trouble.message.clone(),
            hint: trouble.hint.clone(),
            since: *since,
        }),
    }
}

/// Whether facts say anything beyond who tells them.
pub(crate) fn has_findings(facts: &CanaryStatusReport) -> bool {
    facts.last_good_hop.is_some()
        || facts.failure.is_some()
        || facts.throttled.is_some()
        || !facts.probes.is_empty()
}

/// The facts as they go on from what stands in the annotation: what is the same kept its beginning
/// and its words, though the process that told it is gone; and what nobody has found out anew of the
/// same credential is still what it was.
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

/// Fills what is unknown, behind the last hop that is known to be good, with what was known.
fn restore_unknown(facts: &mut CanaryStatusReport, before: &CanaryStatusReport) {
    if !is_same_certificate(facts.credential.as_ref(), before.credential.as_ref()) {
        return;
    }
    let is_asked_anew =
        |old: &&CanaryProbeReport| facts.probes.iter().any(|probe| probe.name == old.name);
    let silent: Vec<_> = before.probes.iter().filter(|old| !is_asked_anew(old)).cloned().collect();
    facts.probes.extend(silent);
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

/// Whether both are one certificate of one client, whatever its document says besides.
fn is_same_certificate(one: Option<&LoadedCredential>, other: Option<&LoadedCredential>) -> bool {
    one.zip(other).is_some_and(|(one, other)| {
        (&one.client_id, &one.thumbprint) == (&other.client_id, &other.thumbprint)
    })
}

/// Where a hop is in the walk.
fn hop_position(hop: &str) -> Option<usize> {
    Hop::ALL.iter().position(|known| known.name() == hop)
}

#[cfg(test)]
mod tests;
