//! Virtual networks and subnets. Reference: Microsoft.Network, virtual networks, 2023-11-01.
//!
//! The subnets in the body of a virtual network are child resources: a write replaces all of them.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_reply};
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::request_scopes::{parent_scope, parse_request_scope, path_scope};
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_reads::find_resource;
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Map, Value, json};

use super::address_prefix::AddressPrefix;
use super::child_items::{child_resource, render_with_children, take_collection};
use super::private_addresses::addresses_in;
use super::reference::require_reference;

const VIRTUAL_NETWORK: &str = "Microsoft.Network/virtualNetworks";
const SUBNET: &str = "Microsoft.Network/virtualNetworks/subnets";

pub(super) const VIRTUAL_NETWORK_TYPE: ResourceType = ResourceType {
    prepare: prepare_network,
    check_deletion: check_network_deletion,
    render: Some(render_network),
    ..ResourceType::regional(
        VIRTUAL_NETWORK,
        NamingRule { length: (2, 64), ..NamingRule::word(64) },
        "2015-05-01-preview",
    )
};

pub(super) const SUBNET_TYPE: ResourceType = ResourceType {
    prepare: prepare_subnet,
    check_deletion: check_subnet_deletion,
    ..ResourceType::child(SUBNET, NamingRule::word(80), "2015-05-01-preview")
};

fn prepare_network(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let prefixes = network_prefixes(&write.properties)?;
    write.service_guid();
    write.default_property("enableDdosProtection", json!(false));
    let mut children = Vec::new();
    for mut item in take_collection(write, "subnets", SUBNET_TYPE.naming)? {
        complete_subnet(write, &mut item.properties)?;
        children.push(child_resource(write, "subnets", SUBNET, item));
    }
    require_free_prefixes(resource_name(write.id), &prefixes, &children)?;
    require_removable_subnets(write, &children)?;
    write.replace_children(SUBNET, children);
    Ok(())
}

fn network_prefixes(properties: &Map<String, Value>) -> Result<Vec<AddressPrefix>, ServiceReply> {
    let prefixes = properties
        .get("addressSpace")
        .and_then(|space| space.get("addressPrefixes"))
        .and_then(Value::as_array)
        .filter(|prefixes| !prefixes.is_empty());
    let Some(prefixes) = prefixes else {
        return Err(bad_request(
            "InvalidRequestFormat",
            "`properties.addressSpace.addressPrefixes` is missing or empty.",
        ));
    };
    prefixes.iter().map(parse_prefix).collect()
}

fn parse_prefix(value: &Value) -> Result<AddressPrefix, ServiceReply> {
    let text = value.as_str().unwrap_or_default();
    text.parse().map_err(|error: super::address_prefix::ParseAddressPrefixError| {
        bad_request(error.code(), error.to_string())
    })
}

fn prepare_subnet(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let mut properties = std::mem::take(&mut write.properties);
    complete_subnet(write, &mut properties)?;
    write.properties = properties;
    let network = parent_network(write)?;
    let prefixes = network_prefixes(&network)?;
    let mut subnets: Vec<_> = write
        .resources()
        .of_type_within(&parent_scope(write.id)?, SUBNET)
        .filter(|known| known.id != *write.id)
        .cloned()
        .collect();
    let body = json!({ "properties": write.properties });
    subnets.push(ArmResource::new(write.id.clone(), SUBNET, body, write.call.now));
    require_free_prefixes(resource_name(&parent_scope(write.id)?), &prefixes, &subnets)
}

/// Checks the resources to which a subnet refers and the permissions to link them. Adds defaults.
fn complete_subnet(
    write: &mut ResourceWrite<'_, '_>,
    properties: &mut Map<String, Value>,
) -> Result<(), ServiceReply> {
    for (name, kind) in [
        ("networkSecurityGroup", "Microsoft.Network/networkSecurityGroups"),
        ("routeTable", "Microsoft.Network/routeTables"),
        ("natGateway", "Microsoft.Network/natGateways"),
    ] {
        require_reference(write, properties.get(name), name, kind)?;
    }
    for (name, default) in [
        ("privateEndpointNetworkPolicies", "Disabled"),
        ("privateLinkServiceNetworkPolicies", "Enabled"),
    ] {
        properties.entry(name).or_insert(json!(default));
    }
    properties.entry("delegations").or_insert(json!([]));
    properties.insert("provisioningState".to_owned(), json!("Succeeded"));
    Ok(())
}

fn parent_network(write: &ResourceWrite<'_, '_>) -> Result<Map<String, Value>, ServiceReply> {
    let network = write.resources().resource(&parent_scope(write.id)?);
    Ok(match network.and_then(|network| network.body.get("properties")) {
        Some(Value::Object(properties)) => properties.clone(),
        _ => Map::new(),
    })
}

/// Checks that the prefixes of the subnets are within those of the network and do not overlap.
fn require_free_prefixes(
    network_name: &str,
    network: &[AddressPrefix],
    subnets: &[ArmResource],
) -> Result<(), ServiceReply> {
    let mut taken: Vec<(AddressPrefix, &str)> = Vec::new();
    for subnet in subnets {
        let name = resource_name(&subnet.id);
        for prefix in subnet_prefixes(subnet)? {
            if !network.iter().any(|space| space.contains(&prefix)) {
                return Err(bad_request(
                    "NetcfgSubnetRangeOutsideVnet",
                    format!(
                        "Subnet '{name}' is not valid because its IP address range is outside the IP \
                         address range of virtual network '{network_name}'. The range is '{prefix}'."
                    ),
                ));
            }
            if let Some((_, other)) = taken.iter().find(|(other, _)| other.overlaps(&prefix)) {
                return Err(bad_request(
                    "NetcfgSubnetRangesOverlap",
                    format!(
                        "Subnet '{name}' is not valid because its IP address range overlaps with that \
                         of an existing subnet in virtual network '{network_name}'. That subnet is \
                         '{other}'."
                    ),
                ));
            }
            taken.push((prefix, name));
        }
    }
    Ok(())
}

fn subnet_prefixes(subnet: &ArmResource) -> Result<Vec<AddressPrefix>, ServiceReply> {
    let several = subnet.property("addressPrefixes").and_then(Value::as_array);
    let prefixes: Vec<&Value> = match several {
        Some(prefixes) if !prefixes.is_empty() => prefixes.iter().collect(),
        _ => subnet.property("addressPrefix").into_iter().collect(),
    };
    if prefixes.is_empty() {
        let name = resource_name(&subnet.id);
        let message = format!("The subnet '{name}' has no `properties.addressPrefix`.");
        return Err(bad_request("InvalidRequestFormat", message));
    }
    prefixes.into_iter().map(parse_prefix).collect()
}

/// Rejects a write of a virtual network that would delete a subnet in use by omitting it.
fn require_removable_subnets(
    write: &ResourceWrite<'_, '_>,
    children: &[ArmResource],
) -> Result<(), ServiceReply> {
    let resources = write.resources();
    for subnet in resources.of_type_within(write.id, SUBNET) {
        if !children.iter().any(|child| child.id == subnet.id) {
            let deletion = ResourceDeletion { resources, resource: subnet, scope: &subnet.id };
            check_subnet_deletion(&deletion)?;
        }
    }
    Ok(())
}

fn check_subnet_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let Some(referrer) = deletion.referrers().next() else { return Ok(()) };
    Err(bad_request(
        "InUseSubnetCannotBeDeleted",
        format!(
            "Subnet {} is in use by {referrer} and cannot be deleted. In order to delete the subnet, \
             delete all the resources within the subnet.",
            resource_name(&deletion.resource.id)
        ),
    ))
}

fn check_network_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let resources = deletion.resources;
    for subnet in resources.of_type_within(&deletion.resource.id, SUBNET) {
        let scope = deletion.scope;
        check_subnet_deletion(&ResourceDeletion { resources, resource: subnet, scope })?;
    }
    Ok(())
}

/// Renders a virtual network with its subnets.
fn render_network(resources: &ArmResourceStore, network: &ArmResource) -> Value {
    render_with_children(resources, network, "subnets", SUBNET)
}

/// `GET …/CheckIPAddressAvailability?ipAddress=…`.
pub(super) fn check_address_availability(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let path = path_scope(call)?;
    let (network, _) = path.as_str().rsplit_once('/').unwrap_or_default();
    let network = parse_request_scope(network)?;
    authorize_call(
        call,
        "Microsoft.Network/virtualNetworks/checkIpAddressAvailability/read",
        &network,
    )?;
    find_resource(call, &network)?;
    let asked = call.request.query("ipAddress").unwrap_or_default();
    let resources = &call.azure().resources;
    let is_taken = resources
        .of_type_within(&network, SUBNET)
        .any(|subnet| addresses_in(resources, &subnet.id).any(|(address, _)| address == asked));
    let wire = json!({ "available": !is_taken, "availableIPAddresses": [] });
    Ok(json_reply(call, StatusCode::OK, &wire))
}
