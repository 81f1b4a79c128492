//! The state of a cluster's resources according to the journal.

use std::collections::BTreeMap;

use lanyard_azure::PendingOperation;
use lanyard_vocabulary::ArmResourceId;

use super::{JournalEntry, WriteKind};
use crate::resource::{Ownership, ResourceKey, ResourceStack};

/// The resources of the journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedState {
    resources: BTreeMap<ResourceKey, RecordedResource>,
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

    pub(crate) fn apply(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Cluster { .. } => {}
            JournalEntry::Writing { key, stack, id, write, depends_on, .. } => {
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
                let phase = WritePhase::Sent;
                let (stack, id) = (*stack, id.clone());
                let resource = RecordedResource { stack, id, ownership, depends_on, phase };
                self.resources.insert(key.clone(), resource);
            }
            JournalEntry::Accepted { key, operation, .. } => {
                if let Some(known) = self.resources.get_mut(key) {
                    known.phase = WritePhase::Accepted(operation.clone());
                }
            }
            JournalEntry::Recorded { key, stack, id, ownership, depends_on, .. } => {
                let phase = WritePhase::Complete;
                let (stack, id, ownership) = (*stack, id.clone(), *ownership);
                let depends_on = depends_on.clone();
                let resource = RecordedResource { stack, id, ownership, depends_on, phase };
                self.resources.insert(key.clone(), resource);
            }
            JournalEntry::Removed { key, .. } => {
                self.resources.remove(key);
            }
        }
    }
}
