//! Applies a plan: writes the resources in parallel, each recorded in the journal before it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, OperationError, PrivateDnsLinkBody};
use lanyard_clock::SharedClock;
use lanyard_vocabulary::ArmResourceId;
use parking_lot::Mutex;
use serde_json::Value;

use crate::api_versions::api_version_of;
use crate::graph_run::{GraphNode, NodeResult, run_graph};
use crate::journal::{
    Journal, JournalError, RecordedResource, RecordedState, RunCommand, WriteKind, WritePhase,
};
use crate::live_state::{
    LiveResource, LiveState, find_in_collection, find_role_assignment, list_role_assignments,
    read_resource,
};
use crate::ownership_evidence::{OwnershipEvidence, has_ownership_tags};
use crate::ownership_tags::OwnershipTags;
use crate::plan::{Plan, PlannedResource, ResourceChange, live_differences};
use crate::progress::{ProgressObserver, ResourceTiming};
use crate::resource::{
    DesiredResource, Ownership, ResourceDefinition, ResourceKey, ResourceStack, write_lock,
};
use crate::resource_graph::ResourceGraph;
use crate::resource_request::{updated_properties, write_request};
use crate::resource_write::{DeletedRecord, DeletionResult, ResourceError, ResourceWriter};
use crate::run_steps::{ProgressReporter, RunSteps};

/// How apply and destroy run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// The number of resources that are written at the same time.
    pub parallel: usize,
    /// How long a write is repeated that Azure rejects for now, for example because a new principal is not yet
    /// known everywhere. Also the longest wait for a long-running operation.
    pub retry_timeout: Duration,
    /// The pause between two polls of an operation whose replies name none. Network resources are ready within
    /// seconds; Azure's SDKs poll every 30 s.
    pub poll_interval: Duration,
    /// Whether a successful apply ends the run. Otherwise the command applies a further plan to the same stacks.
    pub ends_run: bool,
    /// Whether a resource group is deleted with the resources in it that do not belong to the removal.
    pub removes_unrecorded: bool,
}

impl Default for RunOptions {
    /// Azure documents up to 10 minutes until a role assignment takes effect.
    fn default() -> Self {
        Self {
            parallel: 16,
            retry_timeout: Duration::from_mins(15),
            poll_interval: Duration::from_secs(2),
            ends_run: true,
            removes_unrecorded: false,
        }
    }
}

/// What a run needs.
#[derive(Debug, Clone, Copy)]
pub struct RunContext<'a> {
    /// The client of Azure Resource Manager.
    pub arm: &'a ArmClient,
    /// The journal of the cluster.
    pub journal: &'a Journal,
    /// The tags of the resources that lanyard creates.
    pub tags: &'a OwnershipTags,
    /// The names under which Azure may record the signed-in identity as the creator of a resource.
    pub caller: &'a [String],
    /// The clock for pauses.
    pub clock: &'a SharedClock,
    /// Receives progress events.
    pub progress: &'a dyn ProgressObserver,
    /// How the run works.
    pub options: RunOptions,
}

/// The result of apply or destroy.
#[derive(Debug)]
pub struct RunReport {
    /// The result of each resource.
    pub outcomes: BTreeMap<ResourceKey, ResourceOutcome>,
    /// When each write began and ended.
    pub timings: BTreeMap<ResourceKey, ResourceTiming>,
    /// The live resources after the run.
    pub live: LiveState,
}

/// The result of one resource.
#[derive(Debug)]
pub enum ResourceOutcome {
    /// The resource was as desired.
    Unchanged,
    /// The resource was created.
    Created,
    /// The resource was changed in place.
    Updated,
    /// The resource was deleted and created.
    Replaced,
    /// The resource was deleted.
    Deleted,
    /// The resource belongs to another client, so it was not deleted. The journal does not record it as lanyard's any
    /// more.
    Kept,
    /// The write failed.
    Failed(ResourceError),
    /// The resource was not written, because this resource failed.
    Blocked(ResourceKey),
}

impl RunReport {
    /// Whether every resource is as desired.
    pub fn succeeded(&self) -> bool {
        let failed = |outcome: &ResourceOutcome| {
            matches!(outcome, ResourceOutcome::Failed(_) | ResourceOutcome::Blocked(_))
        };
        !self.outcomes.values().any(failed)
    }

    /// The report of two runs of which this is the second: what an earlier run changed counts as changed.
    #[must_use]
    pub fn after(mut self, earlier: Self) -> Self {
        let end = earlier.timings.values().map(|it| it.finished).max().unwrap_or_default();
        for timing in self.timings.values_mut() {
            timing.started = timing.started.saturating_add(end);
            timing.finished = timing.finished.saturating_add(end);
        }
        let changed = |outcome: &ResourceOutcome| !matches!(outcome, ResourceOutcome::Unchanged);
        self.outcomes.extend(earlier.outcomes.into_iter().filter(|(_, it)| changed(it)));
        self.timings.extend(earlier.timings);
        self
    }
}

/// Applies the plan. Failures stop only the resources that depend on the failed one.
///
/// A plan with problems is not applied: the report then names each problem, and nothing was written.
///
/// The journal records the beginning of a run that writes, and the end of one that succeeds. A run without its end
/// can be undone, see [`crate::roll_back`].
///
/// # Errors
///
/// [`JournalError`] if the beginning or the end of the run cannot be recorded. Errors of single writes are in the
/// report.
pub async fn apply(
    context: RunContext<'_>,
    graph: &ResourceGraph,
    plan: &Plan,
    live: LiveState,
) -> Result<RunReport, JournalError> {
    let stacks: BTreeSet<ResourceStack> = graph.resources().iter().map(|it| it.stack).collect();
    let stacks = Vec::from_iter(stacks);
    if plan.writes().next().is_some() {
        let (at, stacks) = (context.clock.now(), stacks.clone());
        context.journal.start_run(at, RunCommand::Apply, stacks, context.caller).await?;
    }
    let report = write_resources(context, graph, plan, live).await;
    if report.succeeded() && context.options.ends_run {
        context.journal.end_run(context.clock.now(), &stacks).await?;
    }
    Ok(report)
}

async fn write_resources(
    context: RunContext<'_>,
    graph: &ResourceGraph,
    plan: &Plan,
    live: LiveState,
) -> RunReport {
    let recorded = context.journal.state();
    let run = ApplyRun {
        context,
        graph,
        plan,
        recorded: &recorded,
        live: Mutex::new(live),
        steps: RunSteps::begin(context),
    };
    let nodes = plan.resources.iter().map(|planned| run.node(planned)).collect();
    let results = run_graph(nodes, context.options.parallel, |key| run.apply_resource(key)).await;
    RunReport { live: run.live.into_inner(), ..run.steps.report(results) }
}

impl From<NodeResult<Self, ResourceError>> for ResourceOutcome {
    fn from(result: NodeResult<Self, ResourceError>) -> Self {
        match result {
            NodeResult::Done(outcome) => outcome,
            NodeResult::Failed(error) => Self::Failed(error),
            NodeResult::Blocked(by) => Self::Blocked(by),
        }
    }
}

/// A resource before its write.
enum OwnResource {
    Missing,
    /// It belongs to lanyard.
    Own(LiveResource),
    /// A resource group of another client, which the configuration uses as it is.
    Shared(LiveResource),
}

impl OwnResource {
    fn own(self) -> Result<Option<LiveResource>, ResourceError> {
        match self {
            Self::Missing => Ok(None),
            Self::Own(found) => Ok(Some(found)),
            Self::Shared(found) => Err(ResourceError::NotOurs { id: found.id }),
        }
    }
}

/// Whether a write has not been sent before.
#[derive(Clone, Copy)]
struct IsFirstAttempt(bool);

struct ApplyRun<'a> {
    context: RunContext<'a>,
    graph: &'a ResourceGraph,
    plan: &'a Plan,
    recorded: &'a RecordedState,
    live: Mutex<LiveState>,
    steps: RunSteps<'a>,
}

impl ApplyRun<'_> {
    fn node(&self, planned: &PlannedResource) -> GraphNode {
        let key = planned.key.clone();
        match self.graph.get(&key) {
            Some(resource) => GraphNode {
                key,
                depends_on: resource.depends_on.clone(),
                lock: write_lock(&resource.id),
            },
            None => {
                GraphNode { depends_on: self.dependents(&key), lock: write_lock(&planned.id), key }
            }
        }
    }

    /// The resources that needed this one when they were written. A resource is deleted after them.
    fn dependents(&self, key: &ResourceKey) -> Vec<ResourceKey> {
        let needs = |planned: &&PlannedResource| {
            let record = self.recorded.get(&planned.key);
            planned.key != *key && record.is_some_and(|record| record.depends_on.contains(key))
        };
        self.plan.resources.iter().filter(needs).map(|planned| planned.key.clone()).collect()
    }

    async fn apply_resource(&self, key: ResourceKey) -> Result<ResourceOutcome, ResourceError> {
        let Some(planned) = self.plan.resources.iter().find(|planned| planned.key == key) else {
            return Ok(ResourceOutcome::Unchanged);
        };
        let write = match &planned.change {
            ResourceChange::Problem { problem } => {
                return Err(ResourceError::Problem(problem.clone()));
            }
            ResourceChange::None { ownership } => {
                return self.record_unchanged(planned, *ownership).await;
            }
            ResourceChange::Create => "create",
            ResourceChange::Update { .. } => "update",
            ResourceChange::Replace { .. } => "replace",
            ResourceChange::Delete => "delete",
        };
        self.steps.run(&key, write, async |report| self.write(planned, report).await).await
    }

    async fn write(
        &self,
        planned: &PlannedResource,
        report: ProgressReporter<'_>,
    ) -> Result<ResourceOutcome, ResourceError> {
        let Some(resource) = self.graph.get(&planned.key) else {
            return self.delete(planned, report).await;
        };
        let outcome = match planned.change {
            ResourceChange::Update { .. } => ResourceOutcome::Updated,
            ResourceChange::Replace { .. } => {
                self.delete_replaced(planned, resource, report).await?;
                ResourceOutcome::Replaced
            }
            _ => ResourceOutcome::Created,
        };
        self.put(planned, resource, report).await?;
        Ok(outcome)
    }

    /// Deletes the role assignment in whose place another one is created.
    async fn delete_replaced(
        &self,
        planned: &PlannedResource,
        resource: &DesiredResource,
        report: ProgressReporter<'_>,
    ) -> Result<(), ResourceError> {
        let record = self.record_of(planned);
        let mut writer = self.writer(planned, WriteKind::Delete, &resource.depends_on, report);
        // With another scope, the assignment has another id, too.
        if let Some(record) = record.filter(|record| record.is_renamed(resource)) {
            writer.id = &record.id;
            writer.before = self.fetch_body(&record.id).await?;
        } else {
            writer.before = self.live_body(&planned.key);
        }
        let result = writer.delete(DeletedRecord { record, contained: &[] }).await?;
        self.live.lock().set(planned.key.clone(), None);
        match result {
            DeletionResult::Deleted => Ok(()),
            DeletionResult::Kept => Err(ResourceError::NotOurs { id: writer.id.clone() }),
        }
    }

    /// Deletes a resource that the configuration does not contain any more. The journal keeps its body for a
    /// roll-back.
    async fn delete(
        &self,
        planned: &PlannedResource,
        report: ProgressReporter<'_>,
    ) -> Result<ResourceOutcome, ResourceError> {
        let mut writer = self.writer(planned, WriteKind::Delete, &[], report);
        writer.before = self.fetch_body(&planned.id).await?;
        let removals = self.plan.removals(self.recorded);
        let (record, contained) = (self.record_of(planned), &*removals.records());
        Ok(match writer.delete(DeletedRecord { record, contained }).await? {
            DeletionResult::Deleted => ResourceOutcome::Deleted,
            DeletionResult::Kept => ResourceOutcome::Kept,
        })
    }

    /// The record of the planned resource under its key, or of the live role assignment under another key.
    fn record_of(&self, planned: &PlannedResource) -> Option<&RecordedResource> {
        let of_id = || self.recorded.resources().map(|(_, it)| it).find(|it| it.id == planned.id);
        self.recorded.get(&planned.key).or_else(of_id)
    }

    async fn fetch_body(&self, id: &ArmResourceId) -> Result<Option<Value>, ResourceError> {
        let found = self.context.arm.fetch_optional(id.as_str(), api_version_of(id)).await?;
        Ok(found.map(|response| response.body))
    }

    fn live_body(&self, key: &ResourceKey) -> Option<Value> {
        self.live.lock().get(key).map(|found| found.body.clone())
    }

    /// Creates the resource, or changes it in place.
    async fn put(
        &self,
        planned: &PlannedResource,
        resource: &DesiredResource,
        report: ProgressReporter<'_>,
    ) -> Result<(), ResourceError> {
        let is_update = matches!(planned.change, ResourceChange::Update { .. });
        let kind = if is_update { WriteKind::Update } else { WriteKind::Create };
        let mut writer = self.writer(planned, kind, &resource.depends_on, report);
        // An update contains the live properties, and another client can create the resource after the plan was made,
        // so the resource is read immediately before each attempt.
        let existing =
            writer.read(async || self.read_before_write(planned, resource).await).await?;
        let existing = match self.check_own(planned, resource, existing, IsFirstAttempt(true))? {
            OwnResource::Missing => None,
            OwnResource::Own(existing) => Some(existing),
            OwnResource::Shared(existing) => {
                writer.record(&existing.id, Ownership::Existing, &existing.body).await?;
                self.live.lock().set(planned.key.clone(), Some(existing));
                return Ok(());
            }
        };
        if let Some(existing) = existing.as_ref().filter(|_| is_update) {
            writer.before = Some(existing.body.clone());
            writer.desired = Some(updated_properties(resource, &self.live.lock())?);
        }
        let first = Mutex::new(Some(existing));
        let build = async || {
            let first = first.lock().take();
            let existing = if let Some(existing) = first {
                existing
            } else {
                let existing = self.read_before_write(planned, resource).await?;
                self.check_own(planned, resource, existing, IsFirstAttempt(false))?.own()?
            };
            Ok(write_request(resource, existing.as_ref(), &self.live.lock(), self.context.tags)?)
        };
        let (found, ownership) = match writer.put(build).await {
            Ok(body) => {
                let found = LiveResource { id: planned.id.clone(), body };
                let record = self.recorded.get(&planned.key).filter(|_| is_update);
                (found, record.map_or(Ownership::Created, |record| record.ownership))
            }
            Err(error) => match self.find_equal(resource, &error).await? {
                Some(found) => (found, Ownership::Existing),
                None => return Err(error),
            },
        };
        writer.record(&found.id, ownership, &found.body).await?;
        self.live.lock().set(planned.key.clone(), Some(found));
        Ok(())
    }

    async fn read_before_write(
        &self,
        planned: &PlannedResource,
        resource: &DesiredResource,
    ) -> Result<Option<LiveResource>, AzureCallError> {
        if matches!(planned.change, ResourceChange::Update { .. }) {
            return read_resource(self.context.arm, resource).await;
        }
        let (arm, id) = (self.context.arm, &planned.id);
        let found = arm.fetch_optional(id.as_str(), resource.api_version()).await?;
        Ok(found.map(|response| LiveResource { id: id.clone(), body: response.body }))
    }

    /// The resource before a write, if it does not belong to another client.
    fn check_own(
        &self,
        planned: &PlannedResource,
        resource: &DesiredResource,
        found: Option<LiveResource>,
        is_first_attempt: IsFirstAttempt,
    ) -> Result<OwnResource, ResourceError> {
        let Some(found) = found else { return Ok(OwnResource::Missing) };
        let state = self.context.journal.state();
        let evidence = OwnershipEvidence::of_id(&state, &planned.key, &found.id, self.context.tags);
        // Azure can have done an earlier attempt that got no reply. Some types have neither tags nor creators.
        let has_evidence = has_ownership_tags(&found.id)
            || matches!(resource.definition, ResourceDefinition::RoleAssignment { .. });
        let is_written = || {
            !is_first_attempt.0
                && !has_evidence
                && live_differences(resource, &found, &self.live.lock()).is_empty()
        };
        if evidence.is_ours(&found.id, &found.body) || is_written() {
            return Ok(OwnResource::Own(found));
        }
        if matches!(resource.definition, ResourceDefinition::Shared { .. }) {
            return Ok(OwnResource::Shared(found));
        }
        Err(ResourceError::NotOurs { id: found.id })
    }

    /// The live resource with the desired content, after Azure rejected a second one with that content.
    async fn find_equal(
        &self,
        resource: &DesiredResource,
        error: &ResourceError,
    ) -> Result<Option<LiveResource>, ResourceError> {
        if !is_conflict(error) {
            return Ok(None);
        }
        let snapshot = self.live.lock().clone();
        let found = match &resource.definition {
            ResourceDefinition::RoleAssignment { scope, .. } => {
                let listed = list_role_assignments(self.context.arm, scope.as_str()).await?;
                find_role_assignment(resource, &listed, &snapshot)
            }
            _ if has_unique_content(resource) => {
                find_in_collection(self.context.arm, resource).await?
            }
            _ => None,
        };
        Ok(found.filter(|found| live_differences(resource, found, &snapshot).is_empty()))
    }

    /// Records a resource that needs no write, if the journal does not have it yet.
    async fn record_unchanged(
        &self,
        planned: &PlannedResource,
        ownership: Ownership,
    ) -> Result<ResourceOutcome, ResourceError> {
        let depends_on =
            self.graph.get(&planned.key).map(|it| it.depends_on.clone()).unwrap_or_default();
        let is_recorded = self.recorded.get(&planned.key).is_some_and(|record| {
            record.phase == WritePhase::Complete
                && record.id == planned.id
                && record.ownership == ownership
        });
        if !is_recorded {
            let writer = self.writer(planned, WriteKind::Update, &depends_on, &|_| {});
            let body = self.live_body(&planned.key).unwrap_or_default();
            writer.record(&planned.id, ownership, &body).await?;
        }
        Ok(ResourceOutcome::Unchanged)
    }

    fn writer<'b>(
        &'b self,
        planned: &'b PlannedResource,
        kind: WriteKind,
        depends_on: &'b [ResourceKey],
        report: ProgressReporter<'b>,
    ) -> ResourceWriter<'b> {
        let (context, key, stack, id) = (self.context, &planned.key, planned.stack, &planned.id);
        ResourceWriter {
            context,
            key,
            stack,
            id,
            kind,
            depends_on,
            before: None,
            desired: None,
            report,
        }
    }
}

/// Whether Azure accepts the content of the resource only once in its collection.
fn has_unique_content(resource: &DesiredResource) -> bool {
    matches!(resource.definition, ResourceDefinition::FederatedCredential { .. })
        || resource.id.has_type(PrivateDnsLinkBody::RESOURCE_TYPE)
}

/// Whether Azure rejected the write because of another resource.
fn is_conflict(error: &ResourceError) -> bool {
    let ResourceError::Azure(error) = error else { return false };
    match &**error {
        OperationError::Call(error) => error.status() == Some(409),
        OperationError::Failed { code, .. } => code == "Conflict",
        _ => false,
    }
}
