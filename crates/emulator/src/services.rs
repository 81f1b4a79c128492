//! The services: one file each, and one const table of operations each.

pub(crate) mod app_service;
pub(crate) mod arm;
pub(crate) mod control;
pub(crate) mod entra;
pub(crate) mod imds;
pub(crate) mod keyvault;

use crate::operations::{AzureService, ServiceOperation};

/// The operations of a service; services that only exist to answer 501 have none.
pub(crate) const fn operations_of_service(
    service: AzureService,
) -> &'static [&'static [ServiceOperation]] {
    match service {
        AzureService::Entra => entra::OPERATIONS,
        AzureService::Imds => imds::OPERATIONS,
        AzureService::AppService => app_service::OPERATIONS,
        AzureService::Arm => arm::OPERATIONS,
        AzureService::KeyVault => keyvault::OPERATIONS,
        AzureService::Control => control::OPERATIONS,
        AzureService::Graph | AzureService::Blob => &[],
    }
}
