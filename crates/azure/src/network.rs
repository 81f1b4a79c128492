//! Network security groups, virtual networks, public IP addresses and load balancers.

use lanyard_vocabulary::ArmResourceId;
use serde::{Deserialize, Serialize};

use crate::arm_body::{ArmBody, ResourceReference, ResourceTags};

/// A network security group with Azure's default rules only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSecurityGroupBody {
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
}

impl ArmBody for NetworkSecurityGroupBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/networkSecurityGroups";
    const API_VERSION: &'static str = NETWORK_API;
}

impl NetworkSecurityGroupBody {
    /// A group in `location` with these tags.
    pub fn new(location: impl Into<String>, tags: ResourceTags) -> Self {
        Self { location: location.into(), tags }
    }
}

/// A virtual network with its subnets. A PUT replaces the collection of subnets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualNetworkBody {
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// Address space and subnets.
    pub properties: VirtualNetworkProperties,
}

/// The properties of a [`VirtualNetworkBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualNetworkProperties {
    /// The address space.
    pub address_space: VirtualNetworkAddressSpace,
    /// The subnets.
    #[serde(default)]
    pub subnets: Vec<SubnetBody>,
}

/// The address space of a virtual network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualNetworkAddressSpace {
    /// The address ranges in CIDR notation.
    pub address_prefixes: Vec<String>,
}

/// A subnet, as a child of its network or in a request of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetBody {
    /// The id; Azure sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ArmResourceId>,
    /// The name.
    pub name: String,
    /// Address range and security group.
    pub properties: SubnetProperties,
}

/// The properties of a [`SubnetBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubnetProperties {
    /// The address range in CIDR notation; absent if the live subnet has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_prefix: Option<String>,
    /// The network security group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_security_group: Option<ResourceReference>,
}

impl ArmBody for VirtualNetworkBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/virtualNetworks";
    const API_VERSION: &'static str = NETWORK_API;
}

impl ArmBody for SubnetBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/virtualNetworks/subnets";
    const API_VERSION: &'static str = NETWORK_API;
}

impl VirtualNetworkBody {
    /// A network with one address range.
    pub fn new(
        location: impl Into<String>,
        tags: ResourceTags,
        address_prefix: impl Into<String>,
        subnets: Vec<SubnetBody>,
    ) -> Self {
        let address_space =
            VirtualNetworkAddressSpace { address_prefixes: vec![address_prefix.into()] };
        let properties = VirtualNetworkProperties { address_space, subnets };
        Self { location: location.into(), tags, properties }
    }
}

impl SubnetBody {
    /// A subnet with one address range and a security group.
    pub fn new(
        name: impl Into<String>,
        address_prefix: impl Into<String>,
        security_group: Option<ArmResourceId>,
    ) -> Self {
        let address_prefix = Some(address_prefix.into());
        let network_security_group = security_group.map(ResourceReference::from);
        let properties = SubnetProperties { address_prefix, network_security_group };
        Self { id: None, name: name.into(), properties }
    }
}

/// The SKU of a public IP address or a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSku {
    /// `Standard`; Azure retired `Basic`.
    pub name: String,
}

impl NetworkSku {
    fn standard() -> Self {
        Self { name: "Standard".to_owned() }
    }
}

/// A public IP address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicIpAddressBody {
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// The SKU.
    pub sku: NetworkSku,
    /// Version and allocation.
    pub properties: PublicIpAddressProperties,
}

/// The properties of a [`PublicIpAddressBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublicIpAddressProperties {
    /// `IPv4` or `IPv6`.
    #[serde(rename = "publicIPAddressVersion")]
    pub version: String,
    /// `Static` or `Dynamic`.
    #[serde(rename = "publicIPAllocationMethod")]
    pub allocation_method: String,
    /// The time in minutes after which idle connections end.
    pub idle_timeout_in_minutes: u32,
    /// The address; Azure chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
}

impl ArmBody for PublicIpAddressBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/publicIPAddresses";
    const API_VERSION: &'static str = NETWORK_API;
}

impl PublicIpAddressBody {
    /// A static IPv4 address.
    pub fn new(location: impl Into<String>, tags: ResourceTags) -> Self {
        let properties = PublicIpAddressProperties {
            version: "IPv4".to_owned(),
            allocation_method: "Static".to_owned(),
            idle_timeout_in_minutes: IDLE_TIMEOUT_MINUTES,
            ip_address: None,
        };
        Self { location: location.into(), tags, sku: NetworkSku::standard(), properties }
    }
}

/// The load balancer for the egress of a hosted cluster. Its cloud provider adds rules later: a PUT of this body
/// over a load balancer in use removes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerBody {
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// The SKU.
    pub sku: NetworkSku,
    /// The children.
    pub properties: LoadBalancerProperties,
}

/// The children of a [`LoadBalancerBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerProperties {
    /// The frontends.
    #[serde(rename = "frontendIPConfigurations")]
    pub frontends: Vec<LoadBalancerChild<LoadBalancerFrontend>>,
    /// The backend pools.
    pub backend_address_pools: Vec<LoadBalancerPool>,
    /// The health probes.
    pub probes: Vec<LoadBalancerChild<LoadBalancerProbe>>,
    /// The outbound rules.
    pub outbound_rules: Vec<LoadBalancerChild<LoadBalancerOutboundRule>>,
}

/// A child of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerChild<P> {
    /// The name.
    pub name: String,
    /// The properties of this kind of child.
    pub properties: P,
}

/// A backend pool; its members join it from their network interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerPool {
    /// The name.
    pub name: String,
}

/// A frontend with a public IP address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerFrontend {
    /// `Dynamic`.
    #[serde(rename = "privateIPAllocationMethod")]
    pub private_ip_allocation_method: String,
    /// The public IP address.
    #[serde(rename = "publicIPAddress", default, skip_serializing_if = "Option::is_none")]
    pub public_ip_address: Option<ResourceReference>,
}

/// A health probe over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerProbe {
    /// `Http`.
    pub protocol: String,
    /// The port of the backends.
    pub port: u16,
    /// The path of the URL.
    pub request_path: String,
    /// The seconds between two probes.
    pub interval_in_seconds: u32,
    /// The number of consecutive results that change the state of a backend.
    pub probe_threshold: u32,
}

/// An outbound rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerOutboundRule {
    /// `All`.
    pub protocol: String,
    /// The number of SNAT ports of each backend. A frontend IP has 64000.
    pub allocated_outbound_ports: u32,
    /// Whether the end of an idle connection sends a TCP reset.
    pub enable_tcp_reset: bool,
    /// The time in minutes after which idle connections end.
    pub idle_timeout_in_minutes: u32,
    /// The backend pool.
    pub backend_address_pool: ResourceReference,
    /// The frontends.
    #[serde(rename = "frontendIPConfigurations")]
    pub frontends: Vec<ResourceReference>,
}

impl ArmBody for LoadBalancerBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/loadBalancers";
    const API_VERSION: &'static str = NETWORK_API;
}

impl LoadBalancerBody {
    /// The load balancer `id` with the frontend `public_ip`. Its children have its name.
    pub fn new(
        id: &ArmResourceId,
        location: impl Into<String>,
        tags: ResourceTags,
        public_ip: ArmResourceId,
    ) -> Self {
        let name = id.name();
        let frontend = LoadBalancerFrontend {
            private_ip_allocation_method: "Dynamic".to_owned(),
            public_ip_address: Some(public_ip.into()),
        };
        let probe = LoadBalancerProbe {
            protocol: "Http".to_owned(),
            port: 30_595,
            request_path: "/healthz".to_owned(),
            interval_in_seconds: 5,
            probe_threshold: 2,
        };
        let rule = LoadBalancerOutboundRule {
            protocol: "All".to_owned(),
            allocated_outbound_ports: 1_024,
            enable_tcp_reset: true,
            idle_timeout_in_minutes: IDLE_TIMEOUT_MINUTES,
            backend_address_pool: id.child("backendAddressPools", name).into(),
            frontends: vec![id.child("frontendIPConfigurations", name).into()],
        };
        let properties = LoadBalancerProperties {
            frontends: vec![LoadBalancerChild { name: name.to_owned(), properties: frontend }],
            backend_address_pools: vec![LoadBalancerPool { name: name.to_owned() }],
            probes: vec![LoadBalancerChild { name: name.to_owned(), properties: probe }],
            outbound_rules: vec![LoadBalancerChild { name: name.to_owned(), properties: rule }],
        };
        Self { location: location.into(), tags, sku: NetworkSku::standard(), properties }
    }
}

const NETWORK_API: &str = "2023-11-01";
const IDLE_TIMEOUT_MINUTES: u32 = 4;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn network_has_this_json() {
        let group = resource_id("Microsoft.Network/networkSecurityGroups/c-nsg");
        let subnet = SubnetBody::new("default", "10.0.0.0/24", Some(group.clone()));
        let subnet_json = json!({
            "name": "default",
            "properties": {
                "addressPrefix": "10.0.0.0/24",
                "networkSecurityGroup": { "id": group },
            },
        });
        assert_body(&subnet, subnet_json.clone());
        let network =
            VirtualNetworkBody::new("westeurope", ResourceTags::new(), "10.0.0.0/16", vec![subnet]);
        assert_body(
            &network,
            json!({
                "location": "westeurope",
                "tags": {},
                "properties": {
                    "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] },
                    "subnets": [subnet_json],
                },
            }),
        );
        let group = NetworkSecurityGroupBody::new("westeurope", ResourceTags::new());
        assert_body(&group, json!({ "location": "westeurope", "tags": {} }));
    }

    #[test]
    fn public_ip_address_has_this_json() {
        let address = PublicIpAddressBody::new("westeurope", ResourceTags::new());
        assert_body(
            &address,
            json!({
                "location": "westeurope",
                "tags": {},
                "sku": { "name": "Standard" },
                "properties": {
                    "publicIPAddressVersion": "IPv4",
                    "publicIPAllocationMethod": "Static",
                    "idleTimeoutInMinutes": 4,
                },
            }),
        );
    }

    #[test]
    fn load_balancer_refers_to_its_own_children() {
        let id = resource_id("Microsoft.Network/loadBalancers/c-1");
        let address = resource_id("Microsoft.Network/publicIPAddresses/c-1");
        let body = LoadBalancerBody::new(&id, "westeurope", ResourceTags::new(), address.clone());
        assert_body(
            &body,
            json!({
                "location": "westeurope",
                "tags": {},
                "sku": { "name": "Standard" },
                "properties": {
                    "frontendIPConfigurations": [{
                        "name": "c-1",
                        "properties": {
                            "privateIPAllocationMethod": "Dynamic",
                            "publicIPAddress": { "id": address },
                        },
                    }],
                    "backendAddressPools": [{ "name": "c-1" }],
                    "probes": [{
                        "name": "c-1",
                        "properties": {
                            "protocol": "Http",
                            "port": 30_595,
                            "requestPath": "/healthz",
                            "intervalInSeconds": 5,
                            "probeThreshold": 2,
                        },
                    }],
                    "outboundRules": [{
                        "name": "c-1",
                        "properties": {
                            "protocol": "All",
                            "allocatedOutboundPorts": 1_024,
                            "enableTcpReset": true,
                            "idleTimeoutInMinutes": 4,
                            "backendAddressPool": { "id": format!("{id}/backendAddressPools/c-1") },
                            "frontendIPConfigurations": [
                                { "id": format!("{id}/frontendIPConfigurations/c-1") },
                            ],
                        },
                    }],
                },
            }),
        );
    }
}
