//! The reconciliation of one cluster: observe, validate, desire, compare, apply, report.

use std::ops::ControlFlow;
use std::time::Duration;

use lanyard_desired::drift::ChangedObject;
use lanyard_desired::{ValidationProblem, ValidationProblems};
use lanyard_kubernetes::ApiError;

use crate::apply::ObjectApplier;
use crate::classification::{ClusterClassification, ClusterPause, ValidCluster, classify_cluster};
use crate::cluster_ids::{self, MissingIds};
use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::deletion;
use crate::encryption_key::{self, KeyPromotion, KeyRecordOutcome};
use crate::error::{FencedWriteError, ReconcileError};
use crate::finalizer::{self, FinalizerOutcome};
use crate::lease::FencingToken;
use crate::namespace_access;
use crate::namespace_owner::{self, NamespaceOwner};
use crate::objects::{NamespaceAge, compare_objects, objects_with_conflicts};
use crate::observe::{ObservedCluster, control_plane_key, observe};
use crate::queue::Requeue;
use crate::settings::OperatorRole;
use crate::status::{self, StatusInputs};

/// Reconciles a cluster: applies its desired objects and reports the status of its identities.
pub(crate) async fn reconcile(
    context: &ReconcileContext,
    key: &ClusterKey,
    fencing_token: &FencingToken,
) -> Result<Requeue, ReconcileError> {
    let Some(mut observed) = observe(context, key) else {
        context.forget_cluster(key);
        return Ok(Requeue::OnChange);
    };
    let ReconcileContext { api, stores, metrics, .. } = context;
    let applier = ObjectApplier { api, stores, metrics, fencing_token };
    if !observed.cluster.is_deleting {
        namespace_owner::read_namespace_owner(context, &mut observed).await;
    }
    let classification = classify_cluster(&observed, &context.settings);
    if observed.cluster.is_deleting {
        return deletion::reconcile_deletion(context, &observed, &classification, applier).await;
    }
    match &classification {
        ClusterClassification::OtherKind(_) => Ok(Requeue::OnChange),
        ClusterClassification::LacksIds { missing, problems } => {
            generate_ids(context, &observed, *missing, problems, fencing_token).await
        }
        ClusterClassification::Invalid(problems) => {
            report_invalid_cluster(context, &observed, problems, fencing_token).await
        }
        ClusterClassification::Valid(valid) => {
            reconcile_valid_cluster(context, observed, valid, applier).await
        }
    }
}

/// Writes the ids that the cluster lacks. Reports a write that fails until an administrator acts, with the
/// other problems of the cluster: without its ids, the cluster gets no objects.
async fn generate_ids(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    missing: MissingIds,
    problems: &ValidationProblems,
    fencing_token: &FencingToken,
) -> Result<Requeue, ReconcileError> {
    let written = cluster_ids::write_missing_ids(context, observed, missing, fencing_token).await;
    let reported = if let Err(FencedWriteError::Api(error)) = &written
        && error.retry_class().is_permanent()
    {
        let problems: ValidationProblems =
            missing.write_failures(error).chain(problems.iter().cloned()).collect();
        report_invalid_cluster(context, observed, &problems, fencing_token).await.map(drop)
    } else {
        Ok(())
    };
    // An error of the report must not hide that of the write.
    written?;
    reported?;
    Ok(Requeue::OnChange)
}

/// Reports the problems of a cluster to which no objects are applied.
async fn report_invalid_cluster(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    problems: &ValidationProblems,
    fencing_token: &FencingToken,
) -> Result<Requeue, ReconcileError> {
    let inputs = StatusInputs::of_invalid(problems);
    let evaluated = status::evaluate_status(context, observed, &inputs, None);
    let backoff_until = status::report_status(context, observed, &evaluated, fencing_token).await?;
    let backoff_until = backoff_until.map(|due| context.wall_time(due));
    Ok(evaluated.next_change.or_earlier(backoff_until).requeue(observed.now))
}

/// Applies the objects of a valid cluster and reports its status.
async fn reconcile_valid_cluster(
    context: &ReconcileContext,
    observed: ObservedCluster,
    valid: &ValidCluster,
    applier: ObjectApplier<'_>,
) -> Result<Requeue, ReconcileError> {
    let outcome = apply_cluster(context, &observed, valid, applier).await;
    if outcome.as_ref().is_ok_and(|outcome| outcome.requeue_now) {
        // So far the status could only report missing objects.
        return Ok(Requeue::Now);
    }
    let unapplied_changes = list_unapplied_changes(context, &observed, outcome.as_ref().ok());
    let lints = outcome.iter().flat_map(|outcome| &outcome.lints);
    let problems: ValidationProblems = valid.problems.iter().chain(lints).cloned().collect();
    let inputs = match &outcome {
        Ok(ApplyOutcome { blocking_problems: Some(problems), .. }) => {
            StatusInputs::of_invalid(problems)
        }
        _ => StatusInputs {
            unapplied_changes: &unapplied_changes,
            problems: &problems,
            ..StatusInputs::of(valid)
        },
    };
    // Observe the written objects, because the watch ignores them.
    let has_written = outcome.as_ref().is_ok_and(|outcome| outcome.has_written);
    let after = if has_written { observe(context, &observed.key) } else { None };
    let observed = after.unwrap_or(observed);
    let evaluated = status::evaluate_status(context, &observed, &inputs, None);
    // An error while applying must not suppress the status report.
    let reported =
        status::report_status(context, &observed, &evaluated, applier.fencing_token).await;
    let outcome = outcome?;
    let backoff_until =
        outcome.backoff_until.into_iter().chain(reported.as_ref().ok().copied().flatten()).min();
    let next = evaluated.next_change.or_earlier(backoff_until.map(|due| context.wall_time(due)));
    let requeue = outcome.requeue(next, valid.pause, &observed);
    reported?;
    requeue
}

/// The result of applying the objects of a cluster.
#[derive(Debug, Default)]
struct ApplyOutcome {
    unapplied_changes: Vec<ChangedObject>,
    /// The referenced objects that cannot be copied.
    lints: Vec<ValidationProblem>,
    error: Option<ReconcileError>,
    has_written: bool,
    /// When the next write in back-off is due, on the monotonic clock.
    backoff_until: Option<Duration>,
    /// The owner of all other objects exists now: reconcile again immediately.
    requeue_now: bool,
    /// Why nothing was applied, although the HostedCluster itself is valid.
    blocking_problems: Option<ValidationProblems>,
    /// Whether an API server rollout is pending, which must be polled.
    awaits_rollout: bool,
}

/// The state established before any object is applied.
#[derive(Debug, Default)]
struct ApplyPreconditions {
    /// Whether to skip the encryption objects, because the status does not record their keys yet.
    skips_encryption_objects: bool,
    /// Why the keys could not be recorded.
    record_errors: Vec<ApiError>,
    namespace: NamespaceAge,
    /// When the next write in back-off is due, on the monotonic clock.
    backoff_until: Option<Duration>,
}

/// Applies the desired objects of the cluster.
async fn apply_cluster(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    applier: ObjectApplier<'_>,
) -> Result<ApplyOutcome, ReconcileError> {
    if context.settings.role == OperatorRole::IdentityOnly {
        return Ok(ApplyOutcome::default());
    }
    if let NamespaceOwner::Unknown(error) = &observed.namespace_owner {
        return Err(error.clone().into());
    }
    let preconditions = match establish_preconditions(context, observed, valid, applier).await? {
        ControlFlow::Continue(preconditions) => preconditions,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    let outcome = apply_objects(context, observed, valid, applier, &preconditions).await;
    if !outcome.requeue_now {
        return Ok(outcome);
    }
    // The control plane owns everything else. Apply the rest now: a requeue would wait behind all queued
    // clusters. After a spec change, start over, because the keys must be recorded first.
    let same = |it: &ObservedCluster| {
        it.cluster.has_same_spec(&observed.cluster) && !it.cluster.is_deleting
    };
    let Some(observed) = observe(context, &observed.key).filter(same) else { return Ok(outcome) };
    match classify_cluster(&observed, &context.settings) {
        ClusterClassification::Valid(valid) if valid.pause == ClusterPause::None => {
            let rest = apply_objects(context, &observed, &valid, applier, &preconditions).await;
            Ok(ApplyOutcome { has_written: true, ..rest })
        }
        _ => Ok(outcome),
    }
}

/// Adds the finalizer, creates the namespace with the operator's permissions in it and records the keys, or
/// breaks with the outcome if no object can be applied in this reconciliation.
async fn establish_preconditions(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    applier: ObjectApplier<'_>,
) -> Result<ControlFlow<ApplyOutcome, ApplyPreconditions>, ReconcileError> {
    let mut preconditions = ApplyPreconditions::default();
    if valid.pause != ClusterPause::None {
        return Ok(ControlFlow::Continue(preconditions));
    }
    let added = finalizer::add_finalizer(context, observed, applier.fencing_token).await?;
    if observed.namespace_owner == NamespaceOwner::Absent {
        namespace_owner::create_namespace(observed, applier).await?;
        namespace_access::ensure_access(context, observed, applier).await?;
        preconditions.namespace = NamespaceAge::New;
    }
    if added == FinalizerOutcome::Added && encryption_key::lacks_key_record(context, valid) {
        // The key record must build on the version after the finalizer, which either the response contained
        // or the watch has yet to deliver.
        let is_known =
            observe(context, &observed.key).is_some_and(|it| finalizer::has_finalizer(&it));
        return Ok(ControlFlow::Break(ApplyOutcome {
            requeue_now: is_known,
            ..ApplyOutcome::default()
        }));
    }
    if let FinalizerOutcome::BackoffUntil(until) = added {
        preconditions.backoff_until = Some(until);
    }
    match encryption_key::record_key(context, observed, valid, applier.fencing_token).await? {
        KeyRecordOutcome::Unchanged => {}
        KeyRecordOutcome::Changed => return Ok(ControlFlow::Break(ApplyOutcome::default())),
        KeyRecordOutcome::Pending { errors, backoff_until: until, is_needed } => {
            preconditions.backoff_until =
                preconditions.backoff_until.into_iter().chain(until).min();
            (preconditions.record_errors, preconditions.skips_encryption_objects) =
                (errors, is_needed);
        }
        KeyRecordOutcome::KeyLost(problem) => {
            let lost = Some(ValidationProblems::from_iter([problem]));
            return Ok(ControlFlow::Break(ApplyOutcome {
                blocking_problems: lost,
                ..ApplyOutcome::default()
            }));
        }
    }
    Ok(ControlFlow::Continue(preconditions))
}

/// Compares the objects with the desired ones and applies the differences.
async fn apply_objects(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    applier: ObjectApplier<'_>,
    preconditions: &ApplyPreconditions,
) -> ApplyOutcome {
    let mut comparison =
        compare_objects(context, observed, valid, applier, preconditions.namespace).await;
    let lints = std::mem::take(&mut comparison.lints);
    let mut errors = std::mem::take(&mut comparison.errors);
    errors.extend(preconditions.record_errors.iter().cloned());
    if valid.pause != ClusterPause::None {
        let error = (!errors.is_empty()).then_some(ReconcileError::Calls(errors));
        return ApplyOutcome {
            unapplied_changes: comparison.unapplied_changes(),
            lints,
            error,
            ..ApplyOutcome::default()
        };
    }
    // Conflicts and errors of other objects must not block the keys.
    let carriers = encryption_key::encryption_objects(&observed.namespace);
    if preconditions.skips_encryption_objects {
        comparison.skip_objects(&carriers);
    }
    let has_keys = !preconditions.skips_encryption_objects
        && carriers.iter().all(|carrier| comparison.is_in_sync(carrier));
    let control_plane = control_plane_key(&observed.key, &observed.namespace);
    let (applied, due) = comparison.apply_changes(context, observed, applier).await;
    let unapplied_changes = objects_with_conflicts(&applied.failures);
    let mut backoff_until = preconditions.backoff_until.into_iter().chain(due).min();
    let has_written = !applied.written.is_empty();
    let has_owner = applied.written.contains(&control_plane);
    errors.extend(applied.failures.into_iter().map(|(_, error)| error));
    let mut is_cut_short = applied.is_lease_lost;
    let mut awaits_rollout = encryption_key::awaits_promotion(context, valid);
    if awaits_rollout && has_keys && !is_cut_short {
        match encryption_key::promote_key(context, observed, valid, applier.fencing_token).await {
            Ok(KeyPromotion { record_outcome: recorded, awaits_rollout: awaits }) => {
                awaits_rollout = awaits;
                match recorded {
                    KeyRecordOutcome::Pending { errors: refused, backoff_until: until, .. } => {
                        errors.extend(refused);
                        backoff_until = backoff_until.into_iter().chain(until).min();
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
        unapplied_changes,
        lints,
        error,
        has_written,
        backoff_until,
        requeue_now: goes_on,
        awaits_rollout,
        blocking_problems: None,
    }
}

/// The objects that stay different or keep being changed because of other field managers.
fn list_unapplied_changes(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    outcome: Option<&ApplyOutcome>,
) -> Vec<ChangedObject> {
    let mut unapplied_changes =
        outcome.map(|outcome| outcome.unapplied_changes.clone()).unwrap_or_default();
    let now = context.api.clock().monotonic();
    let contested = context.conflict_backoff.lock().conflicts(&observed.key, now).into_iter();
    let is_listed =
        |it: &ChangedObject| unapplied_changes.iter().any(|listed| listed.object == it.object);
    let contested: Vec<_> = contested.filter(|it| !is_listed(it)).collect();
    unapplied_changes.extend(contested);
    unapplied_changes
}

impl ApplyOutcome {
    /// When to reconcile again.
    fn requeue(
        self,
        next_change: status::NextStatusChange,
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
            ClusterPause::None if !self.lints.is_empty() => {
                observed.now.checked_add(MISSING_REFERENCE_POLL_INTERVAL).ok()
            }
            ClusterPause::None | ClusterPause::Indefinite => None,
        };
        Ok(next_change.or_earlier(end).requeue(observed.now))
    }
}

/// How often the operator reads the referenced objects again of which one is missing.
const MISSING_REFERENCE_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How often the operator polls the rollout of the API servers.
const ROLLOUT_POLL_INTERVAL: Duration = Duration::from_secs(15);
