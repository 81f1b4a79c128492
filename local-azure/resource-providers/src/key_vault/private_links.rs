//! The private endpoints of a vault.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_reply, list_reply};
use lanyard_emulator_arm::error::ArmServiceError;
use lanyard_emulator_arm::request_scopes::{parent_scope, path_scope};
use lanyard_emulator_arm::resource_reads::find_resource;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::private_endpoint_connections::private_endpoint_connections;
use serde_json::{Value, json};

/// `GET privateEndpointConnections`.
pub(super) fn list_connections(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let vault = collection_parent(call)?;
    let action = "Microsoft.KeyVault/vaults/privateEndpointConnections/read";
    authorize_call(call, action, &vault)?;
    let items = connections_of(call, &vault)?;
    list_reply(call, items)
}

/// `GET privateEndpointConnections/{connection}`.
pub(super) fn get_connection(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let action = "Microsoft.KeyVault/vaults/privateEndpointConnections/read";
    authorize_call(call, action, &id)?;
    let connections = connections_of(call, &parent_scope(&id)?)?;
    let found = connections.into_iter().find(|connection| {
        connection["id"].as_str().is_some_and(|known| known.eq_ignore_ascii_case(id.as_str()))
    });
    match found {
        Some(wire) => Ok(json_reply(call, StatusCode::OK, &wire)),
        None => Err(ArmServiceError::ResourceNotFound(&id).to_reply()),
    }
}

/// `GET privateLinkResources`: the sub-resources to which private endpoints can connect.
pub(super) fn list_link_resources(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let vault = collection_parent(call)?;
    authorize_call(call, "Microsoft.KeyVault/vaults/privateLinkResources/read", &vault)?;
    find_resource(call, &vault)?;
    let suffix = call.endpoint.cloud.vault_suffix();
    let zone = format!("privatelink.{}", suffix.replacen("vault.", "vaultcore.", 1));
    let item = json!({
        "id": format!("{vault}/privateLinkResources/vault"),
        "name": "vault",
        "type": "Microsoft.KeyVault/vaults/privateLinkResources",
        "properties": {
            "groupId": "vault",
            "requiredMembers": ["default"],
            "requiredZoneNames": [zone],
        },
    });
    list_reply(call, vec![item])
}

/// Returns the id of the vault in the path of a collection.
pub(super) fn collection_parent(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    parent_scope(&path_scope(call)?.child("_"))
}

fn connections_of(
    call: &OperationContext<'_>,
    vault: &AccessScope,
) -> Result<Vec<Value>, ServiceReply> {
    let resource = find_resource(call, vault)?;
    let mut connections = private_endpoint_connections(&call.azure().resources, resource);
    for connection in &mut connections {
        let id = connection["id"].as_str().unwrap_or_default();
        let name = id.rsplit('/').next().unwrap_or_default().to_owned();
        connection["name"] = json!(name);
        connection["type"] = json!("Microsoft.KeyVault/vaults/privateEndpointConnections");
    }
    Ok(connections)
}
