//! The changes of a run that has not ended successfully, and how they are undone.

use std::collections::BTreeMap;

use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use super::entry::{RunCommand, WriteKind};
use crate::resource::{Ownership, ResourceKey};

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
    pub(crate) id: ArmResourceId,
    /// The ownership before the run.
    pub(crate) ownership: Ownership,
    pub(crate) depends_on: Vec<ResourceKey>,
    pub(crate) undo: UndoAction,
}

/// How the change of a resource is undone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum UndoAction {
    /// The run created the resource: it is deleted.
    Delete,
    /// The run changed the resource: this body is written back.
    Restore { before: Value },
    /// The run deleted the resource: it is created with this body. One that the run created in its place is
    /// deleted first.
    Recreate { before: Value },
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
        before: Option<&Value>,
        unchanged: impl FnOnce(UndoAction) -> RunChange,
    ) {
        if self.command == RunCommand::Destroy {
            return;
        }
        if let Some(known) = self.changes.get_mut(key) {
            if let (WriteKind::Delete, UndoAction::Restore { before }) = (write, &mut known.undo) {
                known.undo = UndoAction::Recreate { before: before.take() };
            }
            return;
        }
        let undo = match (write, before.cloned()) {
            (WriteKind::Create, _) => UndoAction::Delete,
            (WriteKind::Update, Some(before)) => UndoAction::Restore { before },
            (WriteKind::Delete, Some(before)) => UndoAction::Recreate { before },
            // Entries of format 1 have no body.
            (WriteKind::Update | WriteKind::Delete, None) => return,
        };
        self.changes.insert(key.clone(), unchanged(undo));
    }

    /// Forgets that the run created the resource: it does not exist any more, or another client created it.
    pub(super) fn forget_creation(&mut self, key: &ResourceKey) {
        if self.changes.get(key).is_some_and(|change| change.undo == UndoAction::Delete) {
            self.changes.remove(key);
        }
    }
}
