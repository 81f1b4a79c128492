//! Disks, images and virtual machines, as state without machines that run, and the sizes of machines. Reference: Microsoft.Compute,
//! 2024-03-01; disks 2023-10-02.

mod disks;
pub(crate) mod machine_sizes;
mod virtual_machines;

use lanyard_emulator_arm::resource_operations;
use lanyard_emulator_arm::resource_type::ResourceType;
use lanyard_emulator_core::operations::ServiceOperation;

pub(super) use self::machine_sizes::OPERATIONS as SKU_OPERATIONS;

/// The name of the type of disks.
const DISK: &str = "Microsoft.Compute/disks";

/// The name of the type of virtual machines.
const VIRTUAL_MACHINE: &str = "Microsoft.Compute/virtualMachines";

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] =
    &[disks::DISK_TYPE, disks::IMAGE_TYPE, virtual_machines::VIRTUAL_MACHINE_TYPE];

pub(super) const DISKS: &[ServiceOperation] =
    resource_operations!("Disks", "Microsoft.Compute/disks");

pub(super) const IMAGES: &[ServiceOperation] =
    resource_operations!("Images", "Microsoft.Compute/images");

pub(super) const VIRTUAL_MACHINES: &[ServiceOperation] = virtual_machines::OPERATIONS;
