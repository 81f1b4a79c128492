//! Undoes a run that has not ended: deletes what it created, and restores what it changed or deleted.

use crate::destroy::remove_resource;
use crate::destroy_plan::DestroyedResource;
use crate::effect::EffectAccess;
use crate::graph_run::run_graph;
use crate::journal::{JournalError, WriteKind};
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_evidence::OwnershipEvidence;
use crate::resource_error::ResourceError;
use crate::resource_key::Ownership;
use crate::roll_back_plan::{RestoreWrite, RestoredResource, RollBackPlan};
use crate::run_context::RunContext;
use crate::run_progress::{RunProgress, StepProgress};
use crate::run_report::{ResourceOutcome, RunReport};
use crate::step::{Attempts, Deletion, DeletionResult, Step, WriteBodies};

/// Undoes an unfinished run. The roll-back can be interrupted and run again at any point, also as an ordinary run.
///
/// # Errors
///
/// [`JournalError`] if the end of the roll-back cannot be recorded. Errors of single writes are in the report.
pub async fn roll_back<A: EffectAccess>(
    context: RunContext<'_, A>,
    plan: &RollBackPlan,
) -> Result<RunReport, JournalError> {
    let RunContext { journal, clock, options, .. } = context;
    let progress = RunProgress::begin(context);
    let removed = plan.removed.resources.iter().map(DestroyedResource::node::<A>);
    let nodes = plan.restored.iter().map(RestoredResource::node::<A>).chain(removed).collect();
    let results = run_graph(nodes, options.parallel, async |key| {
        if let Some(restored) = plan.restored.iter().find(|it| it.key == key) {
            return restore_resource(context, restored, &progress).await;
        }
        match plan.removed.resources.iter().find(|it| it.key == key) {
            Some(removed) => remove_resource(context, &plan.removed, removed, &progress).await,
            None => Ok(ResourceOutcome::Unchanged),
        }
    });
    let outcomes = results.await.into_iter().map(|(key, result)| (key, result.into())).collect();
    let (timings, live) = (progress.into_timings(), LiveState::default());
    let report = RunReport { outcomes, timings, live };
    if report.succeeded() {
        journal.end_run(clock.now(), &plan.stacks).await?;
    }
    Ok(report)
}

/// Gives one resource the properties it had before the run.
async fn restore_resource<A: EffectAccess>(
    context: RunContext<'_, A>,
    resource: &RestoredResource,
    progress: &RunProgress<'_>,
) -> Result<ResourceOutcome, ResourceError> {
    let RestoredResource { key, stack, id, record, .. } = resource;
    let step = Step { context, key, stack, depends_on: &record.depends_on };
    let live = context.access.read(id).await?;
    if let Some(live) = live.as_ref().filter(|live| !is_ours(context, resource, live)) {
        step.record(live, Ownership::Existing).await?;
        return Ok(ResourceOutcome::Kept);
    }
    let write = resource.write::<A>(live.as_ref().map(|live| &live.body));
    let (word, kind, outcome) = match (write, live) {
        (RestoreWrite::None, Some(live)) => {
            step.record(&live, record.ownership).await?;
            return Ok(ResourceOutcome::Unchanged);
        }
        (RestoreWrite::None | RestoreWrite::Impossible, _) => {
            return Err(ResourceError::NotRestorable { id: id.clone() });
        }
        _ if !context.access.may_restore(id, &resource.body(None)) => {
            return Err(ResourceError::UnknownPrincipal { id: id.clone() });
        }
        (RestoreWrite::Create, _) => ("create", WriteKind::Create, ResourceOutcome::Created),
        (RestoreWrite::Update, _) => ("update", WriteKind::Update, ResourceOutcome::Updated),
        (RestoreWrite::Replace, _) => ("replace", WriteKind::Create, ResourceOutcome::Replaced),
    };
    let progress = progress.start(key, word);
    let restore = async {
        if write == RestoreWrite::Replace {
            delete_replacement(&step, resource, &progress).await?;
        }
        write_restored(&step, resource, kind, &progress).await
    };
    let restored = context.journal.while_writable(restore).await;
    progress.finish(restored).map(|()| outcome)
}

/// Deletes the resource that the run created in the place of this one.
async fn delete_replacement<A: EffectAccess>(
    step: &Step<'_, A>,
    resource: &RestoredResource,
    progress: &StepProgress<'_>,
) -> Result<(), ResourceError> {
    let (id, state) = (&resource.id, step.context.journal.state());
    let deletion = Deletion { id, record: state.get(step.key), contained: &[], before: None };
    match step.delete(deletion, progress).await? {
        DeletionResult::Deleted => Ok(()),
        DeletionResult::Kept => Err(ResourceError::NotOurs { id: id.clone() }),
    }
}

/// Announces the write, sends it until the service accepts or rejects it, and records the result.
async fn write_restored<A: EffectAccess>(
    step: &Step<'_, A>,
    resource: &RestoredResource,
    kind: WriteKind,
    progress: &StepProgress<'_>,
) -> Result<(), ResourceError> {
    step.announce(&resource.id, kind, WriteBodies::default()).await?;
    let mut attempts = Attempts::begin(step.context);
    let restored = loop {
        match attempt(step, resource, progress).await {
            Err(ResourceError::Rejected(error)) => {
                if let Err(error) = attempts.pause_after(error, progress).await {
                    break Err(error);
                }
            }
            written => break written,
        }
    };
    if let (WriteKind::Create, Err(ResourceError::Rejected(error))) = (kind, &restored) {
        step.retract_creation(&resource.id, error).await?;
    }
    let restored = restored?;
    Ok(step.record(&restored, resource.record.ownership).await?)
}

/// Sends the write once, and follows it.
async fn attempt<A: EffectAccess>(
    step: &Step<'_, A>,
    resource: &RestoredResource,
    progress: &StepProgress<'_>,
) -> Result<LiveResource, ResourceError> {
    let (id, access) = (&resource.id, step.context.access);
    let live = access.read(id).await?;
    if live.as_ref().is_some_and(|live| !is_ours(step.context, resource, live)) {
        return Err(ResourceError::NotOurs { id: id.clone() });
    }
    let body = resource.body(live.as_ref().map(|live| &live.body));
    let write = access.restore(id, &body, live.as_ref()).await?;
    let body = step.follow(write, progress).await?;
    Ok(A::live_resource(id, body))
}

/// Whether the live resource is the one before the run, or the one that the run created in its place.
fn is_ours<A>(
    context: RunContext<'_, A>,
    resource: &RestoredResource,
    live: &LiveResource,
) -> bool {
    let state = context.journal.state();
    let replacement = state.get(&resource.key);
    [Some(&resource.record), replacement]
        .into_iter()
        .any(|record| OwnershipEvidence::new(record, context.tags).is_ours(live))
}
