//! Vaults as ARM resources. They configure the data plane: its tenant, permission model, retention
//! and firewall.
//!
//! Reference: Microsoft.KeyVault, 2023-07-01 to 2026-02-01.

mod access_policies;
mod deleted_vaults;
mod managed_hsms;
mod name_availability;
mod private_links;
mod vault_keys;
mod vault_properties;

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::locations::normalize_region;
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_arm::resource_type::{NameEdge, NamingRule, ResourceType, resource_name};
use lanyard_emulator_arm::{full, resource_operations, rg, sub};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::private_endpoint_connections::private_endpoint_connections;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use lanyard_vocabulary::VaultName;
use serde_json::{Map, Value, json};

use self::deleted_vaults::deleted_vault_not_found_reply;
use self::name_availability::{invalid_name_message, is_vault_name};
use self::vault_properties::complete_properties;

const VAULT: &str = "Microsoft.KeyVault/vaults";

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] = &[ResourceType {
    prepare: prepare_vault,
    release: soft_delete_vault,
    render: Some(render_vault),
    endpoints: &["/properties/vaultUri"],
    long_running: false,
    ..ResourceType::regional(
        VAULT,
        // `prepare_vault` checks names: an invalid name has an error code of its own.
        NamingRule {
            length: (1, 127),
            first: NameEdge::Any,
            last: NameEdge::Any,
            ..NamingRule::word(127)
        },
        "2015-06-01",
    )
}];

pub(super) const VAULTS: &[ServiceOperation] =
    resource_operations!("Vaults", "Microsoft.KeyVault/vaults");

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    full!(
        "Vaults_UpdateAccessPolicy",
        PUT,
        rg!("Microsoft.KeyVault/vaults/{name}/accessPolicies/{operation}"),
        access_policies::update_access_policies
    ),
    full!(
        "Vaults_ListDeleted",
        GET,
        sub!("Microsoft.KeyVault/deletedVaults"),
        deleted_vaults::list_deleted_vaults
    ),
    full!(
        "Vaults_GetDeleted",
        GET,
        sub!("Microsoft.KeyVault/locations/{location}/deletedVaults/{name}"),
        deleted_vaults::get_deleted_vault
    ),
    full!(
        "Vaults_PurgeDeleted",
        POST,
        sub!("Microsoft.KeyVault/locations/{location}/deletedVaults/{name}/purge"),
        deleted_vaults::purge_deleted_vault
    ),
    full!(
        "Vaults_CheckNameAvailability",
        POST,
        sub!("Microsoft.KeyVault/checkNameAvailability"),
        name_availability::check_vault_name
    ),
    full!(
        "PrivateEndpointConnections_ListByResource",
        GET,
        rg!("Microsoft.KeyVault/vaults/{name}/privateEndpointConnections"),
        private_links::list_connections
    ),
    full!(
        "PrivateEndpointConnections_Get",
        GET,
        rg!("Microsoft.KeyVault/vaults/{name}/privateEndpointConnections/{connection}"),
        private_links::get_connection
    ),
    full!(
        "PrivateLinkResources_ListByVault",
        GET,
        rg!("Microsoft.KeyVault/vaults/{name}/privateLinkResources"),
        private_links::list_link_resources
    ),
];

/// Keys as ARM resources, for templates and pipelines.
pub(super) const VAULT_KEYS: &[ServiceOperation] = &[
    full!(
        "Keys_Get",
        GET,
        rg!("Microsoft.KeyVault/vaults/{name}/keys/{object}"),
        vault_keys::get_key
    ),
    full!(
        "Keys_CreateIfNotExist",
        PUT,
        rg!("Microsoft.KeyVault/vaults/{name}/keys/{object}"),
        vault_keys::create_key
    ),
    full!(
        "Keys_GetVersion",
        GET,
        rg!("Microsoft.KeyVault/vaults/{name}/keys/{object}/versions/{version}"),
        vault_keys::get_key
    ),
];

pub(super) use self::managed_hsms::OPERATIONS as MANAGED_HSM_OPERATIONS;

/// Validates a vault, and creates or changes its data plane.
fn prepare_vault(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let name = vault_name(write.id)?;
    let host = vault_host(write.call, &name);
    let vaults = &write.call.azure().vaults;
    if vaults.vault_at_host(&host).is_some_and(|known| known.resource_id != *write.id) {
        return Err(conflict(
            "VaultAlreadyExists",
            format!(
                "The vault name '{name}' is already in use. Vault names are globally unique so it is \
                 possible that the name is already taken. If you are sure that the vault name was not \
                 taken then it is possible that a vault with the same name was recently deleted but not \
                 purged after being placed in a recoverable state. If the vault is in a recoverable state \
                 then the vault will need to be purged before reusing the name."
            ),
        ));
    }
    let mode = write.properties.remove("createMode");
    let is_recovery = mode
        .as_ref()
        .and_then(Value::as_str)
        .is_some_and(|mode| mode.eq_ignore_ascii_case("recover"));
    if write.existing.is_none() && is_recovery {
        return recover_vault(write, &host);
    }
    if vaults.deleted_vault(&host, write.call.now).is_some() {
        return Err(conflict(
            "ConflictError",
            "A vault with the same name already exists in deleted state. You need to either recover or \
             purge existing key vault. Follow this link \
             https://go.microsoft.com/fwlink/?linkid=2149745 for more information on soft delete.",
        ));
    }
    let settings = complete_properties(write, &host)?;
    let location = write.body.get("location").and_then(Value::as_str).unwrap_or_default();
    let (id, location) = (write.id.clone(), location.to_owned());
    let vaults = &mut write.call.azure_mut().vaults;
    match vaults.vault_of_resource_mut(&id) {
        Some(known) => known.settings = settings,
        None => vaults.insert(EmulatedVault::new(name, host, id, location, settings)),
    }
    Ok(())
}

/// Recovers the deleted vault of this resource id and region, with its properties before the deletion.
fn recover_vault(write: &mut ResourceWrite<'_, '_>, host: &str) -> Result<(), ServiceReply> {
    let location = write.body.get("location").and_then(Value::as_str).unwrap_or_default();
    let deleted = write.call.azure().vaults.deleted_vault(host, write.call.now).filter(|deleted| {
        deleted.vault.resource_id == *write.id
            && normalize_region(&deleted.vault.location) == normalize_region(location)
    });
    if deleted.is_none() {
        return Err(deleted_vault_not_found_reply(resource_name(write.id)));
    }
    let azure = write.call.azure_mut();
    let Some(resource) = azure.vaults.recover(host) else {
        return Err(deleted_vault_not_found_reply(resource_name(write.id)));
    };
    write.body.clone_from(&resource.body);
    azure.resources.upsert(resource);
    write.properties = match write.body.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    Ok(())
}

/// Renders a vault with its private endpoint connections.
fn render_vault(resources: &ArmResourceStore, vault: &ArmResource) -> Value {
    let mut wire = vault.to_json();
    let connections = private_endpoint_connections(resources, vault);
    if !connections.is_empty() {
        wire["properties"]["privateEndpointConnections"] = json!(connections);
    }
    wire
}

/// Soft-deletes the data plane of a removed vault.
fn soft_delete_vault(
    azure: &mut AzureState,
    resource: &ArmResource,
    now: Timestamp,
) -> Vec<AccessScope> {
    let host = azure.vaults.vault_of_resource(&resource.id).map(|vault| vault.host.clone());
    if let Some(host) = host {
        azure.vaults.soft_delete(&host, resource.clone(), now);
    }
    Vec::new()
}

fn vault_name(id: &AccessScope) -> Result<VaultName, ServiceReply> {
    let name = resource_name(id);
    let invalid = || bad_request("VaultNameNotValid", invalid_name_message(name));
    if !is_vault_name(name) {
        return Err(invalid());
    }
    name.parse().or(Err(invalid()))
}

fn vault_host(call: &OperationContext<'_>, name: &VaultName) -> String {
    call.endpoint.cloud.vault_host(name)
}

/// The error for a value that the resource provider does not accept.
fn invalid_vault_reply(message: impl Into<String>) -> ServiceReply {
    bad_request("BadRequest", message)
}

/// The error for an operation that the state of the vault does not permit.
fn method_not_allowed_reply(message: String) -> ServiceReply {
    ArmServiceError::Other(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).to_reply()
}

#[cfg(test)]
mod tests;
