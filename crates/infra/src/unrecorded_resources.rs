//! Resources in a group that `destroy` deletes, but that the journal does not record.

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, ResourceGroupBody};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::api_versions::api_version_of;
use crate::destroy::DestroyPlan;
use crate::journal::RecordedResource;
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;

/// A resource in a group that does not belong to the removal of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrecordedResource {
    /// The resource group.
    pub group: ArmResourceId,
    /// The id of the resource, as Azure lists it. Names of some types contain characters that an id of lanyard's
    /// resources cannot have, such as spaces.
    pub id: String,
}

/// Lists the resources that the deletion of the plan's groups would remove, although the plan does not contain them,
/// or nothing shows that they belong to lanyard. A resource of another stack of the journal is one of them.
///
/// The controllers of the cluster tag their virtual machines, disks and addresses; resources with such a tag belong
/// to the cluster.
///
/// # Errors
///
/// The error of the first list that failed.
pub async fn find_unrecorded_resources(
    arm: &ArmClient,
    plan: &DestroyPlan,
    tags: &OwnershipTags,
) -> Result<Vec<UnrecordedResource>, AzureCallError> {
    let mut unrecorded = Vec::new();
    let is_group =
        |id: &ArmResourceId| id.resource_type().is_none() && id.resource_group().is_some();
    let planned = plan.records();
    for resource in plan.resources.iter().filter(|it| is_group(&it.id)) {
        let group = &resource.id;
        let live = arm.fetch_optional(group.as_str(), ResourceGroupBody::API_VERSION).await?;
        let evidence = OwnershipEvidence::new(Some(&resource.record), tags);
        // A group of another client is not deleted.
        if !live.is_some_and(|live| evidence.is_ours(group, &live.body)) {
            continue;
        }
        let found = unrecorded_in_group(arm, group, &planned, tags).await?;
        unrecorded
            .extend(found.into_iter().map(|id| UnrecordedResource { group: group.clone(), id }));
    }
    Ok(unrecorded)
}

/// The ids of the resources in a group that neither the planned records nor a tag of a controller cover.
pub(crate) async fn unrecorded_in_group(
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
                let live = arm.fetch_optional(id.as_str(), api_version_of(id)).await?;
                let evidence = OwnershipEvidence::new(Some(record), tags);
                live.is_none_or(|live| evidence.is_ours(id, &live.body))
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
            return if evidence.is_ours(&id, body) {
                Self::Planned
            } else {
                Self::Unproven(record)
            };
        }
        // The record of a group does not cover its content.
        let is_parent = |record: &RecordedResource| {
            record.id.resource_type().is_some() && record.id.contains(&id)
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
    use crate::resource::{Ownership, ResourceKey, ResourceStack};

    const GROUP: &str = "/subscriptions/s/resourceGroups/g";

    /// A journal with a group, a network and an identity of another stack.
    fn recorded() -> RecordedState {
        let mut state = RecordedState::default();
        for (key, stack, id) in [
            ("group", ResourceStack::Infra, GROUP.to_owned()),
            ("vnet", ResourceStack::Infra, format!("{GROUP}/providers/N/virtualNetworks/v")),
            ("identity", ResourceStack::Iam, format!("{GROUP}/providers/M/identities/i")),
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
        let tags = OwnershipTags::new(&"harbour".parse().unwrap(), &"harbour-x".parse().unwrap());
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

    #[test]
    fn resources_of_another_stack_are_not_removed_with_the_group() {
        let state = recorded();
        let planned = |stacks: &[ResourceStack]| {
            let plan = DestroyPlan::new(&state, stacks);
            let names = plan.records().into_iter().map(|record| record.id.name().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(planned(&[ResourceStack::Infra]), ["g", "v"]);
        assert_eq!(planned(&[ResourceStack::Infra, ResourceStack::Iam]).len(), 3);
    }
}
