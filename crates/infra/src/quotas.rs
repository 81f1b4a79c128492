//! The limits of a subscription that the creations of a plan would exceed.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, FederatedCredentialBody, LoadBalancerBody, MachineSku,
    ManagedClusterBody, NetworkSecurityGroupBody, PublicIpAddressBody, ResourceUsage,
    RoleAssignmentUsage, UsageProvider, VirtualNetworkBody,
};
use lanyard_changes::{
    ArmResource, AzureEffect, AzureGraph, AzureResource, EffectUsage, Plan, PreflightFinding,
    ResourceChange,
};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};
use serde_json::Value;

/// What the creations of a plan need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct QuotaNeeds {
    /// By region and name of the limit.
    network: BTreeMap<String, BTreeMap<&'static str, u64>>,
    machines: Vec<MachineNeed>,
    /// By subscription.
    role_assignments: BTreeMap<String, u64>,
    /// By the id of a managed identity that exists.
    federated_credentials: BTreeMap<String, usize>,
}

/// The machines of a managed cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MachineNeed {
    region: String,
    size: String,
    /// The number of machines that the creation needs.
    count: u64,
    /// The number up to which the autoscaler adds machines.
    max: Option<u64>,
}

/// The limits of a public IP address with the SKU `Standard`. The name of the third one depends on the region.
const ADDRESS_LIMITS: [&str; 4] = [
    "PublicIPAddresses",
    "StaticPublicIPAddresses",
    "StandardSkuPublicIpAddresses",
    "IPv4StandardSkuPublicIpAddresses",
];
const BALANCER_LIMITS: [&str; 2] = ["LoadBalancers", "StandardSkuLoadBalancers"];

/// The limits of a resource type in a region.
fn network_limits(resource_type: &str) -> Vec<&'static str> {
    let is = |known: &str| known.eq_ignore_ascii_case(resource_type);
    if is(VirtualNetworkBody::RESOURCE_TYPE) {
        vec!["VirtualNetworks"]
    } else if is(NetworkSecurityGroupBody::RESOURCE_TYPE) {
        vec!["NetworkSecurityGroups"]
    } else if is(PublicIpAddressBody::RESOURCE_TYPE) {
        ADDRESS_LIMITS.to_vec()
    } else if is(LoadBalancerBody::RESOURCE_TYPE) {
        BALANCER_LIMITS.to_vec()
    } else if is(ManagedClusterBody::RESOURCE_TYPE) {
        // AKS creates a load balancer with an address, and a network for the nodes.
        let network = ["VirtualNetworks", "NetworkSecurityGroups"];
        [&ADDRESS_LIMITS[..], &BALANCER_LIMITS, &network].concat()
    } else {
        Vec::new()
    }
}

impl QuotaNeeds {
    fn of_plan(plan: &Plan, graph: &AzureGraph) -> Self {
        let mut needs = Self::default();
        let created = plan.resources.iter().filter(|it| it.change == ResourceChange::Create);
        let created: Vec<_> = created.filter_map(|planned| graph.get(&planned.key)).collect();
        for resource in &created {
            needs.add(resource);
        }
        // No identity of lanyard has more credentials than Azure permits.
        for resource in created {
            needs.federated_credentials.remove(resource.id.as_str());
        }
        needs
    }

    fn add(&mut self, resource: &AzureResource) {
        match &resource.effect {
            AzureEffect::RoleAssignment(_) => {
                let subscription = resource.id.arm().map(ArmResourceId::subscription);
                let subscription = subscription.unwrap_or_default().to_ascii_lowercase();
                *self.role_assignments.entry(subscription).or_default() += 1;
            }
            AzureEffect::FederatedCredential(_) => {
                let id = resource.id.as_str();
                let parent = id.rsplit_once("/federatedIdentityCredentials/");
                let identity = parent.map_or(id, |(identity, _)| identity);
                *self.federated_credentials.entry(identity.to_owned()).or_default() += 1;
            }
            AzureEffect::Arm(ArmResource { body, initial, usage: EffectUsage::Own, .. }) => {
                let resource_type = resource.id.resource_type().unwrap_or_default();
                let region = region_name(body["location"].as_str().unwrap_or_default());
                for limit in network_limits(&resource_type) {
                    let limits = self.network.entry(region.clone()).or_default();
                    *limits.entry(limit).or_default() += 1;
                }
                if resource.id.has_type(ManagedClusterBody::RESOURCE_TYPE) {
                    self.machines.extend(machine_needs(&region, body, initial));
                }
            }
            AzureEffect::Arm(_) | AzureEffect::EntraApplication(_) => {}
        }
    }
}

/// The name of a region from its name or display name.
fn region_name(location: &str) -> String {
    location.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase()
}

/// The machines of a cluster's pools. With the autoscaler, the number at the creation is an initial property.
fn machine_needs(region: &str, body: &Value, initial: &Value) -> Vec<MachineNeed> {
    const POOLS: &str = "/properties/agentPoolProfiles";
    let pools = body.pointer(POOLS).and_then(Value::as_array).into_iter().flatten();
    let need = |(position, pool): (usize, &Value)| {
        let initial = initial.pointer(&format!("{POOLS}/{position}/count"));
        let count = pool["count"].as_u64().or_else(|| initial?.as_u64());
        Some(MachineNeed {
            region: region.to_owned(),
            size: pool["vmSize"].as_str()?.to_owned(),
            count: count?,
            max: pool["maxCount"].as_u64(),
        })
    };
    pools.enumerate().filter_map(need).collect()
}

/// Finds the limits that the plan exceeds. Sends GET requests only, and only for what the plan creates.
///
/// A limit that the signed-in identity may not read, or whose resource provider is not registered, is not checked.
pub(crate) async fn check_quotas(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    plan: &Plan,
    graph: &AzureGraph,
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let needs = QuotaNeeds::of_plan(plan, graph);
    let mut findings = Vec::new();
    for (region, limits) in &needs.network {
        let provider = UsageProvider::Network;
        let Some(usages) = read_usages(arm, subscription, provider, region).await? else {
            continue;
        };
        let found = limits.iter().filter_map(|(name, needed)| {
            find_usage(&usages, name).and_then(|usage| exceeded(usage, region, *needed))
        });
        findings.extend(found);
    }
    findings.extend(check_machines(arm, subscription, &needs.machines).await?);
    for (subscription, needed) in &needs.role_assignments {
        let Ok(subscription) = subscription.parse() else { continue };
        findings.extend(check_role_assignments(arm, &subscription, *needed).await?);
    }
    let credentials = needs.federated_credentials.iter();
    let credentials = credentials.map(|(id, needed)| check_federated_credentials(arm, id, *needed));
    findings.extend(try_join_all(credentials).await?.into_iter().flatten());
    Ok(findings)
}

/// The usages of a region; `None` if they cannot be read.
async fn read_usages(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    provider: UsageProvider,
    region: &str,
) -> Result<Option<Vec<ResourceUsage>>, AzureCallError> {
    let path = provider.list_path(subscription, region);
    let listed = readable(arm.list(&path, provider.api_version(), &[]).await)?;
    let parse = |items: Vec<Value>| {
        items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()
    };
    Ok(listed.map(parse))
}

/// `None` instead of the error that a limit cannot be read: no permission, or the resource provider is not
/// registered. Both are findings of other checks.
pub(crate) fn readable<T>(reply: Result<T, AzureCallError>) -> Result<Option<T>, AzureCallError> {
    match reply {
        Err(error) if matches!(error.status(), Some(403 | 404 | 409)) => Ok(None),
        reply => reply.map(Some),
    }
}

/// The usage with a name. Some regions use a name without a SKU for the SKU `Basic`, which lanyard never creates.
fn find_usage<'a>(usages: &'a [ResourceUsage], name: &str) -> Option<&'a ResourceUsage> {
    let is_basic = |usage: &ResourceUsage| usage.name.localized_value.contains("Basic");
    usages.iter().find(|it| it.name.value.eq_ignore_ascii_case(name) && !is_basic(it))
}

const CHECK: &str = "quotas";
const HIGHER_LIMIT: &str = "delete what is not used, choose another region, or request a higher limit: Azure portal, `Quotas`";

fn exceeded(usage: &ResourceUsage, region: &str, needed: u64) -> Option<PreflightFinding> {
    let ResourceUsage { current_value: used, limit, name } = usage;
    (used + needed > *limit).then(|| {
        let message = format!(
            "`{}` ({}) in {region}: {used} of {limit} are used, and the plan needs {needed}",
            name.value, name.localized_value
        );
        PreflightFinding::error(CHECK, message, HIGHER_LIMIT)
    })
}

/// Compares the vCPUs of machines with the limit of the region and that of the family.
async fn check_machines(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    machines: &[MachineNeed],
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let mut findings = Vec::new();
    for machine in machines {
        let region = machine.region.as_str();
        let filter = format!("location eq '{region}'");
        let path = MachineSku::list_path(subscription);
        let listed = arm.list(&path, MachineSku::API_VERSION, &[("$filter", &filter)]).await;
        let Some(listed) = readable(listed)? else { continue };
        let skus: Vec<MachineSku> =
            listed.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect();
        let sku = skus.iter().find(|sku| {
            sku.resource_type == "virtualMachines" && sku.name.eq_ignore_ascii_case(&machine.size)
        });
        let Some(sku) = sku.filter(|sku| sku.is_available()) else {
            findings.push(unavailable_size(machine));
            continue;
        };
        let provider = UsageProvider::Compute;
        let Some(usages) = read_usages(arm, subscription, provider, region).await? else {
            continue;
        };
        for limit in ["cores", &sku.family] {
            let usage = find_usage(&usages, limit);
            findings.extend(usage.and_then(|usage| exceeded_vcpus(usage, machine, sku)));
        }
    }
    Ok(findings)
}

fn unavailable_size(machine: &MachineNeed) -> PreflightFinding {
    let MachineNeed { region, size, .. } = machine;
    PreflightFinding::error(
        CHECK,
        format!("the subscription cannot use machines of the size `{size}` in {region}"),
        format!(
            "choose one of `az vm list-skus --location {region} --resource-type virtualMachines`"
        ),
    )
}

fn exceeded_vcpus(
    usage: &ResourceUsage,
    machine: &MachineNeed,
    sku: &MachineSku,
) -> Option<PreflightFinding> {
    let vcpus = sku.vcpus()?;
    let (region, MachineNeed { count, max, .. }) = (machine.region.as_str(), machine);
    if let Some(finding) = exceeded(usage, region, count * vcpus) {
        return Some(finding);
    }
    let ResourceUsage { current_value: used, limit, name } = usage;
    let most = max.filter(|max| used + max * vcpus > *limit)?;
    Some(PreflightFinding::warning(
        CHECK,
        format!(
            "`{}` ({}) in {region}: {used} of {limit} are used, and {most} nodes need {}; the autoscaler will stop before",
            name.value,
            name.localized_value,
            most * vcpus
        ),
        HIGHER_LIMIT,
    ))
}

async fn check_role_assignments(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    needed: u64,
) -> Result<Option<PreflightFinding>, AzureCallError> {
    let Some(reply) = readable(arm.send(&RoleAssignmentUsage::get(subscription)).await)? else {
        return Ok(None);
    };
    let usage = serde_json::from_value::<RoleAssignmentUsage>(reply.body);
    let exceeded = usage.ok().filter(|usage| needed > u64::from(usage.remaining));
    Ok(exceeded.map(|RoleAssignmentUsage { limit, current, .. }| {
        PreflightFinding::error(
            CHECK,
            format!(
                "role assignments of the subscription `{subscription}`: {current} of {limit} are used, and the plan needs {needed}"
            ),
            "delete assignments of deleted principals with `lanyard sweep azure`, or use another subscription",
        )
    }))
}

async fn check_federated_credentials(
    arm: &ArmClient,
    identity: &str,
    needed: usize,
) -> Result<Option<PreflightFinding>, AzureCallError> {
    let path = format!("{identity}/federatedIdentityCredentials");
    let listed = readable(arm.list(&path, FederatedCredentialBody::API_VERSION, &[]).await)?;
    let used = listed.map_or(0, |listed| listed.len());
    let limit = lanyard_federation::MAX_FEDERATED_CREDENTIALS;
    Ok((used + needed > limit).then(|| {
        PreflightFinding::error(
            CHECK,
            format!(
                "federated credentials of `{identity}`: {used} of {limit} are used, and the plan needs {needed}"
            ),
            "delete the credentials of issuers that no longer exist, or use another identity",
        )
    }))
}

#[cfg(test)]
mod tests;
