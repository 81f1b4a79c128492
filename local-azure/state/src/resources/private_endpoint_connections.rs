//! The connections of private endpoints to a resource.

use serde_json::{Value, json};

use super::resource_store::{ArmResource, ArmResourceStore};
use crate::authorization::AccessScope;
use crate::azure_state::AzureState;

/// The type of a private endpoint.
pub const PRIVATE_ENDPOINT: &str = "Microsoft.Network/privateEndpoints";

/// The connections of private endpoints to a resource, as its `privateEndpointConnections`.
pub fn private_endpoint_connections(
    resources: &ArmResourceStore,
    target: &ArmResource,
) -> Vec<Value> {
    let mut connections = Vec::new();
    for referrer in resources.referrers_within(&target.id) {
        let Some(endpoint) = resources.resource(referrer) else { continue };
        if !endpoint.kind.eq_ignore_ascii_case(PRIVATE_ENDPOINT) {
            continue;
        }
        let lists = ["privateLinkServiceConnections", "manualPrivateLinkServiceConnections"];
        let of_endpoint = lists.iter().filter_map(|list| endpoint.property(list)?.as_array());
        for connection in of_endpoint.flatten() {
            let properties = &connection["properties"];
            let is_target = properties["privateLinkServiceId"]
                .as_str()
                .is_some_and(|id| id.eq_ignore_ascii_case(target.id.as_str()));
            if is_target {
                let name = connection["name"].as_str().unwrap_or_default();
                connections.push(json!({
                    "id": format!("{}/privateEndpointConnections/{name}", target.id),
                    "properties": {
                        "provisioningState": "Succeeded",
                        "privateEndpoint": { "id": endpoint.id.as_str() },
                        "privateLinkServiceConnectionState":
                            properties["privateLinkServiceConnectionState"],
                    },
                }));
            }
        }
    }
    connections
}

/// Whether a private endpoint has an approved connection to a vault.
pub fn has_private_endpoint(azure: &AzureState, vault: &AccessScope) -> bool {
    let Some(vault) = azure.resources.resource(vault) else { return false };
    private_endpoint_connections(&azure.resources, vault).iter().any(|connection| {
        connection["properties"]["privateLinkServiceConnectionState"]["status"] == "Approved"
    })
}
