//! The state of a component's identity in one pod: the last hop that succeeded, and the failure.

use jiff::Timestamp;
use lanyard_api::canary_report::HopFailure;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::{CanaryStatusReport, ObjectStatusReport, VolumeStatusReport};
use lanyard_vocabulary::{Component, Consumer, Hop, RecoveryMode};

use super::CONDITION_TRUE;
use super::credential::ReportedCredential;
use super::observed_pods::{ObservedPod, ObservedVolume, StatusReportAnnotation};
use crate::report_text::{next_hop, parse_hop, parse_outcome_code, previous_hop, valid_reason_or};

/// The state of an identity in one pod, or the reason why it is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodIdentity {
    pub(super) state: PodIdentityState,
    /// The last hop that succeeded.
    pub(super) last_good_hop: Option<Hop>,
    /// The failure. For a state other than broken, a failure that does not stop the identity.
    pub(super) failure: Option<IdentityFailure>,
    /// Reason and message for an unknown state.
    pub(super) missing_report: Option<(&'static str, String)>,
    /// The mounted and loaded credential.
    pub(super) credential: Option<ReportedCredential>,
}

/// The state of an identity in one pod, worst first: the worst pod decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodIdentityState {
    /// A failure was reported.
    Broken,
    /// There is no sufficient report.
    Unknown,
    /// The identity is proven.
    Proven,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdentityFailure {
    /// The hop that failed.
    pub(super) hop: Option<Hop>,
    pub(super) reason: String,
    /// The attempted operation and the response.
    pub(super) message: String,
    /// The suggested next step.
    pub(super) hint: String,
    /// The start of the failure.
    pub(super) since: Option<Timestamp>,
}

/// The inputs of the state of an identity in one pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodIdentityInputs<'a> {
    pub(super) component: Component,
    pub(super) consumer: &'static Consumer,
    /// The id of the vault secret among the objects of the volume, if the HostedCluster is valid.
    pub(super) vault_object_id: Option<&'a str>,
    pub(super) final_hop: Hop,
    pub(super) now: Timestamp,
    /// The previous status of the identity.
    pub(super) previous_status: Option<&'a IdentityStatus>,
}

impl PodIdentityInputs<'_> {
    /// Returns whether this is the first consumer of the component, whose pods run the component's
    /// canary. Only that canary's report shows that the identity gets tokens and may call Azure.
    /// Pods of the other consumers run the canary of another component; they show only that the
    /// credential file is mounted and current.
    fn is_canary_consumer(&self) -> bool {
        self.component.consumers().first() == Some(self.consumer)
    }

    /// Evaluates a pod that counts, and prefixes the messages with the name of the pod.
    pub(super) fn evaluate_with_pod_name(
        &self,
        pod: &ObservedPod,
        volume: Option<&ObservedVolume>,
    ) -> PodIdentity {
        self.evaluate(pod, volume).with_pod_name(&pod.name)
    }

    /// Evaluates a pod: first its volume, then its canary, in the order of the hops.
    pub(super) fn evaluate(
        &self,
        pod: &ObservedPod,
        volume: Option<&ObservedVolume>,
    ) -> PodIdentity {
        let canary = pod.canary_report.parsed().filter(|it| it.component == self.component.name());
        let canary = canary.filter(|_| self.is_canary_consumer());
        let credential = self.credential_in_use(volume, canary);
        let mount = volume.and_then(|volume| volume.report.parsed()).and_then(volume_failure);
        let end = credential.as_ref().and_then(|it| it.not_after).filter(|end| *end <= self.now);
        let end = end.map(|end| {
            let begin = credential.as_ref().and_then(|it| it.not_before);
            (end, self.file_after_expiry(volume, begin, end))
        });
        let identity = match (mount, canary, end) {
            // The first broken hop is the failed one, even if later hops succeeded earlier.
            (Some(mount), canary, end) if mount.requires_action => {
                mount.broken(canary.filter(|_| end.is_none()))
            }
            (mount, _, Some(end)) => expired_credential(mount, end),
            (mount, Some(canary), None) => self.evaluate_canary(mount, canary),
            (mount, None, None) => self.evaluate_volume(mount, pod, volume),
        };
        PodIdentity { credential, ..identity }
    }

    fn evaluate_canary(
        &self,
        mount: Option<MountFailure>,
        canary: &CanaryStatusReport,
    ) -> PodIdentity {
        let last_good = canary.last_good_hop.as_deref().and_then(parse_hop);
        let mount = mount.map(|mount| mount.failure);
        if let Some(failure) = &canary.failure {
            let mut broken = canary_failure(failure, last_good);
            if let Some(volume) = mount {
                broken.message =
                    format!("{}; the node reports `{}`", broken.message, volume.reason);
            }
            return PodIdentity::broken(last_good_hop_before(last_good, failure), broken);
        }
        // A throttled canary learns nothing new: a proven identity stays proven.
        let throttled = || canary.throttled.as_ref().map(|it| canary_failure(it, last_good));
        let failure = mount.or_else(throttled);
        if last_good >= Some(self.final_hop) {
            return PodIdentity { failure, ..PodIdentity::proven(last_good) };
        }
        if canary.throttled.is_some() && self.was_proven(canary) {
            return PodIdentity { failure, ..PodIdentity::proven(Some(self.final_hop)) };
        }
        let so_far = last_good.map_or("no hop", Hop::name);
        let missing =
            format!("its canary has reached `{so_far}` and has not reported further hops");
        PodIdentity { failure, ..PodIdentity::unknown(REASON_NOT_PROVEN, missing, last_good) }
    }

    /// Returns whether an earlier pod has proven the credential that this canary has loaded.
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

    fn evaluate_volume(
        &self,
        mount: Option<MountFailure>,
        pod: &ObservedPod,
        volume: Option<&ObservedVolume>,
    ) -> PodIdentity {
        let Some(volume) = volume.filter(|volume| volume.is_mounted) else {
            let missing = "no node reports that the volume is mounted".to_owned();
            return PodIdentity::unknown(REASON_NOT_REPORTED, missing, None);
        };
        let last_good = mount.as_ref().map_or(Some(Hop::File), |mount| mount.last_good_hop);
        let failure = mount.map(|mount| mount.failure);
        if !self.is_canary_consumer() {
            return PodIdentity { failure, ..PodIdentity::proven(last_good) };
        }
        let canary = match &pod.canary_report {
            StatusReportAnnotation::Absent => "no canary runs in it".to_owned(),
            StatusReportAnnotation::Unreadable => {
                "the report of its canary cannot be parsed".to_owned()
            }
            StatusReportAnnotation::Parsed(other) => {
                let component = crate::report_text::single_line(&other.component, 40);
                format!("its canary proves `{component}`")
            }
        };
        let node = match volume.report {
            StatusReportAnnotation::Absent => {
                ", and its node plugin reports only the mounted version"
            }
            StatusReportAnnotation::Unreadable => {
                ", and the report of its node plugin cannot be parsed"
            }
            StatusReportAnnotation::Parsed(_) => "",
        };
        let missing = format!("the file is mounted, and {canary}{node}");
        PodIdentity { failure, ..PodIdentity::unknown(REASON_NOT_PROVEN, missing, last_good) }
    }

    /// Returns the credential in use: the loaded one, or else the mounted one.
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

    /// Returns the version of the loaded credential. A node reports a new version immediately, and
    /// a canary only after it has run all hops with the new credential. The mounted version
    /// therefore counts if its timestamps equal those of the loaded credential; until then the
    /// previously known version counts. If the node reports no timestamps, the mounted version
    /// counts as soon as the loaded credential differs from the previous one.
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

    /// Classifies the mounted file after the credential in use, with this validity, has expired.
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

    /// Returns the volume's object with the credential, with the node's report about it.
    fn mounted_object(&self, volume: &ObservedVolume) -> Option<ObjectStatusReport> {
        let is_ours = |id: &str| match self.vault_object_id {
            Some(object) => id.eq_ignore_ascii_case(object),
            None => volume.objects.len() == 1,
        };
        let (id, version) = volume.objects.iter().find(|(id, _)| is_ours(id))?;
        let known = volume.report.parsed().and_then(|facts| {
            // The node writes the status and its annotation together. Timestamps of another version
            // do not belong to this object.
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

/// The content of the mounted file after the loaded credential has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileAfterExpiry {
    /// No newer credential, as far as known.
    NothingNewer,
    /// The document from which the credential was loaded. Its validity exceeds that of the
    /// certificate in it; the process knows both, the node only that of the document.
    SameDocument,
    /// A newer credential.
    Newer,
}

/// A failure of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MountFailure {
    failure: IdentityFailure,
    last_good_hop: Option<Hop>,
    /// Whether the failure needs manual action, so that a new pod gets no credential. A failure
    /// that may recover by itself does not break the identity while the mounted credential is
    /// valid.
    requires_action: bool,
}

impl MountFailure {
    fn broken(self, canary: Option<&CanaryStatusReport>) -> PodIdentity {
        let mut failure = self.failure;
        let canary_state = canary.map(|canary| match &canary.failure {
            Some(failure) => format!(
                "; its canary reports `{}`",
                valid_reason_or(&failure.code, REASON_IDENTITY_BROKEN)
            ),
            None => "; the mounted credential is still valid".to_owned(),
        });
        failure.message.extend(canary_state);
        PodIdentity::broken(self.last_good_hop, failure)
    }
}

fn volume_failure(facts: &VolumeStatusReport) -> Option<MountFailure> {
    let outcome = facts.outcome.as_deref()?;
    let reported_hop = facts.last_good_hop.as_deref().and_then(parse_hop);
    let code = parse_outcome_code(outcome);
    let hop = code.map_or_else(|| next_hop(reported_hop), |code| Some(code.hop()));
    let text = facts.message.clone().filter(|message| !message.trim().is_empty());
    let meaning = code.map_or("the node plugin reports it", |code| code.text().meaning);
    let cause = facts.cause.as_deref().and_then(parse_outcome_code);
    let cause = cause.map(|cause| format!(" (after {cause})")).unwrap_or_default();
    let failure = IdentityFailure {
        hop,
        reason: valid_reason_or(outcome, REASON_IDENTITY_BROKEN),
        message: format!("{}{cause}", text.as_deref().unwrap_or(meaning).trim_end_matches('.')),
        hint: code.map_or(NODE_LOG_HINT, |code| code.hint()).to_owned(),
        since: facts.since,
    };
    let last_good = reported_hop.or_else(|| hop.and_then(previous_hop));
    let requires_action = code.is_some_and(|code| code.recovery_mode() == RecoveryMode::Never);
    Some(MountFailure { failure, last_good_hop: last_good, requires_action })
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

/// Returns the last good hop, which must precede the failed one.
fn last_good_hop_before(reported: Option<Hop>, failure: &HopFailure) -> Option<Hop> {
    let before = parse_hop(&failure.hop).map(previous_hop);
    match (reported, before) {
        (Some(reported), Some(before)) => Some(reported).min(before),
        (reported, before) => reported.or_else(|| before.flatten()),
    }
}

/// Returns the state for an expired credential. It cannot authenticate any more: components work
/// only until their tokens expire. A known volume failure that prevented the renewal is the cause.
fn expired_credential(
    mount: Option<MountFailure>,
    (end, file): (Timestamp, FileAfterExpiry),
) -> PodIdentity {
    let ended = format!("the credential ended at {end}");
    if let Some(MountFailure { mut failure, last_good_hop: last_good, .. }) = mount {
        failure.message = format!("{}; {ended}", failure.message);
        return PodIdentity::broken(last_good, failure);
    }
    let (came, hint) = match file {
        FileAfterExpiry::NothingNewer => (
            "no newer one was mounted",
            "renew the secret in the vault, and check why it was not renewed",
        ),
        FileAfterExpiry::SameDocument => (
            "its document states a later expiry than its certificate",
            "renew the secret in the vault, with a certificate that is valid as long as the document states",
        ),
        FileAfterExpiry::Newer => ("a newer one is mounted but not loaded", "restart the pod"),
    };
    let failure = IdentityFailure {
        hop: Some(Hop::Credential),
        reason: REASON_CREDENTIAL_EXPIRED.to_owned(),
        message: format!("{ended}, and {came}"),
        hint: hint.to_owned(),
        since: Some(end),
    };
    PodIdentity::broken(Some(Hop::File), failure)
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

    pub(super) fn broken(last_good_hop: Option<Hop>, failure: IdentityFailure) -> Self {
        Self {
            state: PodIdentityState::Broken,
            last_good_hop,
            failure: Some(failure),
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

    /// Prefixes the messages with the name of the pod.
    fn with_pod_name(mut self, pod: &str) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.message = format!("pod `{pod}`: {}", failure.message);
        }
        if let Some((_, missing)) = &mut self.missing_report {
            *missing = format!("pod `{pod}`: {missing}");
        }
        self
    }

    /// Returns the hop that failed.
    pub(super) fn failed_hop(&self) -> Option<Hop> {
        self.failure.as_ref().and_then(|failure| failure.hop)
    }
}

/// Reason: no report exists.
pub(super) const REASON_NOT_REPORTED: &str = "NotReported";
/// Reason: the reported hops do not prove the identity.
pub(super) const REASON_NOT_PROVEN: &str = "NotProven";
const REASON_IDENTITY_BROKEN: &str = "IdentityBroken";
const REASON_CREDENTIAL_EXPIRED: &str = "CredentialExpired";
const NODE_LOG_HINT: &str = "check the log of the node plugin on the pod's node";
