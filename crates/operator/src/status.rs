//! The last stage: reports the status of the identities if it changed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_api::{HostedCluster, HostedClusterIdentities};
use lanyard_clock::ErrorHint as _;
use lanyard_desired::deletion::{self, DeletionStatus, Dependents};
use lanyard_desired::drift::{
    self, ChangedObject, Drift, DriftFinding, DriftHistory, UnavailableKind,
};
use lanyard_desired::hosted_cluster::key_rotation::{DATA_ENCRYPTION_UP_TO_DATE, DataEncryption};
use lanyard_desired::status::{
    self, ClusterValidation, EventType, ObservedClasses, StatusTransition,
};
use lanyard_desired::workload::CanaryCalls;
use lanyard_desired::{
    ObjectWriter, OwnedKind, ValidatedHostedCluster, ValidationProblem, ValidationProblems,
    lint_shared_credentials, validate,
};
use lanyard_kubernetes::ApiError;
use serde_json::json;

use crate::apply::write_fenced;
use crate::classification::ValidCluster;
use crate::cluster_key::ClusterKey;
use crate::conflict_backoff::{WriteTarget, digest_without_timestamps};
use crate::context::ReconcileContext;
use crate::deletion_status::{self, CLEANED_UP};
use crate::error::FencedWriteError;
use crate::events;
use crate::events::MAX_MESSAGE_CHARS;
use crate::hosted_cluster::{self, HostedClusterFields};
use crate::lease::FencingToken;
use crate::metrics::WriteVerb;
use crate::observe::ObservedCluster;
use crate::queue::Requeue;
use crate::settings::OperatorRole;
use crate::watched_kinds::WatchedKind;

/// The field manager of [`HostedClusterIdentities`], in every role.
pub const STATUS_FIELD_MANAGER: &str = "lanyard-identities";

/// The condition types that the operator also sets on the HostedCluster.
pub(crate) const HOSTED_CLUSTER_CONDITIONS: [&str; 8] = [
    CLEANED_UP,
    status::VALID_AZURE_IDENTITIES,
    status::VALID_KMS_CONFIG,
    status::VALID_NETWORK,
    status::CREDENTIALS_RENEWED,
    status::IDENTITIES_IN_STEP,
    status::ADVISED_CONFIGURATION,
    DATA_ENCRYPTION_UP_TO_DATE,
];

/// The results of the earlier stages that the status depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusInputs<'a> {
    pub(crate) state: ClusterValidation<'a>,
    /// Findings in a valid cluster that do not block it.
    pub(crate) problems: &'a ValidationProblems,
    /// Objects that differ and stay unchanged.
    pub(crate) unapplied_changes: &'a [ChangedObject],
    /// The state of the data encryption, if this operator keeps the key record.
    pub(crate) data_encryption: Option<&'a DataEncryption>,
}

impl<'a> StatusInputs<'a> {
    /// For a valid cluster.
    pub(crate) const fn of(valid: &'a ValidCluster) -> Self {
        Self {
            state: ClusterValidation::Valid(&valid.cluster),
            problems: &valid.problems,
            unapplied_changes: &[],
            data_encryption: valid.data_encryption.as_ref(),
        }
    }

    /// For an invalid cluster.
    pub(crate) const fn of_invalid(problems: &'a ValidationProblems) -> Self {
        Self {
            state: ClusterValidation::Invalid(problems),
            problems,
            unapplied_changes: &[],
            data_encryption: None,
        }
    }
}

/// When the status changes by the passage of time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextStatusChange(Option<Timestamp>);

impl NextStatusChange {
    /// The earlier of two times.
    pub(crate) fn or_earlier(self, other: Option<Timestamp>) -> Self {
        Self(self.0.into_iter().chain(other).min())
    }

    /// Requeues for that time, and at least every five minutes in case a watch missed an event.
    pub(crate) fn requeue(self, now: Timestamp) -> Requeue {
        let due = self.0.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
        match due {
            Some(due) if due < RECHECK_INTERVAL => Requeue::At(due),
            _ => Requeue::After(RECHECK_INTERVAL),
        }
    }
}

/// The current status of the identities.
#[derive(Debug)]
pub(crate) struct EvaluatedStatus {
    pub(crate) status: HostedClusterIdentitiesStatus,
    pub(crate) next_change: NextStatusChange,
    /// The status of the deletion, given the remaining dependents.
    pub(crate) deletion_status: Option<DeletionStatus>,
}

/// Evaluates the status of the identities and, for a cluster that is being deleted, of the deletion.
pub(crate) fn evaluate_status(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    inputs: &StatusInputs<'_>,
    dependents: Option<Dependents>,
) -> EvaluatedStatus {
    let (drift, memory_due) = find_drift(context, observed, inputs);
    let observation = status_observation(context, observed, inputs, &drift);
    let status = status::identities_status(&observation);
    let next =
        status::next_status_change_at(&observation, &status).into_iter().chain(memory_due).min();
    let deletion_progress = dependents.map(|dependents| {
        let is_forced = observed.cluster.is_deletion_forced;
        deletion::deletion_status(&observation, &status, dependents, is_forced)
    });
    EvaluatedStatus {
        status,
        next_change: NextStatusChange(next),
        deletion_status: deletion_progress,
    }
}

/// Reports the status of the identities and the conditions of the HostedCluster if they changed. Returns when a
/// report that is held back by a conflict may be written.
pub(crate) async fn report_status(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    evaluated: &EvaluatedStatus,
    fencing_token: &FencingToken,
) -> Result<Option<Duration>, FencedWriteError> {
    // The status of the identities shows which conditions the HostedCluster has. So a removed condition goes
    // from the HostedCluster first: a failure repeats both writes.
    if removes_condition(observed, &evaluated.status) {
        let due = report_conditions(context, observed, evaluated, fencing_token).await?;
        if due.is_some() {
            return Ok(due);
        }
        return report_identities(context, observed, evaluated, fencing_token).await;
    }
    let of_identities = report_identities(context, observed, evaluated, fencing_token).await?;
    let of_conditions = report_conditions(context, observed, evaluated, fencing_token).await?;
    Ok(of_identities.into_iter().chain(of_conditions).min())
}

/// Writes the status of the identities.
async fn report_identities(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    evaluated: &EvaluatedStatus,
    fencing_token: &FencingToken,
) -> Result<Option<Duration>, FencedWriteError> {
    let (key, now) = (&observed.key, &evaluated.status);
    let previous = observed.last_report.as_ref();
    let reported = previous.and_then(|reported| reported.status.as_ref());
    // The garbage collector deletes the object with its HostedCluster; do not create it again.
    let is_going = previous.is_none() && observed.cluster.is_deleting;
    if reported == Some(now) || is_going {
        return Ok(None);
    }
    let desired_digest = digest_without_timestamps(now);
    let due = context.backoff_until(key, WriteTarget::Identities, desired_digest);
    if due.is_none() {
        let mut transitions = status::status_transitions(reported, now);
        transitions.extend(validity_transition(reported, now));
        events::emit_events(context, observed, &transitions, fencing_token).await?;
        if previous.is_none() {
            apply_identities(context, observed, fencing_token).await?;
        }
        apply_status(context, observed, now, fencing_token).await?;
        let describe_object = || WriteTarget::Identities.describe_conflict(key);
        context.record_write(key, WriteTarget::Identities, desired_digest, describe_object);
    }
    Ok(due)
}

/// Writes the conditions of the HostedCluster. In role `identity-only` another operator does.
async fn report_conditions(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    evaluated: &EvaluatedStatus,
    fencing_token: &FencingToken,
) -> Result<Option<Duration>, FencedWriteError> {
    if context.settings.role == OperatorRole::IdentityOnly {
        return Ok(None);
    }
    let (key, now) = (&observed.key, &evaluated.status);
    let before = observed.cluster.conditions.iter().find(|it| it.type_ == CLEANED_UP);
    let deletion_condition = match &evaluated.deletion_status {
        Some(deletion) => deletion_status::deletion_condition(observed, deletion, before),
        None => before.cloned(),
    };
    let change = deletion_condition.as_ref().zip(evaluated.deletion_status.as_ref());
    let change = change.and_then(|(condition, deletion)| {
        deletion_status::deletion_transition(deletion, condition, before)
    });
    let is_over =
        (before.is_some() && deletion_condition.is_none()) || removes_condition(observed, now);
    let conditions: Vec<_> = now.conditions.iter().cloned().chain(deletion_condition).collect();
    if !is_over && !conditions_differ(&observed.cluster.conditions, &conditions) {
        return Ok(None);
    }
    let desired_digest = digest_without_timestamps(&conditions);
    let due = context.backoff_until(key, WriteTarget::Conditions, desired_digest);
    if due.is_none() {
        events::emit_events(context, observed, change.as_slice(), fencing_token).await?;
        apply_conditions(context, observed, &conditions, fencing_token).await?;
        context.record_write(key, WriteTarget::Conditions, desired_digest, || {
            WriteTarget::Conditions.describe_conflict(key)
        });
    }
    Ok(due)
}

fn status_observation<'a>(
    context: &'a ReconcileContext,
    observed: &'a ObservedCluster,
    inputs: &StatusInputs<'a>,
    drift: &'a [DriftFinding],
) -> status::IdentityStatusInputs<'a> {
    let previous = observed.last_report.as_ref();
    status::IdentityStatusInputs {
        cluster: inputs.state,
        generation: observed.cluster.generation,
        now: observed.now,
        classes: observed
            .classes
            .as_ref()
            .map_or(ObservedClasses::Unknown, ObservedClasses::Listed),
        pods: &observed.pods,
        volumes: &observed.volumes,
        canary_calls: CanaryCalls {
            templates: &context.settings.templates,
            private_router: observed.private_router,
        },
        renewal_policy: &context.settings.policy,
        problems: inputs.problems,
        data_encryption: inputs.data_encryption,
        is_deleting: observed.cluster.is_deleting,
        drift_findings: drift,
        previous_status: previous.and_then(|report| report.status.as_ref()),
    }
}

/// The event for a HostedCluster that became invalid or valid again.
fn validity_transition(
    reported: Option<&HostedClusterIdentitiesStatus>,
    now: &HostedClusterIdentitiesStatus,
) -> Option<StatusTransition> {
    let invalid = |status: &HostedClusterIdentitiesStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|it| it.type_ == status::VALID_AZURE_IDENTITIES)?;
        (found.reason == INVALID_REASON).then(|| found.message.clone())
    };
    let (was, is) = (reported.and_then(invalid), invalid(now));
    let (event_type, reason, message) = match (was, is) {
        (was, Some(message)) if was.as_ref() != Some(&message) => {
            (EventType::Warning, INVALID_REASON, message)
        }
        (Some(_), None) => {
            (EventType::Normal, "ValidHostedCluster", "the HostedCluster is valid".to_owned())
        }
        _ => return None,
    };
    let message = message.chars().take(MAX_MESSAGE_CHARS).collect();
    Some(StatusTransition { event_type, reason: reason.to_owned(), message })
}

/// The drift findings, and when the passage of time alone adds another one.
fn find_drift(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    inputs: &StatusInputs<'_>,
) -> (Vec<DriftFinding>, Option<Timestamp>) {
    let ClusterValidation::Valid(cluster) = inputs.state else { return (Vec::new(), None) };
    let evidence = drift::DriftInputs {
        cluster,
        now: observed.now,
        pods: &observed.pods,
        volumes: &observed.volumes,
        changed_objects: inputs.unapplied_changes,
        shared_credentials: &shared_credential_problems(context, &observed.key, cluster),
        unavailable_kinds: &unavailable_kind_drift(observed),
        propagation_delay: context.settings.policy.propagation_delay,
    };
    let mut memories = context.drift_histories.lock();
    let reported = observed.last_report.as_ref().and_then(|reported| reported.status.as_ref());
    let memory =
        memories.entry(observed.key.clone()).or_insert_with(|| DriftHistory::from_status(reported));
    let (findings, next) = drift::find_drift(&evidence, memory);
    let due = next.next_finding_at(observed.now, evidence.propagation_delay);
    *memory = next;
    (findings, due)
}

/// The unavailable kinds as drift. A missing Cluster API CRD is not reported, because then no controller
/// reads its objects.
fn unavailable_kind_drift(observed: &ObservedCluster) -> Vec<Drift> {
    let findings = observed.unavailable_kinds.iter().filter_map(|it| {
        let is_forbidden = matches!(it.error, ApiError::Refused { status: 401 | 403, .. });
        let (message, hint) = (it.error.to_string(), it.error.hint().unwrap_or_default());
        let unavailable = UnavailableKind { kind: it.kind.name().to_owned(), message, hint };
        match it.kind {
            _ if is_forbidden => Some(Drift::KindForbidden(unavailable)),
            WatchedKind::Owned(OwnedKind::AzureClusterIdentity | OwnedKind::AzureCluster) => None,
            _ => Some(Drift::KindNotServed(unavailable)),
        }
    });
    findings.collect()
}

/// The credentials that the cluster shares with an older one.
fn shared_credential_problems(
    context: &ReconcileContext,
    key: &ClusterKey,
    cluster: &ValidatedHostedCluster,
) -> Vec<ValidationProblem> {
    let others = context.shared_credentials.lock().sharing_clusters(key);
    if others.is_empty() {
        return Vec::new();
    }
    let mut clusters: Vec<_> = others
        .iter()
        .filter_map(|other| {
            let observation = context.stores.cluster(other)?;
            let valid = validate(&observation.parse().ok()?).ok()?;
            Some((observation.created_at, other.clone(), valid.hosted_cluster))
        })
        .collect();
    let created = context.stores.cluster(key).and_then(|observation| observation.created_at);
    clusters.push((created, key.clone(), cluster.clone()));
    clusters.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let ours = format!("{key}: ");
    let lints = lint_shared_credentials(clusters.iter().map(|(_, _, cluster)| cluster));
    let ours = lints.into_iter().filter_map(|mut lint| {
        lint.field = lint.field.strip_prefix(&ours)?.to_owned();
        Some(lint)
    });
    ours.collect()
}

/// Whether the status lacks a condition of the last reported one.
fn removes_condition(observed: &ObservedCluster, now: &HostedClusterIdentitiesStatus) -> bool {
    let reported = observed.last_report.as_ref().and_then(|reported| reported.status.as_ref());
    let is_there = |kind: &str| now.conditions.iter().any(|it| it.type_ == kind);
    reported.is_some_and(|it| !it.conditions.iter().all(|it| is_there(&it.type_)))
}

fn conditions_differ(current: &[Condition], desired: &[Condition]) -> bool {
    desired.iter().any(|condition| !current.contains(condition))
}

/// Creates the object with the HostedCluster as its owner.
async fn apply_identities(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fencing_token: &FencingToken,
) -> Result<(), FencedWriteError> {
    let key = &observed.key;
    let object = json!({
        "apiVersion": HostedClusterIdentities::API_VERSION,
        "kind": HostedClusterIdentities::KIND,
        "metadata": {
            "namespace": key.namespace(),
            "name": key.name(),
            "labels": {"app.kubernetes.io/managed-by": "lanyard"},
            "ownerReferences": [{
                "apiVersion": HostedCluster::API_VERSION,
                "kind": HostedCluster::KIND,
                "name": key.name(),
                "uid": observed.cluster.uid,
            }],
        },
    });
    let identities = identities_api(context, key);
    let parameters = PatchParams::apply(STATUS_FIELD_MANAGER);
    let patch = Patch::Apply(&object);
    let apply = || identities.patch(key.name(), &parameters, &patch);
    let action = format!("apply HostedClusterIdentities {key}");
    let kind_and_verb = (HostedClusterIdentities::KIND, WriteVerb::Create);
    let written =
        write_fenced(&context.api, fencing_token, &context.metrics, kind_and_verb, &action, apply)
            .await?;
    context.stores.store_identities(key, written);
    Ok(())
}

async fn apply_status(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    status: &HostedClusterIdentitiesStatus,
    fencing_token: &FencingToken,
) -> Result<(), FencedWriteError> {
    let key = &observed.key;
    let object = json!({
        "apiVersion": HostedClusterIdentities::API_VERSION,
        "kind": HostedClusterIdentities::KIND,
        "metadata": {"namespace": key.namespace(), "name": key.name()},
        "status": status,
    });
    let identities = identities_api(context, key);
    // No other controller writes this kind, so the apply may be forced.
    let parameters = PatchParams::apply(STATUS_FIELD_MANAGER).force();
    let patch = Patch::Apply(&object);
    let apply = || identities.patch_status(key.name(), &parameters, &patch);
    let action = format!("apply the status of HostedClusterIdentities {key}");
    let kind_and_verb = (HostedClusterIdentities::KIND, WriteVerb::Apply);
    let written =
        write_fenced(&context.api, fencing_token, &context.metrics, kind_and_verb, &action, apply)
            .await?;
    context.stores.store_identities(key, written);
    Ok(())
}

/// Applies the operator's conditions to the status of the HostedCluster, and no others.
async fn apply_conditions(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    conditions: &[Condition],
    fencing_token: &FencingToken,
) -> Result<(), FencedWriteError> {
    let key = &observed.key;
    let parameters = PatchParams::apply(ObjectWriter::HostedCluster.field_manager());
    let action = format!("apply conditions of HostedCluster {key}");
    let fields = HostedClusterFields::Status(json!({"conditions": conditions}));
    let written = hosted_cluster::apply_fields(
        context,
        observed,
        fencing_token,
        &parameters,
        fields,
        &action,
    )
    .await?;
    context.stores.store_conditions(key, written);
    Ok(())
}

fn identities_api(context: &ReconcileContext, key: &ClusterKey) -> Api<HostedClusterIdentities> {
    Api::namespaced(context.api.client().clone(), key.namespace())
}

/// How often a cluster is reconciled without a trigger; in sync, that costs no request.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
/// The reason of the condition about identities for an invalid cluster.
const INVALID_REASON: &str = "InvalidHostedCluster";
