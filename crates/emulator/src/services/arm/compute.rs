//! Disks, images and virtual machines, as state without machines that run, and the sizes of machines. Reference: Microsoft.Compute,
//! 2024-03-01; disks 2023-10-02.

mod disks;
mod machine_sizes;
mod virtual_machines;

pub(super) use self::machine_sizes::{
    MACHINE_FAMILIES, OPERATIONS as SKU_OPERATIONS, find_machine_size,
};
use super::resource_type::ResourceType;
use crate::operations::ServiceOperation;

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] =
    &[disks::DISK_TYPE, disks::IMAGE_TYPE, virtual_machines::VIRTUAL_MACHINE_TYPE];

pub(super) const DISKS: &[ServiceOperation] =
    resource_operations!("Disks", "Microsoft.Compute/disks");

pub(super) const IMAGES: &[ServiceOperation] =
    resource_operations!("Images", "Microsoft.Compute/images");

pub(super) const VIRTUAL_MACHINES: &[ServiceOperation] = virtual_machines::OPERATIONS;
