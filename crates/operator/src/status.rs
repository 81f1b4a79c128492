//! The last stage: telling how the identities are, where that is news.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::hosted_cluster_identities::IdentitiesStatus;
use lanyard_api::{HostedCluster, HostedClusterIdentities};
use lanyard_desired::deletion::{self, Guests, Parting};
use lanyard_desired::drift::{self, ChangedObject, Drift, Finding, LackingKind, Memory};
use lanyard_desired::status::{self, Classes, ClusterState, EventType, Transition};
use lanyard_desired::workload::CanaryCalls;
use lanyard_desired::{
    OwnedKind, Problem, Problems, ValidatedHostedCluster, Writer, lint_shared_credentials, validate,
};
use lanyard_kubernetes::ApiError;
use serde_json::json;

use crate::apply::write;
use crate::contest::{Subject, wish_of};
use crate::context::Context;
use crate::error::WriteError;
use crate::events;
use crate::hosted_cluster::{self, Fields};
use crate::judge::Usable;
use crate::key::ClusterKey;
use crate::kinds::WatchedKind;
use crate::lease::Fence;
use crate::metrics::Verb;
use crate::observe::Observed;
use crate::parting::{self, CLEANED_UP};
use crate::queue::Again;
use crate::settings::Role;

/// The field manager of [`HostedClusterIdentities`], in every role.
pub const STATUS_MANAGER: &str = "lanyard-identities";

/// The conditions that stand at the HostedCluster, too.
pub(crate) const CONDITIONS: [&str; 7] = [
    CLEANED_UP,
    status::VALID_IDENTITIES,
    status::VALID_KMS_CONFIG,
    status::VALID_NETWORK,
    status::CREDENTIALS_RENEWED,
    status::IDENTITIES_IN_STEP,
    status::ADVISED_CONFIGURATION,
];

/// What the earlier stages came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard<'a> {
    pub(crate) state: ClusterState<'a>,
    /// What somebody should look at in a cluster that can be used.
    pub(crate) lints: &'a Problems,
    /// Objects that differ and are left as they are.
    pub(crate) left: &'a [ChangedObject],
}

impl<'a> Heard<'a> {
    /// Of a cluster that can be used.
    pub(crate) const fn of(usable: &'a Usable) -> Self {
        Self { state: ClusterState::Valid(&usable.cluster), lints: &usable.lints, left: &[] }
    }

    /// Of a cluster that cannot be used.
    pub(crate) const fn of_unusable(problems: &'a Problems) -> Self {
        Self { state: ClusterState::Invalid(problems), lints: problems, left: &[] }
    }
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

/// How the identities are now.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) status: IdentitiesStatus,
    pub(crate) next: NextLook,
    /// What the end of the cluster comes to, given what still belongs to it.
    pub(crate) parting: Option<Parting>,
}

/// Looks how the identities are, and, where a cluster ends, what its end comes to.
pub(crate) fn look(
    context: &Context,
    observed: &Observed,
    heard: &Heard<'_>,
    guests: Option<Guests>,
) -> Look {
    let (drift, memory_due) = find_drift(context, observed, heard);
    let seen = desired_observed(context, observed, heard, &drift);
    let status = status::identities_status(&seen);
    let next = status::next_look(&seen, &status).into_iter().chain(memory_due).min();
    let parting = guests.map(|guests| {
        let is_forced = observed.cluster.is_end_forced;
        deletion::parting(&seen, &status, guests, is_forced)
    });
    Look { status, next: NextLook(next), parting }
}

/// Tells how the identities are. Where nothing is news nothing is written. Returns when what somebody
/// else writes, too, may be told.
pub(crate) async fn tell(
    context: &Context,
    observed: &Observed,
    look: &Look,
    fence: &Fence,
) -> Result<Option<Duration>, WriteError> {
    let (key, now) = (&observed.key, &look.status);
    let previous = observed.previous.as_ref();
    let told = previous.and_then(|told| told.status.as_ref());
    // What goes with a HostedCluster that is being deleted is not made anew.
    let is_going = previous.is_none() && observed.cluster.is_deleting;
    let mut held = None;
    if told != Some(now) && !is_going {
        let wish = wish_of(now);
        held = context.held_until(key, Subject::Identities, wish);
        if held.is_none() {
            let mut news = status::transitions(told, now);
            news.extend(usability_news(told, now));
            events::tell(context, observed, &news, fence).await?;
            if previous.is_none() {
                apply_identities(context, observed, fence).await?;
            }
            apply_status(context, observed, now, fence).await?;
            let told = || Subject::Identities.told(key);
            context.wrote(key, Subject::Identities, wish, told);
        }
    }
    if context.settings.role == Role::IdentityOnly {
        return Ok(held);
    }
    let before = observed.cluster.conditions.iter().find(|it| it.type_ == CLEANED_UP);
    let parting = match &look.parting {
        Some(parting) => parting::condition(observed, parting, before),
        None => before.cloned(),
    };
    let news = parting.as_ref().zip(look.parting.as_ref());
    let news = news.and_then(|(told, parting)| parting::news(parting, told, before));
    let is_over = before.is_some() && parting.is_none();
    let conditions: Vec<_> = now.conditions.iter().cloned().chain(parting).collect();
    if !is_over && !differs(&observed.cluster.conditions, &conditions) {
        return Ok(held);
    }
    let wish = wish_of(&conditions);
    let due = context.held_until(key, Subject::Conditions, wish);
    if due.is_none() {
        events::tell(context, observed, news.as_slice(), fence).await?;
        apply_conditions(context, observed, &conditions, fence).await?;
        context.wrote(key, Subject::Conditions, wish, || Subject::Conditions.told(key));
    }
    Ok(held.into_iter().chain(due).min())
}

fn desired_observed<'a>(
    context: &'a Context,
    observed: &'a Observed,
    heard: &Heard<'a>,
    drift: &'a [Finding],
) -> status::Observed<'a> {
    let previous = observed.previous.as_ref();
    status::Observed {
        cluster: heard.state,
        generation: observed.cluster.generation,
        now: observed.now,
        classes: observed.classes.as_ref().map_or(Classes::Unknown, Classes::Listed),
        pods: &observed.pods,
        volumes: &observed.volumes,
        canaries: CanaryCalls {
            templates: &context.settings.templates,
            private_router: observed.private_router,
        },
        policy: &context.settings.policy,
        lints: heard.lints,
        is_ending: observed.cluster.is_deleting,
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
        lacking: &lacking(observed),
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

/// The kinds without which something is not made or not known. Where nobody serves the kind of
/// Cluster API, nobody reads its objects.
fn lacking(observed: &Observed) -> Vec<Drift> {
    let told = observed.lacking.iter().filter_map(|it| {
        let is_forbidden = matches!(it.error, ApiError::Refused { status: 401 | 403, .. });
        let (message, hint) = (it.error.to_string(), it.error.hint());
        let lacking = LackingKind { kind: it.kind.name().to_owned(), message, hint };
        match it.kind {
            _ if is_forbidden => Some(Drift::KindForbidden(lacking)),
            WatchedKind::Owned(OwnedKind::AzureClusterIdentity) => None,
            _ => Some(Drift::KindNotServed(lacking)),
        }
    });
    told.collect()
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
    let parameters = PatchParams::apply(Writer::HostedCluster.field_manager());
    let action = format!("apply conditions of HostedCluster {key}");
    let fields = Fields::Status(json!({"conditions": conditions}));
    let written =
        hosted_cluster::apply(context, observed, fence, &parameters, fields, &action).await?;
    context.stores.conditions_written(key, written);
    Ok(())
}

fn identities(context: &Context, key: &ClusterKey) -> Api<HostedClusterIdentities> {
    Api::namespaced(context.api.client().clone(), key.namespace())
}

/// How often a cluster is looked at though nothing is told: it costs no request while all is well.
const RECHECK: Duration = Duration::from_mins(5);
/// The reason of the condition about identities where the cluster cannot be used.
const INVALID: &str = "InvalidHostedCluster";
/// What an event takes.
pub(crate) const MOST_MESSAGE: usize = 1_000;
