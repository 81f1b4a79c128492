//! The changes of a run that has not ended successfully, and how they are undone.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entry::{RunCommand, WriteKind};
use crate::creation_evidence::CreationEvidence;
use crate::property_diff::merge_properties;
use crate::recorded_resource::RecordedResource;
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey};

/// A run that has not ended successfully. Runs that continue it belong to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnfinishedRun {
    pub(crate) command: RunCommand,
    /// What the run changed, by the key of the resource. Empty for a destroy command.
    pub(crate) changes: BTreeMap<ResourceKey, RunChange>,
}

/// What a run changed about one resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunChange {
    pub(crate) id: ResourceId,
    /// The ownership before the run.
    pub(crate) ownership: Ownership,
    /// What was known about the creation before the run.
    pub(crate) creation: CreationEvidence,
    pub(crate) depends_on: Vec<ResourceKey>,
    pub(crate) undo: UndoAction,
}

/// How the change of a resource is undone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum UndoAction {
    /// The run created the resource: it is deleted.
    Delete,
    /// The run changed the resource: the properties that it set get their values in the body `before`.
    Restore { before: Value, desired: Option<Value> },
    /// The run announced the deletion of the resource. If the resource does not exist, it is created with the body
    /// `before`.
    Recreate {
        before: Value,
        /// The properties that the run set before the deletion.
        desired: Option<Value>,
        /// Whether the run created another resource in its place.
        replaced: bool,
    },
    /// The run recorded another resource under the key: the earlier record is written back.
    RecordEarlier,
}

impl UnfinishedRun {
    pub(super) const fn new(command: RunCommand) -> Self {
        Self { command, changes: BTreeMap::new() }
    }

    /// Records a write that begins. The first change of a resource determines how the run is undone.
    pub(super) fn record_write(
        &mut self,
        key: &ResourceKey,
        write: WriteKind,
        (before, desired): (Option<&Value>, Option<&Value>),
        unchanged: impl FnOnce(UndoAction) -> RunChange,
    ) {
        // A roll-back does not change a resource of the user.
        if self.command == RunCommand::Destroy || write == WriteKind::Adjust {
            return;
        }
        let known = self.changes.get_mut(key).filter(|it| it.undo != UndoAction::RecordEarlier);
        if let Some(known) = known {
            match (write, &mut known.undo) {
                (WriteKind::Delete, UndoAction::Restore { before, desired }) => {
                    let (before, desired) = (before.take(), desired.take());
                    known.undo = UndoAction::Recreate { before, desired, replaced: false };
                }
                // The journal announces a creation only after Azure answered that the resource does not exist.
                (WriteKind::Create, UndoAction::Recreate { replaced, .. }) => *replaced = true,
                (WriteKind::Update, UndoAction::Restore { desired: Some(earlier), .. }) => {
                    if let Some(desired) = desired {
                        *earlier = merge_properties(desired, earlier);
                    }
                }
                _ => {}
            }
            return;
        }
        let undo = match (write, before.cloned()) {
            (WriteKind::Create, _) => UndoAction::Delete,
            (WriteKind::Update, Some(before)) => {
                UndoAction::Restore { before, desired: desired.cloned() }
            }
            (WriteKind::Delete, Some(before)) => {
                UndoAction::Recreate { before, desired: None, replaced: false }
            }
            // Entries of format 1 have no body.
            (WriteKind::Update | WriteKind::Delete, None) | (WriteKind::Adjust, _) => return,
        };
        self.changes.insert(key.clone(), unchanged(undo));
    }

    /// Keeps the record of a key whose resource is now another one, if the run has not written the resource.
    pub(super) fn record_replaced_record(&mut self, key: &ResourceKey, record: &RecordedResource) {
        if self.command == RunCommand::Apply && !self.changes.contains_key(key) {
            let change = RunChange {
                id: record.id.clone(),
                ownership: record.ownership,
                creation: record.creation.clone(),
                depends_on: record.depends_on.clone(),
                undo: UndoAction::RecordEarlier,
            };
            self.changes.insert(key.clone(), change);
        }
    }

    /// Forgets that the run created the resource: it does not exist any more, or another client created it.
    pub(super) fn forget_creation(&mut self, key: &ResourceKey) {
        if self.changes.get(key).is_some_and(|change| change.undo == UndoAction::Delete) {
            self.changes.remove(key);
        }
    }
}
