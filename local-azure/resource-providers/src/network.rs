//! Networks and DNS zones. Reference: Microsoft.Network, 2023-11-01; private DNS 2024-06-01; public DNS
//! 2018-05-01.

mod address_prefix;
mod child_items;
mod dns_zones;
mod load_balancers;
mod nat_gateways;
mod network_interfaces;
mod private_addresses;
mod private_endpoints;
mod public_ip_addresses;
mod reference;
mod route_tables;
mod security_groups;
mod virtual_networks;

use lanyard_emulator_arm::resource_type::ResourceType;
use lanyard_emulator_arm::{
    child_operations, full, resource_operations, resource_reads, resource_writes, rg,
};
use lanyard_emulator_core::operations::ServiceOperation;

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] = &[
    virtual_networks::VIRTUAL_NETWORK_TYPE,
    virtual_networks::SUBNET_TYPE,
    security_groups::SECURITY_GROUP_TYPE,
    security_groups::RULE_TYPE,
    route_tables::ROUTE_TABLE_TYPE,
    route_tables::ROUTE_TYPE,
    public_ip_addresses::PUBLIC_IP_ADDRESS_TYPE,
    nat_gateways::NAT_GATEWAY_TYPE,
    load_balancers::LOAD_BALANCER_TYPE,
    network_interfaces::NETWORK_INTERFACE_TYPE,
    private_endpoints::PRIVATE_ENDPOINT_TYPE,
    private_endpoints::PRIVATE_LINK_SERVICE_TYPE,
    dns_zones::PUBLIC_ZONE_TYPE,
    dns_zones::PRIVATE_ZONE_TYPE,
    dns_zones::LINK_TYPE,
];

/// The types of DNS record sets.
pub(super) const RECORD_TYPES: &[ResourceType] = dns_zones::RECORD_TYPES;

pub(super) const VIRTUAL_NETWORKS: &[ServiceOperation] =
    resource_operations!("VirtualNetworks", "Microsoft.Network/virtualNetworks");

pub(super) const SUBNETS: &[ServiceOperation] =
    child_operations!("Subnets", "Microsoft.Network/virtualNetworks/{name}/subnets");

pub(super) const SECURITY_GROUPS: &[ServiceOperation] =
    resource_operations!("NetworkSecurityGroups", "Microsoft.Network/networkSecurityGroups");

pub(super) const SECURITY_RULES: &[ServiceOperation] = child_operations!(
    "SecurityRules",
    "Microsoft.Network/networkSecurityGroups/{name}/securityRules"
);

pub(super) const ROUTE_TABLES: &[ServiceOperation] =
    resource_operations!("RouteTables", "Microsoft.Network/routeTables");

pub(super) const ROUTES: &[ServiceOperation] =
    child_operations!("Routes", "Microsoft.Network/routeTables/{name}/routes");

pub(super) const PUBLIC_IP_ADDRESSES: &[ServiceOperation] =
    resource_operations!("PublicIPAddresses", "Microsoft.Network/publicIPAddresses");

pub(super) const NAT_GATEWAYS: &[ServiceOperation] =
    resource_operations!("NatGateways", "Microsoft.Network/natGateways");

pub(super) const LOAD_BALANCERS: &[ServiceOperation] =
    resource_operations!("LoadBalancers", "Microsoft.Network/loadBalancers");

pub(super) const NETWORK_INTERFACES: &[ServiceOperation] =
    resource_operations!("NetworkInterfaces", "Microsoft.Network/networkInterfaces");

pub(super) const PRIVATE_ENDPOINTS: &[ServiceOperation] =
    resource_operations!("PrivateEndpoints", "Microsoft.Network/privateEndpoints");

pub(super) const PRIVATE_LINK_SERVICES: &[ServiceOperation] =
    resource_operations!("PrivateLinkServices", "Microsoft.Network/privateLinkServices");

pub(super) const PUBLIC_ZONES: &[ServiceOperation] =
    resource_operations!("Zones", "Microsoft.Network/dnsZones");

pub(super) const PRIVATE_ZONES: &[ServiceOperation] =
    resource_operations!("PrivateZones", "Microsoft.Network/privateDnsZones");

pub(super) const VIRTUAL_NETWORK_LINKS: &[ServiceOperation] = child_operations!(
    "VirtualNetworkLinks",
    "Microsoft.Network/privateDnsZones/{name}/virtualNetworkLinks"
);

/// The operations on parts of a network resource, such as the probes of a load balancer.
pub(super) const ITEMS: &[ServiceOperation] = &[
    full!(
        "VirtualNetworks_CheckIPAddressAvailability",
        GET,
        rg!("Microsoft.Network/virtualNetworks/{name}/CheckIPAddressAvailability"),
        virtual_networks::check_address_availability
    ),
    full!(
        "LoadBalancerItems_List",
        GET,
        rg!("Microsoft.Network/loadBalancers/{name}/{collection}"),
        load_balancers::list_items
    ),
    full!(
        "LoadBalancerItems_Get",
        GET,
        rg!("Microsoft.Network/loadBalancers/{name}/{collection}/{child}"),
        load_balancers::get_item
    ),
    full!(
        "LoadBalancerItems_CreateOrUpdate",
        PUT,
        rg!("Microsoft.Network/loadBalancers/{name}/{collection}/{child}"),
        load_balancers::put_item
    ),
    full!(
        "LoadBalancerItems_Delete",
        DELETE,
        rg!("Microsoft.Network/loadBalancers/{name}/{collection}/{child}"),
        load_balancers::delete_item
    ),
];

pub(super) const RECORD_SETS: &[ServiceOperation] = &[
    full!(
        "RecordSets_ListByDnsZone",
        GET,
        rg!("Microsoft.Network/dnsZones/{name}/recordsets"),
        dns_zones::list_record_sets
    ),
    full!(
        "RecordSets_ListAllByDnsZone",
        GET,
        rg!("Microsoft.Network/dnsZones/{name}/all"),
        dns_zones::list_record_sets
    ),
    full!(
        "PrivateRecordSets_List",
        GET,
        rg!("Microsoft.Network/privateDnsZones/{name}/ALL"),
        dns_zones::list_record_sets
    ),
    full!(
        "RecordSets_ListByType",
        GET,
        rg!("Microsoft.Network/dnsZones/{name}/{recordType}"),
        dns_zones::list_record_sets_of_type
    ),
    full!(
        "PrivateRecordSets_ListByType",
        GET,
        rg!("Microsoft.Network/privateDnsZones/{name}/{recordType}"),
        dns_zones::list_record_sets_of_type
    ),
    full!(
        "RecordSets_Get",
        GET,
        rg!("Microsoft.Network/dnsZones/{name}/{recordType}/{child}"),
        resource_reads::get_resource
    ),
    full!(
        "RecordSets_CreateOrUpdate",
        PUT,
        rg!("Microsoft.Network/dnsZones/{name}/{recordType}/{child}"),
        resource_writes::put_resource
    ),
    full!(
        "RecordSets_Update",
        PATCH,
        rg!("Microsoft.Network/dnsZones/{name}/{recordType}/{child}"),
        resource_writes::patch_resource
    ),
    full!(
        "RecordSets_Delete",
        DELETE,
        rg!("Microsoft.Network/dnsZones/{name}/{recordType}/{child}"),
        resource_writes::delete_resource
    ),
    full!(
        "PrivateRecordSets_Get",
        GET,
        rg!("Microsoft.Network/privateDnsZones/{name}/{recordType}/{child}"),
        resource_reads::get_resource
    ),
    full!(
        "PrivateRecordSets_CreateOrUpdate",
        PUT,
        rg!("Microsoft.Network/privateDnsZones/{name}/{recordType}/{child}"),
        resource_writes::put_resource
    ),
    full!(
        "PrivateRecordSets_Update",
        PATCH,
        rg!("Microsoft.Network/privateDnsZones/{name}/{recordType}/{child}"),
        resource_writes::patch_resource
    ),
    full!(
        "PrivateRecordSets_Delete",
        DELETE,
        rg!("Microsoft.Network/privateDnsZones/{name}/{recordType}/{child}"),
        resource_writes::delete_resource
    ),
];
