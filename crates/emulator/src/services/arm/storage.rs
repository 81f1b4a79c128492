//! Storage accounts with their containers and shares, read-only. Reference: Microsoft.Storage, 2024-01-01.

use super::resource_type::ResourceType;
use super::{ArmReadKind, read_only_operation};
use crate::operations::ServiceOperation;

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] = &[];

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    read_only_operation(
        "StorageAccounts_List",
        ArmReadKind::SubscriptionCollection,
        sub!("Microsoft.Storage/storageAccounts"),
    ),
    read_only_operation(
        "StorageAccounts_ListByResourceGroup",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Storage/storageAccounts"),
    ),
    read_only_operation(
        "StorageAccounts_GetProperties",
        ArmReadKind::Resource,
        rg!("Microsoft.Storage/storageAccounts/{name}"),
    ),
    read_only_operation(
        "BlobContainers_List",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers"),
    ),
    read_only_operation(
        "BlobContainers_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers/{child}"),
    ),
    read_only_operation(
        "FileShares_List",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Storage/storageAccounts/{name}/fileServices/default/shares"),
    ),
    read_only_operation(
        "FileShares_Get",
        ArmReadKind::Resource,
        rg!("Microsoft.Storage/storageAccounts/{name}/fileServices/default/shares/{child}"),
    ),
];
