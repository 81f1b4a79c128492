//! How one identity is: what the pods of its consumers account for, together.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::truncate_to_second;
use lanyard_vocabulary::{Component, Consumer, EntraClientId, Hop, OutcomeCode};

use super::credential::ReportedCredential;
use super::inputs::{ClusterValidation, IdentityStatusInputs, ObservedPod, ObservedVolume};
use super::pod_identity::{
    IdentityFailure, PodIdentity, PodIdentityInputs, PodIdentityState, REASON_NOT_REPORTED,
};
use super::{
    CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN, MAX_MESSAGE_BYTES, REASON_AS_EXPECTED,
};
use crate::report_text::{parse_hop, single_line};

/// How an identity is.
pub(super) fn identity_status(
    observed: &IdentityStatusInputs<'_>,
    component: Component,
) -> IdentityStatus {
    let accounts = pod_reports(observed, component);
    if let Some(kept) = previous_status_while_awaited(observed, component, &accounts) {
        return kept;
    }
    let speaker =
        accounts.iter().min_by_key(|it| severity_order(it)).map(|speaking| &speaking.identity);
    let credential = accounts.iter().filter_map(|it| it.identity.credential.as_ref());
    let credential =
        credential.min_by(|one, other| one.age_order().cmp(&other.age_order())).cloned();
    let credential = credential.unwrap_or_default();
    let (ready, reason, message) = speaker.map_or(
        (CONDITION_UNKNOWN, REASON_NOT_REPORTED.to_owned(), String::new()),
        ready_reason_message,
    );
    let last_good_hop = speaker.and_then(|speaker| last_good_hop(speaker, &accounts));
    let mut status = IdentityStatus {
        component: component.name().to_owned(),
        client_id: client_id(observed, component, &credential),
        secret_provider_class: component.definition().secret_provider_class.to_owned(),
        ready: ready.to_owned(),
        reason,
        message: single_line(&message, MAX_MESSAGE_BYTES),
        last_good_hop: last_good_hop.map(|hop| hop.name().to_owned()),
        failed_hop: speaker.and_then(PodIdentity::failed_hop).map(|hop| hop.name().to_owned()),
        loaded_version: credential
            .version
            .map(|it| single_line(&it, IdentityStatus::MAX_VERSION_LENGTH.into())),
        not_before: credential.not_before,
        not_after: credential.not_after,
        renew_after: credential.renew_after,
        cannot_renew_after: credential.cannot_renew_after,
        since: None,
    };
    status.since = Some(ready_since(observed, component, ready, speaker));
    status
}

/// Whether a pod counts: what it reported is what is so. Gives until when it does not, where it is
/// on its way: it began only now, or it goes.
pub(super) fn check_pod_counts(
    observed: &IdentityStatusInputs<'_>,
    pod: &ObservedPod,
) -> Result<(), Option<Timestamp>> {
    let is_to_come = |time: &Timestamp| *time > observed.now;
    let after = |time: Timestamp| time.saturating_add(SETTLING_PERIOD).unwrap_or(time);
    let is_restless = pod.restarts >= CRASH_LOOP_RESTARTS;
    if pod.is_deleting {
        return Err(pod.deletion_deadline.filter(is_to_come));
    }
    if !pod.is_ready {
        return Err(pod.created_at.map(after).filter(is_to_come).filter(|_| !is_restless));
    }
    let is_silent = pod.canary_report.parsed().is_none();
    match pod.started_at.map(after).filter(is_to_come) {
        Some(settled) if is_silent || is_restless => Err(Some(settled)),
        _ => Ok(()),
    }
}

/// The identity as it stands, while a pod that would speak for it is on its way and nobody else says
/// that it is broken: a rollout is no news. So is the end of a cluster, whose pods go.
fn previous_status_while_awaited(
    observed: &IdentityStatusInputs<'_>,
    component: Component,
    accounts: &[PodIdentityReport<'_>],
) -> Option<IdentityStatus> {
    let is_broken = accounts.iter().any(|it| it.identity.state == PodIdentityState::Broken);
    if is_broken && !observed.is_deleting || !accounts.iter().any(|it| it.is_awaited) {
        return None;
    }
    let previous =
        previous_status(observed, component).filter(|it| it.ready != CONDITION_UNKNOWN)?;
    let lasts = previous.not_after.is_none_or(|end| end > observed.now);
    (lasts || observed.is_deleting).then(|| previous.clone())
}

fn previous_status<'a>(
    observed: &IdentityStatusInputs<'a>,
    component: Component,
) -> Option<&'a IdentityStatus> {
    let mut previous = observed.previous_status?.identities.iter();
    previous.find(|it| it.component == component.name())
}

/// Whether the canary of a pod that counts says that the component's identity fails.
pub(super) fn canary_reports_failure(
    observed: &IdentityStatusInputs<'_>,
    component: Component,
) -> bool {
    observed.pods.iter().filter(|pod| check_pod_counts(observed, pod).is_ok()).any(|pod| {
        let canary = pod.canary_report.parsed().filter(|it| it.component == component.name());
        canary.is_some_and(|it| it.failure.is_some())
    })
}

/// An account, and where it is from.
struct PodIdentityReport<'a> {
    identity: PodIdentity,
    consumer_index: usize,
    pod_name: &'a str,
    /// Nobody speaks, and somebody is on the way.
    is_awaited: bool,
}

/// The worst speaks: what is broken before what nobody knows before what is proven; of several that
/// are broken, the one that is broken first; of several that are proven, one with a trouble.
fn severity_order<'a>(speaking: &'a PodIdentityReport<'_>) -> impl Ord + use<'a> {
    let PodIdentityReport { identity: account, consumer_index: row, pod_name: pod, .. } = speaking;
    let failed = account.failed_hop();
    (account.state, failed.is_none(), failed, *row, *pod)
}

fn pod_reports<'a>(
    observed: &IdentityStatusInputs<'a>,
    component: Component,
) -> Vec<PodIdentityReport<'a>> {
    let class = component.definition().secret_provider_class;
    let has_class = observed.classes.contains(class);
    if has_class == Some(false) {
        let account = without_class(observed, class);
        return vec![PodIdentityReport {
            identity: account,
            consumer_index: 0,
            pod_name: "",
            is_awaited: observed.is_deleting,
        }];
    }
    let object = vault_object_id(observed, component);
    let rows = component.consumers().iter().enumerate();
    rows.flat_map(|(row, consumer)| {
        let walk = PodIdentityInputs {
            component,
            consumer,
            vault_object_id: object.as_deref(),
            final_hop: final_hop(observed, component),
            now: observed.now,
            previous_status: previous_status(observed, component),
        };
        consumer_reports(observed, &walk, row)
    })
    .map(|mut speaking| {
        // A hop before the first that anybody tells of is known by the objects themselves.
        let known = if has_class.is_some() { Hop::SecretProviderClass } else { Hop::HostedCluster };
        let account = &mut speaking.identity;
        if account.failed_hop().is_none_or(|failed| failed > known) {
            account.last_good_hop = account.last_good_hop.max(Some(known));
        }
        speaking
    })
    .collect()
}

/// How far the canary of a component walks. Of a cluster that cannot be used it is as far as it had
/// come when the identity was proven.
fn final_hop(observed: &IdentityStatusInputs<'_>, component: Component) -> Hop {
    if let ClusterValidation::Valid(cluster) = observed.cluster {
        return observed.canary_calls.final_hop(cluster, component);
    }
    let proven = previous_status(observed, component).filter(|it| it.ready == CONDITION_TRUE);
    let came_to = proven.and_then(|it| parse_hop(it.last_good_hop.as_deref()?));
    came_to.map_or(Hop::Granted, |hop| hop.clamp(Hop::EntraToken, Hop::Granted))
}

fn consumer_reports<'a>(
    observed: &IdentityStatusInputs<'a>,
    walk: &PodIdentityInputs<'_>,
    row: usize,
) -> Vec<PodIdentityReport<'a>> {
    let pods: Vec<_> =
        observed.pods.iter().filter(|pod| is_consumer_pod(pod, walk.component, row)).collect();
    let mut accounts: Vec<_> = pods
        .iter()
        .filter(|pod| check_pod_counts(observed, pod).is_ok())
        .map(|pod| {
            let account =
                walk.evaluate_with_pod_name(pod, volume_of_pod(observed, pod, walk.component));
            PodIdentityReport {
                identity: account,
                consumer_index: row,
                pod_name: &pod.name,
                is_awaited: false,
            }
        })
        .collect();
    if accounts.is_empty() {
        let account = without_counted_pod(observed, walk, &pods);
        let is_awaited =
            pods.iter().any(|pod| matches!(check_pod_counts(observed, pod), Err(Some(_))))
                || observed.is_deleting && pods.iter().all(|pod| pod.is_deleting);
        accounts.push(PodIdentityReport {
            identity: account,
            consumer_index: row,
            pod_name: "",
            is_awaited,
        });
    }
    accounts
}

/// Whether a pod is one of a consumer of the component. A pod whose deployment cannot be seen is
/// one of the first.
fn is_consumer_pod(pod: &ObservedPod, component: Component, row: usize) -> bool {
    let consumer = component.consumers().get(row);
    let is_of_row = match &pod.deployment {
        Some(deployment) => consumer.is_some_and(|it| it.deployment == deployment),
        None => row == 0,
    };
    is_of_row && pod.class_names.contains(component.definition().secret_provider_class)
}

fn volume_of_pod<'a>(
    observed: &IdentityStatusInputs<'a>,
    pod: &ObservedPod,
    component: Component,
) -> Option<&'a ObservedVolume> {
    let class = component.definition().secret_provider_class;
    let mut volumes: Vec<_> = observed
        .volumes
        .iter()
        .filter(|volume| volume.class_name == class && volume.belongs_to(pod))
        .collect();
    // There is one for each pod and class; should somebody have written another, order must not
    // decide.
    volumes
        .sort_by(|one, other| (&one.pod_uid, &one.objects).cmp(&(&other.pod_uid, &other.objects)));
    volumes.pop()
}

/// What stands there while no pod of a consumer counts.
fn without_counted_pod(
    observed: &IdentityStatusInputs<'_>,
    walk: &PodIdentityInputs<'_>,
    pods: &[&ObservedPod],
) -> PodIdentity {
    let Consumer { deployment, .. } = walk.consumer;
    let mut pods: Vec<_> = pods.iter().filter(|pod| !pod.is_deleting).collect();
    pods.sort_by_key(|pod| &pod.name);
    let missing = match pods.first() {
        None => format!("no pod of `{deployment}` mounts the class"),
        Some(pod) if !pod.is_ready => {
            let volume = volume_of_pod(observed, pod, walk.component);
            let trouble = volume.and_then(|volume| walk.evaluate(pod, Some(volume)).failure);
            let told = trouble.map(|it| format!(": {}: {}", it.reason, it.message));
            let events = "; its events say why".to_owned();
            format!("pod `{}` of `{deployment}` is not ready{}", pod.name, told.unwrap_or(events))
        }
        Some(pod) => format!("pod `{}` of `{deployment}` began only now", pod.name),
    };
    PodIdentity::unknown(REASON_NOT_REPORTED, missing, None)
}

/// Pods that wait for a class that is gone are broken; before there are any, it is only missing.
fn without_class(observed: &IdentityStatusInputs<'_>, class: &str) -> PodIdentity {
    let code = OutcomeCode::SecretProviderClassNotFound;
    let trouble = IdentityFailure {
        hop: Some(code.hop()),
        reason: code.name().to_owned(),
        message: format!("the SecretProviderClass `{class}` is not there"),
        hint: "see why it was not made: the operator's log, and who may write classes".to_owned(),
        since: None,
    };
    let last_good = Some(Hop::HostedCluster);
    let is_mounted =
        observed.pods.iter().any(|pod| !pod.is_deleting && pod.class_names.contains(class));
    if is_mounted {
        return PodIdentity::broken(last_good, trouble);
    }
    let missing = trouble.message.clone();
    PodIdentity { failure: Some(trouble), ..PodIdentity::unknown(code.name(), missing, last_good) }
}

fn ready_reason_message(account: &PodIdentity) -> (&'static str, String, String) {
    let told = |trouble: &IdentityFailure| {
        let message = trouble.message.trim_end_matches('.');
        match trouble.hint.trim() {
            "" => message.to_owned(),
            hint => format!("{message}; next: {hint}"),
        }
    };
    match (account.state, &account.failure, &account.missing_report) {
        (PodIdentityState::Proven, None, _) => {
            (CONDITION_TRUE, REASON_AS_EXPECTED.to_owned(), String::new())
        }
        (PodIdentityState::Proven, Some(trouble), _) => {
            (CONDITION_TRUE, trouble.reason.clone(), told(trouble))
        }
        (PodIdentityState::Broken, Some(trouble), _) => {
            (CONDITION_FALSE, trouble.reason.clone(), told(trouble))
        }
        (_, Some(trouble), Some((word, missing))) if trouble.message != *missing => {
            (CONDITION_UNKNOWN, (*word).to_owned(), format!("{missing}; and {}", told(trouble)))
        }
        (_, Some(trouble), Some((word, _))) => {
            (CONDITION_UNKNOWN, (*word).to_owned(), told(trouble))
        }
        (_, _, missing) => {
            let (word, missing) = missing.clone().unwrap_or((REASON_NOT_REPORTED, String::new()));
            (CONDITION_UNKNOWN, word.to_owned(), missing)
        }
    }
}

/// A pod that proves another identity vouches for the file alone, which takes nothing away from
/// what others proved.
fn last_good_hop(speaker: &PodIdentity, accounts: &[PodIdentityReport<'_>]) -> Option<Hop> {
    if speaker.state != PodIdentityState::Proven {
        return speaker.last_good_hop;
    }
    let proven = accounts.iter().filter(|it| it.consumer_index == 0);
    proven.filter_map(|it| it.identity.last_good_hop).min().or(speaker.last_good_hop)
}

fn vault_object_id(observed: &IdentityStatusInputs<'_>, component: Component) -> Option<String> {
    let ClusterValidation::Valid(cluster) = observed.cluster else { return None };
    let identity = cluster.identities.get(&component)?;
    Some(format!("secret/{}", identity.secret_name))
}

fn client_id(
    observed: &IdentityStatusInputs<'_>,
    component: Component,
    credential: &ReportedCredential,
) -> Option<String> {
    let named = match observed.cluster {
        ClusterValidation::Valid(cluster) => cluster.identities.get(&component)?.client_id,
        ClusterValidation::Invalid(_) => None,
    };
    // An annotation may say anything; what is no client id would have the whole status refused.
    let loaded = || credential.client_id.as_deref()?.parse().ok();
    named.or_else(loaded).map(|id: EntraClientId| id.to_string())
}

/// Since when `ready` is what it is: as it stood, while it stays; of what broke, since when its
/// witness says; else from now on.
fn ready_since(
    observed: &IdentityStatusInputs<'_>,
    component: Component,
    ready: &str,
    speaker: Option<&PodIdentity>,
) -> Timestamp {
    let same = previous_status(observed, component).filter(|it| it.ready == ready);
    if let Some(since) = same.and_then(|it| it.since) {
        return since;
    }
    let witness = speaker.filter(|it| it.state == PodIdentityState::Broken);
    let told = witness.and_then(|it| it.failure.as_ref()).and_then(|trouble| trouble.since);
    truncate_to_second(told.unwrap_or(observed.now).min(observed.now))
}

/// How long a pod that began only now, and has said nothing, is waited for; and how long one that
/// is restarted again and again has to run until what it says counts again.
const SETTLING_PERIOD: Duration = Duration::from_mins(2);
/// So many restarts are no accident.
const CRASH_LOOP_RESTARTS: u32 = 3;
