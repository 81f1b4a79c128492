//! What a canary knows about its identity, and what it tells: pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_api::canary_facts::{CanaryFacts, HopFailure, LoadedCredential, ProbeFacts};
use lanyard_vocabulary::{Component, Hop};

use crate::probe::{ProbeKind, ProbeOutcome};
use crate::track::{Moment, Patience, Standing, Track};
use crate::trouble::Trouble;

/// What is known about the identity of one component.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    component: Component,
    patience: Patience,
    credential: Option<LoadedCredential>,
    /// The one of which the hop at Entra is known, while that is not the loaded one.
    replaced: Option<LoadedCredential>,
    hops: BTreeMap<Hop, Track>,
    probes: BTreeMap<ProbeKind, Probed>,
}

/// What is known of a probe.
#[derive(Debug, Clone, Default)]
struct Probed {
    track: Track,
    /// What a good one said.
    message: String,
}

impl Identity {
    /// Nothing is known yet of these hops. They are walked in their order.
    pub(crate) fn new(component: Component, hops: &[Hop], patience: Patience) -> Self {
        let hops = hops.iter().map(|hop| (*hop, Track::default())).collect();
        Self {
            component,
            patience,
            credential: None,
            replaced: None,
            hops,
            probes: BTreeMap::new(),
        }
    }

    /// A credential is loaded. What is known of the hop at which another one is shown to Entra is
    /// not known of this one.
    pub(crate) fn loaded(&mut self, credential: LoadedCredential) {
        let before = self.credential.replace(credential);
        if !is_same(before.as_ref(), self.credential.as_ref())
            && let Some(track) = self.hops.get_mut(&Hop::EntraToken)
        {
            if !track.is_of_replaced() {
                self.replaced = before;
            }
            track.outdate();
        }
    }

    /// The credential that everything told is true of. While what is known is of one that was
    /// replaced it is that one: who tells what is known of the old one as known of the new one tells
    /// of it what Entra never said, and everybody who reads it believes it from then on.
    fn told_credential(&self) -> Option<&LoadedCredential> {
        let is_of_replaced = self.hops.get(&Hop::EntraToken).is_some_and(Track::is_of_replaced);
        let replaced = self.replaced.as_ref().filter(|_| is_of_replaced);
        replaced.or(self.credential.as_ref())
    }

    /// A hop was walked.
    pub(crate) fn walked(&mut self, hop: Hop, outcome: Result<(), Trouble>, now: Moment) {
        if let Some(track) = self.hops.get_mut(&hop) {
            track.note(outcome, now, self.patience);
        }
    }

    /// Nothing is known of a hop any more, because it cannot be walked.
    pub(crate) fn not_reached(&mut self, hop: Hop) {
        if let Some(track) = self.hops.get_mut(&hop) {
            track.forget();
        }
    }

    /// A probe came to something.
    pub(crate) fn probed(&mut self, kind: ProbeKind, outcome: ProbeOutcome, now: Moment) {
        let probed = self.probes.entry(kind).or_default();
        match outcome {
            Ok(message) => {
                probed.message = message;
                probed.track.note(Ok(()), now, Patience::PROBES);
            }
            Err(trouble) => probed.track.note(Err(trouble), now, Patience::PROBES),
        }
    }

    /// Whether every hop was good at its last try.
    pub(crate) fn is_proven(&self) -> bool {
        self.hops.values().all(Track::is_quiet)
    }

    /// Whether a hop is known to be good; nothing where it is known neither way.
    pub(crate) fn verdict(&self, hop: Hop) -> Option<bool> {
        verdict(self.hops.get(&hop)?)
    }

    /// The hops that are walked.
    pub(crate) fn hops(&self) -> impl Iterator<Item = Hop> {
        self.hops.keys().copied()
    }

    /// The same of a probe.
    pub(crate) fn probe_verdict(&self, kind: ProbeKind) -> Option<bool> {
        verdict(&self.probes.get(&kind)?.track)
    }

    /// What is told.
    pub(crate) fn facts(&self) -> CanaryFacts {
        let walked = self.hops.iter().take_while(|(_, track)| track.is_good());
        CanaryFacts {
            component: self.component.name().to_owned(),
            last_good_hop: walked.last().map(|(hop, _)| hop.name().to_owned()),
            failure: self.hops.iter().find_map(|(hop, track)| failure(*hop, track)),
            throttled: self.hops.iter().find_map(|(hop, track)| throttled(*hop, track)),
            credential: self.told_credential().cloned(),
            probes: self.probes.iter().filter_map(|(kind, probed)| told(*kind, probed)).collect(),
        }
    }
}

fn verdict(track: &Track) -> Option<bool> {
    match track.standing() {
        Standing::Unknown => None,
        Standing::Good { .. } => Some(true),
        Standing::Bad { .. } => Some(false),
    }
}

fn failure(hop: Hop, track: &Track) -> Option<HopFailure> {
    let Standing::Bad { trouble, since } = track.standing() else { return None };
    Some(told_of_hop(hop, trouble, *since))
}

fn throttled(hop: Hop, track: &Track) -> Option<HopFailure> {
    let (trouble, since) = track.throttled()?;
    Some(told_of_hop(hop, trouble, since))
}

fn told_of_hop(hop: Hop, trouble: &Trouble, since: Timestamp) -> HopFailure {
    HopFailure {
        hop: hop.name().to_owned(),
        code: trouble.code.clone(),
        message: trouble.message.clone(),
        hint: trouble.hint.clone(),
        since,
    }
}

fn told(kind: ProbeKind, probed: &Probed) -> Option<ProbeFacts> {
    let name = kind.name().to_owned();
    match probed.track.standing() {
        Standing::Unknown => None,
        Standing::Good { since } => Some(match probed.track.throttled() {
            None => ProbeFacts {
                name,
                good: true,
                reason: ProbeKind::GOOD.to_owned(),
                message: probed.message.clone(),
                hint: String::new(),
                since: *since,
            },
            Some((trouble, throttled)) => ProbeFacts {
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
        Standing::Bad { trouble, since } => Some(ProbeFacts {
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
pub(crate) fn is_telling(facts: &CanaryFacts) -> bool {
    facts.last_good_hop.is_some()
        || facts.failure.is_some()
        || facts.throttled.is_some()
        || !facts.probes.is_empty()
}

/// The facts as they go on from what stands in the annotation: what is the same kept its beginning
/// and its words, though the process that told it is gone; and what nobody has found out anew of the
/// same credential is still what it was.
pub(crate) fn carried_on(mut facts: CanaryFacts, before: &CanaryFacts) -> CanaryFacts {
    remember(&mut facts, before);
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
        let is_same = |it: &&ProbeFacts| {
            (&it.name, it.good, &it.reason) == (&now.name, now.good, &now.reason)
        };
        if let Some(before) = before.probes.iter().find(is_same) {
            now.since = before.since;
        }
    }
    facts
}

/// Fills what is unknown, behind the last hop that is known to be good, with what was known.
fn remember(facts: &mut CanaryFacts, before: &CanaryFacts) {
    if !is_same(facts.credential.as_ref(), before.credential.as_ref()) {
        return;
    }
    let is_asked_anew = |old: &&ProbeFacts| facts.probes.iter().any(|probe| probe.name == old.name);
    let silent: Vec<_> = before.probes.iter().filter(|old| !is_asked_anew(old)).cloned().collect();
    facts.probes.extend(silent);
    facts.probes.sort_by(|one, other| one.name.cmp(&other.name));
    if facts.failure.is_some() {
        return;
    }
    let last_good = facts.last_good_hop.as_deref().and_then(place);
    let is_unknown = |hop: &str| place(hop) > last_good;
    facts.failure = before.failure.clone().filter(|failure| is_unknown(&failure.hop));
    if facts.throttled.is_none() {
        facts.throttled = before.throttled.clone().filter(|throttled| is_unknown(&throttled.hop));
    }
    let came_further = |hop: &&String| place(hop) > last_good;
    if let Some(further) = before.last_good_hop.as_ref().filter(came_further)
        && (facts.failure.is_some() || before.failure.is_none())
    {
        facts.last_good_hop = Some(further.clone());
    }
}

/// Whether both are one certificate of one client, whatever its document says besides.
fn is_same(one: Option<&LoadedCredential>, other: Option<&LoadedCredential>) -> bool {
    one.zip(other).is_some_and(|(one, other)| {
        (&one.client_id, &one.thumbprint) == (&other.client_id, &other.thumbprint)
    })
}

/// Where a hop is in the walk.
fn place(hop: &str) -> Option<usize> {
    Hop::ALL.iter().position(|known| known.name() == hop)
}

#[cfg(test)]
mod tests;
