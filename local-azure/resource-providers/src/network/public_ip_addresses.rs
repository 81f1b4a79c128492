//! Public IP addresses. Reference: Microsoft.Network, public IP addresses, 2023-11-01.

use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::quotas::require_address_quota;
use super::child_items::{mentions, referring_items};

pub(super) const PUBLIC_IP_ADDRESS: &str = "Microsoft.Network/publicIPAddresses";

pub(super) const PUBLIC_IP_ADDRESS_TYPE: ResourceType = ResourceType {
    prepare: prepare_address,
    check_deletion: check_address_deletion,
    render: Some(render_address),
    ..ResourceType::regional(PUBLIC_IP_ADDRESS, NamingRule::word(80), "2015-05-01-preview")
};

fn prepare_address(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let sku = write.body.entry("sku").or_insert_with(|| json!({ "name": "Standard" }));
    if sku.get("tier").is_none() {
        sku["tier"] = json!("Regional");
    }
    let is_standard = sku["name"].as_str().is_some_and(|name| !name.eq_ignore_ascii_case("Basic"));
    let default_method = if is_standard { "Static" } else { "Dynamic" };
    write.default_property("publicIPAllocationMethod", json!(default_method));
    if write.existing.is_none() {
        let region = write.body.get("location").and_then(Value::as_str).unwrap_or_default();
        require_address_quota(write.call, region)?;
    }
    write.default_property("publicIPAddressVersion", json!("IPv4"));
    write.default_property("idleTimeoutInMinutes", json!(4));
    write.default_property("ipTags", json!([]));
    write.service_guid();
    let is_static = write.properties["publicIPAllocationMethod"]
        .as_str()
        .is_some_and(|method| method.eq_ignore_ascii_case("Static"));
    if is_standard && !is_static {
        return Err(bad_request(
            "StandardSkuPublicIPAddressesMustBeStatic",
            "Standard sku publicIp must have AllocationMethod set to Static.",
        ));
    }
    let minutes = write.properties["idleTimeoutInMinutes"].as_u64().unwrap_or(0);
    if !(4..=30).contains(&minutes) {
        return Err(bad_request(
            "InvalidIdleTimeoutInMinutes",
            format!("The idle timeout of {minutes} minutes is not within 4 and 30."),
        ));
    }
    if is_static {
        let is_v6 = write.properties["publicIPAddressVersion"] == "IPv6";
        let seed = write.call.ids.next_uuid();
        write.service_property("ipAddress", || json!(public_address(seed, is_v6)));
    }
    set_fqdn(write);
    Ok(())
}

/// Returns an address in a range of Azure, derived from a new id.
fn public_address(seed: Uuid, is_v6: bool) -> String {
    let bytes = seed.as_bytes();
    if is_v6 {
        return format!("2603:1030:{:02x}{:02x}::{:02x}", bytes[0], bytes[1], bytes[2].max(1));
    }
    format!("20.{}.{}.{}", bytes[0], bytes[1], bytes[2].clamp(1, 254))
}

/// Sets the DNS name of an address that has a domain name label.
fn set_fqdn(write: &mut ResourceWrite<'_, '_>) {
    let region = write.body.get("location").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(settings) = write.properties.get_mut("dnsSettings")
        && let Some(label) = settings.get("domainNameLabel").and_then(Value::as_str)
    {
        settings["fqdn"] = json!(format!("{label}.{region}.cloudapp.azure.com"));
    }
}

fn check_address_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let Some(referrer) = deletion.referrers().next() else { return Ok(()) };
    Err(bad_request(
        "PublicIPAddressCannotBeDeleted",
        format!(
            "Public IP address {} can not be deleted since it is still allocated to resource \
             {referrer}. In order to delete the public IP, disassociate/detach the Public IP address \
             from the resource.",
            deletion.resource.id
        ),
    ))
}

/// Renders an address with the IP configuration or the NAT gateway that uses it.
fn render_address(resources: &ArmResourceStore, address: &ArmResource) -> Value {
    let mut wire = address.to_json();
    let configurations = [
        ("Microsoft.Network/networkInterfaces", "ipConfigurations"),
        ("Microsoft.Network/loadBalancers", "frontendIPConfigurations"),
    ]
    .into_iter()
    .flat_map(|(kind, collection)| referring_items(resources, &address.id, kind, collection))
    .next();
    if let Some(configuration) = configurations {
        wire["properties"]["ipConfiguration"] = configuration;
    }
    let gateway = resources.referrers_within(&address.id).find_map(|referrer| {
        let resource = resources.resource(referrer)?;
        let is_gateway = resource.kind.eq_ignore_ascii_case("Microsoft.Network/natGateways")
            && resource.body.values().any(|field| mentions(field, &address.id));
        is_gateway.then(|| json!({ "id": referrer.as_str() }))
    });
    if let Some(gateway) = gateway {
        wire["properties"]["natGateway"] = gateway;
    }
    wire
}
