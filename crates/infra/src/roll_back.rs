//! Undoes a run that has not ended: deletes what it created, and restores what it changed or deleted.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::{ArmBody as _, AzureCallError, ManagedIdentityBody, RoleAssignmentBody};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::api_versions::api_version_of;
use crate::apply::{ResourceOutcome, RunContext, RunReport};
use crate::destroy::{DestroyPlan, DestroyedResource, remove_resource};
use crate::graph_run::{GraphNode, run_graph, sort_by_dependencies};
use crate::journal::{
    JournalError, RecordedResource, RecordedState, RunChange, RunCommand, UndoAction, WriteKind,
    WritePhase,
};
use crate::ownership_evidence::OwnershipEvidence;
use crate::resource::{Ownership, ResourceKey, ResourceStack, write_lock};
use crate::resource_request::{body_before_run, is_restored, restore_request};
use crate::resource_write::{DeletedRecord, DeletionResult, ResourceError, ResourceWriter};
use crate::run_steps::{ProgressReporter, RunSteps};

/// How an unfinished run is undone.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RollBackPlan {
    /// The stacks of the run.
    pub stacks: Vec<ResourceStack>,
    /// The resources that the run changed or deleted.
    pub restored: Vec<RestoredResource>,
    /// The resources that the run created.
    pub removed: DestroyPlan,
}

/// A resource that gets the properties it had before the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredResource {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The stack that the resource belongs to.
    pub stack: ResourceStack,
    /// The id of the resource.
    pub id: ArmResourceId,
    /// Whether the run deleted the resource.
    pub recreated: bool,
    #[serde(skip)]
    undo: UndoAction,
    /// The record before the run.
    #[serde(skip)]
    record: RecordedResource,
    /// The resources that are restored first. Not those that the run created: they are removed later.
    #[serde(skip)]
    after: Vec<ResourceKey>,
}

/// The write that restores a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestoreWrite {
    /// The resource is as before the run.
    None,
    Create,
    Update,
    /// Deletes the resource that the run created in its place, and creates the earlier one.
    Replace,
    /// The resource is gone with content that the journal does not have.
    Impossible,
}

/// The journal has no run that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NothingToRollBack {
    /// The last run ended, or there was none.
    #[error("there is nothing to roll back: the journal has no interrupted run of this command")]
    NoInterruptedRun,
    /// The interrupted run is one of `lanyard destroy`.
    #[error("the interrupted run is one of `lanyard destroy`, which cannot be rolled back")]
    InterruptedDestroy,
}

impl ErrorHint for NothingToRollBack {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NoInterruptedRun => {
                "to remove what earlier runs created, run `lanyard destroy` for the same stack"
            }
            Self::InterruptedDestroy => {
                "run the command without --roll-back, which creates the removed resources again, or run `lanyard destroy` again"
            }
        }))
    }
}

/// The roll-back could not begin, or its end could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RollBackError {
    /// The managed identities that the journal records cannot be read.
    #[error("reading the managed identities of the journal failed")]
    Identities(#[from] AzureCallError),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl ErrorHint for RollBackError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Identities(error) => error.hint(),
            Self::Journal(error) => error.hint(),
        }
    }
}

impl RollBackPlan {
    /// How the unfinished runs of these stacks are undone.
    ///
    /// # Errors
    ///
    /// [`NothingToRollBack`] if no unfinished run of these stacks created or repaired resources.
    pub fn new(
        recorded: &RecordedState,
        stacks: &[ResourceStack],
    ) -> Result<Self, NothingToRollBack> {
        let runs: Vec<_> = stacks
            .iter()
            .filter_map(|stack| Some((*stack, recorded.unfinished_run(*stack)?)))
            .collect();
        let applied: Vec<_> =
            runs.iter().filter(|(_, run)| run.command == RunCommand::Apply).collect();
        if applied.is_empty() {
            return Err(if runs.is_empty() {
                NothingToRollBack::NoInterruptedRun
            } else {
                NothingToRollBack::InterruptedDestroy
            });
        }
        let changes = || {
            let of_run = applied.iter();
            of_run.flat_map(|(stack, run)| run.changes.iter().map(|(key, it)| (*stack, key, it)))
        };
        let mut restored: Vec<_> = changes()
            .filter_map(|(stack, key, change)| RestoredResource::of(stack, key, change))
            .collect();
        let keys: BTreeSet<_> = restored.iter().map(|it| it.key.clone()).collect();
        for resource in &mut restored {
            let needed = resource.record.depends_on.iter().filter(|key| keys.contains(key));
            resource.after = needed.cloned().collect();
        }
        let restored = sort_by_dependencies(restored, |it| &it.key, |it| &it.after);
        let created: BTreeMap<ResourceKey, RecordedResource> = changes()
            .filter(|(_, _, change)| change.undo == UndoAction::Delete)
            .map(|(stack, key, change)| {
                (key.clone(), created_resource(recorded, stack, key, change))
            })
            .collect();
        // A changed resource may need a created one until it is restored.
        let dependents: Vec<_> = restored
            .iter()
            .map(|it| {
                (
                    &it.key,
                    recorded.get(&it.key).map_or(&*it.record.depends_on, |it| &*it.depends_on),
                )
            })
            .collect();
        let removed = DestroyPlan::of_resources(&created.iter().collect(), &dependents);
        let stacks = applied.iter().map(|(stack, _)| *stack).collect();
        Ok(Self { stacks, restored, removed })
    }

    /// Whether the roll-back creates role assignments again, which it does only for known principals.
    pub fn assigns_roles(&self) -> bool {
        self.restored.iter().any(|it| it.id.has_type(RoleAssignmentBody::RESOURCE_TYPE))
    }

    /// Whether nothing was changed before the interruption.
    pub const fn is_empty(&self) -> bool {
        self.restored.is_empty() && self.removed.resources.is_empty()
    }
}

/// Whether the ids differ at most in the name. A journal that another person changed could otherwise name any resource.
fn is_in_same_collection(one: &ArmResourceId, other: &ArmResourceId) -> bool {
    let collection = |id: &ArmResourceId| {
        let (collection, _name) = id.as_str().rsplit_once('/').unwrap_or_default();
        collection.to_ascii_lowercase()
    };
    collection(one) == collection(other)
}

/// A created resource as recorded.
fn created_resource(
    recorded: &RecordedState,
    stack: ResourceStack,
    key: &ResourceKey,
    change: &RunChange,
) -> RecordedResource {
    recorded.get(key).cloned().unwrap_or_else(|| RecordedResource {
        stack,
        id: change.id.clone(),
        ownership: change.ownership,
        depends_on: change.depends_on.clone(),
        phase: WritePhase::Sent,
        creation: change.creation.clone(),
    })
}

impl RestoredResource {
    fn of(stack: ResourceStack, key: &ResourceKey, change: &RunChange) -> Option<Self> {
        let before = match &change.undo {
            UndoAction::Delete => return None,
            UndoAction::Restore { before, .. } | UndoAction::Recreate { before, .. } => before,
            UndoAction::RecordEarlier => &Value::Null,
        };
        // A resource that Azure compares by content can have another id than the desired one.
        let id_before = before["id"].as_str().and_then(|id| id.parse().ok());
        let id_before = id_before.filter(|id| is_in_same_collection(id, &change.id));
        let id: ArmResourceId = id_before.unwrap_or_else(|| change.id.clone());
        Some(Self {
            key: key.clone(),
            stack,
            id: id.clone(),
            recreated: matches!(change.undo, UndoAction::Recreate { .. }),
            undo: change.undo.clone(),
            record: RecordedResource {
                stack,
                id,
                ownership: change.ownership,
                depends_on: change.depends_on.clone(),
                phase: WritePhase::Complete,
                creation: change.creation.clone(),
            },
            after: Vec::new(),
        })
    }

    fn node(&self) -> GraphNode {
        let (key, depends_on) = (self.key.clone(), self.after.clone());
        GraphNode { key, depends_on, lock: write_lock(&self.id) }
    }

    async fn restore(
        &self,
        steps: &RunSteps<'_>,
        principals: &BTreeSet<Uuid>,
    ) -> Result<ResourceOutcome, ResourceError> {
        let (context, version) = (steps.context, api_version_of(&self.id));
        let read = async || context.arm.fetch_optional(self.id.as_str(), version).await;
        let live = read().await?.map(|live| live.body);
        let no_report = |_| {};
        if let Some(live) = &live
            && !self.is_ours(context, live)
        {
            let writer = self.writer(context, WriteKind::Update, &no_report);
            writer.record(&self.id, Ownership::Existing, live).await?;
            return Ok(ResourceOutcome::Kept);
        }
        let write = self.write(live.as_ref());
        let (word, kind, outcome) = match write {
            RestoreWrite::None => {
                let writer = self.writer(context, WriteKind::Update, &no_report);
                writer.record(&self.id, self.record.ownership, &live.unwrap_or_default()).await?;
                return Ok(ResourceOutcome::Unchanged);
            }
            RestoreWrite::Impossible => {
                return Err(ResourceError::NotRestorable { id: self.id.clone() });
            }
            _ if !self.has_known_principal(principals) => {
                return Err(ResourceError::UnknownPrincipal { id: self.id.clone() });
            }
            RestoreWrite::Create => ("create", WriteKind::Create, ResourceOutcome::Created),
            RestoreWrite::Update => ("update", WriteKind::Update, ResourceOutcome::Updated),
            RestoreWrite::Replace => ("replace", WriteKind::Create, ResourceOutcome::Replaced),
        };
        steps
            .run(&self.key, word, async |report| {
                if write == RestoreWrite::Replace {
                    self.delete_replacement(context, report).await?;
                }
                let writer = self.writer(context, kind, report);
                let build = async || {
                    let live = read().await?.map(|live| live.body);
                    if live.as_ref().is_some_and(|live| !self.is_ours(context, live)) {
                        return Err(ResourceError::NotOurs { id: self.id.clone() });
                    }
                    let body = self.body(live.as_ref());
                    Ok(restore_request(&self.id, version, &body, live.as_ref()))
                };
                let restored = writer.put(build).await?;
                writer.record(&self.id, self.record.ownership, &restored).await?;
                Ok(outcome)
            })
            .await
    }

    /// Whether the live resource is the one before the run, or the one that the run created in its place.
    fn is_ours(&self, context: RunContext<'_>, live: &Value) -> bool {
        let state = context.journal.state();
        let replacement = state.get(&self.key);
        [Some(&self.record), replacement]
            .into_iter()
            .any(|record| OwnershipEvidence::new(record, context.tags).is_ours(&self.id, live))
    }

    /// Whether a role assignment is one of a principal of the cluster. A journal that another person changed could
    /// otherwise give roles to any principal.
    fn has_known_principal(&self, principals: &BTreeSet<Uuid>) -> bool {
        if !self.id.has_type(RoleAssignmentBody::RESOURCE_TYPE) {
            return true;
        }
        let body = self.body(None);
        let principal = body.pointer("/properties/principalId").and_then(Value::as_str);
        principal.and_then(|id| id.parse().ok()).is_some_and(|id| principals.contains(&id))
    }

    /// Deletes the role assignment that the run created in the place of this one.
    async fn delete_replacement(
        &self,
        context: RunContext<'_>,
        report: ProgressReporter<'_>,
    ) -> Result<(), ResourceError> {
        let state = context.journal.state();
        let deleted = DeletedRecord { record: state.get(&self.key), contained: &[] };
        match self.writer(context, WriteKind::Delete, report).delete(deleted).await? {
            DeletionResult::Deleted => Ok(()),
            DeletionResult::Kept => Err(ResourceError::NotOurs { id: self.id.clone() }),
        }
    }

    /// The write that restores the resource.
    fn write(&self, live: Option<&Value>) -> RestoreWrite {
        let Some(live) = live else {
            let is_group = self.id.resource_type().is_none();
            return if is_group || self.undo == UndoAction::RecordEarlier {
                RestoreWrite::Impossible
            } else {
                RestoreWrite::Create
            };
        };
        // Azure does not change the principal of a role assignment in place. Any other resource is never deleted.
        let replaces = matches!(&self.undo, UndoAction::Recreate { replaced: true, .. })
            && self.id.has_type(RoleAssignmentBody::RESOURCE_TYPE);
        if is_restored(&self.id, &self.body(Some(live)), live) {
            RestoreWrite::None
        } else if replaces {
            RestoreWrite::Replace
        } else {
            RestoreWrite::Update
        }
    }

    /// The body of the restored resource.
    fn body(&self, live: Option<&Value>) -> Value {
        let Some(live) = live else {
            return match &self.undo {
                UndoAction::Restore { before, .. } | UndoAction::Recreate { before, .. } => {
                    before.clone()
                }
                UndoAction::Delete | UndoAction::RecordEarlier => Value::Null,
            };
        };
        match &self.undo {
            UndoAction::Restore { before, desired } => {
                body_before_run(before, desired.as_ref(), live)
            }
            UndoAction::Recreate { before, replaced: true, .. } => {
                body_before_run(before, None, live)
            }
            UndoAction::Recreate { before, desired: Some(desired), .. } => {
                body_before_run(before, Some(desired), live)
            }
            // The deletion was announced, but Azure did not do it.
            UndoAction::Recreate { .. } | UndoAction::Delete | UndoAction::RecordEarlier => {
                live.clone()
            }
        }
    }

    fn writer<'a>(
        &'a self,
        context: RunContext<'a>,
        kind: WriteKind,
        report: ProgressReporter<'a>,
    ) -> ResourceWriter<'a> {
        ResourceWriter {
            context,
            key: &self.key,
            stack: self.stack,
            id: &self.id,
            kind,
            depends_on: &self.record.depends_on,
            before: None,
            desired: None,
            report,
        }
    }
}

/// The object ids of the managed identities that the journal records and whose live resources are lanyard's.
async fn recorded_principals(context: RunContext<'_>) -> Result<BTreeSet<Uuid>, AzureCallError> {
    let mut principals = BTreeSet::new();
    for (_, record) in context.journal.state().resources() {
        if !record.id.has_type(ManagedIdentityBody::RESOURCE_TYPE) {
            continue;
        }
        let version = ManagedIdentityBody::API_VERSION;
        let Some(live) = context.arm.fetch_optional(record.id.as_str(), version).await? else {
            continue;
        };
        // The journal alone is no evidence here: a roll-back gives these principals roles.
        if OwnershipEvidence::new(Some(record), context.tags).is_tagged(&live.body) {
            let principal = live.body.pointer("/properties/principalId").and_then(Value::as_str);
            principals.extend(principal.and_then(|id| id.parse::<Uuid>().ok()));
        }
    }
    Ok(principals)
}

/// Undoes an unfinished run. `principals` are those of the cluster's configuration to which it assigns roles, beside
/// the managed identities of the journal. The run can be interrupted and run again at any point, also as an ordinary run.
///
/// # Errors
///
/// [`RollBackError`] if the identities of the journal cannot be read, or the end of the roll-back cannot be recorded.
/// Errors of single writes are in the report.
pub async fn roll_back(
    context: RunContext<'_>,
    plan: &RollBackPlan,
    principals: &BTreeSet<Uuid>,
) -> Result<RunReport, RollBackError> {
    let mut principals = principals.clone();
    if plan.assigns_roles() {
        principals.extend(recorded_principals(context).await?);
    }
    let steps = RunSteps::begin(context);
    let removed = plan.removed.resources.iter().map(DestroyedResource::node);
    let nodes = plan.restored.iter().map(RestoredResource::node).chain(removed).collect();
    let results = run_graph(nodes, context.options.parallel, async |key| {
        if let Some(restored) = plan.restored.iter().find(|it| it.key == key) {
            return restored.restore(&steps, &principals).await;
        }
        match plan.removed.resources.iter().find(|it| it.key == key) {
            Some(removed) => remove_resource(&steps, &plan.removed, removed).await,
            None => Ok(ResourceOutcome::Unchanged),
        }
    })
    .await;
    let report = steps.report(results);
    if report.succeeded() {
        context.journal.end_run(context.clock.now(), &plan.stacks).await?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::CreationEvidence;

    fn write(id: &str, undo: UndoAction, live: Option<&Value>) -> RestoreWrite {
        let change = RunChange {
            id: format!("/subscriptions/s/resourceGroups/g{id}").parse().unwrap(),
            ownership: Ownership::Created,
            creation: CreationEvidence::Unknown,
            depends_on: Vec::new(),
            undo,
        };
        let key = ResourceKey::new("key");
        RestoredResource::of(ResourceStack::Infra, &key, &change).unwrap().write(live)
    }

    #[test]
    fn only_a_role_assignment_that_the_run_created_in_place_is_deleted() {
        const ROLE: &str = "/providers/Microsoft.Authorization/roleAssignments/a";
        const VNET: &str = "/providers/Microsoft.Network/virtualNetworks/v";
        let before = json!({ "properties": { "description": "a" } });
        let live = json!({ "properties": { "description": "b" } });
        let recreate =
            |replaced| UndoAction::Recreate { before: before.clone(), desired: None, replaced };
        for (id, replaced, expected) in [
            ("", false, RestoreWrite::None),
            ("", true, RestoreWrite::Update),
            (VNET, false, RestoreWrite::None),
            (VNET, true, RestoreWrite::Update),
            (ROLE, false, RestoreWrite::None),
            (ROLE, true, RestoreWrite::Replace),
        ] {
            assert_eq!(write(id, recreate(replaced), Some(&live)), expected, "{id} {replaced}");
        }
        assert_eq!(write(ROLE, recreate(false), None), RestoreWrite::Create);
    }

    #[test]
    fn deleted_group_and_missing_earlier_resource_cannot_be_restored() {
        let recreate = UndoAction::Recreate { before: json!({}), desired: None, replaced: false };
        assert_eq!(write("", recreate, None), RestoreWrite::Impossible);
        let vnet = "/providers/Microsoft.Network/virtualNetworks/v";
        assert_eq!(write(vnet, UndoAction::RecordEarlier, None), RestoreWrite::Impossible);
        let live = json!({ "properties": {} });
        assert_eq!(write(vnet, UndoAction::RecordEarlier, Some(&live)), RestoreWrite::None);
    }

    #[test]
    fn changed_resource_is_restored_before_the_created_one_that_it_needs_is_removed() {
        let id =
            |name: &str| format!("/subscriptions/s/resourceGroups/{name}/providers/a.b/c/{name}");
        let at = "2026-11-27T12:00:00Z";
        let entries = [
            json!({"entry": "runStarted", "at": at, "command": "apply", "stacks": ["infra"]}),
            json!({"entry": "writing", "at": at, "key": "nsg", "stack": "infra", "id": id("nsg"), "write": "create"}),
            json!({"entry": "writing", "at": at, "key": "vnet", "stack": "infra", "id": id("vnet"), "write": "update",
                "dependsOn": ["nsg"], "before": {"properties": {}}, "desired": {}}),
        ];
        let mut recorded = RecordedState::default();
        for entry in entries {
            recorded.apply(&serde_json::from_value(entry).unwrap());
        }
        let plan = RollBackPlan::new(&recorded, &[ResourceStack::Infra]).unwrap();
        let restored: Vec<_> = plan.restored.iter().map(RestoredResource::node).collect();
        let removed: Vec<_> = plan.removed.resources.iter().map(DestroyedResource::node).collect();
        let depends_on = |nodes: &[GraphNode]| {
            let pairs = nodes.iter().map(|node| (node.key.to_string(), node.depends_on.clone()));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(depends_on(&restored), [("vnet".to_owned(), Vec::new())]);
        assert_eq!(depends_on(&removed), [("nsg".to_owned(), vec![ResourceKey::new("vnet")])]);
    }
}
