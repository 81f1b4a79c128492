//! Storage accounts with their containers and shares. Reference: Microsoft.Storage, 2015-06-15 to 2025-06-01.
//!
//! ARM and the data plane of the Blob service share the containers.

mod account_actions;
mod accounts;
mod blob_services;
mod containers;

use http::Method;
use lanyard_emulator_arm::resource_type::{NameEdge, NamingRule, ResourceType};
use lanyard_emulator_arm::resource_writes::patch_resource;
use lanyard_emulator_arm::{ArmReadKind, full, read_only_operation, read_operation, rg, sub};
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};

const ACCOUNT: &str = "Microsoft.Storage/storageAccounts";

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] = &[ResourceType {
    prepare: accounts::prepare_account,
    release: accounts::release_account,
    endpoints: &["/properties/primaryEndpoints"],
    // `prepare` checks names, because the error for an invalid name has a code of its own.
    ..ResourceType::regional(
        ACCOUNT,
        NamingRule { first: NameEdge::Any, last: NameEdge::Any, ..NamingRule::word(260) },
        "2015-06-15",
    )
}];

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    read_operation(
        "StorageAccounts_List",
        ArmReadKind::SubscriptionCollection,
        sub!("Microsoft.Storage/storageAccounts"),
    ),
    read_operation(
        "StorageAccounts_ListByResourceGroup",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.Storage/storageAccounts"),
    ),
    full!(
        "StorageAccounts_CheckNameAvailability",
        POST,
        sub!("Microsoft.Storage/checkNameAvailability"),
        account_actions::check_name_availability
    ),
    account_operation("StorageAccounts_Create", Method::PUT, accounts::put_account),
    account_operation("StorageAccounts_Update", Method::PATCH, patch_resource),
    read_operation(
        "StorageAccounts_GetProperties",
        ArmReadKind::Resource,
        rg!("Microsoft.Storage/storageAccounts/{name}"),
    ),
    full!(
        "StorageAccounts_Delete",
        DELETE,
        rg!("Microsoft.Storage/storageAccounts/{name}"),
        accounts::delete_account
    ),
    full!(
        "StorageAccounts_ListKeys",
        POST,
        rg!("Microsoft.Storage/storageAccounts/{name}/listKeys"),
        account_actions::list_keys
    ),
    full!(
        "StorageAccounts_RegenerateKey",
        POST,
        rg!("Microsoft.Storage/storageAccounts/{name}/regenerateKey"),
        account_actions::regenerate_key
    ),
    full!(
        "StorageAccounts_RevokeUserDelegationKeys",
        POST,
        rg!("Microsoft.Storage/storageAccounts/{name}/revokeUserDelegationKeys"),
        account_actions::revoke_user_delegation_keys
    ),
    full!(
        "BlobServices_GetServiceProperties",
        GET,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default"),
        blob_services::get_blob_service
    ),
    ServiceOperation {
        id: "BlobServices_SetServiceProperties",
        method: Method::PUT,
        path: rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default"),
        support: OperationSupport::Partial("no CORS rules, soft delete, versions and change feed"),
        handler: blob_services::put_blob_service,
    },
    full!(
        "BlobContainers_List",
        GET,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers"),
        containers::list_containers
    ),
    full!(
        "BlobContainers_Get",
        GET,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers/{child}"),
        containers::get_container
    ),
    full!(
        "BlobContainers_Create",
        PUT,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers/{child}"),
        containers::put_container
    ),
    full!(
        "BlobContainers_Update",
        PATCH,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers/{child}"),
        containers::patch_container
    ),
    full!(
        "BlobContainers_Delete",
        DELETE,
        rg!("Microsoft.Storage/storageAccounts/{name}/blobServices/default/containers/{child}"),
        containers::delete_container
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

const fn account_operation(
    id: &'static str,
    method: Method,
    handler: OperationHandler,
) -> ServiceOperation {
    let support = OperationSupport::Partial(
        "network rules, encryption and the TLS version are stored and have no effect",
    );
    let path = rg!("Microsoft.Storage/storageAccounts/{name}");
    ServiceOperation { id, method, path, support, handler }
}

#[cfg(test)]
mod tests;
