//! One look at one cluster: observe, validate, desire, compare, apply, tell.

use std::ops::ControlFlow;
use std::time::Duration;

use lanyard_desired::ValidationProblems;
use lanyard_desired::drift::ChangedObject;
use lanyard_kubernetes::ApiError;

use crate::apply::ObjectApplier;
use crate::classification::{ClusterClassification, ClusterPause, ValidCluster, classify_cluster};
use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::deletion;
use crate::encryption_key::{self, KeyPromotion, KeyRecordOutcome};
use crate::error::ReconcileError;
use crate::finalizer::{self, FinalizerOutcome};
use crate::lease::FencingToken;
use crate::namespace_owner::{self, NamespaceOwner};
use crate::objects::{NamespaceAge, compare_objects, objects_with_conflicts};
use crate::observe::{ObservedCluster, control_plane_key, observe};
use crate::queue::Requeue;
use crate::settings::OperatorRole;
use crate::status::{self, StatusInputs};

/// Looks at a cluster, makes what it should have and tells how its identities are.
pub(crate) async fn reconcile(
    context: &ReconcileContext,
    key: &ClusterKey,
    fence: &FencingToken,
) -> Result<Requeue, ReconcileError> {
    let Some(mut observed) = observe(context, key) else {
        context.forget_cluster(key);
        return Ok(Requeue::OnChange);
    };
    let ReconcileContext { api, stores, metrics, .. } = context;
    let applier = ObjectApplier { api, stores, metrics, fencing_token: fence };
    if !observed.cluster.is_deleting {
        namespace_owner::read_namespace_owner(context, &mut observed).await;
    }
    let judgement = classify_cluster(&observed, &context.settings);
    if observed.cluster.is_deleting {
        return deletion::reconcile_deletion(context, &observed, &judgement, applier).await;
    }
    match &judgement {
        ClusterClassification::OtherKind(_) => Ok(Requeue::OnChange),
        ClusterClassification::Invalid(problems) => {
            let heard = StatusInputs::of_invalid(problems);
            let look = status::evaluate_status(context, &observed, &heard, None);
            let held = status::report_status(context, &observed, &look, fence).await?;
            let held = held.map(|due| context.wall_time(due));
            Ok(look.next_change.or_earlier(held).requeue(observed.now))
        }
        ClusterClassification::Valid(usable) => {
            let made = apply_cluster(context, &observed, usable, applier).await;
            if made.as_ref().is_ok_and(|made| made.requeue_now) {
                // All that there is to tell yet is how much is missing.
                return Ok(Requeue::Now);
            }
            let left = list_unapplied_changes(context, &observed, made.as_ref().ok());
            let heard = match &made {
                Ok(ApplyOutcome { blocking_problems: Some(problems), .. }) => {
                    StatusInputs::of_invalid(problems)
                }
                _ => StatusInputs { unapplied_changes: &left, ..StatusInputs::of(usable) },
            };
            // What was written is there, and is no news to the watch.
            let has_written = made.as_ref().is_ok_and(|made| made.has_written);
            let after = if has_written { observe(context, key) } else { None };
            let observed = after.unwrap_or(observed);
            let look = status::evaluate_status(context, &observed, &heard, None);
            // What failed keeps nobody from being told how the identities are.
            let told = status::report_status(context, &observed, &look, fence).await;
            let made = made?;
            let held =
                made.backoff_until.into_iter().chain(told.as_ref().ok().copied().flatten()).min();
            let next = look.next_change.or_earlier(held.map(|due| context.wall_time(due)));
            let again = made.requeue(next, usable.pause, &observed);
            told?;
            again
        }
    }
}

/// What became of the objects of a cluster.
#[derive(Debug, Default)]
struct ApplyOutcome {
    unapplied_changes: Vec<ChangedObject>,
    error: Option<ReconcileError>,
    has_written: bool,
    /// When what is contested may be written again, by the monotonic clock.
    backoff_until: Option<Duration>,
    /// What everything else waited for is there now: there is more to do at once.
    requeue_now: bool,
    /// Why nothing was made, though the cluster by itself can be used.
    blocking_problems: Option<ValidationProblems>,
    /// The API servers are waited for: nobody tells when they have rolled.
    awaits_rollout: bool,
}

/// What there is before any object is made.
#[derive(Debug, Default)]
struct ApplyPreconditions {
    /// The keys that encrypt are not recorded: the carriers stay as they are.
    skips_encryption_objects: bool,
    /// Why they could not be recorded.
    record_errors: Vec<ApiError>,
    namespace: NamespaceAge,
    /// When what is contested may be written again, by the monotonic clock.
    backoff_until: Option<Duration>,
}

/// Makes what the cluster should have.
async fn apply_cluster(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
    applier: ObjectApplier<'_>,
) -> Result<ApplyOutcome, ReconcileError> {
    if context.settings.role == OperatorRole::IdentityOnly {
        return Ok(ApplyOutcome::default());
    }
    if let NamespaceOwner::Unknown(error) = &observed.namespace_owner {
        return Err(error.clone().into());
    }
    let ground = match establish_preconditions(context, observed, usable, applier).await? {
        ControlFlow::Continue(ground) => ground,
        ControlFlow::Break(made) => return Ok(made),
    };
    let made = apply_objects(context, observed, usable, applier, &ground).await;
    if !made.requeue_now {
        return Ok(made);
    }
    // The control plane owns everything else, and another look would come after those of all clusters
    // that wait. What is wished anew meanwhile takes a look from the beginning: its keys come first.
    let same = |it: &ObservedCluster| {
        it.cluster.has_same_spec(&observed.cluster) && !it.cluster.is_deleting
    };
    let Some(observed) = observe(context, &observed.key).filter(same) else { return Ok(made) };
    match classify_cluster(&observed, &context.settings) {
        ClusterClassification::Valid(usable) if usable.pause == ClusterPause::None => {
            let rest = apply_objects(context, &observed, &usable, applier, &ground).await;
            Ok(ApplyOutcome { has_written: true, ..rest })
        }
        _ => Ok(made),
    }
}

/// Makes everything ready for the objects, or says why there will be none at this look.
async fn establish_preconditions(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
    applier: ObjectApplier<'_>,
) -> Result<ControlFlow<ApplyOutcome, ApplyPreconditions>, ReconcileError> {
    let mut ground = ApplyPreconditions::default();
    if usable.pause != ClusterPause::None {
        return Ok(ControlFlow::Continue(ground));
    }
    let added = finalizer::add_finalizer(context, observed, applier.fencing_token).await?;
    if observed.namespace_owner == NamespaceOwner::Absent {
        namespace_owner::create_namespace(observed, applier).await?;
        ground.namespace = NamespaceAge::New;
    }
    if added == FinalizerOutcome::Added && encryption_key::lacks_key_record(context, usable) {
        // The record goes on from another version than was looked at: from the one that the answer
        // told, or from what the watch has yet to tell.
        let is_known =
            observe(context, &observed.key).is_some_and(|it| finalizer::has_finalizer(&it));
        return Ok(ControlFlow::Break(ApplyOutcome {
            requeue_now: is_known,
            ..ApplyOutcome::default()
        }));
    }
    if let FinalizerOutcome::BackoffUntil(until) = added {
        ground.backoff_until = Some(until);
    }
    match encryption_key::record_key(context, observed, usable, applier.fencing_token).await? {
        KeyRecordOutcome::Unchanged => {}
        KeyRecordOutcome::Changed => return Ok(ControlFlow::Break(ApplyOutcome::default())),
        KeyRecordOutcome::Pending { errors, backoff_until: until, is_needed } => {
            ground.backoff_until = ground.backoff_until.into_iter().chain(until).min();
            (ground.record_errors, ground.skips_encryption_objects) = (errors, is_needed);
        }
        KeyRecordOutcome::KeyLost(problem) => {
            let lost = Some(ValidationProblems::from_iter([problem]));
            return Ok(ControlFlow::Break(ApplyOutcome {
                blocking_problems: lost,
                ..ApplyOutcome::default()
            }));
        }
    }
    Ok(ControlFlow::Continue(ground))
}

/// Compares the objects with what is desired, and makes them so.
async fn apply_objects(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
    applier: ObjectApplier<'_>,
    ground: &ApplyPreconditions,
) -> ApplyOutcome {
    let mut comparison =
        compare_objects(context, observed, usable, applier, ground.namespace).await;
    let mut errors = std::mem::take(&mut comparison.errors);
    errors.extend(ground.record_errors.iter().cloned());
    if usable.pause != ClusterPause::None {
        let error = (!errors.is_empty()).then_some(ReconcileError::Calls(errors));
        return ApplyOutcome {
            unapplied_changes: comparison.unapplied_changes(),
            error,
            ..ApplyOutcome::default()
        };
    }
    // What else is contested or refused keeps no key from writing.
    let carriers = encryption_key::encryption_objects(&observed.namespace);
    if ground.skips_encryption_objects {
        comparison.skip_objects(&carriers);
    }
    let has_keys = !ground.skips_encryption_objects
        && carriers.iter().all(|carrier| comparison.is_in_sync(carrier));
    let control_plane = control_plane_key(&observed.key, &observed.namespace);
    let (applied, due) = comparison.apply_changes(context, observed, applier).await;
    let left = objects_with_conflicts(&applied.failures);
    let mut held = ground.backoff_until.into_iter().chain(due).min();
    let has_written = !applied.written.is_empty();
    let has_owner = applied.written.contains(&control_plane);
    errors.extend(applied.failures.into_iter().map(|(_, error)| error));
    let mut is_cut_short = applied.is_lease_lost;
    let mut awaits_rollout = encryption_key::awaits_promotion(context, usable);
    if awaits_rollout && has_keys && !is_cut_short {
        match encryption_key::promote_key(context, observed, usable, applier.fencing_token).await {
            Ok(KeyPromotion { record_outcome: recorded, awaits_rollout: awaits }) => {
                awaits_rollout = awaits;
                match recorded {
                    KeyRecordOutcome::Pending { errors: refused, backoff_until: until, .. } => {
                        errors.extend(refused);
                        held = held.into_iter().chain(until).min();
                    }
                    KeyRecordOutcome::Unchanged
                    | KeyRecordOutcome::Changed
                    | KeyRecordOutcome::KeyLost(_) => {}
                }
            }
            Err(ReconcileError::Calls(refused)) => errors.extend(refused),
            Err(ReconcileError::NotLeader | ReconcileError::Panicked) => is_cut_short = true,
        }
    }
    let goes_on = has_owner && observed.owner.uid().is_none() && errors.is_empty() && !is_cut_short;
    let error = if is_cut_short {
        Some(ReconcileError::NotLeader)
    } else {
        (!errors.is_empty()).then_some(ReconcileError::Calls(errors))
    };
    ApplyOutcome {
        unapplied_changes: left,
        error,
        has_written,
        backoff_until: held,
        requeue_now: goes_on,
        awaits_rollout,
        blocking_problems: None,
    }
}

/// What stays different, or does not stay as it is made, because of others.
fn list_unapplied_changes(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    made: Option<&ApplyOutcome>,
) -> Vec<ChangedObject> {
    let mut left = made.map(|made| made.unapplied_changes.clone()).unwrap_or_default();
    let now = context.api.clock().monotonic();
    let contested = context.conflict_backoff.lock().conflicts(&observed.key, now).into_iter();
    let is_told = |it: &ChangedObject| left.iter().any(|told| told.object == it.object);
    let contested: Vec<_> = contested.filter(|it| !is_told(it)).collect();
    left.extend(contested);
    left
}

impl ApplyOutcome {
    /// When to look again.
    fn requeue(
        self,
        look: status::NextStatusChange,
        pause: ClusterPause,
        observed: &ObservedCluster,
    ) -> Result<Requeue, ReconcileError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let end = match pause {
            ClusterPause::Until(end) => Some(end),
            ClusterPause::None | ClusterPause::Indefinite if self.awaits_rollout => {
                observed.now.checked_add(ROLLOUT_POLL_INTERVAL).ok()
            }
            ClusterPause::None | ClusterPause::Indefinite => None,
        };
        Ok(look.or_earlier(end).requeue(observed.now))
    }
}

/// How often somebody looks whether the API servers have rolled.
const ROLLOUT_POLL_INTERVAL: Duration = Duration::from_secs(15);
