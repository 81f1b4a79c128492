//! Resources in a group that `destroy` deletes, but that the journal does not record.

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, ResourceGroupBody};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::cluster_identifiers::ClusterIdentifiers;
use crate::destroy::DestroyPlan;
use crate::journal::RecordedState;

/// Lists the resources that the deletion of the plan's groups would remove, although neither the plan nor a tag
/// shows that they belong to the cluster. A resource of another stack of the journal is one of them.
///
/// The controllers of the cluster tag their machines, disks and addresses with
/// `kubernetes.io_cluster.<infraID>` or `sigs.k8s.io_cluster-api-provider-azure_cluster_<name>`; resources with
/// such a tag belong to the cluster.
///
/// # Errors
///
/// The error of the first list that failed.
pub async fn find_unrecorded_resources(
    arm: &ArmClient,
    plan: &DestroyPlan,
    recorded: &RecordedState,
    identifiers: &ClusterIdentifiers,
) -> Result<Vec<ArmResourceId>, AzureCallError> {
    let mut unrecorded = Vec::new();
    let planned = planned_ids(plan, recorded);
    let is_group =
        |id: &ArmResourceId| id.resource_type().is_none() && id.resource_group().is_some();
    for group in plan.resources.iter().filter(|it| is_group(&it.id)) {
        let path = format!("{}/resources", group.id);
        let listed = match arm.list(&path, ResourceGroupBody::API_VERSION, &[]).await {
            Err(AzureCallError::NotFound { .. }) => continue,
            listed => listed?,
        };
        for body in listed {
            let Some(id) = body["id"].as_str().and_then(|id| id.parse::<ArmResourceId>().ok())
            else {
                continue;
            };
            let is_recorded = planned.iter().any(|record| is_contained(record, &id));
            if !is_recorded && !is_tagged_by_controller(&body, identifiers) {
                unrecorded.push(id);
            }
        }
    }
    Ok(unrecorded)
}

/// The ids of the resources of lanyard that the plan removes.
fn planned_ids<'a>(plan: &DestroyPlan, recorded: &'a RecordedState) -> Vec<&'a ArmResourceId> {
    let records = plan.resources.iter().filter_map(|it| recorded.get(&it.key));
    records.filter(|record| record.ownership.is_ours()).map(|record| &record.id).collect()
}

/// Whether the recorded resource is this one or its parent. A group is no record of its content.
fn is_contained(recorded: &ArmResourceId, id: &ArmResourceId) -> bool {
    recorded.resource_type().is_some() && recorded.contains(id)
}

fn is_tagged_by_controller(body: &Value, identifiers: &ClusterIdentifiers) -> bool {
    let (name, infra_id) = (identifiers.name(), identifiers.infra_id());
    let tags = [
        format!("kubernetes.io_cluster.{infra_id}"),
        format!("sigs.k8s.io_cluster-api-provider-azure_cluster_{infra_id}"),
        format!("sigs.k8s.io_cluster-api-provider-azure_cluster_{name}"),
    ];
    let owned = |tag: &String| body["tags"][tag].as_str() == Some("owned");
    tags.iter().any(owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::JournalEntry;
    use crate::resource::{Ownership, ResourceKey, ResourceStack};

    #[test]
    fn resources_of_the_cluster_s_controllers_are_known_by_their_tag() {
        let identifiers =
            ClusterIdentifiers::new("harbour".parse().unwrap(), "harbour-x".parse().unwrap())
                .unwrap();
        let tagged = |tags| is_tagged_by_controller(&json!({ "tags": tags }), &identifiers);
        assert!(tagged(json!({ "kubernetes.io_cluster.harbour-x": "owned" })));
        assert!(!tagged(json!({ "kubernetes.io_cluster.harbour-x": "shared" })));
        assert!(!tagged(json!({ "kubernetes.io_cluster.harbour-xy": "owned" })));
        assert!(!tagged(json!({})));
    }

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
            });
        }
        let planned = |stacks: &[ResourceStack]| {
            let plan = DestroyPlan::new(&state, stacks);
            planned_ids(&plan, &state)
                .into_iter()
                .map(|id| id.name().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(planned(&[ResourceStack::Infra]), ["g", "v"]);
        assert_eq!(planned(&[ResourceStack::Infra, ResourceStack::Iam]).len(), 3);
    }

    #[test]
    fn record_of_a_group_does_not_cover_its_content() {
        let id = |text: &str| text.parse::<ArmResourceId>().unwrap();
        let group = "/subscriptions/s/resourceGroups/g";
        let vnet = format!("{group}/providers/Microsoft.Network/virtualNetworks/v");
        assert!(!is_contained(&id(group), &id(&vnet)));
        assert!(is_contained(&id(&vnet), &id(&format!("{vnet}/subnets/s"))));
        assert!(!is_contained(&id(&vnet), &id(&format!("{vnet}2"))));
    }
}
