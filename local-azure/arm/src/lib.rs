//! Azure Resource Manager.
//!
//! Ids keep their original case. Authorization precedes any look-up. Operations complete before their reply,
//! unless a setting makes them long-running.

#[macro_use]
mod operation_macros;

pub mod access;
mod access_permissions;
mod account;
mod creation_statuses;
pub mod error;
mod generic_resources;
pub mod locations;
mod lock_check;
mod locks;
mod long_running;
pub mod namespaces;
pub mod odata_filter;
pub mod providers;
pub mod request_scopes;
pub mod resource_change;
mod resource_groups;
pub mod resource_identity;
mod resource_lists;
pub mod resource_reads;
pub mod resource_removal;
pub mod resource_rendering;
pub mod resource_type;
pub mod resource_types;
pub mod resource_writes;
mod role_assignment_body;
mod role_assignments;
mod role_definitions;
mod role_permissions;
pub mod tags;

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::{
    EmulatedService, EngineError, MAX_BODY_BYTES, coded_error, management_error_reply,
};
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::fault_rules::ThrottlingProvider;
use lanyard_emulator_state::request::ServiceReply;

/// Azure Resource Manager: subscriptions, resource groups, resource providers and long-running operations.
pub const SERVICE: EmulatedService = EmulatedService {
    admit_large_body: |call, _| access::authenticate(call).map(|_| MAX_BODY_BYTES),
    error_reply: arm_engine_error,
    check_settings: namespaces::check_namespaces,
    ..EmulatedService::new(
        AzureService::Arm,
        &[
            ACCOUNT_OPERATIONS,
            long_running::OPERATIONS,
            resource_groups::OPERATIONS,
            providers::OPERATIONS,
        ],
    )
};

/// The operations that follow those of all resource providers, because any path can be their scope.
pub const EXTENSION_SERVICE: EmulatedService = EmulatedService::new(
    AzureService::Arm,
    &[
        locks::OPERATIONS,
        tags::OPERATIONS,
        role_definitions::OPERATIONS,
        role_assignments::OPERATIONS,
        access_permissions::OPERATIONS,
        // Must be last, because it has the types without operations of their own.
        generic_resources::OPERATIONS,
    ],
);

/// Converts an error of the emulator's engine to the reply of Azure Resource Manager.
fn arm_engine_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::Throttled { seconds, provider } => {
            let (code, message) = match provider {
                // The provider's code is the status: microsoft/onefuzz#249.
                Some(ThrottlingProvider::ManagedIdentity) => (
                    "429",
                    format!(
                        "Request is temporarily throttled because of too many requests. Retry after \
                         {seconds} seconds."
                    ),
                ),
                Some(ThrottlingProvider::ContainerService) => (
                    "Throttled",
                    format!("The request is throttled. Retry after {seconds} seconds."),
                ),
                None => (
                    "SubscriptionRequestsThrottled",
                    format!(
                        "Number of requests for the subscription exceeded the limit. Please try again after \
                         '{seconds}' seconds after additional tokens are available. Refer to \
                         https://aka.ms/arm-throttling for additional information."
                    ),
                ),
            };
            coded_error(StatusCode::TOO_MANY_REQUESTS, code, &message)
        }
        other => management_error_reply(other),
    }
}

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
    handler: lanyard_emulator_core::operations::OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method: Method::GET, path, support: OperationSupport::Full, handler }
}

/// What a read operation returns.
#[derive(Debug, Clone, Copy)]
pub enum ArmReadKind {
    /// One resource.
    Resource,
    /// A collection in a resource group or below a resource.
    ChildCollection,
    SubscriptionCollection,
}

/// A read operation of a resource type that has no write operations.
pub const fn read_only_operation(
    id: &'static str,
    what: ArmReadKind,
    path: &'static str,
) -> ServiceOperation {
    let support = OperationSupport::Partial("read-only: shows the seeded state");
    build_read_operation(id, what, path, support)
}

/// A read operation of a resource type that has write operations.
pub const fn read_operation(
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
    let handler: lanyard_emulator_core::operations::OperationHandler = match what {
        ArmReadKind::Resource => resource_reads::get_resource,
        ArmReadKind::ChildCollection => resource_reads::list_child_collection,
        ArmReadKind::SubscriptionCollection => resource_reads::list_in_subscription,
    };
    ServiceOperation { id, method: Method::GET, path, support, handler }
}

#[cfg(test)]
mod tests;
