//! The desired graph of one cluster's infrastructure: resource groups, network, DNS and load balancer, as
//! HyperShift's `create infra azure` creates them.

use lanyard_azure::{
    ArmBody, LoadBalancerBody, NetworkSecurityGroupBody, PrivateDnsLinkBody, PrivateDnsZoneBody,
    PublicIpAddressBody, ResourceGroupBody, ResourceTags, SubnetBody, VirtualNetworkBody,
};
use lanyard_changes::{AzureEffect, AzureResource, RecordedState, ResourceKey};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};

use crate::cluster_identifiers::ClusterIdentifiers;
use crate::resource_names::{ClusterResourceNames, SUBNET_NAME};
use crate::stacks;

const VNET_RANGE: &str = "10.0.0.0/16";
pub(crate) const SUBNET_RANGE: &str = "10.0.0.0/24";

/// The parameters of a cluster's infrastructure.
#[derive(Debug, Clone, PartialEq)]
pub struct InfraParameters {
    /// The subscription of all resources.
    pub subscription: SubscriptionId,
    /// The name and the infrastructure id.
    pub identifiers: ClusterIdentifiers,
    /// The region.
    pub location: String,
    /// The base domain, whose public zone exists.
    pub base_domain: String,
    /// The existing resource group for all resources; `None` creates three groups.
    pub resource_group: Option<String>,
    /// The tags of the groups that are created.
    pub group_tags: ResourceTags,
    /// The existing network security group; `None` creates one.
    pub security_group: Option<ArmResourceId>,
    /// The existing virtual network and its subnet; `None` creates both.
    pub network: Option<ExistingNetwork>,
    /// The existing subnet with the NAT addresses of the private link service, through which worker nodes reach a
    /// private API server; `None` for a public endpoint only. It is in the virtual network of the management cluster.
    pub nat_subnet: Option<ArmResourceId>,
    /// The names that differ from the current ones.
    pub legacy_names: LegacyNames,
}

/// The names of an imported cluster that lanyard would not choose: those of HyperShift's documentation and of its
/// earlier versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacyNames {
    /// The resource group of the virtual network.
    pub vnet_group: Option<String>,
    /// The resource group of the network security group.
    pub security_group_group: Option<String>,
    /// The private DNS zone.
    pub private_zone: Option<String>,
}

impl LegacyNames {
    /// The names that the journal of an imported cluster records. A recorded name that is neither current nor
    /// legacy belongs to another configuration, such as another base domain.
    pub fn recorded(
        recorded: &RecordedState,
        identifiers: &ClusterIdentifiers,
        base_domain: &str,
    ) -> Self {
        let names = ClusterResourceNames::new(identifiers);
        let [vnet_group, security_group_group] = names.legacy_groups();
        let name_if_recorded = |key: &str, name: String| {
            let record = recorded.get(&ResourceKey::new(key))?;
            record.id.name().eq_ignore_ascii_case(&name).then_some(name)
        };
        Self {
            vnet_group: name_if_recorded("group/vnet", vnet_group),
            security_group_group: name_if_recorded("group/nsg", security_group_group),
            private_zone: name_if_recorded("private-zone", names.legacy_private_zone(base_domain)),
        }
    }
}

/// A virtual network of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingNetwork {
    /// The virtual network.
    pub vnet: ArmResourceId,
    /// The subnet of the nodes, a child of the network.
    pub subnet: Option<ArmResourceId>,
}

/// The ids of a cluster's infrastructure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfraIds {
    /// The resource group of machines, load balancer and private DNS zone.
    pub main_group: ArmResourceId,
    /// The resource group of the network security group.
    pub security_group_group: ArmResourceId,
    /// The resource group of the virtual network.
    pub vnet_group: ArmResourceId,
    /// The network security group.
    pub security_group: ArmResourceId,
    /// The virtual network.
    pub vnet: ArmResourceId,
    /// The subnet of the nodes; `None` if the user named a network without a subnet.
    pub subnet: Option<ArmResourceId>,
    /// The private DNS zone.
    pub private_zone: ArmResourceId,
    /// The link of the private DNS zone to the virtual network.
    pub private_zone_link: ArmResourceId,
    /// The public IP address of the load balancer.
    pub public_ip: ArmResourceId,
    /// The load balancer, which is the nodes' way out.
    pub load_balancer: ArmResourceId,
}

impl InfraIds {
    /// The ids that the parameters determine.
    pub fn new(parameters: &InfraParameters) -> Self {
        let names = ClusterResourceNames::new(&parameters.identifiers);
        let legacy = &parameters.legacy_names;
        let group = |name: String| {
            let name = parameters.resource_group.clone().unwrap_or(name);
            ResourceGroupBody::id(&parameters.subscription, &name)
        };
        let main_group = group(names.main_group());
        let security_group = parameters.security_group.clone().unwrap_or_else(|| {
            resource_id::<NetworkSecurityGroupBody>(
                &group(
                    legacy
                        .security_group_group
                        .clone()
                        .unwrap_or_else(|| names.security_group_group()),
                ),
                &names.security_group(),
            )
        });
        let vnet = parameters.network.as_ref().map_or_else(
            || {
                let name = legacy.vnet_group.clone().unwrap_or_else(|| names.vnet_group());
                resource_id::<VirtualNetworkBody>(&group(name), &names.vnet())
            },
            |network| network.vnet.clone(),
        );
        let subnet = match &parameters.network {
            Some(network) => network.subnet.clone(),
            None => Some(vnet.child("subnets", SUBNET_NAME)),
        };
        let zone = legacy
            .private_zone
            .clone()
            .unwrap_or_else(|| names.private_zone(&parameters.base_domain));
        let private_zone = resource_id::<PrivateDnsZoneBody>(&main_group, &zone);
        Self {
            security_group_group: group_of(&security_group, &parameters.subscription),
            vnet_group: group_of(&vnet, &parameters.subscription),
            private_zone_link: PrivateDnsLinkBody::id(&private_zone, &names.vnet()),
            public_ip: resource_id::<PublicIpAddressBody>(&main_group, &names.load_balancer()),
            load_balancer: resource_id::<LoadBalancerBody>(&main_group, &names.load_balancer()),
            main_group,
            security_group,
            vnet,
            subnet,
            private_zone,
        }
    }
}

fn resource_id<B: ArmBody>(group: &ArmResourceId, name: &str) -> ArmResourceId {
    group.provider_resource(B::RESOURCE_TYPE, name)
}

/// The resource group of a resource. Ids of resources outside a group are rejected before.
fn group_of(id: &ArmResourceId, subscription: &SubscriptionId) -> ArmResourceId {
    ResourceGroupBody::id(subscription, id.resource_group().unwrap_or_default())
}

/// The resources of the stack `infra`, without role assignments.
pub fn infra_resources(parameters: &InfraParameters) -> Vec<AzureResource> {
    let ids = InfraIds::new(parameters);
    let location = parameters.location.as_str();
    let no_tags = ResourceTags::new;
    let mut resources = group_resources(parameters, &ids);
    let group_key = |group: &ArmResourceId| {
        // With one group for all, only the main group is in the graph.
        let is_main = *group == ids.main_group;
        let key = if is_main {
            "group"
        } else if *group == ids.vnet_group {
            "group/vnet"
        } else {
            "group/nsg"
        };
        ResourceKey::new(key)
    };
    if let Some(id) = &parameters.security_group {
        resources.push(existing::<NetworkSecurityGroupBody>("nsg", id));
    } else {
        let body = NetworkSecurityGroupBody::new(location, no_tags());
        let group = group_key(&ids.security_group_group);
        resources.push(desired("nsg", &ids.security_group, &body, vec![group]));
    }
    if let Some(network) = &parameters.network {
        resources.push(existing::<VirtualNetworkBody>("vnet", &network.vnet));
        if let Some(subnet) = &network.subnet {
            resources.push(existing::<VirtualNetworkBody>("subnet", subnet));
        }
    } else {
        let subnet = SubnetBody::new(SUBNET_NAME, SUBNET_RANGE, Some(ids.security_group.clone()));
        let body = VirtualNetworkBody::new(location, no_tags(), VNET_RANGE, vec![subnet]);
        let needs = vec![group_key(&ids.vnet_group), ResourceKey::new("nsg")];
        resources.push(desired("vnet", &ids.vnet, &body, needs));
    }
    if let Some(id) = &parameters.nat_subnet {
        resources.push(existing::<VirtualNetworkBody>("nat-subnet", id));
    }
    let main = || vec![ResourceKey::new("group")];
    let zone = PrivateDnsZoneBody::new(no_tags());
    resources.push(desired("private-zone", &ids.private_zone, &zone, main()));
    let link = PrivateDnsLinkBody::new(ids.vnet.clone(), no_tags());
    let needs = vec![ResourceKey::new("private-zone"), ResourceKey::new("vnet")];
    resources.push(desired("private-zone-link", &ids.private_zone_link, &link, needs));
    let public_ip = PublicIpAddressBody::new(location, no_tags());
    resources.push(desired("public-ip", &ids.public_ip, &public_ip, main()));
    let balancer =
        LoadBalancerBody::new(&ids.load_balancer, location, no_tags(), ids.public_ip.clone());
    let needs = vec![ResourceKey::new("public-ip")];
    resources.push(desired("load-balancer", &ids.load_balancer, &balancer, needs));
    resources
}

/// The resource groups: three that are created, or the one of the user. The groups of the user's network are
/// not in the graph, because only their resources are needed.
fn group_resources(parameters: &InfraParameters, ids: &InfraIds) -> Vec<AzureResource> {
    if parameters.resource_group.is_some() {
        return vec![existing::<ResourceGroupBody>("group", &ids.main_group)];
    }
    let body = ResourceGroupBody::new(&*parameters.location, parameters.group_tags.clone());
    let mut groups = vec![desired("group", &ids.main_group, &body, Vec::new())];
    if parameters.network.is_none() {
        groups.push(desired("group/vnet", &ids.vnet_group, &body, Vec::new()));
    }
    if parameters.security_group.is_none() {
        groups.push(desired("group/nsg", &ids.security_group_group, &body, Vec::new()));
    }
    groups
}

fn desired<B: ArmBody>(
    key: &str,
    id: &ArmResourceId,
    body: &B,
    depends_on: Vec<ResourceKey>,
) -> AzureResource {
    let effect = AzureEffect::tagged(B::API_VERSION, body.to_json());
    let (key, stack, id) = (ResourceKey::new(key), stacks::INFRA, id.clone().into());
    AzureResource { key, stack, id, effect, depends_on }
}

fn existing<B: ArmBody>(key: &str, id: &ArmResourceId) -> AzureResource {
    let effect = AzureEffect::existing(B::API_VERSION);
    let (key, stack, id) = (ResourceKey::new(key), stacks::INFRA, id.clone().into());
    AzureResource { key, stack, id, effect, depends_on: Vec::new() }
}

#[cfg(test)]
mod tests {
    use lanyard_changes::AzureGraph;
    use lanyard_changes::{Effect as _, EffectUsage};

    use super::*;
    use crate::tests::infra_parameters;

    fn keys(parameters: &InfraParameters) -> Vec<String> {
        let graph = AzureGraph::new(infra_resources(parameters)).unwrap();
        graph.resources().iter().map(|it| it.key.to_string()).collect()
    }

    #[test]
    fn three_groups_are_created_by_default() {
        assert_eq!(
            keys(&infra_parameters()),
            [
                "group",
                "group/vnet",
                "group/nsg",
                "nsg",
                "private-zone",
                "public-ip",
                "vnet",
                "load-balancer",
                "private-zone-link",
            ]
        );
        let ids = InfraIds::new(&infra_parameters());
        assert_eq!(
            ids.subnet.unwrap().as_str(),
            "/subscriptions/s/resourceGroups/harbour-vnet-harbour-x/providers/Microsoft.Network/virtualNetworks/harbour-harbour-x/subnets/default"
        );
    }

    #[test]
    fn given_group_contains_all_resources() {
        let single =
            InfraParameters { resource_group: Some("shared".to_owned()), ..infra_parameters() };
        let ids = InfraIds::new(&single);
        for id in [&ids.vnet, &ids.security_group, &ids.load_balancer, &ids.private_zone] {
            assert_eq!(id.resource_group(), Some("shared"));
        }
        assert_eq!(keys(&single).first().map(String::as_str), Some("group"));
        assert_eq!(keys(&single).len(), 7);
    }

    #[test]
    fn nat_subnet_of_the_user_is_only_read() {
        let id: ArmResourceId =
            "/subscriptions/m/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/nat"
                .parse()
                .unwrap();
        let private = InfraParameters { nat_subnet: Some(id.clone()), ..infra_parameters() };
        let mut resources = infra_resources(&private);
        let position = resources.iter().position(|it| it.key.as_str() == "nat-subnet").unwrap();
        let subnet = resources.remove(position);
        assert_eq!(subnet.id, id);
        assert_eq!(subnet.effect.usage(), EffectUsage::Existing);
        assert_eq!(resources, infra_resources(&infra_parameters()));
    }

    #[test]
    fn network_of_the_user_is_only_read() {
        let vnet: ArmResourceId =
            "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v"
                .parse()
                .unwrap();
        let subnet = Some(vnet.child("subnets", "nodes"));
        let network = Some(ExistingNetwork { vnet, subnet });
        let resources = infra_resources(&InfraParameters { network, ..infra_parameters() });
        let effect =
            |key: &str| &resources.iter().find(|it| it.key.as_str() == key).unwrap().effect;
        for key in ["vnet", "subnet"] {
            assert_eq!(effect(key).usage(), EffectUsage::Existing, "{key}");
        }
        assert!(!resources.iter().any(|it| it.key.as_str() == "group/vnet"));
    }
}
