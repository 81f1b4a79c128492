//! Route tables and routes. Reference: Microsoft.Network, route tables, 2023-11-01.

use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Map, Value, json};

use super::address_prefix::AddressPrefix;
use super::child_items::{
    child_resource, referring_resources, render_with_children, take_collection,
};

const ROUTE_TABLE: &str = "Microsoft.Network/routeTables";
const ROUTE: &str = "Microsoft.Network/routeTables/routes";

pub(super) const ROUTE_TABLE_TYPE: ResourceType = ResourceType {
    prepare: prepare_table,
    check_deletion: check_table_deletion,
    render: Some(render_table),
    ..ResourceType::regional(ROUTE_TABLE, NamingRule::word(80), "2015-05-01-preview")
};

pub(super) const ROUTE_TYPE: ResourceType = ResourceType {
    prepare: |write| require_valid_route(resource_name(write.id), &write.properties),
    ..ResourceType::child(ROUTE, NamingRule::word(80), "2015-05-01-preview")
};

fn prepare_table(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    write.service_guid();
    write.default_property("disableBgpRoutePropagation", json!(false));
    write.properties.remove("subnets");
    let mut routes = Vec::new();
    for item in take_collection(write, "routes", ROUTE_TYPE.naming)? {
        require_valid_route(&item.name, &item.properties)?;
        routes.push(child_resource(write, "routes", ROUTE, item));
    }
    write.replace_children(ROUTE, routes);
    Ok(())
}

fn require_valid_route(name: &str, properties: &Map<String, Value>) -> Result<(), ServiceReply> {
    const NEXT_HOPS: [&str; 5] =
        ["VirtualNetworkGateway", "VnetLocal", "Internet", "VirtualAppliance", "None"];
    let text = |field: &str| properties.get(field).and_then(Value::as_str).unwrap_or_default();
    let prefix = text("addressPrefix");
    // A service tag, such as `AzureMonitor`, starts with a letter.
    if !prefix.starts_with(|c: char| c.is_ascii_alphabetic())
        && let Err(error) = prefix.parse::<AddressPrefix>()
    {
        return Err(bad_request("InvalidAddressPrefixFormat", error.to_string()));
    }
    let next_hop = text("nextHopType");
    if !NEXT_HOPS.iter().any(|known| known.eq_ignore_ascii_case(next_hop)) {
        return Err(bad_request(
            "InvalidRequestFormat",
            format!(
                "The route '{name}' has the invalid nextHopType '{next_hop}'. Allowed values are {}.",
                NEXT_HOPS.join(", ")
            ),
        ));
    }
    let is_appliance = next_hop.eq_ignore_ascii_case("VirtualAppliance");
    if is_appliance && text("nextHopIpAddress").parse::<std::net::IpAddr>().is_err() {
        return Err(bad_request(
            "NextHopIpAddressNotProvided",
            format!("The route '{name}' of nextHopType VirtualAppliance has no nextHopIpAddress."),
        ));
    }
    Ok(())
}

fn check_table_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let Some(subnet) = deletion.referrers().next() else { return Ok(()) };
    Err(bad_request(
        "InUseRouteTableCannotBeDeleted",
        format!(
            "Route table {} is in use and cannot be deleted. It is associated with {subnet}.",
            resource_name(&deletion.resource.id)
        ),
    ))
}

fn render_table(resources: &ArmResourceStore, table: &ArmResource) -> Value {
    let mut wire = render_with_children(resources, table, "routes", ROUTE);
    let kind = "Microsoft.Network/virtualNetworks/subnets";
    let subnets = referring_resources(resources, &table.id, kind);
    if !subnets.is_empty() {
        wire["properties"]["subnets"] = json!(subnets);
    }
    wire
}
