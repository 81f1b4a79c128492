//! Resources in a group that `destroy` deletes, but that the journal does not record.

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, ResourceGroupBody};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::cluster_identifiers::ClusterIdentifiers;
use crate::destroy::DestroyPlan;
use crate::journal::RecordedState;

/// Lists the resources that the deletion of the plan's groups would remove, although neither the journal nor a
/// tag shows that they belong to the cluster.
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
            let is_recorded = recorded
                .resources()
                .any(|(_, record)| is_contained(&record.id, &id) && record.ownership.is_ours());
            if !is_recorded && !is_tagged_by_controller(&body, identifiers) {
                unrecorded.push(id);
            }
        }
    }
    Ok(unrecorded)
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
    fn record_of_a_group_does_not_cover_its_content() {
        let id = |text: &str| text.parse::<ArmResourceId>().unwrap();
        let group = "/subscriptions/s/resourceGroups/g";
        let vnet = format!("{group}/providers/Microsoft.Network/virtualNetworks/v");
        assert!(!is_contained(&id(group), &id(&vnet)));
        assert!(is_contained(&id(&vnet), &id(&format!("{vnet}/subnets/s"))));
        assert!(!is_contained(&id(&vnet), &id(&format!("{vnet}2"))));
    }
}
