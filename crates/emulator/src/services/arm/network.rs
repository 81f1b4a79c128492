//! Networks and DNS, to read. Reference: Microsoft.Network, 2023-11-01; private DNS 2024-06-01;
//! public DNS 2018-05-01.

use super::{Reads, reads};
use crate::operations::Operation;

pub(super) const OPERATIONS: &[Operation] = &[
    reads(
        "VirtualNetworks_ListAll",
        Reads::Subscription,
        sub!("Microsoft.Network/virtualNetworks"),
    ),
    reads("VirtualNetworks_List", Reads::Below, rg!("Microsoft.Network/virtualNetworks")),
    reads("VirtualNetworks_Get", Reads::One, rg!("Microsoft.Network/virtualNetworks/{name}")),
    reads("Subnets_List", Reads::Below, rg!("Microsoft.Network/virtualNetworks/{name}/subnets")),
    reads(
        "Subnets_Get",
        Reads::One,
        rg!("Microsoft.Network/virtualNetworks/{name}/subnets/{child}"),
    ),
    reads(
        "NetworkSecurityGroups_List",
        Reads::Below,
        rg!("Microsoft.Network/networkSecurityGroups"),
    ),
    reads(
        "NetworkSecurityGroups_Get",
        Reads::One,
        rg!("Microsoft.Network/networkSecurityGroups/{name}"),
    ),
    reads("LoadBalancers_List", Reads::Below, rg!("Microsoft.Network/loadBalancers")),
    reads("LoadBalancers_Get", Reads::One, rg!("Microsoft.Network/loadBalancers/{name}")),
    reads("NetworkInterfaces_List", Reads::Below, rg!("Microsoft.Network/networkInterfaces")),
    reads("NetworkInterfaces_Get", Reads::One, rg!("Microsoft.Network/networkInterfaces/{name}")),
    reads(
        "PrivateZones_ListByResourceGroup",
        Reads::Below,
        rg!("Microsoft.Network/privateDnsZones"),
    ),
    reads("PrivateZones_Get", Reads::One, rg!("Microsoft.Network/privateDnsZones/{name}")),
    reads(
        "PrivateRecordSets_List_A",
        Reads::Below,
        rg!("Microsoft.Network/privateDnsZones/{name}/A"),
    ),
    reads(
        "PrivateRecordSets_Get_A",
        Reads::One,
        rg!("Microsoft.Network/privateDnsZones/{name}/A/{child}"),
    ),
    reads("Zones_List", Reads::Subscription, sub!("Microsoft.Network/dnsZones")),
    reads("Zones_ListByResourceGroup", Reads::Below, rg!("Microsoft.Network/dnsZones")),
    reads("Zones_Get", Reads::One, rg!("Microsoft.Network/dnsZones/{name}")),
    reads("RecordSets_List_A", Reads::Below, rg!("Microsoft.Network/dnsZones/{name}/A")),
    reads("RecordSets_Get_A", Reads::One, rg!("Microsoft.Network/dnsZones/{name}/A/{child}")),
];
