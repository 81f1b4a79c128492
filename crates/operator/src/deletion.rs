//! The end of a cluster: what was made for it goes, in order, and then the cluster may.

use std::time::Duration;

use lanyard_desired::deletion::Dependents;
use lanyard_desired::objects::{ControlPlaneOwner, cluster_label, has_ownership_labels};
use lanyard_desired::{ObjectChange, ObservedObject, OwnedKind, PruneScope, diff_objects};
use lanyard_kubernetes::ApiError;

use crate::apply::ObjectApplier;
use crate::classification::ClusterClassification;
use crate::context::ReconcileContext;
use crate::dependents::fetch_dependents;
use crate::error::ReconcileError;
use crate::fetch::fetch_objects;
use crate::finalizer;
use crate::namespace_owner::OwnershipMarks;
use crate::observe::{ObservedCluster, control_plane_key, namespace_key};
use crate::queue::Requeue;
use crate::settings::OperatorRole;
use crate::status::{self, StatusInputs};
use crate::store::DesiredDigests;
use crate::watched_kinds::WatchedKind;

/// Tells how a cluster that goes is, and takes away what was made for it.
///
/// Workloads go before what they mount, then the control plane, then its namespace. Each look does
/// what can be done now; the watches tell when the next one can. Whatever breaks meanwhile is told:
/// others still clean up with these identities.
pub(crate) async fn reconcile_deletion(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    judgement: &ClusterClassification,
    applier: ObjectApplier<'_>,
) -> Result<Requeue, ReconcileError> {
    let heard = match judgement {
        ClusterClassification::OtherKind(_) => return Ok(Requeue::OnChange),
        ClusterClassification::Invalid(problems) => StatusInputs::of_invalid(problems),
        ClusterClassification::Valid(usable) => StatusInputs::of(usable),
    };
    let (guests, unknown) = match fetch_deletion_dependents(context, observed).await {
        Ok(guests) => (guests, None),
        Err(error) => (None, Some(error)),
    };
    let look = status::evaluate_status(context, observed, &heard, guests);
    let told = status::report_status(context, observed, &look, applier.fencing_token).await;
    if let Some(error) = unknown {
        return Err(error.into());
    }
    let again = match &look.deletion_status {
        Some(parting) if parting.is_unblocked() => {
            delete_owned_objects(context, observed, applier).await?
        }
        Some(_) => Requeue::After(DELETION_POLL_INTERVAL),
        None => look.next_change.requeue(observed.now),
    };
    told?;
    Ok(again)
}

/// Takes away what was made for a cluster, as far as that can be done now.
async fn delete_owned_objects(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    applier: ObjectApplier<'_>,
) -> Result<Requeue, ReconcileError> {
    let errors = unlisted_kind_errors(observed);
    if !errors.is_empty() {
        return Err(ReconcileError::Calls(errors));
    }
    let mut known = context.stores.objects_to_compare(&observed.namespace, &DesiredDigests::new());
    let found =
        fetch_objects(applier.api, applier.stores, std::mem::take(&mut known.without_content))
            .await;
    known.observed.extend(found.objects);
    let label = cluster_label(observed.key.name());
    if let ControlPlaneOwner::Known(owner_uid) = &observed.owner {
        let pruning = PruneScope::OwnedBy { cluster_label: &label, owner_uid };
        let changes = take_first_kind(diff_objects(&known.observed, &[], pruning));
        if !changes.is_empty() {
            let applied = applier.apply_changes(changes).await;
            let errors: Vec<_> = applied.failures.into_iter().map(|(_, error)| error).collect();
            return match errors.is_empty() {
                _ if applied.is_lease_lost => Err(ReconcileError::NotLeader),
                true => Ok(Requeue::Now),
                false => Err(ReconcileError::Calls(errors)),
            };
        }
    }
    // What cannot be read may be ours: what holds it stays until somebody knows.
    if !found.errors.is_empty() {
        return Err(ReconcileError::Calls(found.errors));
    }
    // A namespace that somebody made before may have more in it than ours.
    let marks = context.stores.ownership_marks(&observed.namespace);
    let is_created = marks.as_ref().is_some_and(OwnershipMarks::is_created);
    let control_plane = control_plane_key(&observed.key, &observed.namespace);
    let namespace = is_created.then(|| namespace_key(&observed.namespace));
    for key in [Some(control_plane), namespace].into_iter().flatten() {
        let Some(object) = known.observed.get(&key).filter(|it| is_made_for(it, observed, &label))
        else {
            continue;
        };
        if !object.is_deleting() {
            applier.delete_object(&key, object.uid.clone(), None).await?;
        }
        if context.stores.uid(&observed.namespace, &key).is_some() {
            // The watch tells when it is gone.
            return Ok(Requeue::After(DELETION_POLL_INTERVAL));
        }
    }
    if marks.is_some() && !is_created {
        tracing::info!(cluster = %observed.key, namespace = observed.namespace, "the namespace stays");
    }
    finalizer::remove_finalizer(context, observed, applier.fencing_token).await?;
    Ok(Requeue::OnChange)
}

/// What the end of a cluster waits for; nothing where nobody waits for us.
async fn fetch_deletion_dependents(
    context: &ReconcileContext,
    observed: &ObservedCluster,
) -> Result<Option<Dependents>, ApiError> {
    // Who writes only the status takes nothing away, whatever an earlier role left behind.
    if context.settings.role == OperatorRole::IdentityOnly || !finalizer::has_finalizer(observed) {
        return Ok(None);
    }
    // Whoever forces the end may do so because the lists fail.
    if observed.cluster.is_deletion_forced {
        return Ok(Some(Dependents::default()));
    }
    fetch_dependents(context, observed).await.map(Some)
}

/// Why nobody knows whether what comes last is there: its kind was never listed. All else goes with
/// the namespace.
fn unlisted_kind_errors(observed: &ObservedCluster) -> Vec<ApiError> {
    let last = [OwnedKind::HostedControlPlane, OwnedKind::Namespace].map(WatchedKind::Owned);
    let unlisted =
        observed.unavailable_kinds.iter().filter(|it| it.is_skipped && last.contains(&it.kind));
    let errors = unlisted.map(|it| it.error.clone());
    errors.filter(|error| !matches!(error, ApiError::NotServed { .. })).collect()
}

/// How often somebody looks for what the watch may have missed.
const DELETION_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Whether an object was made for this cluster, and not for another one of the same name.
fn is_made_for(object: &ObservedObject, observed: &ObservedCluster, label: &str) -> bool {
    let annotation = object.value.pointer("/metadata/annotations");
    let annotation = annotation
        .and_then(|all| all.get(lanyard_api::HostedCluster::CLUSTER_ANNOTATION))
        .and_then(serde_json::Value::as_str);
    has_ownership_labels(&object.value, label)
        && annotation == Some(observed.key.to_string().as_str())
}

/// What goes first: the objects of one kind, in the opposite order of their making.
fn take_first_kind(changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
    let first = changes.first().map(|change| change.key().kind);
    changes.into_iter().take_while(|change| Some(change.key().kind) == first).collect()
}
