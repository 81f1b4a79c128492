//! The state of a cluster's resources according to the journal.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::PendingOperation;
use lanyard_vocabulary::ArmResourceId;

use super::creation::CreationEvidence;
use super::entry::{JournalEntry, WriteKind};
use super::unfinished_run::{RunChange, UnfinishedRun};
use crate::resource::{DesiredResource, Ownership, ResourceDefinition, ResourceKey, ResourceStack};

/// The resources of the journal, and the runs that have not ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedState {
    resources: BTreeMap<ResourceKey, RecordedResource>,
    unfinished: BTreeMap<ResourceStack, UnfinishedRun>,
    /// The names of the identity that started the last run.
    caller: Vec<String>,
}

/// A resource of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedResource {
    /// The stack that the resource belongs to.
    pub stack: ResourceStack,
    /// The id of the resource.
    pub id: ArmResourceId,
    /// Whether `destroy` deletes the resource.
    pub ownership: Ownership,
    /// The resources that this one needs. They are deleted after it.
    pub depends_on: Vec<ResourceKey>,
    /// How far the last write got.
    pub phase: WritePhase,
    /// What is known about the creation of the resource.
    pub(crate) creation: CreationEvidence,
}

impl RecordedResource {
    /// Whether the configuration gives this resource of lanyard another id than the journal records.
    ///
    /// Azure identifies role assignments and federated credentials by their content, so their names may differ.
    pub(crate) fn is_renamed(&self, resource: &DesiredResource) -> bool {
        let collection = |id: &ArmResourceId| {
            let (collection, _name) = id.as_str().rsplit_once('/').unwrap_or_default();
            collection.to_ascii_lowercase()
        };
        let is_same = match resource.definition {
            ResourceDefinition::RoleAssignment { .. }
            | ResourceDefinition::FederatedCredential { .. } => {
                collection(&self.id) == collection(&resource.id)
            }
            _ => self.id == resource.id,
        };
        self.ownership.is_ours() && !is_same
    }
}

/// How far the last write of a resource got.
#[derive(Debug, Clone, PartialEq)]
pub enum WritePhase {
    /// The write succeeded.
    Complete,
    /// The write began; its result is unknown.
    Sent,
    /// Azure accepted the write as a long-running operation.
    Accepted(PendingOperation),
}

impl RecordedState {
    /// The resources with their keys.
    pub fn resources(&self) -> impl Iterator<Item = (&ResourceKey, &RecordedResource)> {
        self.resources.iter()
    }

    /// The resource with this key.
    pub fn get(&self, key: &ResourceKey) -> Option<&RecordedResource> {
        self.resources.get(key)
    }

    /// The state without these resources.
    #[must_use]
    pub fn without(&self, keys: &BTreeSet<ResourceKey>) -> Self {
        let mut state = self.clone();
        state.resources.retain(|key, _| !keys.contains(key));
        state
    }

    /// A state with these resources.
    #[cfg(test)]
    pub(crate) fn of(resources: impl IntoIterator<Item = (ResourceKey, RecordedResource)>) -> Self {
        Self { resources: resources.into_iter().collect(), ..Self::default() }
    }

    /// The run of a stack that has not ended successfully.
    pub(crate) fn unfinished_run(&self, stack: ResourceStack) -> Option<&UnfinishedRun> {
        self.unfinished.get(&stack)
    }

    pub(crate) fn apply(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Cluster { .. } => {}
            JournalEntry::RunStarted { command, stacks, caller, .. } => {
                self.caller.clone_from(caller);
                for stack in stacks {
                    let run = self.unfinished.entry(*stack);
                    let run = run.or_insert_with(|| UnfinishedRun::new(*command));
                    // A run of the other command does not continue this one.
                    if run.command != *command {
                        *run = UnfinishedRun::new(*command);
                    }
                }
            }
            JournalEntry::RunEnded { stacks, .. } => {
                self.unfinished.retain(|stack, _| !stacks.contains(stack));
            }
            JournalEntry::Writing { .. } => self.apply_writing(entry),
            JournalEntry::Accepted { key, operation, .. } => {
                if let Some(known) = self.resources.get_mut(key) {
                    known.phase = WritePhase::Accepted(operation.clone());
                }
            }
            JournalEntry::Recorded { .. } => self.apply_recorded(entry),
            JournalEntry::Removed { key, .. } => {
                let removed = self.resources.remove(key);
                if let Some(run) = removed.and_then(|it| self.unfinished.get_mut(&it.stack)) {
                    run.forget_creation(key);
                }
            }
        }
    }

    fn apply_recorded(&mut self, entry: &JournalEntry) {
        let JournalEntry::Recorded { key, stack, id, ownership, depends_on, created, .. } = entry
        else {
            return;
        };
        let earlier = self.resources.get(key).filter(|it| it.id == *id);
        let creation = match (created, earlier) {
            (Some(mark), _) => CreationEvidence::Confirmed(mark.clone()),
            (None, Some(earlier)) => earlier.creation.clone(),
            (None, None) => CreationEvidence::Unknown,
        };
        let (stack, ownership, depends_on) = (*stack, *ownership, depends_on.clone());
        let (id, phase) = (id.clone(), WritePhase::Complete);
        let resource = RecordedResource { stack, id, ownership, depends_on, phase, creation };
        let is_replaced = |it: &RecordedResource| it.id != resource.id;
        let replaced = self.resources.get(key).filter(|it| is_replaced(it)).cloned();
        self.resources.insert(key.clone(), resource);
        if let Some(run) = self.unfinished.get_mut(&stack) {
            if let Some(replaced) = replaced {
                run.record_replaced_record(key, &replaced);
            }
            if ownership == Ownership::Existing {
                run.forget_creation(key);
            }
        }
    }

    fn apply_writing(&mut self, entry: &JournalEntry) {
        let JournalEntry::Writing { at, key, stack, id, write, depends_on, before, desired } =
            entry
        else {
            return;
        };
        let known = self.resources.get(key);
        // The journal announces a creation only after Azure answered that the resource does not exist. Whether the
        // creation succeeded, and not that of another client, is decided from the live resource.
        let announced = || {
            let (at, by) = (*at, self.caller.clone());
            (Ownership::Created, CreationEvidence::Announced { at, by })
        };
        let (ownership, creation) = match (write, known) {
            (WriteKind::Create, _) => announced(),
            (_, Some(known)) => (known.ownership, known.creation.clone()),
            (_, None) => (Ownership::Existing, CreationEvidence::Unknown),
        };
        let depends_on = match (depends_on.is_empty(), known) {
            (true, Some(known)) => known.depends_on.clone(),
            _ => depends_on.clone(),
        };
        if let Some(run) = self.unfinished.get_mut(stack) {
            let bodies = (before.as_ref(), desired.as_ref());
            run.record_write(key, *write, bodies, |undo| RunChange {
                id: id.clone(),
                ownership,
                creation: creation.clone(),
                depends_on: depends_on.clone(),
                undo,
            });
        }
        let (stack, id, phase) = (*stack, id.clone(), WritePhase::Sent);
        let resource = RecordedResource { stack, id, ownership, depends_on, phase, creation };
        self.resources.insert(key.clone(), resource);
    }
}
