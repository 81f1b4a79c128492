//! The end of a cluster: what was made for it goes, in order, and then the cluster may.

use std::time::Duration;

use lanyard_desired::deletion::Guests;
use lanyard_desired::objects::{Owner, cluster_label, is_ours};
use lanyard_desired::{Change, ObservedObject, OwnedKind, Pruning, diff};
use lanyard_kubernetes::ApiError;

use crate::apply::Applier;
use crate::claim::Marks;
use crate::context::Context;
use crate::error::ReconcileError;
use crate::finalizer;
use crate::guests::fetch_guests;
use crate::judge::Judgement;
use crate::kinds::WatchedKind;
use crate::observe::{Observed, control_plane_key, namespace_key};
use crate::queue::Again;
use crate::read::fetch_objects;
use crate::settings::Role;
use crate::status::{self, Heard};
use crate::store::Wished;

/// Tells how a cluster that goes is, and takes away what was made for it.
///
/// Workloads go before what they mount, then the control plane, then its namespace. Each look does
/// what can be done now; the watches tell when the next one can. Whatever breaks meanwhile is told:
/// others still clean up with these identities.
pub(crate) async fn let_go(
    context: &Context,
    observed: &Observed,
    judgement: &Judgement,
    applier: Applier<'_>,
) -> Result<Again, ReconcileError> {
    let heard = match judgement {
        Judgement::NotOurs(_) => return Ok(Again::OnChange),
        Judgement::Unusable(problems) => Heard::of_unusable(problems),
        Judgement::Usable(usable) => Heard::of(usable),
    };
    let (guests, unknown) = match guests(context, observed).await {
        Ok(guests) => (guests, None),
        Err(error) => (None, Some(error)),
    };
    let look = status::look(context, observed, &heard, guests);
    let told = status::tell(context, observed, &look, applier.fence).await;
    if let Some(error) = unknown {
        return Err(error.into());
    }
    let again = match &look.parting {
        Some(parting) if parting.may_go() => take_away(context, observed, applier).await?,
        Some(_) => Again::In(LOOK_AGAIN),
        None => look.next.again(observed.now),
    };
    told?;
    Ok(again)
}

/// Takes away what was made for a cluster, as far as that can be done now.
async fn take_away(
    context: &Context,
    observed: &Observed,
    applier: Applier<'_>,
) -> Result<Again, ReconcileError> {
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
    // A namespace that somebody made before may have more in it than ours.
    let marks = context.stores.marks(&observed.namespace);
    let is_created = marks.as_ref().is_some_and(Marks::is_created);
    let control_plane = control_plane_key(&observed.key, &observed.namespace);
    let namespace = is_created.then(|| namespace_key(&observed.namespace));
    for key in [Some(control_plane), namespace].into_iter().flatten() {
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
    if marks.is_some() && !is_created {
        tracing::info!(cluster = %observed.key, namespace = observed.namespace, "the namespace stays");
    }
    finalizer::remove(context, observed, applier.fence).await?;
    Ok(Again::OnChange)
}

/// What the end of a cluster waits for; nothing where nobody waits for us.
async fn guests(context: &Context, observed: &Observed) -> Result<Option<Guests>, ApiError> {
    // Who writes only the status takes nothing away, whatever an earlier role left behind.
    if context.settings.role == Role::IdentityOnly || !finalizer::is_held(observed) {
        return Ok(None);
    }
    // Whoever forces the end may do so because the lists fail.
    if observed.cluster.is_end_forced {
        return Ok(Some(Guests::default()));
    }
    fetch_guests(context, observed).await.map(Some)
}

/// Why nobody knows whether what comes last is there: its kind was never listed. All else goes with
/// the namespace.
fn unlisted(observed: &Observed) -> Vec<ApiError> {
    let last = [OwnedKind::HostedControlPlane, OwnedKind::Namespace].map(WatchedKind::Owned);
    let unlisted = observed.lacking.iter().filter(|it| it.is_left_out && last.contains(&it.kind));
    let errors = unlisted.map(|it| it.error.clone());
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
