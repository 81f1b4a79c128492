//! The deletion of a cluster: removes its objects in order, then the finalizer.

use std::collections::BTreeSet;
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
use crate::namespace_access::{access_binding_key, ensure_access};
use crate::namespace_owner::OwnershipMarks;
use crate::observe::{ObservedCluster, control_plane_key, namespace_key};
use crate::queue::Requeue;
use crate::settings::OperatorRole;
use crate::status::{self, StatusInputs};
use crate::store::DesiredDigests;
use crate::watched_kinds::WatchedKind;

/// Reports the status of a cluster that is being deleted, and deletes its objects.
///
/// Workloads go before the objects that they mount, then the control plane, then its namespace. In a namespace
/// that stays, the operator's own RoleBinding goes last. Each reconciliation does the possible step; watches
/// trigger the next one. Broken identities are still reported, because other operators clean up with them.
pub(crate) async fn reconcile_deletion(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    classification: &ClusterClassification,
    applier: ObjectApplier<'_>,
) -> Result<Requeue, ReconcileError> {
    let inputs = match classification {
        // No ids are generated for a cluster that is being deleted.
        ClusterClassification::OtherKind(_) | ClusterClassification::LacksIds { .. } => {
            return Ok(Requeue::OnChange);
        }
        ClusterClassification::Invalid(problems) => StatusInputs::of_invalid(problems),
        ClusterClassification::Valid(valid) => StatusInputs::of(valid),
    };
    let (dependents, unknown) = match fetch_deletion_dependents(context, observed).await {
        Ok(dependents) => (dependents, None),
        Err(error) => (None, Some(error)),
    };
    let evaluated = status::evaluate_status(context, observed, &inputs, dependents);
    let reported =
        status::report_status(context, observed, &evaluated, applier.fencing_token).await;
    if let Some(error) = unknown {
        return Err(error.into());
    }
    let requeue = match &evaluated.deletion_status {
        Some(deletion_status) if deletion_status.is_unblocked() => {
            delete_owned_objects(context, observed, applier).await?
        }
        Some(_) => Requeue::After(DELETION_POLL_INTERVAL),
        None => evaluated.next_change.requeue(observed.now),
    };
    reported?;
    Ok(requeue)
}

/// Whether the operator deletes the objects of this cluster when the HostedCluster is deleted. In role
/// `identity-only` it deletes nothing, even if an earlier role added the finalizer.
pub(crate) fn deletes_objects(role: OperatorRole, observed: &ObservedCluster) -> bool {
    role == OperatorRole::All && finalizer::has_finalizer(observed)
}

/// Deletes the objects of a cluster as far as possible now.
async fn delete_owned_objects(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    applier: ObjectApplier<'_>,
) -> Result<Requeue, ReconcileError> {
    let errors = unlisted_kind_errors(context, observed);
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
        let unrendered = BTreeSet::new();
        let pruning =
            PruneScope::OwnedBy { cluster_label: &label, owner_uid, unrendered: &unrendered };
        let changes = take_first_kind(diff_objects(&known.observed, &[], pruning));
        if !changes.is_empty() {
            ensure_access(context, observed, applier).await?;
            let applied = applier.apply_changes(changes).await;
            let errors: Vec<_> = applied.failures.into_iter().map(|(_, error)| error).collect();
            return match errors.is_empty() {
                _ if applied.is_lease_lost => Err(ReconcileError::NotLeader),
                true => Ok(Requeue::Now),
                false => Err(ReconcileError::Calls(errors)),
            };
        }
    }
    // An unread object may belong to the cluster: keep the control plane until all are read.
    if !found.errors.is_empty() {
        return Err(ReconcileError::Calls(found.errors));
    }
    // A namespace that existed before may contain objects of others.
    let marks = context.stores.ownership_marks(&observed.namespace);
    let is_created = marks.as_ref().is_some_and(OwnershipMarks::is_created);
    let control_plane = control_plane_key(&observed.key, &observed.namespace);
    // The operator deletes the control plane with the permissions of its RoleBinding.
    let last = if is_created {
        namespace_key(&observed.namespace)
    } else {
        access_binding_key(&observed.namespace)
    };
    for key in [control_plane, last] {
        let Some(object) = known.observed.get(&key).filter(|it| is_made_for(it, observed, &label))
        else {
            continue;
        };
        if !object.is_deleting() {
            if key.kind == OwnedKind::HostedControlPlane {
                ensure_access(context, observed, applier).await?;
            }
            applier.delete_object(&key, object.uid.clone(), None).await?;
        }
        if context.stores.uid(&observed.namespace, &key).is_some() {
            // The watch triggers a reconciliation once it is deleted.
            return Ok(Requeue::After(DELETION_POLL_INTERVAL));
        }
    }
    if marks.is_some() && !is_created {
        tracing::info!(
            cluster = %observed.key,
            namespace = observed.namespace,
            "keeping the namespace, which the operator did not create"
        );
    }
    finalizer::remove_finalizer(context, observed, applier.fencing_token).await?;
    Ok(Requeue::OnChange)
}

/// Fetches the objects that block the deletion; `None` if the operator deletes no objects.
async fn fetch_deletion_dependents(
    context: &ReconcileContext,
    observed: &ObservedCluster,
) -> Result<Option<Dependents>, ApiError> {
    if !deletes_objects(context.settings.role, observed) {
        return Ok(None);
    }
    // A user may force the deletion because these lists fail.
    if observed.cluster.is_deletion_forced {
        return Ok(Some(Dependents::default()));
    }
    fetch_dependents(context, observed).await.map(Some)
}

/// Errors for kinds that must be listed before the finalizer may go, because their objects are deleted
/// last. All other objects go with the control plane, which owns them.
fn unlisted_kind_errors(context: &ReconcileContext, observed: &ObservedCluster) -> Vec<ApiError> {
    let binds_itself = context.settings.service_account.is_some();
    let is_last = |kind: WatchedKind| match kind {
        WatchedKind::Owned(OwnedKind::HostedControlPlane | OwnedKind::Namespace) => true,
        WatchedKind::Owned(OwnedKind::RoleBinding) => binds_itself,
        _ => false,
    };
    let unlisted = observed.unavailable_kinds.iter().filter(|it| it.is_skipped && is_last(it.kind));
    let errors = unlisted.map(|it| it.error.clone());
    errors.filter(|error| !matches!(error, ApiError::NotServed { .. })).collect()
}

/// How often the operator checks a deletion, in case a watch missed an event.
const DELETION_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Whether an object was created for this cluster, and not for another one with the same name.
fn is_made_for(object: &ObservedObject, observed: &ObservedCluster, label: &str) -> bool {
    let annotation = object.value.pointer("/metadata/annotations");
    let annotation = annotation
        .and_then(|all| all.get(lanyard_api::HostedCluster::CLUSTER_ANNOTATION))
        .and_then(serde_json::Value::as_str);
    has_ownership_labels(&object.value, label)
        && annotation == Some(observed.key.to_string().as_str())
}

/// The leading deletions of one kind; kinds are deleted in the reverse order of their creation.
fn take_first_kind(changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
    let first = changes.first().map(|change| change.key().kind);
    changes.into_iter().take_while(|change| Some(change.key().kind) == first).collect()
}
