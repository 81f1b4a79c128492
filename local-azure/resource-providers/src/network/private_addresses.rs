//! The private IP addresses of subnets: which addresses are in use, and which one is free.

use std::net::IpAddr;

use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::ArmResourceStore;
use serde_json::{Value, json};

use super::address_prefix::AddressPrefix;
use super::child_items::name_of;
use super::reference::require_reference;

const SUBNET: &str = "Microsoft.Network/virtualNetworks/subnets";
/// The index of the first free address of a subnet: Azure reserves the first four addresses.
const FIRST_FREE: u32 = 4;

/// Checks the subnet of an IP configuration, and allocates its address. `taken` are the addresses of the other
/// configurations of the same resource.
pub(super) fn complete_private_address(
    write: &ResourceWrite<'_, '_>,
    properties: &mut serde_json::Map<String, Value>,
    taken: &mut Vec<IpAddr>,
) -> Result<(), ServiceReply> {
    let subnet = require_reference(write, properties.get("subnet"), "subnet", SUBNET)?;
    let Some(subnet) = subnet else { return Ok(()) };
    let prefixes = subnet_prefixes(write.resources(), &subnet);
    let given = properties.get("privateIPAddress").and_then(Value::as_str);
    let is_static = properties
        .get("privateIPAllocationMethod")
        .and_then(Value::as_str)
        .is_some_and(|method| method.eq_ignore_ascii_case("Static"));
    let address = match given {
        Some(text) if is_static => require_free_address(write, &subnet, &prefixes, text)?,
        Some(text) if is_own_address(write, &subnet, text) => {
            text.parse().or(Err(invalid_address(text)))?
        }
        _ => next_free_address(write, &subnet, &prefixes, taken)?,
    };
    taken.push(address);
    properties.insert("privateIPAddress".to_owned(), json!(address.to_string()));
    properties.entry("privateIPAllocationMethod").or_insert(json!("Dynamic"));
    properties.entry("privateIPAddressVersion").or_insert(json!("IPv4"));
    Ok(())
}

fn invalid_address(text: &str) -> ServiceReply {
    bad_request("InvalidIPAddressFormat", format!("The IP address '{text}' is not valid."))
}

fn subnet_prefixes(resources: &ArmResourceStore, subnet: &AccessScope) -> Vec<AddressPrefix> {
    let Some(subnet) = resources.resource(subnet) else { return Vec::new() };
    let several = subnet.property("addressPrefixes").and_then(Value::as_array);
    several
        .into_iter()
        .flatten()
        .chain(subnet.property("addressPrefix"))
        .filter_map(|prefix| prefix.as_str()?.parse().ok())
        .collect()
}

/// Whether the resource that is written has the address before the write.
fn is_own_address(write: &ResourceWrite<'_, '_>, subnet: &AccessScope, address: &str) -> bool {
    addresses_in(write.resources(), subnet)
        .any(|(taken, owner)| taken == address && owner == *write.id)
}

fn require_free_address(
    write: &ResourceWrite<'_, '_>,
    subnet: &AccessScope,
    prefixes: &[AddressPrefix],
    text: &str,
) -> Result<IpAddr, ServiceReply> {
    let address: IpAddr = text.parse().or(Err(invalid_address(text)))?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let single = format!("{address}/{width}").parse::<AddressPrefix>();
    let is_within =
        |prefix: &AddressPrefix| single.as_ref().is_ok_and(|single| prefix.contains(single));
    if !prefixes.iter().any(is_within) {
        let ranges: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
        return Err(bad_request(
            "PrivateIPAddressNotInSubnet",
            format!(
                "Private static IP address {text} does not belong to the range of subnet prefix {}.",
                ranges.join(", ")
            ),
        ));
    }
    let owner = addresses_in(write.resources(), subnet)
        .find(|(taken, owner)| taken == text && owner != write.id);
    match owner {
        None => Ok(address),
        Some((_, owner)) => Err(bad_request(
            "PrivateIPAddressIsAllocated",
            format!(
                "IP configuration of {} is using the private IP address {text} which is already \
                 allocated to resource {owner}.",
                name_of(write.id)
            ),
        )),
    }
}

fn next_free_address(
    write: &ResourceWrite<'_, '_>,
    subnet: &AccessScope,
    prefixes: &[AddressPrefix],
    taken: &[IpAddr],
) -> Result<IpAddr, ServiceReply> {
    let mut allocated: Vec<IpAddr> = addresses_in(write.resources(), subnet)
        .filter(|(_, owner)| owner != write.id)
        .filter_map(|(address, _)| address.parse().ok())
        .collect();
    allocated.extend(taken);
    prefixes
        .iter()
        .find_map(|prefix| {
            (FIRST_FREE..)
                .map_while(|n| prefix.address_at(n))
                .find(|address| !allocated.contains(address))
        })
        .ok_or_else(|| {
            bad_request(
                "SubnetIsFull",
                format!("Subnet {subnet} does not have enough capacity for 1 IP addresses."),
            )
        })
}

/// Returns the private IP addresses in a subnet, each with the id of the resource that uses it.
pub(super) fn addresses_in<'a>(
    resources: &'a ArmResourceStore,
    subnet: &'a AccessScope,
) -> impl Iterator<Item = (String, AccessScope)> + 'a {
    resources.referrers_within(subnet).flat_map(move |owner| {
        let mut found = Vec::new();
        if let Some(resource) = resources.resource(owner) {
            resource.body.values().for_each(|field| collect_addresses(field, subnet, &mut found));
        }
        found.into_iter().map(move |address| (address, owner.clone()))
    })
}

fn collect_addresses(value: &Value, subnet: &AccessScope, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for item in items {
                collect_addresses(item, subnet, found);
            }
        }
        Value::Object(fields) => {
            let in_subnet = fields
                .get("subnet")
                .and_then(|reference| reference["id"].as_str())
                .is_some_and(|id| id.eq_ignore_ascii_case(subnet.as_str()));
            if in_subnet && let Some(address) = fields.get("privateIPAddress") {
                found.extend(address.as_str().map(ToOwned::to_owned));
            }
            fields.values().for_each(|field| collect_addresses(field, subnet, found));
        }
        _ => {}
    }
}
