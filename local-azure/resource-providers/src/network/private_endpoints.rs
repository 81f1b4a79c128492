//! Private endpoints and private link services. Reference: Microsoft.Network, private endpoints and private
//! link services, 2023-11-01.

use lanyard_emulator_arm::access::{authorize_link, is_authorized};
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::request_scopes::{parse_request_scope, resource_type};
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::private_endpoint_connections::PRIVATE_ENDPOINT;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use serde_json::{Value, json};

use super::network_interfaces::NETWORK_INTERFACE;
use super::private_addresses::complete_private_address;
use super::reference::{require_item_reference, require_reference};

const PRIVATE_LINK_SERVICE: &str = "Microsoft.Network/privateLinkServices";
const SUBNET: &str = "Microsoft.Network/virtualNetworks/subnets";

pub(super) const PRIVATE_ENDPOINT_TYPE: ResourceType = ResourceType {
    prepare: prepare_endpoint,
    release: |_, endpoint, _| interfaces_of_endpoint(endpoint),
    ..ResourceType::regional(
        PRIVATE_ENDPOINT,
        NamingRule { length: (2, 64), ..NamingRule::word(64) },
        "2019-04-01",
    )
};

pub(super) const PRIVATE_LINK_SERVICE_TYPE: ResourceType = ResourceType {
    prepare: prepare_link_service,
    ..ResourceType::regional(PRIVATE_LINK_SERVICE, NamingRule::word(80), "2019-04-01")
};

/// The group ids of the resource types to which private endpoints connect. Reference: "What is a
/// private endpoint?", private-link resource.
const GROUP_IDS: [(&str, &[&str]); 3] = [
    ("Microsoft.KeyVault/vaults", &["vault"]),
    (
        "Microsoft.Storage/storageAccounts",
        &["blob", "blob_secondary", "table", "queue", "file", "web", "dfs"],
    ),
    ("Microsoft.ContainerService/managedClusters", &["management"]),
];

fn prepare_endpoint(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let subnet = write.properties.get("subnet").cloned();
    let subnet = require_reference(write, subnet.as_ref(), "subnet", SUBNET)?;
    let Some(subnet) = subnet else {
        return Err(bad_request("SubnetMissing", "`properties.subnet.id` is missing."));
    };
    for field in ["privateLinkServiceConnections", "manualPrivateLinkServiceConnections"] {
        let is_manual = field.starts_with("manual");
        let connections = write.properties.remove(field).unwrap_or_else(|| json!([]));
        let mut completed = Vec::new();
        for connection in connections.as_array().into_iter().flatten() {
            completed.push(complete_connection(write, field, connection.clone(), is_manual)?);
        }
        write.properties.insert(field.to_owned(), json!(completed));
    }
    if write.existing.is_none() {
        let interface = endpoint_interface(write, &subnet)?;
        let reference = json!([{ "id": interface.id.as_str() }]);
        write.properties.insert("networkInterfaces".to_owned(), reference);
        write.others.push(interface);
    } else {
        write.service_property("networkInterfaces", || json!([]));
    }
    write.default_property("customDnsConfigs", json!([]));
    write.default_property("customNetworkInterfaceName", json!(""));
    Ok(())
}

/// Checks a private link connection. Unless it is manual, it is approved if the caller may approve
/// it.
fn complete_connection(
    write: &ResourceWrite<'_, '_>,
    field: &str,
    mut connection: Value,
    is_manual: bool,
) -> Result<Value, ServiceReply> {
    let name = connection["name"].as_str().unwrap_or_default().to_owned();
    let properties = &mut connection["properties"];
    let Some(target) = properties["privateLinkServiceId"].as_str() else {
        let message = format!("The connection '{name}' has no `privateLinkServiceId`.");
        return Err(bad_request("InvalidRequestFormat", message));
    };
    let target = parse_request_scope(target)?;
    let kind = resource_type(&target)?;
    if write.resources().resource(&target).is_none() {
        return Err(bad_request(
            "InvalidResourceReference",
            format!("Resource {target} referenced by resource {} was not found.", write.id),
        ));
    }
    let known = GROUP_IDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(&kind));
    for group in properties["groupIds"].as_array().into_iter().flatten() {
        let group = group.as_str().unwrap_or_default();
        if known.is_some_and(|(_, known)| !known.contains(&group)) {
            return Err(bad_request(
                "PrivateEndpointInvalidGroupId",
                format!("The resource {target} of type '{kind}' has no group id '{group}'."),
            ));
        }
    }
    let approve = format!("{kind}/PrivateEndpointConnectionsApproval/action");
    let is_approved = !is_manual && is_authorized(write.call, write.caller, &approve, &target);
    if !is_manual && !is_approved {
        authorize_link(write.call, write.caller, &approve, write.id, &target)?;
    }
    properties["provisioningState"] = json!("Succeeded");
    properties["privateLinkServiceConnectionState"] = if is_approved {
        json!({ "status": "Approved", "description": "Auto-Approved", "actionsRequired": "None" })
    } else {
        json!({ "status": "Pending", "description": "Awaiting approval", "actionsRequired": "None" })
    };
    connection["id"] = json!(format!("{}/{field}/{name}", write.id));
    Ok(connection)
}

/// Returns the network interface that Azure creates for a private endpoint.
fn endpoint_interface(
    write: &mut ResourceWrite<'_, '_>,
    subnet: &AccessScope,
) -> Result<ArmResource, ServiceReply> {
    let mut configuration = serde_json::Map::new();
    configuration.insert("subnet".to_owned(), json!({ "id": subnet.as_str() }));
    complete_private_address(write, &mut configuration, &mut Vec::new())?;
    configuration.insert("primary".to_owned(), json!(true));
    let seed = write.call.ids.next_uuid();
    let name = format!("{}.nic.{seed}", resource_name(write.id));
    let group = write.id.as_str().split("/providers/").next().unwrap_or_default();
    let id = parse_request_scope(&format!("{group}/providers/{NETWORK_INTERFACE}/{name}"))?;
    let body = json!({
        "location": write.body.get("location"),
        "properties": {
            "provisioningState": "Succeeded",
            "resourceGuid": seed,
            "ipConfigurations": [{
                "id": format!("{id}/ipConfigurations/privateEndpointIpConfig"),
                "name": "privateEndpointIpConfig",
                "type": format!("{NETWORK_INTERFACE}/ipConfigurations"),
                "properties": configuration,
            }],
            "nicType": "Standard",
        },
    });
    Ok(ArmResource::new(id, NETWORK_INTERFACE, body, write.call.now))
}

/// The network interfaces of a removed private endpoint, which Azure deletes with it.
pub(crate) fn interfaces_of_endpoint(resource: &ArmResource) -> Vec<AccessScope> {
    let interfaces = resource.property("networkInterfaces").and_then(Value::as_array);
    let ids = interfaces.into_iter().flatten().filter_map(|interface| interface["id"].as_str());
    ids.filter_map(|id| id.parse().ok()).collect()
}

fn prepare_link_service(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let frontends = write.properties.get("loadBalancerFrontendIpConfigurations").cloned();
    for frontend in frontends.as_ref().and_then(Value::as_array).into_iter().flatten() {
        require_item_reference(write, frontend, "loadBalancerFrontendIpConfigurations")?;
    }
    let configurations = write.properties.get("ipConfigurations").cloned().unwrap_or_default();
    for configuration in configurations.as_array().into_iter().flatten() {
        let subnet = configuration["properties"].get("subnet");
        let subnet = require_reference(write, subnet, "subnet", SUBNET)?;
        if let Some(subnet) = subnet {
            require_disabled_policies(write, &subnet)?;
        }
    }
    let region = write.body.get("location").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, seed) = (resource_name(write.id), write.call.ids.next_uuid());
    write.service_property("alias", || {
        json!(format!("{name}.{seed}.{region}.azure.privatelinkservice"))
    });
    write.default_property("privateEndpointConnections", json!([]));
    Ok(())
}

/// Checks that the network policies for private link services are disabled in the subnet.
fn require_disabled_policies(
    write: &ResourceWrite<'_, '_>,
    subnet: &AccessScope,
) -> Result<(), ServiceReply> {
    let known = write.resources().resource(subnet);
    let policies = known.and_then(|it| it.property("privateLinkServiceNetworkPolicies"));
    if policies.and_then(Value::as_str).is_none_or(|it| !it.eq_ignore_ascii_case("Enabled")) {
        return Ok(());
    }
    Err(bad_request(
        "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled",
        format!(
            "Private link service {} cannot be created in a subnet {subnet} since it has private link \
             service network policies enabled.",
            write.id
        ),
    ))
}
