//! What one pod accounts for: how far the identity of a component came in it.

use jiff::Timestamp;
use lanyard_api::canary_report::HopFailure;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::{CanaryStatusReport, ObjectStatusReport, VolumeStatusReport};
use lanyard_vocabulary::{Component, Consumer, Hop, RecoveryMode};

use super::CONDITION_TRUE;
use super::credential::ReportedCredential;
use super::inputs::{ObservedPod, ObservedVolume, ReportAnnotation};
use crate::report_text::{next_hop, parse_hop, parse_outcome_code, previous_hop, valid_reason_or};

/// How far an identity came in one pod, or why nobody can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodIdentity {
    /// What it comes to.
    pub(super) state: PodIdentityState,
    /// The last hop that is known to be good.
    pub(super) last_good_hop: Option<Hop>,
    /// What is wrong: of a broken identity what broke it, of another what does not stop it.
    pub(super) failure: Option<IdentityFailure>,
    /// A word for what is missing, and the words for it, where nobody can say.
    pub(super) missing_report: Option<(&'static str, String)>,
    /// What is mounted and loaded.
    pub(super) credential: Option<ReportedCredential>,
}

/// What an account comes to, the worst first: the worst one speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodIdentityState {
    /// Somebody told that it does not work.
    Broken,
    /// Nobody told.
    Unknown,
    /// It was proven.
    Proven,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdentityFailure {
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
pub(super) struct PodIdentityInputs<'a> {
    pub(super) component: Component,
    pub(super) consumer: &'static Consumer,
    /// The id of the vault's secret among the objects of the volume, where the cluster says it.
    pub(super) vault_object_id: Option<&'a str>,
    pub(super) final_hop: Hop,
    pub(super) now: Timestamp,
    /// The identity as it stands.
    pub(super) previous_status: Option<&'a IdentityStatus>,
}

impl PodIdentityInputs<'_> {
    /// Whether pods of this consumer prove the component. Those of its other consumers prove a
    /// component of their own and vouch for the file alone.
    fn is_proving_consumer(&self) -> bool {
        self.component.consumers().first() == Some(self.consumer)
    }

    /// The account of a pod that counts, with the name of the pod in its texts.
    pub(super) fn evaluate_with_pod_name(
        &self,
        pod: &ObservedPod,
        volume: Option<&ObservedVolume>,
    ) -> PodIdentity {
        self.evaluate(pod, volume).with_pod_name(&pod.name)
    }

    /// The account of a pod: its volume first, then its canary, as the hops are walked.
    pub(super) fn evaluate(
        &self,
        pod: &ObservedPod,
        volume: Option<&ObservedVolume>,
    ) -> PodIdentity {
        let canary = pod.canary_report.parsed().filter(|it| it.component == self.component.name());
        let canary = canary.filter(|_| self.is_proving_consumer());
        let credential = self.credential_in_use(volume, canary);
        let mount = volume.and_then(|volume| volume.report.parsed()).and_then(volume_failure);
        let end = credential.as_ref().and_then(|it| it.not_after).filter(|end| *end <= self.now);
        let end = end.map(|end| {
            let begin = credential.as_ref().and_then(|it| it.not_before);
            (end, self.file_after_expiry(volume, begin, end))
        });
        let account = match (mount, canary, end) {
            // The first hop that is broken is to blame, whatever was good before it broke.
            (Some(mount), canary, end) if mount.requires_action => {
                mount.broken(canary.filter(|_| end.is_none()))
            }
            (mount, _, Some(end)) => expired_credential(mount, end),
            (mount, Some(canary), None) => self.from_canary(mount, canary),
            (mount, None, None) => self.from_volume_only(mount, pod, volume),
        };
        PodIdentity { credential, ..account }
    }

    fn from_canary(&self, mount: Option<MountFailure>, canary: &CanaryStatusReport) -> PodIdentity {
        let last_good = canary.last_good_hop.as_deref().and_then(parse_hop);
        let mount = mount.map(|mount| mount.failure);
        if let Some(failure) = &canary.failure {
            let mut broken = canary_failure(failure, last_good);
            if let Some(beside) = mount {
                broken.message = format!("{}; the node says `{}`", broken.message, beside.reason);
            }
            return PodIdentity::broken(last_good_hop_before(last_good, failure), broken);
        }
        // Whoever may not ask for a while learns nothing: what was proven stays proven.
        let throttled = || canary.throttled.as_ref().map(|it| canary_failure(it, last_good));
        let trouble = mount.or_else(throttled);
        if last_good >= Some(self.final_hop) {
            return PodIdentity { failure: trouble, ..PodIdentity::proven(last_good) };
        }
        if canary.throttled.is_some() && self.was_proven(canary) {
            return PodIdentity { failure: trouble, ..PodIdentity::proven(Some(self.final_hop)) };
        }
        let so_far = last_good.map_or("no hop", Hop::name);
        let missing = format!("its canary has come as far as `{so_far}` and says no more yet");
        PodIdentity {
            failure: trouble,
            ..PodIdentity::unknown(REASON_NOT_PROVEN, missing, last_good)
        }
    }

    /// Whether the credential that this canary has loaded was proven, by a pod before this one.
    fn was_proven(&self, canary: &CanaryStatusReport) -> bool {
        let Some((loaded, known)) = canary.credential.as_ref().zip(self.previous_status) else {
            return false;
        };
        let came_to = known.last_good_hop.as_deref().and_then(parse_hop);
        known.ready == CONDITION_TRUE
            && came_to >= Some(self.final_hop)
            && known.not_after.is_some()
            && (known.not_before, known.not_after) == (loaded.not_before, loaded.not_after)
    }

    fn from_volume_only(
        &self,
        mount: Option<MountFailure>,
        pod: &ObservedPod,
        volume: Option<&ObservedVolume>,
    ) -> PodIdentity {
        let Some(volume) = volume.filter(|volume| volume.is_mounted) else {
            let missing = "no node tells that the volume is mounted".to_owned();
            return PodIdentity::unknown(REASON_NOT_REPORTED, missing, None);
        };
        let last_good = mount.as_ref().map_or(Some(Hop::File), |mount| mount.last_good_hop);
        let trouble = mount.map(|mount| mount.failure);
        if !self.is_proving_consumer() {
            return PodIdentity { failure: trouble, ..PodIdentity::proven(last_good) };
        }
        let canary = match &pod.canary_report {
            ReportAnnotation::Absent => "no canary runs in it".to_owned(),
            ReportAnnotation::Unreadable => "the facts of its canary cannot be read".to_owned(),
            ReportAnnotation::Parsed(other) => {
                let told = crate::report_text::single_line(&other.component, 40);
                format!("its canary proves `{told}`")
            }
        };
        let node = match volume.report {
            ReportAnnotation::Absent => {
                ", and its node plugin tells no more than the mounted version"
            }
            ReportAnnotation::Unreadable => ", and the facts of its node plugin cannot be read",
            ReportAnnotation::Parsed(_) => "",
        };
        let missing = format!("the file is mounted, and {canary}{node}");
        PodIdentity {
            failure: trouble,
            ..PodIdentity::unknown(REASON_NOT_PROVEN, missing, last_good)
        }
    }

    /// The stamps that count are those of what is in use.
    fn credential_in_use(
        &self,
        volume: Option<&ObservedVolume>,
        canary: Option<&CanaryStatusReport>,
    ) -> Option<ReportedCredential> {
        let mounted = volume.and_then(|volume| self.mounted_object(volume));
        let loaded = canary.and_then(|canary| canary.credential.as_ref());
        if mounted.is_none() && loaded.is_none() {
            return None;
        }
        let version = mounted.as_ref().map(|object| object.version.clone());
        let version = version.filter(|version| !version.is_empty());
        let mounted = mounted.map(ReportedCredential::from_mounted);
        Some(match loaded.map(ReportedCredential::from_loaded) {
            Some(loaded) => ReportedCredential {
                version: self.version_in_use(&loaded, mounted, version),
                ..loaded
            },
            None => ReportedCredential { version, ..mounted.unwrap_or_default() },
        })
    }

    /// The version of what is loaded. A node tells a new version at once and a process when it has
    /// gone all its way with it, so the mounted version counts when its stamps are those of what is
    /// loaded; until then the one that was known before. Where a node tells no stamps it counts when
    /// what is loaded is not what was loaded before.
    fn version_in_use(
        &self,
        loaded: &ReportedCredential,
        mounted: Option<ReportedCredential>,
        version: Option<String>,
    ) -> Option<String> {
        let previous = self.previous_status.filter(|it| {
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
    fn file_after_expiry(
        &self,
        volume: Option<&ObservedVolume>,
        begin: Option<Timestamp>,
        end: Timestamp,
    ) -> FileAfterExpiry {
        let mounted = volume.and_then(|volume| self.mounted_object(volume));
        match mounted.filter(|object| object.not_after > Some(end)) {
            None => FileAfterExpiry::NothingNewer,
            Some(object) if begin.is_some() && object.not_before == begin => {
                FileAfterExpiry::SameDocument
            }
            Some(_) => FileAfterExpiry::Newer,
        }
    }

    /// The object of the volume that holds the credential, with what the node knows about it.
    fn mounted_object(&self, volume: &ObservedVolume) -> Option<ObjectStatusReport> {
        let is_ours = |id: &str| match self.vault_object_id {
            Some(object) => id.eq_ignore_ascii_case(object),
            None => volume.objects.len() == 1,
        };
        let (id, version) = volume.objects.iter().find(|(id, _)| is_ours(id))?;
        let known = volume.report.parsed().and_then(|facts| {
            // The status and its annotation are written together; stamps of another version are
            // not those of this one.
            facts.objects.iter().find(|object| object.id == *id && object.version == *version)
        });
        let blank = || ObjectStatusReport {
            id: id.clone(),
            version: version.clone(),
            ..ObjectStatusReport::default()
        };
        Some(known.cloned().unwrap_or_else(blank))
    }
}

/// What is mounted beside a credential that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileAfterExpiry {
    /// The same, as far as anybody knows.
    NothingNewer,
    /// The document that it was loaded from, which lasts longer than the certificate in it: a
    /// process knows both, a node the document alone.
    SameDocument,
    /// A newer one.
    Newer,
}

/// What is wrong with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MountFailure {
    failure: IdentityFailure,
    last_good_hop: Option<Hop>,
    /// Whether it stays as it is until somebody does something, so that a pod that starts now gets
    /// no credential. What may heal by itself breaks nothing while the mounted credential lasts.
    requires_action: bool,
}

impl MountFailure {
    fn broken(self, canary: Option<&CanaryStatusReport>) -> PodIdentity {
        let mut trouble = self.failure;
        let beside = canary.map(|canary| match &canary.failure {
            Some(failure) => format!(
                "; its canary says `{}`",
                valid_reason_or(&failure.code, REASON_IDENTITY_BROKEN)
            ),
            None => "; the mounted credential still serves".to_owned(),
        });
        trouble.message.extend(beside);
        PodIdentity::broken(self.last_good_hop, trouble)
    }
}

fn volume_failure(facts: &VolumeStatusReport) -> Option<MountFailure> {
    let outcome = facts.outcome.as_deref()?;
    let told = facts.last_good_hop.as_deref().and_then(parse_hop);
    let code = parse_outcome_code(outcome);
    let hop = code.map_or_else(|| next_hop(told), |code| Some(code.hop()));
    let text = facts.message.clone().filter(|message| !message.trim().is_empty());
    let meaning = code.map_or("the node plugin reports it", |code| code.text().meaning);
    let cause = facts.cause.as_deref().and_then(parse_outcome_code);
    let cause = cause.map(|cause| format!(" (after {cause})")).unwrap_or_default();
    let trouble = IdentityFailure {
        hop,
        reason: valid_reason_or(outcome, REASON_IDENTITY_BROKEN),
        message: format!("{}{cause}", text.as_deref().unwrap_or(meaning).trim_end_matches('.')),
        hint: code.map_or(NODE_LOG_HINT, |code| code.hint()).to_owned(),
        since: facts.since,
    };
    let last_good = told.or_else(|| hop.and_then(previous_hop));
    let needs_somebody = code.is_some_and(|code| code.recovery_mode() == RecoveryMode::Never);
    Some(MountFailure {
        failure: trouble,
        last_good_hop: last_good,
        requires_action: needs_somebody,
    })
}

fn canary_failure(failure: &HopFailure, last_good: Option<Hop>) -> IdentityFailure {
    IdentityFailure {
        hop: parse_hop(&failure.hop).or_else(|| next_hop(last_good)),
        reason: valid_reason_or(&failure.code, REASON_IDENTITY_BROKEN),
        message: failure.message.clone(),
        hint: failure.hint.clone(),
        since: Some(failure.since),
    }
}

/// A canary's last good hop is before the one at which it stopped.
fn last_good_hop_before(told: Option<Hop>, failure: &HopFailure) -> Option<Hop> {
    let before = parse_hop(&failure.hop).map(previous_hop);
    match (told, before) {
        (Some(told), Some(before)) => Some(told).min(before),
        (told, before) => told.or_else(|| before.flatten()),
    }
}

/// A credential that has ended authenticates nobody: what still works does so with tokens that run
/// out. What kept a newer one away is to blame, where it is known.
fn expired_credential(
    mount: Option<MountFailure>,
    (end, beside): (Timestamp, FileAfterExpiry),
) -> PodIdentity {
    let ended = format!("the credential ended at {end}");
    if let Some(MountFailure { failure: mut trouble, last_good_hop: last_good, .. }) = mount {
        trouble.message = format!("{}; {ended}", trouble.message);
        return PodIdentity::broken(last_good, trouble);
    }
    let (came, hint) = match beside {
        FileAfterExpiry::NothingNewer => (
            "no newer one came",
            "renew the secret in the vault, and see why what renews it did not",
        ),
        FileAfterExpiry::SameDocument => (
            "its document says that it lasts longer than its certificate does",
            "renew the secret in the vault, with a certificate that lasts as long as the document says",
        ),
        FileAfterExpiry::Newer => ("a newer one is mounted and not loaded", "restart the pod"),
    };
    let trouble = IdentityFailure {
        hop: Some(Hop::Credential),
        reason: REASON_CREDENTIAL_EXPIRED.to_owned(),
        message: format!("{ended}, and {came}"),
        hint: hint.to_owned(),
        since: Some(end),
    };
    PodIdentity::broken(Some(Hop::File), trouble)
}

impl PodIdentity {
    fn proven(last_good_hop: Option<Hop>) -> Self {
        Self {
            state: PodIdentityState::Proven,
            last_good_hop,
            failure: None,
            missing_report: None,
            credential: None,
        }
    }

    pub(super) fn broken(last_good_hop: Option<Hop>, trouble: IdentityFailure) -> Self {
        Self {
            state: PodIdentityState::Broken,
            last_good_hop,
            failure: Some(trouble),
            missing_report: None,
            credential: None,
        }
    }

    pub(super) fn unknown(word: &'static str, missing: String, last_good_hop: Option<Hop>) -> Self {
        let missing_report = Some((word, missing));
        Self {
            state: PodIdentityState::Unknown,
            last_good_hop,
            failure: None,
            missing_report,
            credential: None,
        }
    }

    /// The same with the name of the pod before its texts.
    fn with_pod_name(mut self, pod: &str) -> Self {
        if let Some(trouble) = &mut self.failure {
            trouble.message = format!("pod `{pod}`: {}", trouble.message);
        }
        if let Some((_, missing)) = &mut self.missing_report {
            *missing = format!("pod `{pod}`: {missing}");
        }
        self
    }

    /// The hop that is to blame.
    pub(super) fn failed_hop(&self) -> Option<Hop> {
        self.failure.as_ref().and_then(|trouble| trouble.hop)
    }
}

/// Nobody told anything.
pub(super) const REASON_NOT_REPORTED: &str = "NotReported";
/// It was told how far it came, and that is not far enough.
pub(super) const REASON_NOT_PROVEN: &str = "NotProven";
const REASON_IDENTITY_BROKEN: &str = "IdentityBroken";
const REASON_CREDENTIAL_EXPIRED: &str = "CredentialExpired";
const NODE_LOG_HINT: &str = "see the log of the node plugin on the pod's node";
