//! Machines and disks, to read. Reference: Microsoft.Compute, 2024-03-01; disks 2023-10-02.

use super::{Reads, reads};
use crate::operations::Operation;

pub(super) const OPERATIONS: &[Operation] = &[
    reads(
        "VirtualMachines_ListAll",
        Reads::Subscription,
        sub!("Microsoft.Compute/virtualMachines"),
    ),
    reads("VirtualMachines_List", Reads::Below, rg!("Microsoft.Compute/virtualMachines")),
    reads("VirtualMachines_Get", Reads::One, rg!("Microsoft.Compute/virtualMachines/{name}")),
    reads("Disks_List", Reads::Subscription, sub!("Microsoft.Compute/disks")),
    reads("Disks_ListByResourceGroup", Reads::Below, rg!("Microsoft.Compute/disks")),
    reads("Disks_Get", Reads::One, rg!("Microsoft.Compute/disks/{name}")),
];
