//! Network interfaces. Reference: Microsoft.Network, network interfaces, 2023-11-01.

use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::private_endpoint_connections::PRIVATE_ENDPOINT;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Map, Value, json};

use super::child_items::{item_json, referring_resources, take_collection};
use super::private_addresses::complete_private_address;
use super::public_ip_addresses::PUBLIC_IP_ADDRESS;
use super::reference::{require_item_reference, require_reference};

pub(super) const NETWORK_INTERFACE: &str = "Microsoft.Network/networkInterfaces";

pub(super) const NETWORK_INTERFACE_TYPE: ResourceType = ResourceType {
    prepare: prepare_interface,
    check_deletion: check_interface_deletion,
    render: Some(render_interface),
    ..ResourceType::regional(NETWORK_INTERFACE, NamingRule::word(80), "2015-05-01-preview")
};

fn prepare_interface(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let group = write.properties.get("networkSecurityGroup").cloned();
    let kind = "Microsoft.Network/networkSecurityGroups";
    require_reference(write, group.as_ref(), "networkSecurityGroup", kind)?;
    let configurations = take_collection(write, "ipConfigurations", NamingRule::word(80))?;
    if configurations.is_empty() {
        return Err(bad_request(
            "NetworkInterfaceMustHaveOneIpConfiguration",
            format!(
                "Network interface {} must have one or more IP configurations.",
                resource_name(write.id)
            ),
        ));
    }
    let (mut items, mut taken) = (Vec::new(), Vec::new());
    for (at, mut item) in configurations.into_iter().enumerate() {
        complete_configuration(write, &mut item.properties, &mut taken)?;
        item.properties.entry("primary").or_insert(json!(at == 0));
        items.push(item_json(write.id, NETWORK_INTERFACE, "ipConfigurations", item));
    }
    write.properties.insert("ipConfigurations".to_owned(), json!(items));
    write.service_guid();
    let mac = write.call.ids.next_uuid();
    write.service_property("macAddress", || json!(mac_address(mac)));
    write.default_property("enableAcceleratedNetworking", json!(false));
    write.default_property("enableIPForwarding", json!(false));
    write.default_property("dnsSettings", json!({ "dnsServers": [], "appliedDnsServers": [] }));
    write.default_property("nicType", json!("Standard"));
    write.properties.remove("virtualMachine");
    Ok(())
}

fn complete_configuration(
    write: &ResourceWrite<'_, '_>,
    properties: &mut Map<String, Value>,
    taken: &mut Vec<std::net::IpAddr>,
) -> Result<(), ServiceReply> {
    if properties.get("subnet").is_none_or(Value::is_null) {
        let message = "The IP configuration has no `properties.subnet.id`.";
        return Err(bad_request("SubnetMissing", message));
    }
    complete_private_address(write, properties, taken)?;
    let address = properties.get("publicIPAddress");
    require_reference(write, address, "publicIPAddress", PUBLIC_IP_ADDRESS)?;
    for field in ["loadBalancerBackendAddressPools", "loadBalancerInboundNatRules"] {
        for reference in properties.get(field).and_then(Value::as_array).into_iter().flatten() {
            require_item_reference(write, reference, field)?;
        }
    }
    Ok(())
}

/// Returns a MAC address in Microsoft's range, derived from a new id.
fn mac_address(seed: uuid::Uuid) -> String {
    let bytes = seed.as_bytes();
    format!("00-22-48-{:02X}-{:02X}-{:02X}", bytes[0], bytes[1], bytes[2])
}

fn check_interface_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let Some(owner) = deletion.referrers().next() else { return Ok(()) };
    let interface = &deletion.resource.id;
    let owner_kind = deletion.resources.resource(owner).map(|owner| owner.kind.as_str());
    if owner_kind.is_some_and(|kind| kind.eq_ignore_ascii_case(PRIVATE_ENDPOINT)) {
        return Err(bad_request(
            "NicInUseWithPrivateEndpoint",
            format!(
                "Network interface {interface} cannot be deleted because it is currently in use with an \
                 private endpoint ({owner})."
            ),
        ));
    }
    Err(bad_request(
        "NicInUse",
        format!(
            "Network Interface {interface} is used by existing resource {owner}. In order to delete the \
             network interface, it must be dissociated from the resource."
        ),
    ))
}

fn render_interface(resources: &ArmResourceStore, interface: &ArmResource) -> Value {
    let mut wire = interface.to_json();
    for (field, kind) in [
        ("virtualMachine", "Microsoft.Compute/virtualMachines"),
        ("privateEndpoint", PRIVATE_ENDPOINT),
    ] {
        if let Some(owner) = referring_resources(resources, &interface.id, kind).into_iter().next()
        {
            wire["properties"][field] = owner;
        }
    }
    wire
}
