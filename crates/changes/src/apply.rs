//! Applies a plan: writes the resources in parallel, each recorded in the journal before it is sent.

use parking_lot::Mutex;

use crate::destroy_plan::DestroyPlan;
use crate::effect::{Effect, EffectAccess, EffectUsage};
use crate::effect_error::{EffectError, EffectErrorCause};
use crate::graph_run::{GraphNode, run_graph};
use crate::journal::{JournalError, RecordedState, RunCommand, WriteKind};
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_evidence::OwnershipEvidence;
use crate::plan::{Plan, PlanProblem, PlannedResource, ResourceChange, is_renamed};
use crate::recorded_resource::{RecordedResource, WritePhase};
use crate::resource_error::ResourceError;
use crate::resource_graph::{DesiredResource, ResourceGraph};
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey};
use crate::run_context::RunContext;
use crate::run_progress::{RunProgress, StepProgress};
use crate::run_report::{ResourceOutcome, RunReport};
use crate::step::{Attempts, Deletion, DeletionResult, Step, WriteBodies};

/// Applies the plan. Failures stop only the resources that depend on the failed one.
///
/// A plan with problems is not applied: the report then names each problem, and nothing was written.
///
/// The journal records the beginning of a run that writes, and the end of one that succeeds. A run without its end
/// can be undone, see [`roll_back`](crate::roll_back()).
///
/// # Errors
///
/// [`JournalError`] if the beginning or the end of the run cannot be recorded. Errors of single writes are in the
/// report.
pub async fn apply<E: Effect>(
    context: RunContext<'_, E::Access>,
    graph: &ResourceGraph<E>,
    plan: &Plan,
    live: LiveState,
) -> Result<RunReport, JournalError> {
    let RunContext { journal, clock, caller, options, .. } = context;
    let stacks = graph.stacks();
    if plan.writes().next().is_some() {
        journal.start_run(clock.now(), RunCommand::Apply, stacks.clone(), caller).await?;
    }
    let recorded = &journal.state();
    let removals = plan.removals::<E::Access>(recorded);
    let (live, progress) = (Mutex::new(live), RunProgress::begin(context));
    let run = ApplyRun { context, graph, plan, recorded, removals, live, progress };
    let nodes = plan.resources.iter().map(|planned| run.node(planned)).collect();
    let results = run_graph(nodes, options.parallel, async |key| {
        let planned = plan.resources.iter().find(|planned| planned.key == key);
        let Some(planned) = planned else { return Ok(ResourceOutcome::Unchanged) };
        run.run_step(planned).await
    });
    let outcomes = results.await.into_iter().map(|(key, result)| (key, result.into())).collect();
    let (timings, live) = (run.progress.into_timings(), run.live.into_inner());
    let report = RunReport { outcomes, timings, live };
    if report.succeeded() && options.ends_run {
        journal.end_run(clock.now(), &stacks).await?;
    }
    Ok(report)
}

struct ApplyRun<'a, E: Effect> {
    context: RunContext<'a, E::Access>,
    graph: &'a ResourceGraph<E>,
    plan: &'a Plan,
    /// The journal at the beginning of the run.
    recorded: &'a RecordedState,
    /// The deletions of the plan.
    removals: DestroyPlan,
    live: Mutex<LiveState>,
    progress: RunProgress<'a>,
}

/// The resource as it was read immediately before an attempt; `None` if it did not exist.
struct ReadResource(Option<LiveResource>);

/// Whether a write has not been sent before.
#[derive(Clone, Copy)]
struct IsFirstAttempt(bool);

impl<E: Effect> ApplyRun<'_, E> {
    fn node(&self, planned: &PlannedResource) -> GraphNode {
        let key = planned.key.clone();
        let (depends_on, id) = match self.graph.get(&key) {
            Some(resource) => (resource.depends_on.clone(), &resource.id),
            None => (self.dependents(&key), &planned.id),
        };
        GraphNode { key, depends_on, lock: E::Access::write_lock(id) }
    }

    /// The resources that needed this one when they were written. A resource is deleted after them.
    fn dependents(&self, key: &ResourceKey) -> Vec<ResourceKey> {
        let needs = |planned: &&PlannedResource| {
            let record = self.recorded.get(&planned.key);
            planned.key != *key && record.is_some_and(|record| record.depends_on.contains(key))
        };
        self.plan.resources.iter().filter(needs).map(|planned| planned.key.clone()).collect()
    }

    /// Does the planned change of one resource.
    async fn run_step(&self, planned: &PlannedResource) -> Result<ResourceOutcome, ResourceError> {
        let resource = self.graph.get(&planned.key);
        let (context, key, stack) = (self.context, &planned.key, &planned.stack);
        let depends_on = resource.map_or(&[][..], |resource| &resource.depends_on);
        let step = Step { context, key, stack, depends_on };
        let word = match &planned.change {
            ResourceChange::Problem { problem } => {
                return Err(ResourceError::Problem(problem.clone()));
            }
            ResourceChange::None { ownership } => {
                self.record_unchanged(&step, planned, *ownership).await?;
                return Ok(ResourceOutcome::Unchanged);
            }
            ResourceChange::Create => "create",
            ResourceChange::Update { .. } => "update",
            ResourceChange::Replace { .. } => "replace",
            ResourceChange::Delete => "delete",
        };
        let progress = self.progress.start(key, word);
        let change = self.change(&step, planned, resource, &progress);
        let changed = context.journal.while_writable(change).await;
        progress.finish(changed)
    }

    async fn change(
        &self,
        step: &Step<'_, E::Access>,
        planned: &PlannedResource,
        resource: Option<&DesiredResource<E>>,
        progress: &StepProgress<'_>,
    ) -> Result<ResourceOutcome, ResourceError> {
        let Some(resource) = resource else {
            return self.delete_superseded(step, planned, progress).await;
        };
        let (kind, outcome) = match planned.change {
            ResourceChange::Update { .. } if resource.effect.usage().must_exist() => {
                (WriteKind::Adjust, ResourceOutcome::Updated)
            }
            ResourceChange::Update { .. } => (WriteKind::Update, ResourceOutcome::Updated),
            ResourceChange::Replace { .. } => {
                self.delete_replaced(step, planned, resource, progress).await?;
                (WriteKind::Create, ResourceOutcome::Replaced)
            }
            _ => (WriteKind::Create, ResourceOutcome::Created),
        };
        let changes = matches!(kind, WriteKind::Update | WriteKind::Adjust);
        let id = if changes { &planned.id } else { &resource.id };
        self.write(step, resource, (id, kind), progress).await?;
        Ok(outcome)
    }

    /// Records a resource that needs no write, if the journal does not have it yet.
    async fn record_unchanged(
        &self,
        step: &Step<'_, E::Access>,
        planned: &PlannedResource,
        ownership: Ownership,
    ) -> Result<(), JournalError> {
        let is_recorded = self.recorded.get(&planned.key).is_some_and(|record| {
            record.phase == WritePhase::Complete
                && record.id == planned.id
                && record.ownership == ownership
        });
        let found = self.live.lock().get(&planned.key).cloned();
        match found {
            Some(found) if !is_recorded => step.record(&found, ownership).await,
            _ => Ok(()),
        }
    }

    /// Deletes the resource in whose place another one is created.
    async fn delete_replaced(
        &self,
        step: &Step<'_, E::Access>,
        planned: &PlannedResource,
        resource: &DesiredResource<E>,
        progress: &StepProgress<'_>,
    ) -> Result<(), ResourceError> {
        let record = self.record_of(planned);
        // With another collection, the resource has another id, too.
        let renamed = record.filter(|record| is_renamed(record, resource));
        let id = renamed.map_or(&planned.id, |record| &record.id);
        let before = match renamed {
            Some(record) => self.context.access.read(&record.id).await?,
            None => self.live.lock().get(&planned.key).cloned(),
        };
        let before = before.map(|found| found.body);
        let result = step.delete(Deletion { id, record, contained: &[], before }, progress).await?;
        self.live.lock().set(planned.key.clone(), None);
        match result {
            DeletionResult::Deleted => Ok(()),
            DeletionResult::Kept => Err(ResourceError::NotOurs { id: id.clone() }),
        }
    }

    /// Deletes a resource that the configuration does not contain any more. The journal keeps its body for a
    /// roll-back.
    async fn delete_superseded(
        &self,
        step: &Step<'_, E::Access>,
        planned: &PlannedResource,
        progress: &StepProgress<'_>,
    ) -> Result<ResourceOutcome, ResourceError> {
        let id = &planned.id;
        let before = self.context.access.read(id).await?.map(|found| found.body);
        let (record, contained) = (self.record_of(planned), &*self.removals.records());
        let deletion = Deletion { id, record, contained, before };
        Ok(match step.delete(deletion, progress).await? {
            DeletionResult::Deleted => ResourceOutcome::Deleted,
            DeletionResult::Kept => ResourceOutcome::Kept,
        })
    }

    /// The record of the planned resource under its key, or of the live resource under another key.
    fn record_of(&self, planned: &PlannedResource) -> Option<&RecordedResource> {
        let of_key = self.recorded.get(&planned.key);
        of_key.or_else(|| self.recorded.find(&planned.key, &planned.id))
    }

    /// Creates the resource, or changes it in place: reads it, checks that it is lanyard's, announces the write, sends
    /// it until the service accepts or rejects it, and records the result.
    async fn write(
        &self,
        step: &Step<'_, E::Access>,
        resource: &DesiredResource<E>,
        (id, kind): (&ResourceId, WriteKind),
        progress: &StepProgress<'_>,
    ) -> Result<(), ResourceError> {
        // An update contains the live properties, and another client can create the resource after the plan was made,
        // so the resource is read immediately before each attempt.
        let read = async || self.read_before_write(resource, id, kind).await;
        let found = step.repeat(progress, read).await?;
        let may_write =
            |found: &LiveResource| self.may_write(resource, found, IsFirstAttempt(true));
        let usage = resource.effect.usage();
        let existing = match found {
            Some(found) if may_write(&found) => Some(found),
            Some(found) if usage == EffectUsage::Shared => {
                step.record(&found, Ownership::Existing).await?;
                self.live.lock().set(resource.key.clone(), Some(found));
                return Ok(());
            }
            Some(found) => return Err(ResourceError::NotOurs { id: found.id }),
            None => None,
        };
        require_existing(resource, existing.as_ref())?;
        let mut bodies = WriteBodies::default();
        if let (Some(existing), WriteKind::Update) = (&existing, kind) {
            bodies.before = Some(existing.body.clone());
            bodies.desired = Some(resource.effect.updated_properties(&self.live.lock())?);
        }
        step.announce(id, kind, bodies).await?;
        let mut attempts = Attempts::begin(self.context);
        let mut read = Some(ReadResource(existing));
        let written = loop {
            match self.attempt(step, resource, (id, kind), read.take(), progress).await {
                Err(ResourceError::Rejected(error)) => {
                    if let Err(error) = attempts.pause_after(error, progress).await {
                        break Err(error);
                    }
                }
                written => break written,
            }
        };
        let (found, ownership) = match written {
            Ok(found) => {
                let record = self.recorded.get(&resource.key).filter(|_| kind == WriteKind::Update);
                let recorded = record.map_or(Ownership::Created, |record| record.ownership);
                (found, if usage.must_exist() { Ownership::Existing } else { recorded })
            }
            Err(ResourceError::Rejected(error)) => {
                if kind == WriteKind::Create {
                    step.retract_creation(id, &error).await?;
                }
                match self.read_equal(resource, &error).await? {
                    Some(found) => (found, Ownership::Existing),
                    None => return Err(error.into()),
                }
            }
            // Another run created the resource after this one read it.
            Err(ResourceError::NotOurs { .. }) if usage == EffectUsage::Shared => {
                let found = step.repeat(progress, async || self.context.access.read(id).await);
                let gone = || ResourceError::NotOurs { id: id.clone() };
                (found.await?.ok_or_else(gone)?, Ownership::Existing)
            }
            Err(error) => return Err(error),
        };
        step.record(&found, ownership).await?;
        self.live.lock().set(resource.key.clone(), Some(found));
        Ok(())
    }

    /// Sends a write once, and follows it. A repeated write needs the resource as it is then: `read` is the resource
    /// before the first attempt.
    async fn attempt(
        &self,
        step: &Step<'_, E::Access>,
        resource: &DesiredResource<E>,
        (id, kind): (&ResourceId, WriteKind),
        read: Option<ReadResource>,
        progress: &StepProgress<'_>,
    ) -> Result<LiveResource, ResourceError> {
        let existing = match read {
            Some(ReadResource(existing)) => existing,
            None => match self.read_before_write(resource, id, kind).await? {
                Some(found) if !self.may_write(resource, &found, IsFirstAttempt(false)) => {
                    return Err(ResourceError::NotOurs { id: found.id });
                }
                found => found,
            },
        };
        require_existing(resource, existing.as_ref())?;
        let RunContext { access, tags, .. } = self.context;
        let live = self.live.lock().clone();
        let write = resource.effect.write(access, &resource.id, existing.as_ref(), &live, tags);
        let body = step.follow(write.await?, progress).await?;
        Ok(E::Access::live_resource(id, body))
    }

    async fn read_before_write(
        &self,
        resource: &DesiredResource<E>,
        id: &ResourceId,
        kind: WriteKind,
    ) -> Result<Option<LiveResource>, EffectError> {
        let access = self.context.access;
        match kind {
            WriteKind::Update | WriteKind::Adjust => {
                resource.effect.read(access, &resource.id).await
            }
            WriteKind::Create | WriteKind::Delete => access.read(id).await,
        }
    }

    /// Whether lanyard may write to the resource: it belongs to lanyard, or the user has lanyard change it.
    fn may_write(
        &self,
        resource: &DesiredResource<E>,
        found: &LiveResource,
        is_first_attempt: IsFirstAttempt,
    ) -> bool {
        if resource.effect.usage() == EffectUsage::Adjusted {
            return true;
        }
        let state = self.context.journal.state();
        let tags = self.context.tags;
        let evidence = OwnershipEvidence::of_id(&state, &resource.key, &found.id, tags);
        // A service can have done an earlier attempt that got no reply. Some types have neither tags nor creators.
        let has_evidence = found.has_tags || E::Access::has_creators(&found.id);
        evidence.is_ours(found)
            || (!is_first_attempt.0
                && !has_evidence
                && resource.effect.diff(found, &self.live.lock()).is_empty())
    }

    /// The live resource with the desired content, after the service rejected a second one with that content.
    async fn read_equal(
        &self,
        resource: &DesiredResource<E>,
        error: &EffectError,
    ) -> Result<Option<LiveResource>, EffectError> {
        if resource.effect.usage() == EffectUsage::Shared {
            // Whatever it looks like, another run created it after this one read it.
            return self.context.access.read(&resource.id).await;
        }
        if !matches!(error.cause, EffectErrorCause::Conflict { .. }) {
            return Ok(None);
        }
        let live = self.live.lock().clone();
        let found = resource.effect.read_equal(self.context.access, &resource.id, &live).await?;
        Ok(found.filter(|found| resource.effect.diff(found, &live).is_empty()))
    }
}

/// Checks that a resource of the user was not deleted after the plan was made. Lanyard does not create it.
fn require_existing<E: Effect>(
    resource: &DesiredResource<E>,
    existing: Option<&LiveResource>,
) -> Result<(), ResourceError> {
    if existing.is_some() || !resource.effect.usage().must_exist() {
        return Ok(());
    }
    Err(ResourceError::Problem(PlanProblem::Missing { id: resource.id.clone() }))
}
