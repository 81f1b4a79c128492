//! The state of a cluster's resources according to the journal.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::PendingOperation;
use lanyard_vocabulary::ArmResourceId;

use super::entry::{JournalEntry, WriteKind};
use super::unfinished_run::{RunChange, UnfinishedRun};
use crate::resource::{DesiredResource, Ownership, ResourceDefinition, ResourceKey, ResourceStack};

/// The resources of the journal, and the runs that have not ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedState {
    resources: BTreeMap<ResourceKey, RecordedResource>,
    unfinished: BTreeMap<ResourceStack, UnfinishedRun>,
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

    /// Whether one of the records says that the resource with this id belongs to lanyard.
    pub(crate) fn owns(&self, id: &ArmResourceId) -> bool {
        self.resources.values().any(|record| record.id == *id && record.ownership.is_ours())
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
        Self { resources: resources.into_iter().collect(), unfinished: BTreeMap::new() }
    }

    /// The run of a stack that has not ended successfully.
    pub(crate) fn unfinished_run(&self, stack: ResourceStack) -> Option<&UnfinishedRun> {
        self.unfinished.get(&stack)
    }

    pub(crate) fn apply(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Cluster { .. } => {}
            JournalEntry::RunStarted { command, stacks, .. } => {
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
            JournalEntry::Recorded { key, stack, id, ownership, depends_on, .. } => {
                let phase = WritePhase::Complete;
                let (stack, ownership) = (*stack, *ownership);
                let depends_on = depends_on.clone();
                let resource =
                    RecordedResource { stack, id: id.clone(), ownership, depends_on, phase };
                let earlier = self.resources.insert(key.clone(), resource);
                if let Some(run) = self.unfinished.get_mut(&stack) {
                    if let Some(earlier) = earlier.filter(|it| it.id != *id) {
                        run.record_replaced_record(key, &earlier);
                    }
                    if ownership == Ownership::Existing {
                        run.forget_creation(key);
                    }
                }
            }
            JournalEntry::Removed { key, .. } => {
                let removed = self.resources.remove(key);
                if let Some(run) = removed.and_then(|it| self.unfinished.get_mut(&it.stack)) {
                    run.forget_creation(key);
                }
            }
        }
    }

    fn apply_writing(&mut self, entry: &JournalEntry) {
        let JournalEntry::Writing { key, stack, id, write, depends_on, before, desired, .. } =
            entry
        else {
            return;
        };
        let known = self.resources.get(key);
        // The journal announces a creation only after Azure answered that the resource does not exist.
        let ownership = match (write, known) {
            (WriteKind::Create, _) => Ownership::Created,
            (_, Some(known)) => known.ownership,
            (_, None) => Ownership::Existing,
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
                depends_on: depends_on.clone(),
                undo,
            });
        }
        let (stack, id, phase) = (*stack, id.clone(), WritePhase::Sent);
        let resource = RecordedResource { stack, id, ownership, depends_on, phase };
        self.resources.insert(key.clone(), resource);
    }
}
