//! What the journal records about one resource.

use crate::accepted_write::AcceptedWrite;
use crate::creation_evidence::CreationEvidence;
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey, StackName};

/// A resource of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedResource {
    /// The stack that the resource belongs to.
    pub stack: StackName,
    /// The id of the resource.
    pub id: ResourceId,
    /// Whether `destroy` deletes the resource.
    pub ownership: Ownership,
    /// The resources that this one needs. They are deleted after it.
    pub depends_on: Vec<ResourceKey>,
    /// How far the last write got.
    pub phase: WritePhase,
    /// What is known about the creation of the resource.
    pub creation: CreationEvidence,
}

/// How far the last write of a resource got.
#[derive(Debug, Clone, PartialEq)]
pub enum WritePhase {
    /// The write succeeded.
    Complete,
    /// The write began; its result is unknown.
    Sent,
    /// The service accepted the write; it may still work on it.
    Accepted(AcceptedWrite),
}
