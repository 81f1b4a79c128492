//! The last stage: telling how the identities are, where that is news.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_api::{HostedCluster, HostedClusterIdentities};
use lanyard_desired::deletion::{self, DeletionStatus, Dependents};
use lanyard_desired::drift::{
    self, ChangedObject, Drift, DriftFinding, DriftHistory, UnavailableKind,
};
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
use crate::hosted_cluster::{self, HostedClusterFields};
use crate::lease::FencingToken;
use crate::metrics::WriteVerb;
use crate::observe::ObservedCluster;
use crate::queue::Requeue;
use crate::settings::OperatorRole;
use crate::watched_kinds::WatchedKind;

/// The field manager of [`HostedClusterIdentities`], in every role.
pub const STATUS_FIELD_MANAGER: &str = "lanyard-identities";

/// The conditions that stand at the HostedCluster, too.
pub(crate) const HOSTED_CLUSTER_CONDITIONS: [&str; 7] = [
    CLEANED_UP,
    status::VALID_AZURE_IDENTITIES,
    status::VALID_KMS_CONFIG,
    status::VALID_NETWORK,
    status::CREDENTIALS_RENEWED,
    status::IDENTITIES_IN_STEP,
    status::ADVISED_CONFIGURATION,
];

/// What the earlier stages came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusInputs<'a> {
    pub(crate) state: ClusterValidation<'a>,
    /// What somebody should look at in a cluster that can be used.
    pub(crate) lints: &'a ValidationProblems,
    /// Objects that differ and are left as they are.
    pub(crate) unapplied_changes: &'a [ChangedObject],
}

impl<'a> StatusInputs<'a> {
    /// Of a cluster that can be used.
    pub(crate) const fn of(usable: &'a ValidCluster) -> Self {
        Self {
            state: ClusterValidation::Valid(&usable.cluster),
            lints: &usable.lints,
            unapplied_changes: &[],
        }
    }

    /// Of a cluster that cannot be used.
    pub(crate) const fn of_invalid(problems: &'a ValidationProblems) -> Self {
        Self {
            state: ClusterValidation::Invalid(problems),
            lints: problems,
            unapplied_changes: &[],
        }
    }
}

/// When time alone changes what is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextStatusChange(Option<Timestamp>);

impl NextStatusChange {
    /// The sooner of two.
    pub(crate) fn or_earlier(self, other: Option<Timestamp>) -> Self {
        Self(self.0.into_iter().chain(other).min())
    }

    /// When to look again: then, and from time to time in case something was missed.
    pub(crate) fn requeue(self, now: Timestamp) -> Requeue {
        let due = self.0.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
        match due {
            Some(due) if due < RECHECK_INTERVAL => Requeue::At(due),
            _ => Requeue::After(RECHECK_INTERVAL),
        }
    }
}

/// How the identities are now.
#[derive(Debug)]
pub(crate) struct EvaluatedStatus {
    pub(crate) status: HostedClusterIdentitiesStatus,
    pub(crate) next_change: NextStatusChange,
    /// What the end of the cluster comes to, given what still belongs to it.
    pub(crate) deletion_status: Option<DeletionStatus>,
}

/// Looks how the identities are, and, where a cluster ends, what its end comes to.
pub(crate) fn evaluate_status(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    heard: &StatusInputs<'_>,
    guests: Option<Dependents>,
) -> EvaluatedStatus {
    let (drift, memory_due) = find_drift(context, observed, heard);
    let seen = status_observation(context, observed, heard, &drift);
    let status = status::identities_status(&seen);
    let next = status::next_status_change_at(&seen, &status).into_iter().chain(memory_due).min();
    let parting = guests.map(|guests| {
        let is_forced = observed.cluster.is_deletion_forced;
        deletion::deletion_status(&seen, &status, guests, is_forced)
    });
    EvaluatedStatus { status, next_change: NextStatusChange(next), deletion_status: parting }
}

/// Tells how the identities are. Where nothing is news nothing is written. Returns when what somebody
/// else writes, too, may be told.
pub(crate) async fn report_status(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    look: &EvaluatedStatus,
    fence: &FencingToken,
) -> Result<Option<Duration>, FencedWriteError> {
    let (key, now) = (&observed.key, &look.status);
    let previous = observed.last_report.as_ref();
    let told = previous.and_then(|told| told.status.as_ref());
    // What goes with a HostedCluster that is being deleted is not made anew.
    let is_going = previous.is_none() && observed.cluster.is_deleting;
    let mut held = None;
    if told != Some(now) && !is_going {
        let wish = digest_without_timestamps(now);
        held = context.backoff_until(key, WriteTarget::Identities, wish);
        if held.is_none() {
            let mut news = status::status_transitions(told, now);
            news.extend(validity_transition(told, now));
            events::emit_events(context, observed, &news, fence).await?;
            if previous.is_none() {
                apply_identities(context, observed, fence).await?;
            }
            apply_status(context, observed, now, fence).await?;
            let told = || WriteTarget::Identities.describe_conflict(key);
            context.record_write(key, WriteTarget::Identities, wish, told);
        }
    }
    if context.settings.role == OperatorRole::IdentityOnly {
        return Ok(held);
    }
    let before = observed.cluster.conditions.iter().find(|it| it.type_ == CLEANED_UP);
    let parting = match &look.deletion_status {
        Some(parting) => deletion_status::deletion_condition(observed, parting, before),
        None => before.cloned(),
    };
    let news = parting.as_ref().zip(look.deletion_status.as_ref());
    let news = news
        .and_then(|(told, parting)| deletion_status::deletion_transition(parting, told, before));
    let is_over = before.is_some() && parting.is_none();
    let conditions: Vec<_> = now.conditions.iter().cloned().chain(parting).collect();
    if !is_over && !conditions_differ(&observed.cluster.conditions, &conditions) {
        return Ok(held);
    }
    let wish = digest_without_timestamps(&conditions);
    let due = context.backoff_until(key, WriteTarget::Conditions, wish);
    if due.is_none() {
        events::emit_events(context, observed, news.as_slice(), fence).await?;
        apply_conditions(context, observed, &conditions, fence).await?;
        context.record_write(key, WriteTarget::Conditions, wish, || {
            WriteTarget::Conditions.describe_conflict(key)
        });
    }
    Ok(held.into_iter().chain(due).min())
}

fn status_observation<'a>(
    context: &'a ReconcileContext,
    observed: &'a ObservedCluster,
    heard: &StatusInputs<'a>,
    drift: &'a [DriftFinding],
) -> status::IdentityStatusInputs<'a> {
    let previous = observed.last_report.as_ref();
    status::IdentityStatusInputs {
        cluster: heard.state,
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
        lints: heard.lints,
        is_deleting: observed.cluster.is_deleting,
        drift_findings: drift,
        previous_status: previous.and_then(|told| told.status.as_ref()),
    }
}

/// Whether it became known that the cluster cannot be used, or that it can be used again.
fn validity_transition(
    told: Option<&HostedClusterIdentitiesStatus>,
    now: &HostedClusterIdentitiesStatus,
) -> Option<StatusTransition> {
    let invalid = |status: &HostedClusterIdentitiesStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|it| it.type_ == status::VALID_AZURE_IDENTITIES)?;
        (found.reason == INVALID_REASON).then(|| found.message.clone())
    };
    let (was, is) = (told.and_then(invalid), invalid(now));
    let (event_type, reason, message) = match (was, is) {
        (was, Some(message)) if was.as_ref() != Some(&message) => {
            (EventType::Warning, INVALID_REASON, message)
        }
        (Some(_), None) => {
            (EventType::Normal, "ValidHostedCluster", "the HostedCluster can be used".to_owned())
        }
        _ => return None,
    };
    let message = message.chars().take(MAX_MESSAGE_CHARS).collect();
    Some(StatusTransition { event_type, reason: reason.to_owned(), message })
}

/// What drifted, and when time alone brings more of it to light.
fn find_drift(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    heard: &StatusInputs<'_>,
) -> (Vec<DriftFinding>, Option<Timestamp>) {
    let ClusterValidation::Valid(cluster) = heard.state else { return (Vec::new(), None) };
    let evidence = drift::DriftInputs {
        cluster,
        now: observed.now,
        pods: &observed.pods,
        volumes: &observed.volumes,
        changed_objects: heard.unapplied_changes,
        shared_credentials: &shared_credential_problems(context, &observed.key, cluster),
        unavailable_kinds: &unavailable_kind_drift(observed),
        propagation_delay: context.settings.policy.propagation_delay,
    };
    let mut memories = context.drift_histories.lock();
    let told = observed.last_report.as_ref().and_then(|told| told.status.as_ref());
    let memory =
        memories.entry(observed.key.clone()).or_insert_with(|| DriftHistory::from_status(told));
    let (findings, next) = drift::find_drift(&evidence, memory);
    let due = next.next_finding_at(observed.now, evidence.propagation_delay);
    *memory = next;
    (findings, due)
}

/// The kinds without which something is not made or not known. Where nobody serves the kind of
/// Cluster API, nobody reads its objects.
fn unavailable_kind_drift(observed: &ObservedCluster) -> Vec<Drift> {
    let told = observed.unavailable_kinds.iter().filter_map(|it| {
        let is_forbidden = matches!(it.error, ApiError::Refused { status: 401 | 403, .. });
        let (message, hint) = (it.error.to_string(), it.error.hint());
        let lacking = UnavailableKind { kind: it.kind.name().to_owned(), message, hint };
        match it.kind {
            _ if is_forbidden => Some(Drift::KindForbidden(lacking)),
            WatchedKind::Owned(OwnedKind::AzureClusterIdentity) => None,
            _ => Some(Drift::KindNotServed(lacking)),
        }
    });
    told.collect()
}

/// Which credentials of the cluster are those of an older one, too.
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
            let seen = context.stores.cluster(other)?;
            let valid = validate(&seen.parse().ok()?).ok()?;
            Some((seen.created_at, other.clone(), valid.hosted_cluster))
        })
        .collect();
    let created = context.stores.cluster(key).and_then(|seen| seen.created_at);
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

fn conditions_differ(there: &[Condition], desired: &[Condition]) -> bool {
    desired.iter().any(|condition| !there.contains(condition))
}

/// Makes the object, and the HostedCluster its owner.
async fn apply_identities(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fence: &FencingToken,
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
    let what = (HostedClusterIdentities::KIND, WriteVerb::Create);
    let written = write_fenced(&context.api, fence, &context.metrics, what, &action, apply).await?;
    context.stores.store_identities(key, written);
    Ok(())
}

async fn apply_status(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    status: &HostedClusterIdentitiesStatus,
    fence: &FencingToken,
) -> Result<(), FencedWriteError> {
    let key = &observed.key;
    let object = json!({
        "apiVersion": HostedClusterIdentities::API_VERSION,
        "kind": HostedClusterIdentities::KIND,
        "metadata": {"namespace": key.namespace(), "name": key.name()},
        "status": status,
    });
    let identities = identities_api(context, key);
    // Nobody else writes this kind.
    let parameters = PatchParams::apply(STATUS_FIELD_MANAGER).force();
    let patch = Patch::Apply(&object);
    let apply = || identities.patch_status(key.name(), &parameters, &patch);
    let action = format!("apply the status of HostedClusterIdentities {key}");
    let what = (HostedClusterIdentities::KIND, WriteVerb::Apply);
    let written = write_fenced(&context.api, fence, &context.metrics, what, &action, apply).await?;
    context.stores.store_identities(key, written);
    Ok(())
}

/// Applies our conditions, and no other one, to the status of the HostedCluster.
async fn apply_conditions(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    conditions: &[Condition],
    fence: &FencingToken,
) -> Result<(), FencedWriteError> {
    let key = &observed.key;
    let parameters = PatchParams::apply(ObjectWriter::HostedCluster.field_manager());
    let action = format!("apply conditions of HostedCluster {key}");
    let fields = HostedClusterFields::Status(json!({"conditions": conditions}));
    let written =
        hosted_cluster::apply_fields(context, observed, fence, &parameters, fields, &action)
            .await?;
    context.stores.store_conditions(key, written);
    Ok(())
}

fn identities_api(context: &ReconcileContext, key: &ClusterKey) -> Api<HostedClusterIdentities> {
    Api::namespaced(context.api.client().clone(), key.namespace())
}

/// How often a cluster is looked at though nothing is told: it costs no request while all is well.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
/// The reason of the condition about identities where the cluster cannot be used.
const INVALID_REASON: &str = "InvalidHostedCluster";
/// What an event takes.
pub(crate) const MAX_MESSAGE_CHARS: usize = 1_000;
