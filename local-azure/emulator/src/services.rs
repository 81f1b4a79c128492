//! The services of this build.
//!
//! The order matters among the entries of one [`AzureService`](lanyard_emulator_state::azure_service::AzureService).
//! For Azure Resource Manager, `SERVICE` comes first, because its error format applies to all
//! entries. `EXTENSION_SERVICE` comes last, because it stores the resources of types that no other
//! entry has.

use std::sync::LazyLock;

use lanyard_emulator_core::emulated_service::{EmulatedService, ServiceSet};

use crate::operation_listing::{OperationSummary, list_operations};
use crate::{control, drills};

const SERVICES: &[EmulatedService] = &[
    lanyard_emulator_entra::token_service::SERVICE,
    lanyard_emulator_entra::imds::SERVICE,
    lanyard_emulator_entra::app_service::SERVICE,
    lanyard_emulator_arm::SERVICE,
    #[cfg(feature = "deployments")]
    lanyard_emulator_deployments::SERVICE,
    #[cfg(feature = "resource-providers")]
    lanyard_emulator_resource_providers::SERVICE,
    #[cfg(feature = "resource-providers")]
    lanyard_emulator_resource_providers::OIDC_ISSUER_SERVICE,
    lanyard_emulator_arm::EXTENSION_SERVICE,
    lanyard_emulator_keyvault::SERVICE,
    #[cfg(feature = "graph")]
    lanyard_emulator_graph::SERVICE,
    #[cfg(feature = "blob")]
    lanyard_emulator_blob::SERVICE,
    #[cfg(feature = "blob")]
    lanyard_emulator_blob::WEBSITE_SERVICE,
    lanyard_emulator_entra::managed_identity::SERVICE,
    control::SERVICE,
];

/// The services of this build.
pub(crate) fn services() -> &'static ServiceSet {
    static SET: LazyLock<ServiceSet> = LazyLock::new(|| {
        let set =
            ServiceSet::new(SERVICES.iter().copied()).with_scheduled_work(drills::SCHEDULED_WORK);
        #[cfg(feature = "resource-providers")]
        let set = set.with_registry(resource_types());
        set
    });
    &SET
}

/// The implemented operations, by service and in the order of their tables.
pub fn operations() -> Vec<OperationSummary> {
    list_operations(services())
}

#[cfg(feature = "resource-providers")]
fn resource_types() -> &'static lanyard_emulator_arm::resource_types::ResourceTypes {
    use lanyard_emulator_arm::resource_types::ResourceTypes;

    static TYPES: LazyLock<ResourceTypes> =
        LazyLock::new(|| ResourceTypes::new(lanyard_emulator_resource_providers::TYPES));
    &TYPES
}

#[cfg(test)]
mod tests;
