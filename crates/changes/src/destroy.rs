//! Removes the resources of a stack that the journal records as created or imported.

use std::collections::BTreeSet;

use crate::destroy_plan::{DestroyPlan, DestroyedResource};
use crate::effect::EffectAccess;
use crate::graph_run::run_graph;
use crate::journal::{JournalEntry, JournalError, RunCommand};
use crate::live_state::LiveState;
use crate::resource_error::ResourceError;
use crate::resource_key::{ResourceKey, StackName};
use crate::run_context::RunContext;
use crate::run_progress::RunProgress;
use crate::run_report::{ResourceOutcome, RunReport};
use crate::step::{Deletion, DeletionResult, Step};

/// Removes the resources of the plan, which is one for `stacks`. It can be interrupted and run again at any point.
///
/// Also without resources to remove, it ends an earlier run of the stacks.
///
/// # Errors
///
/// [`JournalError`] if the beginning or the end of the run cannot be recorded. Errors of single deletions are in
/// the report.
pub async fn destroy<A: EffectAccess>(
    context: RunContext<'_, A>,
    plan: &DestroyPlan,
    stacks: &[StackName],
) -> Result<RunReport, JournalError> {
    let RunContext { journal, clock, caller, options, .. } = context;
    let planned: BTreeSet<StackName> = plan.resources.iter().map(|it| it.stack.clone()).collect();
    if !planned.is_empty() {
        let planned = planned.into_iter().collect();
        journal.start_run(clock.now(), RunCommand::Destroy, planned, caller).await?;
    }
    let progress = RunProgress::begin(context);
    let groups = plan.kept_groups.iter().map(|group| group.node::<A>(plan));
    let nodes = plan.resources.iter().map(DestroyedResource::node::<A>).chain(groups).collect();
    let results = run_graph(nodes, options.parallel, async |key| {
        match plan.resources.iter().find(|it| it.key == key) {
            Some(resource) => remove_resource(context, plan, resource, &progress).await,
            None => forget(context, key, ResourceOutcome::Unchanged).await,
        }
    });
    let outcomes = results.await.into_iter().map(|(key, result)| (key, result.into())).collect();
    let (timings, live) = (progress.into_timings(), LiveState::default());
    let report = RunReport { outcomes, timings, live };
    if report.succeeded() {
        journal.end_run(clock.now(), stacks).await?;
    }
    Ok(report)
}

/// Ends the record of a resource: a group that stays, or what was removed with its container. Sends no request.
async fn forget<A>(
    context: RunContext<'_, A>,
    key: ResourceKey,
    outcome: ResourceOutcome,
) -> Result<ResourceOutcome, ResourceError> {
    let at = context.clock.now();
    context.journal.record(&JournalEntry::Removed { at, key }).await?;
    Ok(outcome)
}

/// Removes one resource of the plan, or records that it was removed with another one.
pub(crate) async fn remove_resource<A: EffectAccess>(
    context: RunContext<'_, A>,
    plan: &DestroyPlan,
    resource: &DestroyedResource,
    progress: &RunProgress<'_>,
) -> Result<ResourceOutcome, ResourceError> {
    // A container that belongs to another client stayed, and the journal records it as such.
    let is_gone = |container: &ResourceKey| context.journal.state().get(container).is_none();
    if resource.removed_with.as_ref().is_some_and(is_gone) {
        return forget(context, resource.key.clone(), ResourceOutcome::Deleted).await;
    }
    let DestroyedResource { key, stack, id, .. } = resource;
    let (record, contained) = (Some(&resource.record), &*plan.records());
    let step = Step { context, key, stack, depends_on: &[] };
    let progress = progress.start(key, "delete");
    let deletion = Deletion { id, record, contained, before: None };
    let deleted = context.journal.while_writable(step.delete(deletion, &progress)).await;
    Ok(match progress.finish(deleted)? {
        DeletionResult::Deleted => ResourceOutcome::Deleted,
        DeletionResult::Kept => ResourceOutcome::Kept,
    })
}
