//! What one pod accounts for: how far the identity of a component came in it.

use jiff::Timestamp;
use lanyard_api::canary_facts::HopFailure;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::{CanaryFacts, ObjectFacts, VolumeFacts};
use lanyard_vocabulary::{Component, Consumer, Healing, Hop};

use super::TRUE;
use super::credential::Credential;
use super::observed::{Facts, ObservedPod, ObservedVolume};
use crate::told::{hop_after, hop_before, hop_named, outcome_named, reason};

/// How far an identity came in one pod, or why nobody can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// What it comes to.
    pub(super) standing: Standing,
    /// The last hop that is known to be good.
    pub(super) last_good: Option<Hop>,
    /// What is wrong: of a broken identity what broke it, of another what does not stop it.
    pub(super) trouble: Option<Trouble>,
    /// A word for what is missing, and the words for it, where nobody can say.
    pub(super) missing: Option<(&'static str, String)>,
    /// What is mounted and loaded.
    pub(super) credential: Option<Credential>,
}

/// What an account comes to, the worst first: the worst one speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Somebody told that it does not work.
    Broken,
    /// Nobody told.
    Unknown,
    /// It was proven.
    Proven,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The hop that is to blame.
    pub(super) hop: Option<Hop>,
    /// A word for it.
    pub(super) reason: String,
    /// What was tried and what came back.
    pub(super) message: String,
    /// What to do next.
    pub(super) hint: String,
    /// Since when.
    pub(super) since: Option<Timestamp>,
}

/// What an account is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) component: Component,
    pub(super) consumer: &'static Consumer,
    /// The id of the vault's secret among the objects of the volume, where the cluster says it.
    pub(super) object: Option<&'a str>,
    pub(super) proves: Hop,
    pub(super) now: Timestamp,
    /// The identity as it stands.
    pub(super) previous: Option<&'a IdentityStatus>,
}

impl Walk<'_> {
    /// Whether pods of this consumer prove the component. Those of its other consumers prove a
    /// component of their own and vouch for the file alone.
    fn is_proven_here(&self) -> bool {
        self.component.consumers().first() == Some(self.consumer)
    }

    /// The account of a pod that counts, with the name of the pod in its texts.
    pub(super) fn account(&self, pod: &ObservedPod, volume: Option<&ObservedVolume>) -> Account {
        self.fold(pod, volume).in_pod(&pod.name)
    }

    /// The account of a pod: its volume first, then its canary, as the hops are walked.
    pub(super) fn fold(&self, pod: &ObservedPod, volume: Option<&ObservedVolume>) -> Account {
        let canary = pod.canary.told().filter(|it| it.component == self.component.name());
        let canary = canary.filter(|_| self.is_proven_here());
        let credential = self.credential(volume, canary);
        let mount = volume.and_then(|volume| volume.facts.told()).and_then(trouble_of_volume);
        let end = credential.as_ref().and_then(|it| it.not_after).filter(|end| *end <= self.now);
        let end = end.map(|end| {
            let begin = credential.as_ref().and_then(|it| it.not_before);
            (end, self.beside_ended(volume, begin, end))
        });
        let account = match (mount, canary, end) {
            // The first hop that is broken is to blame, whatever was good before it broke.
            (Some(mount), canary, end) if mount.needs_somebody => {
                mount.broken(canary.filter(|_| end.is_none()))
            }
            (mount, _, Some(end)) => expired(mount, end),
            (mount, Some(canary), None) => self.of_canary(mount, canary),
            (mount, None, None) => self.without_canary(mount, pod, volume),
        };
        Account { credential, ..account }
    }

    fn of_canary(&self, mount: Option<MountTrouble>, canary: &CanaryFacts) -> Account {
        let last_good = canary.last_good_hop.as_deref().and_then(hop_named);
        let mount = mount.map(|mount| mount.trouble);
        if let Some(failure) = &canary.failure {
            let mut broken = trouble_of(failure, last_good);
            if let Some(beside) = mount {
                broken.message = format!("{}; the node says `{}`", broken.message, beside.reason);
            }
            return Account::broken(last_good_before(last_good, failure), broken);
        }
        // Whoever may not ask for a while learns nothing: what was proven stays proven.
        let throttled = || canary.throttled.as_ref().map(|it| trouble_of(it, last_good));
        let trouble = mount.or_else(throttled);
        if last_good >= Some(self.proves) {
            return Account { trouble, ..Account::proven(last_good) };
        }
        if canary.throttled.is_some() && self.was_proven(canary) {
            return Account { trouble, ..Account::proven(Some(self.proves)) };
        }
        let so_far = last_good.map_or("no hop", Hop::name);
        let missing = format!("its canary has come as far as `{so_far}` and says no more yet");
        Account { trouble, ..Account::unknown(NOT_PROVEN, missing, last_good) }
    }

    /// Whether the credential that this canary has loaded was proven, by a pod before this one.
    fn was_proven(&self, canary: &CanaryFacts) -> bool {
        let Some((loaded, known)) = canary.credential.as_ref().zip(self.previous) else {
            return false;
        };
        let came_to = known.last_good_hop.as_deref().and_then(hop_named);
        known.ready == TRUE
            && came_to >= Some(self.proves)
            && known.not_after.is_some()
            && (known.not_before, known.not_after) == (loaded.not_before, loaded.not_after)
    }

    fn without_canary(
        &self,
        mount: Option<MountTrouble>,
        pod: &ObservedPod,
        volume: Option<&ObservedVolume>,
    ) -> Account {
        let Some(volume) = volume.filter(|volume| volume.is_mounted) else {
            let missing = "no node tells that the volume is mounted".to_owned();
            return Account::unknown(NOT_REPORTED, missing, None);
        };
        let last_good = mount.as_ref().map_or(Some(Hop::File), |mount| mount.last_good);
        let trouble = mount.map(|mount| mount.trouble);
        if !self.is_proven_here() {
            return Account { trouble, ..Account::proven(last_good) };
        }
        let canary = match &pod.canary {
            Facts::Absent => "no canary runs in it".to_owned(),
            Facts::Unreadable => "the facts of its canary cannot be read".to_owned(),
            Facts::Told(other) => {
                let told = crate::told::one_line(&other.component, 40);
                format!("its canary proves `{told}`")
            }
        };
        let node = match volume.facts {
            Facts::Absent => ", and its node plugin tells no more than the mounted version",
            Facts::Unreadable => ", and the facts of its node plugin cannot be read",
            Facts::Told(_) => "",
        };
        let missing = format!("the file is mounted, and {canary}{node}");
        Account { trouble, ..Account::unknown(NOT_PROVEN, missing, last_good) }
    }

    /// The stamps that count are those of what is in use.
    fn credential(
        &self,
        volume: Option<&ObservedVolume>,
        canary: Option<&CanaryFacts>,
    ) -> Option<Credential> {
        let mounted = volume.and_then(|volume| self.mounted(volume));
        let loaded = canary.and_then(|canary| canary.credential.as_ref());
        if mounted.is_none() && loaded.is_none() {
            return None;
        }
        let version = mounted.as_ref().map(|object| object.version.clone());
        let version = version.filter(|version| !version.is_empty());
        let mounted = mounted.map(Credential::mounted);
        Some(match loaded.map(Credential::loaded) {
            Some(loaded) => {
                Credential { version: self.version(&loaded, mounted, version), ..loaded }
            }
            None => Credential { version, ..mounted.unwrap_or_default() },
        })
    }

    /// The version of what is loaded. A node tells a new version at once and a process when it has
    /// gone all its way with it, so the mounted version counts when its stamps are those of what is
    /// loaded; until then the one that was known before. Where a node tells no stamps it counts when
    /// what is loaded is not what was loaded before.
    fn version(
        &self,
        loaded: &Credential,
        mounted: Option<Credential>,
        version: Option<String>,
    ) -> Option<String> {
        let previous = self.previous.filter(|it| {
            it.loaded_version.is_some()
                && it.not_after.is_some()
                && (it.not_before, it.not_after) == (loaded.not_before, loaded.not_after)
        });
        let mounted = mounted.unwrap_or_default();
        let same = |one: Option<Timestamp>, other: Option<Timestamp>| {
            one.is_none() || other.is_none() || one == other
        };
        if mounted.not_before.is_none() && mounted.not_after.is_none() {
            return previous.map_or(version, |it| it.loaded_version.clone());
        }
        let is_loaded = same(mounted.not_before, loaded.not_before)
            && same(mounted.not_after, loaded.not_after);
        if is_loaded { version } else { previous.and_then(|it| it.loaded_version.clone()) }
    }

    /// What the file is like, where what is in use began then and has ended.
    fn beside_ended(
        &self,
        volume: Option<&ObservedVolume>,
        begin: Option<Timestamp>,
        end: Timestamp,
    ) -> BesideEnded {
        let mounted = volume.and_then(|volume| self.mounted(volume));
        match mounted.filter(|object| object.not_after > Some(end)) {
            None => BesideEnded::NothingNewer,
            Some(object) if begin.is_some() && object.not_before == begin => {
                BesideEnded::ItsDocument
            }
            Some(_) => BesideEnded::Newer,
        }
    }

    /// The object of the volume that holds the credential, with what the node knows about it.
    fn mounted(&self, volume: &ObservedVolume) -> Option<ObjectFacts> {
        let is_ours = |id: &str| match self.object {
            Some(object) => id.eq_ignore_ascii_case(object),
            None => volume.objects.len() == 1,
        };
        let (id, version) = volume.objects.iter().find(|(id, _)| is_ours(id))?;
        let known = volume.facts.told().and_then(|facts| {
            // The status and its annotation are written together; stamps of another version are
            // not those of this one.
            facts.objects.iter().find(|object| object.id == *id && object.version == *version)
        });
        let blank =
            || ObjectFacts { id: id.clone(), version: version.clone(), ..ObjectFacts::default() };
        Some(known.cloned().unwrap_or_else(blank))
    }
}

/// What is mounted beside a credential that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BesideEnded {
    /// The same, as far as anybody knows.
    NothingNewer,
    /// The document that it was loaded from, which lasts longer than the certificate in it: a
    /// process knows both, a node the document alone.
    ItsDocument,
    /// A newer one.
    Newer,
}

/// What is wrong with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MountTrouble {
    trouble: Trouble,
    last_good: Option<Hop>,
    /// Whether it stays as it is until somebody does something, so that a pod that starts now gets
    /// no credential. What may heal by itself breaks nothing while the mounted credential lasts.
    needs_somebody: bool,
}

impl MountTrouble {
    fn broken(self, canary: Option<&CanaryFacts>) -> Account {
        let mut trouble = self.trouble;
        let beside = canary.map(|canary| match &canary.failure {
            Some(failure) => format!("; its canary says `{}`", reason(&failure.code, BROKEN)),
            None => "; the mounted credential still serves".to_owned(),
        });
        trouble.message.extend(beside);
        Account::broken(self.last_good, trouble)
    }
}

fn trouble_of_volume(facts: &VolumeFacts) -> Option<MountTrouble> {
    let outcome = facts.outcome.as_deref()?;
    let told = facts.last_good_hop.as_deref().and_then(hop_named);
    let code = outcome_named(outcome);
    let hop = code.map_or_else(|| hop_after(told), |code| Some(code.hop()));
    let text = facts.message.clone().filter(|message| !message.trim().is_empty());
    let meaning = code.map_or("the node plugin reports it", |code| code.text().meaning);
    let cause = facts.cause.as_deref().and_then(outcome_named);
    let cause = cause.map(|cause| format!(" (after {cause})")).unwrap_or_default();
    let trouble = Trouble {
        hop,
        reason: reason(outcome, BROKEN),
        message: format!("{}{cause}", text.as_deref().unwrap_or(meaning).trim_end_matches('.')),
        hint: code.map_or(SEE_NODE_LOG, |code| code.hint()).to_owned(),
        since: facts.since,
    };
    let last_good = told.or_else(|| hop.and_then(hop_before));
    let needs_somebody = code.is_some_and(|code| code.healing() == Healing::Never);
    Some(MountTrouble { trouble, last_good, needs_somebody })
}

fn trouble_of(failure: &HopFailure, last_good: Option<Hop>) -> Trouble {
    Trouble {
        hop: hop_named(&failure.hop).or_else(|| hop_after(last_good)),
        reason: reason(&failure.code, BROKEN),
        message: failure.message.clone(),
        hint: failure.hint.clone(),
        since: Some(failure.since),
    }
}

/// A canary's last good hop is before the one at which it stopped.
fn last_good_before(told: Option<Hop>, failure: &HopFailure) -> Option<Hop> {
    let before = hop_named(&failure.hop).map(hop_before);
    match (told, before) {
        (Some(told), Some(before)) => Some(told).min(before),
        (told, before) => told.or_else(|| before.flatten()),
    }
}

/// A credential that has ended authenticates nobody: what still works does so with tokens that run
/// out. What kept a newer one away is to blame, where it is known.
fn expired(mount: Option<MountTrouble>, (end, beside): (Timestamp, BesideEnded)) -> Account {
    let ended = format!("the credential ended at {end}");
    if let Some(MountTrouble { mut trouble, last_good, .. }) = mount {
        trouble.message = format!("{}; {ended}", trouble.message);
        return Account::broken(last_good, trouble);
    }
    let (came, hint) = match beside {
        BesideEnded::NothingNewer => (
            "no newer one came",
            "renew the secret in the vault, and see why what renews it did not",
        ),
        BesideEnded::ItsDocument => (
            "its document says that it lasts longer than its certificate does",
            "renew the secret in the vault, with a certificate that lasts as long as the document says",
        ),
        BesideEnded::Newer => ("a newer one is mounted and not loaded", "restart the pod"),
    };
    let trouble = Trouble {
        hop: Some(Hop::Credential),
        reason: EXPIRED.to_owned(),
        message: format!("{ended}, and {came}"),
        hint: hint.to_owned(),
        since: Some(end),
    };
    Account::broken(Some(Hop::File), trouble)
}

impl Account {
    fn proven(last_good: Option<Hop>) -> Self {
        Self {
            standing: Standing::Proven,
            last_good,
            trouble: None,
            missing: None,
            credential: None,
        }
    }

    pub(super) fn broken(last_good: Option<Hop>, trouble: Trouble) -> Self {
        Self {
            standing: Standing::Broken,
            last_good,
            trouble: Some(trouble),
            missing: None,
            credential: None,
        }
    }

    pub(super) fn unknown(word: &'static str, missing: String, last_good: Option<Hop>) -> Self {
        let missing = Some((word, missing));
        Self { standing: Standing::Unknown, last_good, trouble: None, missing, credential: None }
    }

    /// The same with the name of the pod before its texts.
    fn in_pod(mut self, pod: &str) -> Self {
        if let Some(trouble) = &mut self.trouble {
            trouble.message = format!("pod `{pod}`: {}", trouble.message);
        }
        if let Some((_, missing)) = &mut self.missing {
            *missing = format!("pod `{pod}`: {missing}");
        }
        self
    }

    /// The hop that is to blame.
    pub(super) fn failed(&self) -> Option<Hop> {
        self.trouble.as_ref().and_then(|trouble| trouble.hop)
    }
}

/// Nobody told anything.
pub(super) const NOT_REPORTED: &str = "NotReported";
/// It was told how far it came, and that is not far enough.
pub(super) const NOT_PROVEN: &str = "NotProven";
const BROKEN: &str = "IdentityBroken";
const EXPIRED: &str = "CredentialExpired";
const SEE_NODE_LOG: &str = "see the log of the node plugin on the pod's node";
