//! Virtual machines and disks, read-only. Reference: Microsoft.Compute, 2024-03-01; disks 2023-10-02.

use super::resource_type::ResourceType;
use super::{ArmReadKind, read_only_operation};
use crate::operations::ServiceOperation;

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] = &[];

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    read_only_operation(
        "VirtualMachines_ListAll",
        ArmReadKind::SubscriptionCollection,
        sub!("Microsoft.Compute/virtualMachines"),
    ),
    read_only_operation(
        "VirtualMachines_List",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Compute/virtualMachines"),
    ),
    read_only_operation(
        "VirtualMachines_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Compute/virtualMachines/{name}"),
    ),
    read_only_operation(
        "Disks_List",
        ArmReadKind::SubscriptionCollection,
        sub!("Microsoft.Compute/disks"),
    ),
    read_only_operation(
        "Disks_ListByResourceGroup",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Compute/disks"),
    ),
    read_only_operation("Disks_Get", ArmReadKind::Resource, rg!("Microsoft.Compute/disks/{name}")),
];
