//! Azure Resource Manager.
//!
//! Ids keep their original case. Authorization precedes any look-up. Operations complete before their reply,
//! unless a setting makes them long-running.

/// A path in a resource group.
macro_rules! rg {
    ($rest:expr) => {
        concat!("/subscriptions/{subscription}/resourceGroups/{group}/providers/", $rest)
    };
}

/// A path in a subscription.
macro_rules! sub {
    ($rest:expr) => {
        concat!("/subscriptions/{subscription}/providers/", $rest)
    };
}

/// The operations of a type in a resource group: create or update, update, get, delete, and two lists.
macro_rules! resource_operations {
    ($id:literal, $type:literal) => {
        &[
            full!(
                concat!($id, "_ListAll"),
                GET,
                sub!($type),
                $crate::services::arm::resource_reads::list_in_subscription
            ),
            full!(
                concat!($id, "_List"),
                GET,
                rg!($type),
                $crate::services::arm::resource_reads::list_child_collection
            ),
            full!(
                concat!($id, "_CreateOrUpdate"),
                PUT,
                rg!(concat!($type, "/{name}")),
                $crate::services::arm::resource_writes::put_resource
            ),
            full!(
                concat!($id, "_Update"),
                PATCH,
                rg!(concat!($type, "/{name}")),
                $crate::services::arm::resource_writes::patch_resource
            ),
            full!(
                concat!($id, "_Get"),
                GET,
                rg!(concat!($type, "/{name}")),
                $crate::services::arm::resource_reads::get_resource
            ),
            full!(
                concat!($id, "_Delete"),
                DELETE,
                rg!(concat!($type, "/{name}")),
                $crate::services::arm::resource_writes::delete_resource
            ),
        ]
    };
}
/// The operations of a child type. The path names the parents.
macro_rules! child_operations {
    ($id:literal, $path:literal) => {
        &[
            full!(
                concat!($id, "_List"),
                GET,
                rg!($path),
                $crate::services::arm::resource_reads::list_child_collection
            ),
            full!(
                concat!($id, "_CreateOrUpdate"),
                PUT,
                rg!(concat!($path, "/{child}")),
                $crate::services::arm::resource_writes::put_resource
            ),
            full!(
                concat!($id, "_Update"),
                PATCH,
                rg!(concat!($path, "/{child}")),
                $crate::services::arm::resource_writes::patch_resource
            ),
            full!(
                concat!($id, "_Get"),
                GET,
                rg!(concat!($path, "/{child}")),
                $crate::services::arm::resource_reads::get_resource
            ),
            full!(
                concat!($id, "_Delete"),
                DELETE,
                rg!(concat!($path, "/{child}")),
                $crate::services::arm::resource_writes::delete_resource
            ),
        ]
    };
}
/// A fully implemented operation.
macro_rules! full {
    ($id:expr, $method:ident, $path:expr, $handler:expr) => {
        $crate::operations::ServiceOperation {
            id: $id,
            method: http::Method::$method,
            path: $path,
            support: $crate::operations::OperationSupport::Full,
            handler: $handler,
        }
    };
}

mod access;
mod access_permissions;
mod account;
mod compute;
mod container_service;
mod deleted_resources;
mod deny_assignments;
mod deployments;
mod error;
mod generic_resources;
mod key_vault;
mod locations;
mod locks;
mod long_running;
mod managed_identity;
mod management_groups;
mod network;
mod odata_filter;
mod providers;
mod quotas;
mod resource_groups;
mod resource_identity;
mod resource_lists;
mod resource_reads;
mod resource_store;
mod resource_type;
mod resource_writes;
mod role_assignment_body;
mod role_assignments;
mod role_definitions;
mod role_permissions;
mod storage;
mod tags;

use http::Method;
use jiff::Timestamp;

pub(crate) use deleted_resources::ResourceDelays;
#[cfg(feature = "fuzzing")]
pub(crate) use deployments::plan_template;
pub(crate) use key_vault::has_private_endpoint;
pub(crate) use providers::resolve_namespaces;
pub(crate) use quotas::is_quota_name;
pub(crate) use resource_store::{
    ArmResource, ArmResourceStore, ArmSettings, RESOURCE_GROUP_TYPE, Subscription,
};

use crate::azure_state::AzureState;
use crate::operations::{OperationSupport, ServiceOperation};

/// The operations of Azure Resource Manager.
pub(crate) const OPERATIONS: &[&[ServiceOperation]] = &[
    ACCOUNT_OPERATIONS,
    long_running::OPERATIONS,
    management_groups::OPERATIONS,
    resource_groups::OPERATIONS,
    deployments::GROUP_OPERATIONS,
    deployments::SUBSCRIPTION_OPERATIONS,
    deployments::OPERATIONS_WITHOUT_PROVIDER,
    providers::OPERATIONS,
    managed_identity::IDENTITIES,
    managed_identity::OPERATIONS,
    key_vault::VAULTS,
    key_vault::OPERATIONS,
    key_vault::VAULT_OBJECTS,
    key_vault::MANAGED_HSM_OPERATIONS,
    network::VIRTUAL_NETWORKS,
    network::SUBNETS,
    network::SECURITY_GROUPS,
    network::SECURITY_RULES,
    network::ROUTE_TABLES,
    network::ROUTES,
    network::PUBLIC_IP_ADDRESSES,
    network::NAT_GATEWAYS,
    network::LOAD_BALANCERS,
    network::NETWORK_INTERFACES,
    network::PRIVATE_ENDPOINTS,
    network::PRIVATE_LINK_SERVICES,
    network::PUBLIC_ZONES,
    network::PRIVATE_ZONES,
    network::VIRTUAL_NETWORK_LINKS,
    network::ITEMS,
    network::RECORD_SETS,
    compute::DISKS,
    compute::IMAGES,
    compute::VIRTUAL_MACHINES,
    compute::SKU_OPERATIONS,
    quotas::OPERATIONS,
    container_service::CLUSTERS,
    container_service::AGENT_POOLS,
    container_service::ACTIONS,
    storage::OPERATIONS,
    // Extension resources: any path can be their scope.
    locks::OPERATIONS,
    tags::OPERATIONS,
    role_definitions::OPERATIONS,
    role_assignments::OPERATIONS,
    deny_assignments::OPERATIONS,
    access_permissions::OPERATIONS,
    // Last: all types without operations of their own.
    generic_resources::OPERATIONS,
];

const ACCOUNT_OPERATIONS: &[ServiceOperation] = &[
    account_operation("Metadata_Endpoints", "/metadata/endpoints", account::get_metadata_endpoints),
    account_operation("Tenants_List", "/tenants", account::list_tenants),
    account_operation("Subscriptions_List", "/subscriptions", account::list_subscriptions),
    account_operation(
        "Subscriptions_Get",
        "/subscriptions/{subscription}",
        account::get_subscription,
    ),
    account_operation(
        "Subscriptions_ListLocations",
        "/subscriptions/{subscription}/locations",
        account::list_locations,
    ),
    account_operation(
        "Resources_List",
        "/subscriptions/{subscription}/resources",
        resource_lists::list_subscription_resources,
    ),
    account_operation(
        "Resources_ListByResourceGroup",
        "/subscriptions/{subscription}/resourceGroups/{group}/resources",
        resource_lists::list_group_resources,
    ),
];

const fn account_operation(
    id: &'static str,
    path: &'static str,
    handler: crate::operations::OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method: Method::GET, path, support: OperationSupport::Full, handler }
}

/// The ways to read stored resources.
#[derive(Clone, Copy)]
enum ArmReadKind {
    /// One resource.
    Resource,
    /// A collection in a resource group or below a resource.
    ChildCollection,
    SubscriptionCollection,
}

/// A read operation of a type without write operations.
const fn read_only_operation(
    id: &'static str,
    what: ArmReadKind,
    path: &'static str,
) -> ServiceOperation {
    let support = OperationSupport::Partial("read-only: shows the seeded state");
    build_read_operation(id, what, path, support)
}

/// A read operation of a type with write operations.
const fn read_operation(
    id: &'static str,
    what: ArmReadKind,
    path: &'static str,
) -> ServiceOperation {
    build_read_operation(id, what, path, OperationSupport::Full)
}

const fn build_read_operation(
    id: &'static str,
    what: ArmReadKind,
    path: &'static str,
    support: OperationSupport,
) -> ServiceOperation {
    let handler: crate::operations::OperationHandler = match what {
        ArmReadKind::Resource => resource_reads::get_resource,
        ArmReadKind::ChildCollection => resource_reads::list_child_collection,
        ArmReadKind::SubscriptionCollection => resource_reads::list_in_subscription,
    };
    ServiceOperation { id, method: Method::GET, path, support, handler }
}

/// Applies the side effects of removing resources: identities are removed from the directory, vaults are
/// soft-deleted, storage accounts lose their content, and role assignments at removed scopes are deleted.
fn remove_dependent_state(azure: &mut AzureState, removed: &[ArmResource], now: Timestamp) {
    azure.resources.record_deleted(removed, now);
    for resource in removed {
        let user_assigned = resource.property("principalId");
        let system_assigned = resource.body.get("identity").and_then(|it| it.get("principalId"));
        for principal in user_assigned.into_iter().chain(system_assigned) {
            let object = principal.as_str().and_then(|id| id.parse::<uuid::Uuid>().ok());
            if let Some(object) = object {
                azure.directory.remove_service_principal(object);
            }
        }
        key_vault::soft_delete_vault(azure, resource, now);
        storage::remove_account_of(azure, resource);
        azure.authorization.remove_within(&resource.id);
        let owned = container_service::node_group_of(resource).into_iter();
        for id in owned.chain(network::interfaces_of_endpoint(resource)) {
            let removed = azure.resources.remove(&id);
            remove_dependent_state(azure, &removed, now);
        }
    }
}

#[cfg(test)]
mod authorization_fixture;
#[cfg(test)]
mod tests;
