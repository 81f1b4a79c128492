//! The status of one identity, combined from the reports of its consumers' pods.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::truncate_to_second;
use lanyard_vocabulary::{Component, Consumer, EntraClientId, Hop, OutcomeCode};

use super::credential::ReportedCredential;
use super::inputs::{ClusterValidation, IdentityStatusInputs};
use super::observed_pods::{ObservedPod, ObservedVolume};
use super::pod_identity::{
    IdentityFailure, PodIdentity, PodIdentityInputs, PodIdentityState, REASON_NOT_REPORTED,
};
use super::{
    CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN, MAX_MESSAGE_BYTES, REASON_AS_EXPECTED,
};
use crate::report_text::{parse_hop, single_line, single_line_with_scope};

/// Returns the status of one identity.
pub(super) fn identity_status(
    inputs: &IdentityStatusInputs<'_>,
    component: Component,
) -> IdentityStatus {
    let reports = pod_reports(inputs, component);
    if let Some(retained) = previous_status_while_awaited(inputs, component, &reports) {
        return retained;
    }
    let deciding =
        reports.iter().min_by_key(|it| severity_order(it)).map(|report| &report.identity);
    let credential = reports.iter().filter_map(|it| it.identity.credential.as_ref());
    let credential =
        credential.min_by(|one, other| one.age_order().cmp(&other.age_order())).cloned();
    let credential = credential.unwrap_or_default();
    let (ready, reason, message) = deciding.map_or(
        (CONDITION_UNKNOWN, REASON_NOT_REPORTED.to_owned(), String::new()),
        ready_reason_message,
    );
    let last_good_hop = deciding.and_then(|deciding| last_good_hop(deciding, &reports));
    let mut status = IdentityStatus {
        component: component.name().to_owned(),
        client_id: client_id(inputs, component, &credential),
        secret_provider_class: component.definition().secret_provider_class.to_owned(),
        ready: ready.to_owned(),
        reason,
        message: single_line_with_scope(&message, MAX_MESSAGE_BYTES),
        last_good_hop: last_good_hop.map(|hop| hop.name().to_owned()),
        failed_hop: deciding.and_then(PodIdentity::failed_hop).map(|hop| hop.name().to_owned()),
        loaded_version: credential
            .version
            .map(|it| single_line(&it, IdentityStatus::MAX_VERSION_LENGTH.into())),
        not_before: credential.not_before,
        not_after: credential.not_after,
        renew_after: credential.renew_after,
        cannot_renew_after: credential.cannot_renew_after,
        since: None,
    };
    status.since = Some(ready_since(inputs, component, ready, deciding));
    status
}

/// Returns `Ok` if a pod counts, which means that its report is current. The error of a pod that is
/// starting or being deleted is the time until which it does not count.
pub(super) fn check_pod_counts(
    inputs: &IdentityStatusInputs<'_>,
    pod: &ObservedPod,
) -> Result<(), Option<Timestamp>> {
    let is_to_come = |time: &Timestamp| *time > inputs.now;
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

/// Returns the previous status while a pod that would report is starting or being deleted and no
/// other pod reports a failure, so that a rollout does not change the status. The same applies to a
/// cluster that is being deleted, whose pods disappear.
fn previous_status_while_awaited(
    inputs: &IdentityStatusInputs<'_>,
    component: Component,
    reports: &[PodIdentityReport<'_>],
) -> Option<IdentityStatus> {
    let is_broken = reports.iter().any(|it| it.identity.state == PodIdentityState::Broken);
    if is_broken && !inputs.is_deleting || !reports.iter().any(|it| it.is_awaited) {
        return None;
    }
    let previous = previous_status(inputs, component).filter(|it| it.ready != CONDITION_UNKNOWN)?;
    let lasts = previous.not_after.is_none_or(|end| end > inputs.now);
    (lasts || inputs.is_deleting).then(|| previous.clone())
}

fn previous_status<'a>(
    inputs: &IdentityStatusInputs<'a>,
    component: Component,
) -> Option<&'a IdentityStatus> {
    let mut previous = inputs.previous_status?.identities.iter();
    previous.find(|it| it.component == component.name())
}

/// Returns whether the canary of a pod that counts reports a failure of the component's identity.
pub(super) fn canary_reports_failure(
    inputs: &IdentityStatusInputs<'_>,
    component: Component,
) -> bool {
    inputs.pods.iter().filter(|pod| check_pod_counts(inputs, pod).is_ok()).any(|pod| {
        let canary = pod.canary_report.parsed().filter(|it| it.component == component.name());
        canary.is_some_and(|it| it.failure.is_some())
    })
}

/// The identity in one pod, and the pod and the consumer that it comes from.
struct PodIdentityReport<'a> {
    identity: PodIdentity,
    consumer_index: usize,
    pod_name: &'a str,
    /// No pod of the consumer counts, and at least one is starting or being deleted.
    is_awaited: bool,
}

/// Sort key that puts the deciding report first: broken before unknown before proven; of several
/// broken ones, the one with the earliest failed hop; of several proven ones, one with a failure.
fn severity_order<'a>(report: &'a PodIdentityReport<'_>) -> impl Ord + use<'a> {
    let PodIdentityReport { identity, consumer_index: row, pod_name: pod, .. } = report;
    let failed = identity.failed_hop();
    (identity.state, failed.is_none(), failed, *row, *pod)
}

fn pod_reports<'a>(
    inputs: &IdentityStatusInputs<'a>,
    component: Component,
) -> Vec<PodIdentityReport<'a>> {
    let class = component.definition().secret_provider_class;
    let has_class = inputs.classes.contains(class);
    if has_class == Some(false) {
        let identity = without_class(inputs, class);
        return vec![PodIdentityReport {
            identity,
            consumer_index: 0,
            pod_name: "",
            is_awaited: inputs.is_deleting,
        }];
    }
    let object = vault_object_id(inputs, component);
    let rows = component.consumers().iter().enumerate();
    rows.flat_map(|(row, consumer)| {
        let hop_sequence = PodIdentityInputs {
            component,
            consumer,
            vault_object_id: object.as_deref(),
            final_hop: final_hop(inputs, component),
            now: inputs.now,
            previous_status: previous_status(inputs, component),
        };
        consumer_reports(inputs, &hop_sequence, row)
    })
    .map(|mut report| {
        // The existing objects prove the hops before the first reported one.
        let known = if has_class.is_some() { Hop::SecretProviderClass } else { Hop::HostedCluster };
        let identity = &mut report.identity;
        if identity.failed_hop().is_none_or(|failed| failed > known) {
            identity.last_good_hop = identity.last_good_hop.max(Some(known));
        }
        report
    })
    .collect()
}

/// Returns the final hop of the component's canary. For an invalid cluster, this is the last hop of
/// the previous status if that was ready.
fn final_hop(inputs: &IdentityStatusInputs<'_>, component: Component) -> Hop {
    if let ClusterValidation::Valid(cluster) = inputs.cluster {
        return inputs.canary_calls.final_hop(cluster, component);
    }
    let proven = previous_status(inputs, component).filter(|it| it.ready == CONDITION_TRUE);
    let came_to = proven.and_then(|it| parse_hop(it.last_good_hop.as_deref()?));
    came_to.map_or(Hop::Granted, |hop| hop.clamp(Hop::EntraToken, Hop::Granted))
}

fn consumer_reports<'a>(
    inputs: &IdentityStatusInputs<'a>,
    hop_sequence: &PodIdentityInputs<'_>,
    row: usize,
) -> Vec<PodIdentityReport<'a>> {
    let pods: Vec<_> = inputs
        .pods
        .iter()
        .filter(|pod| is_consumer_pod(pod, hop_sequence.component, row))
        .collect();
    let mut reports: Vec<_> = pods
        .iter()
        .filter(|pod| check_pod_counts(inputs, pod).is_ok())
        .map(|pod| {
            let identity = hop_sequence
                .evaluate_with_pod_name(pod, volume_of_pod(inputs, pod, hop_sequence.component));
            PodIdentityReport {
                identity,
                consumer_index: row,
                pod_name: &pod.name,
                is_awaited: false,
            }
        })
        .collect();
    if reports.is_empty() {
        let identity = without_counted_pod(inputs, hop_sequence, &pods);
        let is_awaited =
            pods.iter().any(|pod| matches!(check_pod_counts(inputs, pod), Err(Some(_))))
                || inputs.is_deleting && pods.iter().all(|pod| pod.is_deleting);
        reports.push(PodIdentityReport { identity, consumer_index: row, pod_name: "", is_awaited });
    }
    reports
}

/// Returns whether a pod belongs to a consumer of the component. A pod without a known deployment
/// counts as one of the first consumer.
fn is_consumer_pod(pod: &ObservedPod, component: Component, row: usize) -> bool {
    let consumer = component.consumers().get(row);
    let is_of_row = match &pod.deployment {
        Some(deployment) => consumer.is_some_and(|it| it.deployment == deployment),
        None => row == 0,
    };
    is_of_row && pod.class_names.contains(component.definition().secret_provider_class)
}

fn volume_of_pod<'a>(
    inputs: &IdentityStatusInputs<'a>,
    pod: &ObservedPod,
    component: Component,
) -> Option<&'a ObservedVolume> {
    let class = component.definition().secret_provider_class;
    let mut volumes: Vec<_> = inputs
        .volumes
        .iter()
        .filter(|volume| volume.class_name == class && volume.belongs_to(pod))
        .collect();
    // There is one object for each pod and class. If another client has created more, the result
    // must not depend on their order.
    volumes
        .sort_by(|one, other| (&one.pod_uid, &one.objects).cmp(&(&other.pod_uid, &other.objects)));
    volumes.pop()
}

/// Returns the identity of a consumer without pods that count.
fn without_counted_pod(
    inputs: &IdentityStatusInputs<'_>,
    hop_sequence: &PodIdentityInputs<'_>,
    pods: &[&ObservedPod],
) -> PodIdentity {
    let Consumer { deployment, .. } = hop_sequence.consumer;
    let mut pods: Vec<_> = pods.iter().filter(|pod| !pod.is_deleting).collect();
    pods.sort_by_key(|pod| &pod.name);
    let missing = match pods.first() {
        None => format!("no pod of `{deployment}` mounts the class"),
        Some(pod) if !pod.is_ready => {
            let volume = volume_of_pod(inputs, pod, hop_sequence.component);
            let failure =
                volume.and_then(|volume| hop_sequence.evaluate(pod, Some(volume)).failure);
            let reason = failure.map(|it| format!(": {}: {}", it.reason, it.message));
            let events = "; its events say why".to_owned();
            format!("pod `{}` of `{deployment}` is not ready{}", pod.name, reason.unwrap_or(events))
        }
        Some(pod) => format!("pod `{}` of `{deployment}` has just started", pod.name),
    };
    PodIdentity::unknown(REASON_NOT_REPORTED, missing, None)
}

/// A missing class breaks the identity if pods mount it; before any pod does, the identity is only
/// unknown.
fn without_class(inputs: &IdentityStatusInputs<'_>, class: &str) -> PodIdentity {
    let code = OutcomeCode::SecretProviderClassNotFound;
    let failure = IdentityFailure {
        hop: Some(code.hop()),
        reason: code.name().to_owned(),
        message: format!("the SecretProviderClass `{class}` does not exist"),
        hint: "check the operator's log and its permissions to write SecretProviderClasses"
            .to_owned(),
        since: None,
    };
    let last_good = Some(Hop::HostedCluster);
    let is_mounted =
        inputs.pods.iter().any(|pod| !pod.is_deleting && pod.class_names.contains(class));
    if is_mounted {
        return PodIdentity::broken(last_good, failure);
    }
    let missing = failure.message.clone();
    PodIdentity { failure: Some(failure), ..PodIdentity::unknown(code.name(), missing, last_good) }
}

fn ready_reason_message(identity: &PodIdentity) -> (&'static str, String, String) {
    let with_hint = |failure: &IdentityFailure| {
        let message = failure.message.trim_end_matches('.');
        match failure.hint.trim() {
            "" => message.to_owned(),
            hint => format!("{message}; next: {hint}"),
        }
    };
    match (identity.state, &identity.failure, &identity.missing_report) {
        (PodIdentityState::Proven, None, _) => {
            (CONDITION_TRUE, REASON_AS_EXPECTED.to_owned(), String::new())
        }
        (PodIdentityState::Proven, Some(failure), _) => {
            (CONDITION_TRUE, failure.reason.clone(), with_hint(failure))
        }
        (PodIdentityState::Broken, Some(failure), _) => {
            (CONDITION_FALSE, failure.reason.clone(), with_hint(failure))
        }
        (_, Some(failure), Some((word, missing))) if failure.message != *missing => (
            CONDITION_UNKNOWN,
            (*word).to_owned(),
            format!("{missing}; and {}", with_hint(failure)),
        ),
        (_, Some(failure), Some((word, _))) => {
            (CONDITION_UNKNOWN, (*word).to_owned(), with_hint(failure))
        }
        (_, _, missing) => {
            let (word, missing) = missing.clone().unwrap_or((REASON_NOT_REPORTED, String::new()));
            (CONDITION_UNKNOWN, word.to_owned(), missing)
        }
    }
}

/// Returns the last good hop. A pod of the second consumer proves only its file and does not lower
/// the hop that the first consumer's pods have proven.
fn last_good_hop(deciding: &PodIdentity, reports: &[PodIdentityReport<'_>]) -> Option<Hop> {
    if deciding.state != PodIdentityState::Proven {
        return deciding.last_good_hop;
    }
    let proven = reports.iter().filter(|it| it.consumer_index == 0);
    proven.filter_map(|it| it.identity.last_good_hop).min().or(deciding.last_good_hop)
}

fn vault_object_id(inputs: &IdentityStatusInputs<'_>, component: Component) -> Option<String> {
    let ClusterValidation::Valid(cluster) = inputs.cluster else { return None };
    let identity = cluster.identities.get(&component)?;
    Some(format!("secret/{}", identity.secret_name))
}

fn client_id(
    inputs: &IdentityStatusInputs<'_>,
    component: Component,
    credential: &ReportedCredential,
) -> Option<String> {
    let named = match inputs.cluster {
        ClusterValidation::Valid(cluster) => cluster.identities.get(&component)?.client_id,
        ClusterValidation::Invalid(_) => None,
    };
    // An annotation may contain any text; the API server would reject the whole status because of
    // an invalid client id.
    let loaded = || credential.client_id.as_deref()?.parse().ok();
    named.or_else(loaded).map(|id: EntraClientId| id.to_string())
}

/// Returns the time of the last transition of `ready`: the previous time if `ready` is unchanged,
/// the reported start of the failure if the identity broke, or else the current time.
fn ready_since(
    inputs: &IdentityStatusInputs<'_>,
    component: Component,
    ready: &str,
    deciding: Option<&PodIdentity>,
) -> Timestamp {
    let same = previous_status(inputs, component).filter(|it| it.ready == ready);
    if let Some(since) = same.and_then(|it| it.since) {
        return since;
    }
    let broken = deciding.filter(|it| it.state == PodIdentityState::Broken);
    let reported_since =
        broken.and_then(|it| it.failure.as_ref()).and_then(|failure| failure.since);
    truncate_to_second(reported_since.unwrap_or(inputs.now).min(inputs.now))
}

/// How long the status waits for the first report of a new pod, and how long a crash-looping pod
/// must run until its report counts again.
const SETTLING_PERIOD: Duration = Duration::from_mins(2);
/// The number of restarts from which a pod counts as crash-looping.
const CRASH_LOOP_RESTARTS: u32 = 3;
