//! The last stage: telling how the identities are, where that is news.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::hosted_cluster_identities::IdentitiesStatus;
use lanyard_api::{HostedCluster, HostedClusterIdentities};
use lanyard_desired::deletion::Parting;
use lanyard_desired::drift::{self, ChangedObject, Finding, Memory};
use lanyard_desired::status::{self, Classes, ClusterState, EventType, Transition};
use lanyard_desired::{Problem, ValidatedHostedCluster, Writer, lint_shared_credentials, validate};
use serde_json::{Value, json};

use crate::apply::write;
use crate::context::Context;
use crate::error::{ReconcileError, WriteError};
use crate::events;
use crate::key::ClusterKey;
use crate::lease::Fence;
use crate::metrics::Verb;
use crate::observe::Observed;
use crate::queue::Again;
use crate::settings::Role;
use crate::store::Told;

/// The field manager of [`HostedClusterIdentities`], in every role.
pub const STATUS_MANAGER: &str = "lanyard-identities";

/// The conditions that stand at the HostedCluster, too.
pub(crate) const CONDITIONS: [&str; 6] = [
    CLEANED_UP,
    status::VALID_IDENTITIES,
    status::VALID_KMS_CONFIG,
    status::VALID_NETWORK,
    status::CREDENTIALS_RENEWED,
    status::IDENTITIES_IN_STEP,
];

/// Whether the end of a cluster leaves nothing behind in Azure. It is told while a cluster is being
/// deleted, and only then.
pub(crate) const CLEANED_UP: &str = "AzureResourcesCleanedUp";

/// What the earlier stages came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard<'a> {
    pub(crate) state: ClusterState<'a>,
    /// Objects that differ and are left as they are.
    pub(crate) left: &'a [ChangedObject],
}

/// When time alone changes what is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextLook(Option<Timestamp>);

impl NextLook {
    /// The sooner of two.
    pub(crate) fn sooner(self, other: Option<Timestamp>) -> Self {
        Self(self.0.into_iter().chain(other).min())
    }

    /// When to look again: then, and from time to time in case something was missed.
    pub(crate) fn again(self, now: Timestamp) -> Again {
        let due = self.0.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
        match due {
            Some(due) if due < RECHECK => Again::At(due),
            _ => Again::In(RECHECK),
        }
    }
}

/// Tells how the identities are. Where nothing is news nothing is written.
pub(crate) async fn tell(
    context: &Context,
    observed: &Observed,
    heard: &Heard<'_>,
    fence: &Fence,
) -> Result<NextLook, ReconcileError> {
    let (drift, memory_due) = find_drift(context, observed, heard);
    let seen = desired_observed(context, observed, heard, &drift);
    let now = status::identities_status(&seen);
    let next = status::next_look(&seen, &now).into_iter().chain(memory_due).min();
    let previous = observed.previous.as_ref().filter(|told| is_about(told, observed));
    let told = previous.and_then(|told| told.status.as_ref());
    if told != Some(&now) {
        let mut news = status::transitions(told, &now);
        news.extend(usability_news(told, &now));
        events::tell(context, observed, &news, fence).await?;
        if previous.is_none() {
            apply_identities(context, observed, fence).await?;
        }
        apply_status(context, observed, &now, fence).await?;
    }
    if context.settings.role == Role::All && differs(&observed.cluster.conditions, &now.conditions)
    {
        apply_conditions(context, observed, &now.conditions, fence).await?;
    }
    Ok(NextLook(next))
}

fn desired_observed<'a>(
    context: &'a Context,
    observed: &'a Observed,
    heard: &Heard<'a>,
    drift: &'a [Finding],
) -> status::Observed<'a> {
    let previous = observed.previous.as_ref().filter(|told| is_about(told, observed));
    status::Observed {
        cluster: heard.state,
        generation: observed.cluster.generation,
        now: observed.now,
        classes: observed.classes.as_ref().map_or(Classes::Unknown, Classes::Listed),
        pods: &observed.pods,
        volumes: &observed.volumes,
        proves: context.settings.proves,
        policy: &context.settings.policy,
        drift,
        previous: previous.and_then(|told| told.status.as_ref()),
    }
}

/// Whether it became known that the cluster cannot be used, or that it can be used again.
fn usability_news(told: Option<&IdentitiesStatus>, now: &IdentitiesStatus) -> Option<Transition> {
    let invalid = |status: &IdentitiesStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|it| it.type_ == status::VALID_IDENTITIES)?;
        (found.reason == INVALID).then(|| found.message.clone())
    };
    let (was, is) = (told.and_then(invalid), invalid(now));
    let (event_type, reason, message) = match (was, is) {
        (was, Some(message)) if was.as_ref() != Some(&message) => {
            (EventType::Warning, INVALID, message)
        }
        (Some(_), None) => {
            (EventType::Normal, "ValidHostedCluster", "the HostedCluster can be used".to_owned())
        }
        _ => return None,
    };
    let message = message.chars().take(MOST_MESSAGE).collect();
    Some(Transition { event_type, reason: reason.to_owned(), message })
}

/// Whether what was told is about this HostedCluster, and not about a former one of its name.
fn is_about(told: &Told, observed: &Observed) -> bool {
    told.owner.as_deref() == Some(&observed.cluster.uid)
}

/// What drifted, and when time alone brings more of it to light.
fn find_drift(
    context: &Context,
    observed: &Observed,
    heard: &Heard<'_>,
) -> (Vec<Finding>, Option<Timestamp>) {
    let ClusterState::Valid(cluster) = heard.state else { return (Vec::new(), None) };
    let evidence = drift::Evidence {
        cluster,
        now: observed.now,
        pods: &observed.pods,
        volumes: &observed.volumes,
        changed: heard.left,
        shared: &shared(context, &observed.key, cluster),
        reach: context.settings.policy.reach,
    };
    let mut memories = context.memories.lock();
    let told = observed.previous.as_ref().and_then(|told| told.status.as_ref());
    let memory = memories.entry(observed.key.clone()).or_insert_with(|| Memory::resumed(told));
    let (findings, next) = drift::find(&evidence, memory);
    let due = next.next_look(observed.now, evidence.reach);
    *memory = next;
    (findings, due)
}

/// Which credentials of the cluster are those of an older one, too.
fn shared(context: &Context, key: &ClusterKey, cluster: &ValidatedHostedCluster) -> Vec<Problem> {
    let others = context.shared.lock().fellows(key);
    if others.is_empty() {
        return Vec::new();
    }
    let mut clusters: Vec<_> = others
        .iter()
        .filter_map(|other| {
            let seen = context.stores.cluster(other)?;
            let valid = validate(&seen.read().ok()?).ok()?;
            Some((seen.created, other.clone(), valid.hosted_cluster))
        })
        .collect();
    let created = context.stores.cluster(key).and_then(|seen| seen.created);
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

fn differs(there: &[Condition], desired: &[Condition]) -> bool {
    desired.iter().any(|condition| !there.contains(condition))
}

/// Makes the object, and the HostedCluster its owner.
async fn apply_identities(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
) -> Result<(), WriteError> {
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
    let identities = identities(context, key);
    let parameters = PatchParams::apply(STATUS_MANAGER);
    let patch = Patch::Apply(&object);
    let apply = || identities.patch(key.name(), &parameters, &patch);
    let action = format!("apply HostedClusterIdentities {key}");
    let what = (HostedClusterIdentities::KIND, Verb::Create);
    let written = write(&context.api, fence, &context.metrics, what, &action, apply).await?;
    context.stores.told(key, written);
    Ok(())
}

async fn apply_status(
    context: &Context,
    observed: &Observed,
    status: &IdentitiesStatus,
    fence: &Fence,
) -> Result<(), WriteError> {
    let key = &observed.key;
    let object = json!({
        "apiVersion": HostedClusterIdentities::API_VERSION,
        "kind": HostedClusterIdentities::KIND,
        "metadata": {"namespace": key.namespace(), "name": key.name()},
        "status": status,
    });
    let identities = identities(context, key);
    // Nobody else writes this kind.
    let parameters = PatchParams::apply(STATUS_MANAGER).force();
    let patch = Patch::Apply(&object);
    let apply = || identities.patch_status(key.name(), &parameters, &patch);
    let action = format!("apply the status of HostedClusterIdentities {key}");
    let what = (HostedClusterIdentities::KIND, Verb::Apply);
    let written = write(&context.api, fence, &context.metrics, what, &action, apply).await?;
    context.stores.told(key, written);
    Ok(())
}

/// Applies our conditions, and no other one, to the status of the HostedCluster.
async fn apply_conditions(
    context: &Context,
    observed: &Observed,
    conditions: &[Condition],
    fence: &Fence,
) -> Result<(), WriteError> {
    let key = &observed.key;
    let object: Value = json!({
        "apiVersion": HostedCluster::API_VERSION,
        "kind": HostedCluster::KIND,
        "metadata": {
            "namespace": key.namespace(),
            "name": key.name(),
            "uid": observed.cluster.uid,
        },
        "status": {"conditions": conditions},
    });
    let clusters = context.hosted_clusters(key);
    let parameters = PatchParams::apply(Writer::HostedCluster.field_manager());
    let patch = Patch::Apply(&object);
    let apply = || clusters.patch_status(key.name(), &parameters, &patch);
    let action = format!("apply conditions of HostedCluster {key}");
    let what = (HostedCluster::KIND, Verb::Apply);
    let written = write(&context.api, fence, &context.metrics, what, &action, apply).await?;
    context.stores.conditions_written(key, &written);
    Ok(())
}

/// Tells what the end of a cluster waits for and leaves behind, where that is news.
pub(crate) async fn tell_parting(
    context: &Context,
    observed: &Observed,
    parting: &Parting,
    fence: &Fence,
) -> Result<(), WriteError> {
    let before = observed.cluster.conditions.iter().find(|it| it.type_ == CLEANED_UP);
    let Some(now) = parting_condition(observed, parting, before) else { return Ok(()) };
    if before == Some(&now) {
        return Ok(());
    }
    let news = Transition {
        event_type: EventType::Warning,
        reason: now.reason.clone(),
        message: now.message.clone(),
    };
    events::tell(context, observed, &[news], fence).await?;
    let others = observed.cluster.conditions.iter().filter(|it| it.type_ != CLEANED_UP).cloned();
    let conditions: Vec<_> = others.chain([now]).collect();
    apply_conditions(context, observed, &conditions, fence).await
}

fn parting_condition(
    observed: &Observed,
    parting: &Parting,
    before: Option<&Condition>,
) -> Option<Condition> {
    let message = [parting.message()?].into_iter().chain(parting.hint()).collect::<Vec<_>>();
    let (status, reason) = match (parting.leaks.is_empty(), parting.may_go()) {
        (false, _) => (status::FALSE, "IdentitiesBroken"),
        (true, false) => (status::UNKNOWN, "WaitingForOthers"),
        (true, true) => return None,
    };
    let unchanged = before.filter(|it| it.status == status);
    let changed = Time(Timestamp::from_second(observed.now.as_second()).unwrap_or(observed.now));
    Some(Condition {
        type_: CLEANED_UP.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.join("; next: ").chars().take(MOST_MESSAGE).collect(),
        observed_generation: observed.cluster.generation,
        last_transition_time: unchanged.map_or(changed, |it| it.last_transition_time.clone()),
    })
}

fn identities(context: &Context, key: &ClusterKey) -> Api<HostedClusterIdentities> {
    Api::namespaced(context.api.client().clone(), key.namespace())
}

/// How often a cluster is looked at though nothing is told: it costs no request while all is well.
const RECHECK: Duration = Duration::from_mins(5);
/// The reason of the condition about identities where the cluster cannot be used.
const INVALID: &str = "InvalidHostedCluster";
/// What an event takes.
const MOST_MESSAGE: usize = 1_000;
