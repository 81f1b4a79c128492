//! NAT gateways. Reference: Microsoft.Network, NAT gateways, 2023-11-01.

use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Value, json};

use super::child_items::referring_resources;
use super::public_ip_addresses::PUBLIC_IP_ADDRESS;
use super::reference::require_reference;

pub(super) const NAT_GATEWAY_TYPE: ResourceType = ResourceType {
    prepare: prepare_gateway,
    check_deletion: check_gateway_deletion,
    render: Some(render_gateway),
    ..ResourceType::regional("Microsoft.Network/natGateways", NamingRule::word(80), "2019-02-01")
};

fn prepare_gateway(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    if write.body.get("sku").and_then(|sku| sku.get("name")).is_none() {
        return Err(bad_request("NatGatewaySkuMissing", "`sku.name` is missing."));
    }
    write.service_guid();
    write.default_property("idleTimeoutInMinutes", json!(4));
    write.properties.remove("subnets");
    let addresses = write.properties.get("publicIpAddresses").cloned().unwrap_or_default();
    for address in addresses.as_array().into_iter().flatten() {
        require_reference(write, Some(address), "publicIpAddresses", PUBLIC_IP_ADDRESS)?;
    }
    Ok(())
}

fn check_gateway_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let Some(subnet) = deletion.referrers().next() else { return Ok(()) };
    Err(bad_request(
        "InUseNatGatewayCannotBeDeleted",
        format!(
            "NAT gateway {} is in use by {subnet} and cannot be deleted.",
            resource_name(&deletion.resource.id)
        ),
    ))
}

fn render_gateway(resources: &ArmResourceStore, gateway: &ArmResource) -> Value {
    let mut wire = gateway.to_json();
    let kind = "Microsoft.Network/virtualNetworks/subnets";
    let subnets = referring_resources(resources, &gateway.id, kind);
    if !subnets.is_empty() {
        wire["properties"]["subnets"] = json!(subnets);
    }
    wire
}
