//! What is in a resource group beside the resources of a removal.

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, ResourceGroupBody};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use super::api_versions::api_version_of;
use super::live_arm_resource::arm_resource;
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;
use crate::recorded_resource::RecordedResource;

/// The ids of the resources in a group that neither the planned records nor a tag of a controller cover.
pub(super) async fn unrecorded_in_group(
    arm: &ArmClient,
    group: &ArmResourceId,
    planned: &[&RecordedResource],
    tags: &OwnershipTags,
) -> Result<Vec<String>, AzureCallError> {
    let path = format!("{group}/resources");
    let listed = match arm.list(&path, ResourceGroupBody::API_VERSION, &[]).await {
        Err(AzureCallError::NotFound { .. }) => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut unrecorded = Vec::new();
    for body in listed {
        let is_known = match ListedResource::of(&body, planned, tags) {
            ListedResource::Planned => true,
            ListedResource::Unrecorded => false,
            // Lists have no creators. Only imported resources, which have no tags of lanyard, need the second read.
            ListedResource::Unproven(record) => {
                let id = &record.id;
                let version = id.arm().map_or(ResourceGroupBody::API_VERSION, api_version_of);
                let live = arm.fetch_optional(id.as_str(), version).await?;
                let evidence = OwnershipEvidence::new(Some(record), tags);
                let is_ours = |body| evidence.is_ours(&arm_resource(id.clone(), body));
                live.is_none_or(|live| is_ours(live.body))
            }
        };
        if !is_known {
            unrecorded.push(listed_id(&body).to_owned());
        }
    }
    Ok(unrecorded)
}

/// What a resource in the list of a group is for the removal of the group.
#[derive(Debug, PartialEq)]
enum ListedResource<'a> {
    /// The removal of the group includes it.
    Planned,
    /// The removal of the group does not include it.
    Unrecorded,
    /// The plan contains it, but the list does not show that it belongs to lanyard.
    Unproven(&'a RecordedResource),
}

impl<'a> ListedResource<'a> {
    fn of(body: &Value, planned: &[&'a RecordedResource], tags: &OwnershipTags) -> Self {
        if tags.show_cluster_controller(body) {
            return Self::Planned;
        }
        // Resources of lanyard have ids that can be parsed.
        let Ok(id) = listed_id(body).parse::<ArmResourceId>() else { return Self::Unrecorded };
        if let Some(record) = planned.iter().copied().find(|record| record.id == id) {
            let evidence = OwnershipEvidence::new(Some(record), tags);
            return if evidence.is_ours(&arm_resource(id.into(), body.clone())) {
                Self::Planned
            } else {
                Self::Unproven(record)
            };
        }
        // The record of a group does not cover its content.
        let is_parent = |record: &RecordedResource| {
            record.id.arm().is_some_and(|it| it.resource_type().is_some() && it.contains(&id))
        };
        let is_below_planned = planned.iter().any(|record| is_parent(record));
        if is_below_planned { Self::Planned } else { Self::Unrecorded }
    }
}

/// The id of a listed resource, as Azure wrote it.
fn listed_id(body: &Value) -> &str {
    body["id"].as_str().unwrap_or("a resource without an id")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::{JournalEntry, RecordedState};
    use crate::resource_key::{Ownership, ResourceKey, StackName};

    const GROUP: &str = "/subscriptions/s/resourceGroups/g";

    /// A journal with a group, a network and an identity of another stack.
    fn recorded() -> RecordedState {
        let mut state = RecordedState::default();
        for (key, stack, id) in [
            ("group", StackName::new("infra"), GROUP.to_owned()),
            ("vnet", StackName::new("infra"), format!("{GROUP}/providers/N/virtualNetworks/v")),
            ("identity", StackName::new("iam"), format!("{GROUP}/providers/M/identities/i")),
        ] {
            state.apply(&JournalEntry::Recorded {
                at: jiff::Timestamp::UNIX_EPOCH,
                key: ResourceKey::new(key),
                stack,
                id: id.parse().unwrap(),
                ownership: Ownership::Created,
                depends_on: Vec::new(),
                created: None,
            });
        }
        state
    }

    #[test]
    fn listed_resource_whose_id_cannot_be_read_is_not_removed_with_the_group() {
        let state = recorded();
        let (group, vnet) = (ResourceKey::new("group"), ResourceKey::new("vnet"));
        let vnet = state.get(&vnet).unwrap();
        let planned = [state.get(&group).unwrap(), vnet];
        let tags = OwnershipTags::new("harbour", "harbour-x");
        let listed = |id: &str, is_tagged: bool| {
            let mut body = json!({ "id": id });
            if is_tagged {
                tags.add_to(&mut body);
            }
            ListedResource::of(&body, &planned, &tags)
        };
        let odd = format!("{GROUP}/providers/Microsoft.Insights/actionGroups/on-call #1");
        let below_odd = format!("{}/subnets/on-call #1", vnet.id);
        for id in [odd.as_str(), below_odd.as_str(), ""] {
            assert_eq!(listed(id, true), ListedResource::Unrecorded, "{id}");
        }
        assert_eq!(ListedResource::of(&json!({}), &planned, &tags), ListedResource::Unrecorded);
        assert_eq!(listed_id(&json!({ "id": odd })), odd);

        let other = format!("{GROUP}/providers/N/virtualNetworks/w");
        assert_eq!(listed(&other, true), ListedResource::Unrecorded);
        assert_eq!(listed(vnet.id.as_str(), true), ListedResource::Planned);
        assert_eq!(listed(vnet.id.as_str(), false), ListedResource::Unproven(vnet));
        assert_eq!(listed(&format!("{}/subnets/s", vnet.id), false), ListedResource::Planned);
    }
}
