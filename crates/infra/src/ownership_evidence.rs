//! Decides from evidence whether a live resource belongs to lanyard.

use lanyard_azure::{
    ArmBody as _, BlobContainerBody, FederatedCredentialBody, NsRecordSetBody, RoleAssignmentBody,
    RoleDefinitionBody,
};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::journal::{CreationMark, RecordedResource, RecordedState};
use crate::ownership_tags::OwnershipTags;
use crate::resource::{Ownership, ResourceKey};

/// What shows whether a live resource belongs to lanyard: its record in the journal, its tags, its creator and the
/// time of its creation.
///
/// Every command asks this type immediately before it deletes, replaces, changes or restores a resource of Azure
/// Resource Manager, and none has a rule of its own. Without evidence, a resource belongs to another client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnershipEvidence<'a> {
    /// What the journal records under the key of the resource.
    record: Option<&'a RecordedResource>,
    /// The tags of lanyard; `None` for a resource of a type that has none.
    tags: Option<&'a OwnershipTags>,
}

impl<'a> OwnershipEvidence<'a> {
    /// The evidence of this record and these tags.
    pub(crate) const fn new(record: Option<&'a RecordedResource>, tags: &'a OwnershipTags) -> Self {
        Self { record, tags: Some(tags) }
    }

    /// The evidence for a resource whose type has no tags.
    pub(crate) const fn of_untagged(record: &'a RecordedResource) -> Self {
        Self { record: Some(record), tags: None }
    }

    /// The evidence for the live resource with this id. Earlier versions recorded some role assignments under other
    /// keys, so a record of the same id under any key counts.
    pub(crate) fn of_id(
        recorded: &'a RecordedState,
        key: &ResourceKey,
        id: &ArmResourceId,
        tags: &'a OwnershipTags,
    ) -> Self {
        let of_key = recorded.get(key).filter(|record| record.id == *id);
        let of_id = || recorded.resources().map(|(_, record)| record).find(|it| it.id == *id);
        Self::new(of_key.or_else(of_id), tags)
    }

    /// To whom the live resource with this id and body belongs.
    pub(crate) fn ownership_of(&self, id: &ArmResourceId, body: &Value) -> Ownership {
        let is_tagged = self.is_tagged(body);
        // A record of another id is no record of this resource: another client can have created an equal one.
        let record = self.record.filter(|record| record.id == *id && record.ownership.is_ours());
        let Some(record) = record else {
            return if is_tagged { Ownership::Created } else { Ownership::Existing };
        };
        let live = CreationMark::of(body);
        let is_same = if record.ownership == Ownership::Created && has_ownership_tags(id) {
            // Another client can have removed the tags, or have created another resource without them.
            record.creation.proves(&live)
        } else {
            record.creation.agrees_with(&live)
        };
        let is_ours = is_tagged || is_same;
        if is_ours { record.ownership } else { Ownership::Existing }
    }

    /// Whether the live resource has the tags of lanyard.
    pub(crate) fn is_tagged(&self, body: &Value) -> bool {
        self.tags.is_some_and(|tags| tags.are_on(body))
    }

    /// Whether lanyard may delete, replace or change the live resource.
    pub(crate) fn is_ours(&self, id: &ArmResourceId, body: &Value) -> bool {
        self.ownership_of(id, body).is_ours()
    }
}

/// Whether lanyard sets its ownership tags when it creates a resource of this type.
pub(crate) fn has_ownership_tags(id: &ArmResourceId) -> bool {
    const TYPES_WITHOUT_TAGS: [&str; 5] = [
        BlobContainerBody::RESOURCE_TYPE,
        FederatedCredentialBody::RESOURCE_TYPE,
        NsRecordSetBody::RESOURCE_TYPE,
        RoleAssignmentBody::RESOURCE_TYPE,
        RoleDefinitionBody::RESOURCE_TYPE,
    ];
    !TYPES_WITHOUT_TAGS.iter().any(|resource_type| id.has_type(resource_type))
}
