//! Networks and DNS zones. Reference: Microsoft.Network, 2023-11-01; private DNS 2024-06-01; public DNS
//! 2018-05-01.

mod address_prefix;
mod reference;
mod virtual_networks;

use super::resource_type::ResourceType;
use super::{ArmReadKind, read_only_operation};
use crate::operations::ServiceOperation;

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] =
    &[virtual_networks::VIRTUAL_NETWORK_TYPE, virtual_networks::SUBNET_TYPE];

pub(super) const VIRTUAL_NETWORKS: &[ServiceOperation] =
    resource_operations!("VirtualNetworks", "Microsoft.Network/virtualNetworks");

pub(super) const SUBNETS: &[ServiceOperation] =
    child_operations!("Subnets", "Microsoft.Network/virtualNetworks/{name}/subnets");

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    read_only_operation(
        "NetworkSecurityGroups_List",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Network/networkSecurityGroups"),
    ),
    read_only_operation(
        "NetworkSecurityGroups_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Network/networkSecurityGroups/{name}"),
    ),
    read_only_operation(
        "LoadBalancers_List",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Network/loadBalancers"),
    ),
    read_only_operation(
        "LoadBalancers_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Network/loadBalancers/{name}"),
    ),
    read_only_operation(
        "NetworkInterfaces_List",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Network/networkInterfaces"),
    ),
    read_only_operation(
        "NetworkInterfaces_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Network/networkInterfaces/{name}"),
    ),
    read_only_operation(
        "PrivateZones_ListByResourceGroup",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Network/privateDnsZones"),
    ),
    read_only_operation(
        "PrivateZones_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Network/privateDnsZones/{name}"),
    ),
    read_only_operation(
        "PrivateRecordSets_List_A",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Network/privateDnsZones/{name}/A"),
    ),
    read_only_operation(
        "PrivateRecordSets_Get_A",
        ArmReadKind::Resource,
        rg!("Microsoft.Network/privateDnsZones/{name}/A/{child}"),
    ),
    read_only_operation(
        "Zones_List",
        ArmReadKind::SubscriptionCollection,
        sub!("Microsoft.Network/dnsZones"),
    ),
    read_only_operation(
        "Zones_ListByResourceGroup",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Network/dnsZones"),
    ),
    read_only_operation(
        "Zones_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Network/dnsZones/{name}"),
    ),
    read_only_operation(
        "RecordSets_List_A",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Network/dnsZones/{name}/A"),
    ),
    read_only_operation(
        "RecordSets_Get_A",
        ArmReadKind::Resource,
        rg!("Microsoft.Network/dnsZones/{name}/A/{child}"),
    ),
];
