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
        let text = body["id"].as_str().unwrap_or("a resource without an id");
        let is_known = tags.show_cluster_controller(&body)
            || match text.parse() {
                Ok(id) => is_planned(arm, &id, &body, planned, tags).await?,
                // Resources of lanyard have ids that can be parsed.
                Err(_) => false,
            };
        if !is_known {
            unrecorded.push(text.to_owned());
        }
    }
    Ok(unrecorded)
}

/// Whether the listed resource is one that the plan removes, or is below one.
async fn is_planned(
    arm: &ArmClient,
    id: &ArmResourceId,
    body: &Value,
    planned: &[&RecordedResource],
    tags: &OwnershipTags,
) -> Result<bool, AzureCallError> {
    let Some(record) = planned.iter().find(|record| record.id == *id) else {
        // The record of a group does not cover its content.
        let is_parent = |record: &RecordedResource| {
            record.id.resource_type().is_some() && record.id.contains(id)
        };
        return Ok(planned.iter().any(|record| is_parent(record)));
    };
    let evidence = OwnershipEvidence::new(Some(record), tags);
    if evidence.is_ours(id, body) {
        return Ok(true);
    }
    // Lists have no creators. Only imported resources, which have no tags of lanyard, need the second read.
    let live = arm.fetch_optional(id.as_str(), api_version_of(id)).await?;
    Ok(live.is_none_or(|live| evidence.is_ours(id, &live.body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JournalEntry, RecordedState};
    use crate::resource::{Ownership, ResourceKey, ResourceStack};

    #[test]
    fn resources_of_another_stack_are_not_removed_with_the_group() {
        let mut state = RecordedState::default();
        let group = "/subscriptions/s/resourceGroups/g";
        for (key, stack, id) in [
            ("group", ResourceStack::Infra, group.to_owned()),
            ("vnet", ResourceStack::Infra, format!("{group}/providers/N/virtualNetworks/v")),
            ("identity", ResourceStack::Iam, format!("{group}/providers/M/identities/i")),
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
        let planned = |stacks: &[ResourceStack]| {
            let plan = DestroyPlan::new(&state, stacks);
            let names = plan.records().into_iter().map(|record| record.id.name().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(planned(&[ResourceStack::Infra]), ["g", "v"]);
        assert_eq!(planned(&[ResourceStack::Infra, ResourceStack::Iam]).len(), 3);
    }
}
