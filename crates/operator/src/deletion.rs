//! The end of a cluster: what was made for it goes, in order, and then the cluster may.

use std::time::Duration;

use lanyard_desired::deletion::{self, Guests, Parting};
use lanyard_desired::objects::{Owner, cluster_label, is_ours};
use lanyard_desired::{Change, ObjectKey, ObservedObject, OwnedKind, Pruning, diff};
use lanyard_kubernetes::ApiError;

use crate::apply::Applier;
use crate::context::Context;
use crate::error::ReconcileError;
use crate::finalizer;
use crate::guests::fetch_guests;
use crate::judge::Judgement;
use crate::observe::{Observed, control_plane_key};
use crate::queue::Again;
use crate::read::fetch_objects;
use crate::status;
use crate::store::Wished;

/// Takes away what was made for a cluster that goes.
///
/// Workloads go before what they mount, then the control plane, then its namespace. Each look does
/// what can be done now; the watches tell when the next one can.
pub(crate) async fn let_go(
    context: &Context,
    observed: &Observed,
    judgement: &Judgement,
    applier: Applier<'_>,
) -> Result<Again, ReconcileError> {
    if !finalizer::is_held(observed) {
        return Ok(Again::OnChange);
    }
    let parting = parting(context, observed, judgement).await?;
    status::tell_parting(context, observed, &parting, applier.fence).await?;
    if !parting.may_go() {
        return Ok(Again::In(LOOK_AGAIN));
    }
    let errors = unlisted(observed);
    if !errors.is_empty() {
        return Err(ReconcileError::Calls(errors));
    }
    let mut known = context.stores.unsettled(&observed.namespace, &Wished::new());
    let found =
        fetch_objects(applier.api, applier.stores, std::mem::take(&mut known.unknown)).await;
    known.observed.extend(found.objects);
    let label = cluster_label(observed.key.name());
    if let Owner::Known(owner_uid) = &observed.owner {
        let pruning = Pruning::Of { cluster_label: &label, owner_uid };
        let changes = first_kind(diff(&known.observed, &[], pruning));
        if !changes.is_empty() {
            let applied = applier.apply(changes).await;
            let errors: Vec<_> = applied.failures.into_iter().map(|(_, error)| error).collect();
            return match errors.is_empty() {
                _ if applied.is_cut_short => Err(ReconcileError::NotLeader),
                true => Ok(Again::Now),
                false => Err(ReconcileError::Calls(errors)),
            };
        }
    }
    // What cannot be read may be ours: what holds it stays until somebody knows.
    if !found.errors.is_empty() {
        return Err(ReconcileError::Calls(found.errors));
    }
    let namespace =
        ObjectKey { kind: OwnedKind::Namespace, namespace: None, name: observed.namespace.clone() };
    for key in [control_plane_key(&observed.key, &observed.namespace), namespace] {
        let Some(object) = known.observed.get(&key).filter(|it| is_of(it, observed, &label)) else {
            continue;
        };
        if !object.is_deleting() {
            applier.delete(&key, object.uid.clone(), None).await?;
        }
        if context.stores.uid(&observed.namespace, &key).is_some() {
            // The watch tells when it is gone.
            return Ok(Again::In(LOOK_AGAIN));
        }
    }
    finalizer::remove(context, observed, applier.fence).await?;
    Ok(Again::OnChange)
}

/// What the end waits for and leaves behind. Of a cluster that cannot be used nobody knows what it
/// leaves.
async fn parting(
    context: &Context,
    observed: &Observed,
    judgement: &Judgement,
) -> Result<Parting, ApiError> {
    // Whoever forces the end may do so because the lists fail.
    let is_forced = observed.cluster.is_end_forced;
    let guests =
        if is_forced { Guests::default() } else { fetch_guests(context, observed).await? };
    let Judgement::Usable(usable) = judgement else {
        return Ok(Parting::of_unusable(guests, is_forced));
    };
    let told = observed.previous.as_ref().and_then(|told| told.status.as_ref());
    Ok(deletion::parting(&usable.cluster, told, guests, is_forced))
}

/// Why nobody knows whether what comes last is there: its kind was never listed. All else goes with
/// the namespace.
fn unlisted(observed: &Observed) -> Vec<ApiError> {
    let last = [OwnedKind::HostedControlPlane, OwnedKind::Namespace];
    let unusable = observed.unusable.iter().filter(|(kind, _)| last.contains(kind));
    let errors = unusable.map(|(_, error)| error.clone());
    errors.filter(|error| !matches!(error, ApiError::NotServed { .. })).collect()
}

/// How often somebody looks for what the watch may have missed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Whether an object was made for this cluster, and not for another one of the same name.
fn is_of(object: &ObservedObject, observed: &Observed, label: &str) -> bool {
    let annotation = object.value.pointer("/metadata/annotations");
    let annotation = annotation
        .and_then(|all| all.get(lanyard_api::HostedCluster::CLUSTER_ANNOTATION))
        .and_then(serde_json::Value::as_str);
    is_ours(&object.value, label) && annotation == Some(observed.key.to_string().as_str())
}

/// What goes first: the objects of one kind, in the opposite order of their making.
fn first_kind(changes: Vec<Change>) -> Vec<Change> {
    let first = changes.first().map(|change| change.key().kind);
    changes.into_iter().take_while(|change| Some(change.key().kind) == first).collect()
}
