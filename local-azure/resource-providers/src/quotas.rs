//! The usage and the limits of a subscription in a region, for each limited resource. Reference:
//! Microsoft.Network, usages, 2023-11-01; Microsoft.Compute, usage, 2024-03-01.
//!
//! Only the limit of public IP addresses is enforced. The limits are those of a subscription with an Enterprise
//! Agreement: "Azure subscription and service limits".

use std::collections::BTreeMap;

use lanyard_emulator_arm::access::{authorize_call, list_reply};
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::locations::normalize_region;
use lanyard_emulator_arm::request_scopes::subscription_scope;
use lanyard_emulator_arm::{full, sub};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use lanyard_emulator_state::settings::{EmulatorSettings, SettingsError};
use serde_json::{Value, json};

use super::container_service::MANAGED_CLUSTER;
use crate::compute::machine_sizes::{MACHINE_FAMILIES, find_machine_size};
use crate::container_service::agent_pools::AGENT_POOL;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    full!(
        "Usages_List",
        GET,
        sub!("Microsoft.Network/locations/{location}/usages"),
        list_network_usages
    ),
    full!(
        "Usage_List",
        GET,
        sub!("Microsoft.Compute/locations/{location}/usages"),
        list_compute_usages
    ),
];

/// A limit on the number of resources of a type.
struct Quota {
    name: &'static str,
    display_name: &'static str,
    limit: u64,
    resource_type: &'static str,
    /// Whether a resource of the type counts towards the limit.
    counts: fn(&ArmResource) -> bool,
}

const fn quota(
    name: &'static str,
    display_name: &'static str,
    limit: u64,
    resource_type: &'static str,
    counts: fn(&ArmResource) -> bool,
) -> Quota {
    Quota { name, display_name, limit, resource_type, counts }
}

fn always(_: &ArmResource) -> bool {
    true
}

fn is_standard(resource: &ArmResource) -> bool {
    let sku = resource.body.get("sku").and_then(|sku| sku["name"].as_str());
    sku.is_some_and(|name| name.eq_ignore_ascii_case("Standard"))
}

fn is_static(resource: &ArmResource) -> bool {
    let method = resource.property("publicIPAllocationMethod").and_then(Value::as_str);
    method.is_some_and(|method| method.eq_ignore_ascii_case("Static"))
}

fn is_premium(disk: &ArmResource) -> bool {
    let sku = disk.body.get("sku").and_then(|sku| sku["name"].as_str());
    sku.is_some_and(|name| name.starts_with("Premium"))
}

const ADDRESS: &str = "Microsoft.Network/publicIPAddresses";
const BALANCER: &str = "Microsoft.Network/loadBalancers";

const NETWORK: &[Quota] = &[
    quota(
        "VirtualNetworks",
        "Virtual Networks",
        1_000,
        "Microsoft.Network/virtualNetworks",
        always,
    ),
    quota("StaticPublicIPAddresses", "Static Public IP Addresses", 1_000, ADDRESS, is_static),
    quota(
        "NetworkSecurityGroups",
        "Network Security Groups",
        5_000,
        "Microsoft.Network/networkSecurityGroups",
        always,
    ),
    quota("PublicIPAddresses", "Public IP Addresses", 1_000, ADDRESS, always),
    quota(
        "NetworkInterfaces",
        "Network Interfaces",
        65_536,
        "Microsoft.Network/networkInterfaces",
        always,
    ),
    quota(
        "PrivateEndpoints",
        "Private Endpoints",
        65_536,
        "Microsoft.Network/privateEndpoints",
        always,
    ),
    quota("LoadBalancers", "Load Balancers", 1_000, BALANCER, always),
    quota("RouteTables", "Route Tables", 200, "Microsoft.Network/routeTables", always),
    quota("StandardSkuLoadBalancers", "Standard Sku Load Balancers", 1_000, BALANCER, is_standard),
    quota(
        "StandardSkuPublicIpAddresses",
        "Public IP Addresses - Standard",
        1_000,
        ADDRESS,
        is_standard,
    ),
];

const DISK: &str = "Microsoft.Compute/disks";
const MACHINE: &str = "Microsoft.Compute/virtualMachines";

const DISKS: &[Quota] = &[
    quota("StandardDiskCount", "Standard Storage Managed Disks", 50_000, DISK, |disk| {
        !is_premium(disk)
    }),
    quota("PremiumDiskCount", "Premium Storage Managed Disks", 50_000, DISK, is_premium),
];

/// The default limit of vCPUs, in total and for each family of virtual machine sizes.
const VCPU_LIMIT: u64 = 350;

/// Whether a limit has this name.
fn is_quota_name(name: &str) -> bool {
    ["cores", "virtualMachines", "virtualMachineScaleSets"].contains(&name)
        || NETWORK.iter().chain(DISKS).any(|quota| quota.name == name)
        || MACHINE_FAMILIES.iter().any(|family| family.name == name)
}

/// Checks the names of limits in settings.
///
/// # Errors
///
/// Returns an error that names an unknown limit.
pub(crate) fn check_quotas(settings: &mut EmulatorSettings) -> Result<(), SettingsError> {
    let mut quotas = settings.resource_manager.quotas.iter();
    match quotas.find(|quota| !is_quota_name(&quota.name)) {
        Some(_) => Err(SettingsError::UnknownQuota),
        None => Ok(()),
    }
}

/// A region of a subscription.
struct Region<'a> {
    resources: &'a ArmResourceStore,
    subscription: AccessScope,
    name: String,
}

impl<'a> Region<'a> {
    fn contains(&self, resource: &ArmResource) -> bool {
        let location = resource.body.get("location").and_then(Value::as_str).unwrap_or_default();
        normalize_region(location) == self.name
    }

    fn of_type(&'a self, kind: &'a str) -> impl Iterator<Item = &'a ArmResource> {
        let found = self.resources.of_type_within(&self.subscription, kind);
        found.filter(|resource| self.contains(resource))
    }

    fn count(&self, quota: &Quota) -> u64 {
        let counted = self.of_type(quota.resource_type).filter(|it| (quota.counts)(it));
        counted.map(|_| 1).sum()
    }

    fn limit(&self, name: &str, default: u64) -> u64 {
        let limits = &self.resources.settings.quotas;
        limits.iter().find(|it| it.name == name).map_or(default, |it| it.limit)
    }

    fn usage(&self, quota: &Quota) -> QuotaUsage {
        QuotaUsage {
            name: quota.name.to_owned(),
            display_name: quota.display_name.to_owned(),
            current: self.count(quota),
            limit: self.limit(quota.name, quota.limit),
        }
    }

    /// Counts the virtual machines and the nodes of managed clusters, by size.
    fn machines(&self) -> BTreeMap<String, u64> {
        let mut machines = BTreeMap::new();
        for machine in self.of_type(MACHINE) {
            let profile = machine.property("hardwareProfile");
            let size = profile.and_then(|profile| profile["vmSize"].as_str()).unwrap_or_default();
            *machines.entry(size.to_owned()).or_default() += 1;
        }
        for pool in self.pools() {
            let size = pool.property("vmSize").and_then(Value::as_str).unwrap_or_default();
            let nodes = pool.property("count").and_then(Value::as_u64).unwrap_or_default();
            *machines.entry(size.to_owned()).or_default() += nodes;
        }
        machines
    }

    fn pools(&self) -> impl Iterator<Item = &ArmResource> {
        let clusters = self.of_type(MANAGED_CLUSTER);
        clusters.flat_map(|cluster| self.resources.of_type_within(&cluster.id, AGENT_POOL))
    }
}

struct QuotaUsage {
    name: String,
    display_name: String,
    current: u64,
    limit: u64,
}

impl QuotaUsage {
    fn to_json(&self) -> Value {
        json!({
            "currentValue": self.current,
            "limit": self.limit,
            "name": { "value": self.name, "localizedValue": self.display_name },
            "unit": "Count",
        })
    }
}

fn region<'a>(call: &'a OperationContext<'_>) -> Result<Region<'a>, ServiceReply> {
    Ok(Region {
        resources: &call.azure().resources,
        subscription: subscription_scope(call)?,
        name: normalize_region(call.path_parameter("location")),
    })
}

/// `GET …/Microsoft.Network/locations/{location}/usages`.
fn list_network_usages(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let subscription = subscription_scope(call)?;
    authorize_call(call, "Microsoft.Network/locations/usages/read", &subscription)?;
    let region = region(call)?;
    let items = NETWORK.iter().map(|quota| {
        let usage = region.usage(quota);
        let mut wire = usage.to_json();
        let id = format!(
            "{subscription}/providers/Microsoft.Network/locations/{}/usages/{}",
            region.name, usage.name
        );
        wire["id"] = json!(id);
        wire
    });
    let items = items.collect();
    list_reply(call, items)
}

/// `GET …/Microsoft.Compute/locations/{location}/usages`.
fn list_compute_usages(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let subscription = subscription_scope(call)?;
    authorize_call(call, "Microsoft.Compute/locations/usages/read", &subscription)?;
    let items = compute_usages(&region(call)?).iter().map(QuotaUsage::to_json).collect();
    list_reply(call, items)
}

fn compute_usages(region: &Region<'_>) -> Vec<QuotaUsage> {
    let machines = region.machines();
    let mut vcpus = BTreeMap::<&str, u64>::new();
    for (size, count) in &machines {
        if let Some((family, size)) = find_machine_size(size) {
            *vcpus.entry(family.name).or_default() += size * count;
        }
    }
    let usage = |name: &str, display_name: &str, current, default| QuotaUsage {
        name: name.to_owned(),
        display_name: display_name.to_owned(),
        current,
        limit: region.limit(name, default),
    };
    let mut usages = vec![
        usage("cores", "Total Regional vCPUs", vcpus.values().sum(), VCPU_LIMIT),
        usage("virtualMachines", "Virtual Machines", machines.values().sum(), 25_000),
        usage(
            "virtualMachineScaleSets",
            "Virtual Machine Scale Sets",
            region.pools().map(|_| 1).sum(),
            2_500,
        ),
    ];
    usages.extend(MACHINE_FAMILIES.iter().map(|family| {
        let current = vcpus.get(family.name).copied().unwrap_or_default();
        usage(family.name, &family.display_name(), current, VCPU_LIMIT)
    }));
    usages.extend(DISKS.iter().map(|quota| region.usage(quota)));
    usages
}

/// Rejects a new public IP address that would exceed a limit of its region.
pub(super) fn require_address_quota(
    call: &OperationContext<'_>,
    location: &str,
) -> Result<(), ServiceReply> {
    let region = Region {
        resources: &call.azure().resources,
        subscription: subscription_scope(call)?,
        name: normalize_region(location),
    };
    let exceeded = NETWORK
        .iter()
        .filter(|quota| quota.resource_type == ADDRESS)
        .map(|quota| region.usage(quota))
        .find(|usage| usage.current >= usage.limit);
    match exceeded {
        None => Ok(()),
        Some(usage) => Err(bad_request(
            "PublicIPCountLimitReached",
            format!(
                "Cannot create more than {} public IP addresses for this subscription in this region.",
                usage.limit
            ),
        )),
    }
}

#[cfg(test)]
mod tests;
