//! The state of a cluster's resources according to the journal.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{JournalEntry, WriteKind};
use super::unfinished_run::{RunChange, UnfinishedRun};
use crate::creation_evidence::CreationEvidence;
use crate::recorded_resource::{RecordedResource, WritePhase};
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey, StackName};

/// The resources of the journal, and the runs that have not ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedState {
    resources: BTreeMap<ResourceKey, RecordedResource>,
    unfinished: BTreeMap<StackName, UnfinishedRun>,
    /// The names of the identity that started the last run.
    caller: Vec<String>,
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

    /// The record of the resource with this id: under its key, or under another one.
    pub(crate) fn find(&self, key: &ResourceKey, id: &ResourceId) -> Option<&RecordedResource> {
        let of_key = self.get(key).filter(|record| record.id == *id);
        of_key.or_else(|| self.resources.values().find(|record| record.id == *id))
    }

    /// The state without these resources.
    #[must_use]
    pub fn without(&self, keys: &BTreeSet<ResourceKey>) -> Self {
        let mut state = self.clone();
        state.resources.retain(|key, _| !keys.contains(key));
        state
    }

    /// Adds a resource that no journal records, for the removal of what was found by other evidence.
    pub fn insert(&mut self, key: ResourceKey, resource: RecordedResource) {
        self.resources.insert(key, resource);
    }

    /// The run of a stack that has not ended successfully.
    pub(crate) fn unfinished_run(&self, stack: &StackName) -> Option<&UnfinishedRun> {
        self.unfinished.get(stack)
    }

    pub(crate) fn apply(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Cluster { .. } => {}
            JournalEntry::RunStarted { command, stacks, caller, .. } => {
                self.caller.clone_from(caller);
                for stack in stacks {
                    let run = self.unfinished.entry(stack.clone());
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
        let (stack, ownership, depends_on) = (stack.clone(), *ownership, depends_on.clone());
        let (id, phase) = (id.clone(), WritePhase::Complete);
        let resource =
            RecordedResource { stack: stack.clone(), id, ownership, depends_on, phase, creation };
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
            (WriteKind::Adjust, _) | (_, None) => (Ownership::Existing, CreationEvidence::Unknown),
            (_, Some(known)) => (known.ownership, known.creation.clone()),
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
        let (stack, id, phase) = (stack.clone(), id.clone(), WritePhase::Sent);
        let resource = RecordedResource { stack, id, ownership, depends_on, phase, creation };
        self.resources.insert(key.clone(), resource);
    }
}
