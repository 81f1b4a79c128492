//! Storage accounts with their containers and shares, to read. Reference: Microsoft.Storage,
//! 2024-01-01.

use super::{Reads, reads};
use crate::operations::Operation;

pub(super) const OPERATIONS: &[Operation] = &[
    reads("StorageAccounts_List", Reads::Subscription, sub!("Microsoft.Storage/storageAccounts")),
    reads(
        "StorageAccounts_ListByResourceGroup",
        Reads::Below,
        rg!("Microsoft.Storage/storageAccounts"),
    ),
    reads(
        "StorageAccounts_GetProperties",
        Reads::One,
        rg!("Microsoft.Storage/storageAccounts/{name}"),
    ),
    reads(
        "BlobContainers_List",
        Reads::Below,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers"),
    ),
    reads(
        "BlobContainers_Get",
        Reads::One,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers/{child}"),
    ),
    reads(
        "FileShares_List",
        Reads::Below,
        rg!("Microsoft.Storage/storageAccounts/{name}/fileServices/default/shares"),
    ),
    reads(
        "FileShares_Get",
        Reads::One,
        rg!("Microsoft.Storage/storageAccounts/{name}/fileServices/default/shares/{child}"),
    ),
];
