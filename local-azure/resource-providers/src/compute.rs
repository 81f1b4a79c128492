//! Disks, images, virtual machines (state only: none runs) and virtual machine sizes. Reference:
//! Microsoft.Compute, 2024-03-01; disks 2023-10-02.

mod disks;
pub(crate) mod machine_sizes;
mod virtual_machines;

use lanyard_emulator_arm::resource_operations;
use lanyard_emulator_arm::resource_type::ResourceType;
use lanyard_emulator_core::operations::ServiceOperation;

pub(super) use self::machine_sizes::OPERATIONS as SKU_OPERATIONS;

const DISK: &str = "Microsoft.Compute/disks";

const VIRTUAL_MACHINE: &str = "Microsoft.Compute/virtualMachines";

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] =
    &[disks::DISK_TYPE, disks::IMAGE_TYPE, virtual_machines::VIRTUAL_MACHINE_TYPE];

pub(super) const DISKS: &[ServiceOperation] =
    resource_operations!("Disks", "Microsoft.Compute/disks");

pub(super) const IMAGES: &[ServiceOperation] =
    resource_operations!("Images", "Microsoft.Compute/images");

pub(super) const VIRTUAL_MACHINES: &[ServiceOperation] = virtual_machines::OPERATIONS;
