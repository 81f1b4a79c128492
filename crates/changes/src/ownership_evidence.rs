//! Decides from evidence whether a live resource belongs to lanyard.

use crate::journal::RecordedState;
use crate::live_state::LiveResource;
use crate::ownership_tags::OwnershipTags;
use crate::recorded_resource::RecordedResource;
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey};

/// What shows whether a live resource belongs to lanyard: its record in the journal, its tags, its creator and the
/// time of its creation.
///
/// Every command asks this type immediately before it deletes, replaces, changes or restores a resource, and none has a
/// rule of its own. Without evidence, a resource belongs to another client.
#[derive(Debug, Clone, Copy)]
pub struct OwnershipEvidence<'a> {
    /// What the journal records under the key of the resource.
    record: Option<&'a RecordedResource>,
    /// The tags of lanyard; `None` for a resource of a type that has none.
    tags: Option<&'a OwnershipTags>,
}

impl<'a> OwnershipEvidence<'a> {
    /// The evidence of this record and these tags.
    pub const fn new(record: Option<&'a RecordedResource>, tags: &'a OwnershipTags) -> Self {
        Self { record, tags: Some(tags) }
    }

    /// The evidence for a resource whose type has no tags.
    pub const fn of_untagged(record: &'a RecordedResource) -> Self {
        Self { record: Some(record), tags: None }
    }

    /// The evidence for the live resource with this id. Earlier versions recorded some role assignments under other
    /// keys, so a record of the same id under any key counts.
    pub(crate) fn of_id(
        recorded: &'a RecordedState,
        key: &ResourceKey,
        id: &ResourceId,
        tags: &'a OwnershipTags,
    ) -> Self {
        Self::new(recorded.find(key, id), tags)
    }

    /// To whom the live resource belongs.
    pub fn ownership_of(&self, live: &LiveResource) -> Ownership {
        let is_tagged = self.is_tagged(live);
        // A record of another id is no record of this resource: another client can have created an equal one.
        let record =
            self.record.filter(|record| record.id == live.id && record.ownership.is_ours());
        let Some(record) = record else {
            return if is_tagged { Ownership::Created } else { Ownership::Existing };
        };
        let is_same = if record.ownership == Ownership::Created && live.has_tags {
            // Another client can have removed the tags, or have created another resource without them.
            record.creation.proves(&live.creation)
        } else {
            record.creation.agrees_with(&live.creation)
        };
        if is_tagged || is_same { record.ownership } else { Ownership::Existing }
    }

    /// Whether the live resource has the tags of lanyard.
    pub fn is_tagged(&self, live: &LiveResource) -> bool {
        self.tags.is_some_and(|tags| tags.are_on(&live.body))
    }

    /// Whether lanyard may delete, replace or change the live resource.
    pub fn is_ours(&self, live: &LiveResource) -> bool {
        self.ownership_of(live).is_ours()
    }
}
