//! How an unfinished run is undone. Does no I/O.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use lanyard_clock::ErrorHint;
use serde::Serialize;
use serde_json::Value;

use crate::destroy_plan::DestroyPlan;
use crate::effect::EffectAccess;
use crate::graph_run::{GraphNode, sort_by_dependencies};
use crate::journal::{RecordedState, RunChange, RunCommand, UndoAction};
use crate::property_diff::{merge_properties, restore_properties};
use crate::recorded_resource::{RecordedResource, WritePhase};
use crate::resource_id::ResourceId;
use crate::resource_key::{ResourceKey, StackName};

/// How an unfinished run is undone.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RollBackPlan {
    /// The stacks of the run.
    pub stacks: Vec<StackName>,
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
    pub stack: StackName,
    /// The id of the resource.
    pub id: ResourceId,
    /// Whether the run deleted the resource.
    pub recreated: bool,
    #[serde(skip)]
    undo: UndoAction,
    /// The record before the run.
    #[serde(skip)]
    pub(crate) record: RecordedResource,
    /// The resources that are restored first. Not those that the run created: they are removed later.
    #[serde(skip)]
    after: Vec<ResourceKey>,
}

/// The write that restores a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestoreWrite {
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

impl RollBackPlan {
    /// How the unfinished runs of these stacks are undone.
    ///
    /// # Errors
    ///
    /// [`NothingToRollBack`] if no unfinished run of these stacks created or repaired resources.
    pub fn new<A: EffectAccess>(
        recorded: &RecordedState,
        stacks: &[StackName],
    ) -> Result<Self, NothingToRollBack> {
        let runs: Vec<_> = stacks
            .iter()
            .filter_map(|stack| Some((stack, recorded.unfinished_run(stack)?)))
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
            of_run
                .flat_map(|(stack, run)| run.changes.iter().map(move |(key, it)| (*stack, key, it)))
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
        let removed = DestroyPlan::of_resources::<A>(&created.iter().collect(), &dependents);
        let stacks = applied.iter().map(|(stack, _)| (*stack).clone()).collect();
        Ok(Self { stacks, restored, removed })
    }

    /// Whether nothing was changed before the interruption.
    pub const fn is_empty(&self) -> bool {
        self.restored.is_empty() && self.removed.resources.is_empty()
    }
}

/// A created resource as recorded.
fn created_resource(
    recorded: &RecordedState,
    stack: &StackName,
    key: &ResourceKey,
    change: &RunChange,
) -> RecordedResource {
    recorded.get(key).cloned().unwrap_or_else(|| RecordedResource {
        stack: stack.clone(),
        id: change.id.clone(),
        ownership: change.ownership,
        depends_on: change.depends_on.clone(),
        phase: WritePhase::Sent,
        creation: change.creation.clone(),
    })
}

impl RestoredResource {
    fn of(stack: &StackName, key: &ResourceKey, change: &RunChange) -> Option<Self> {
        let before = match &change.undo {
            UndoAction::Delete => return None,
            UndoAction::Restore { before, .. } | UndoAction::Recreate { before, .. } => before,
            UndoAction::RecordEarlier => &Value::Null,
        };
        // A resource that a service knows by its content can have another id than the desired one. A journal that another
        // person changed could otherwise name any resource.
        let id_before = before["id"].as_str().map(|id| ResourceId::from(id.to_owned()));
        let id_before = id_before.filter(|id| id.is_in_same_collection(&change.id));
        let id = id_before.unwrap_or_else(|| change.id.clone());
        Some(Self {
            key: key.clone(),
            stack: stack.clone(),
            id: id.clone(),
            recreated: matches!(change.undo, UndoAction::Recreate { .. }),
            undo: change.undo.clone(),
            record: RecordedResource {
                stack: stack.clone(),
                id,
                ownership: change.ownership,
                depends_on: change.depends_on.clone(),
                phase: WritePhase::Complete,
                creation: change.creation.clone(),
            },
            after: Vec::new(),
        })
    }

    pub(crate) fn node<A: EffectAccess>(&self) -> GraphNode {
        let (key, depends_on) = (self.key.clone(), self.after.clone());
        GraphNode { key, depends_on, lock: A::write_lock(&self.id) }
    }

    /// The write that restores the resource.
    pub(crate) fn write<A: EffectAccess>(&self, live: Option<&Value>) -> RestoreWrite {
        let Some(live) = live else {
            return if A::is_container(&self.id) || self.undo == UndoAction::RecordEarlier {
                RestoreWrite::Impossible
            } else {
                RestoreWrite::Create
            };
        };
        // A resource that can be changed in place is never deleted.
        let replaces = matches!(&self.undo, UndoAction::Recreate { replaced: true, .. })
            && A::is_immutable(&self.id);
        if A::is_restored(&self.id, &self.body(Some(live)), live) {
            RestoreWrite::None
        } else if replaces {
            RestoreWrite::Replace
        } else {
            RestoreWrite::Update
        }
    }

    /// The body of the restored resource.
    pub(crate) fn body(&self, live: Option<&Value>) -> Value {
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
}

/// The live body with the values of `before` for the properties that a run set to `desired`. Without `desired`, all
/// values of `before`. Everything else of `live` stays.
fn body_before_run(before: &Value, desired: Option<&Value>, live: &Value) -> Value {
    match desired {
        Some(desired) => restore_properties(desired, before, live),
        None => merge_properties(before, live),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::creation_evidence::CreationEvidence;
    use crate::destroy_plan::DestroyedResource;
    use crate::effects::AzureAccess;
    use crate::resource_key::Ownership;

    const INFRA: StackName = StackName::new("infra");

    fn write(id: &str, undo: UndoAction, live: Option<&Value>) -> RestoreWrite {
        let change = RunChange {
            id: format!("/subscriptions/s/resourceGroups/g{id}").parse().unwrap(),
            ownership: Ownership::Created,
            creation: CreationEvidence::Unknown,
            depends_on: Vec::new(),
            undo,
        };
        let key = ResourceKey::new("key");
        RestoredResource::of(&INFRA, &key, &change).unwrap().write::<AzureAccess>(live)
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
        let plan = RollBackPlan::new::<AzureAccess>(&recorded, &[INFRA]).unwrap();
        let restored: Vec<_> =
            plan.restored.iter().map(RestoredResource::node::<AzureAccess>).collect();
        let removed: Vec<_> =
            plan.removed.resources.iter().map(DestroyedResource::node::<AzureAccess>).collect();
        let depends_on = |nodes: &[GraphNode]| {
            let pairs = nodes.iter().map(|node| (node.key.to_string(), node.depends_on.clone()));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(depends_on(&restored), [("vnet".to_owned(), Vec::new())]);
        assert_eq!(depends_on(&removed), [("nsg".to_owned(), vec![ResourceKey::new("vnet")])]);
    }
}
