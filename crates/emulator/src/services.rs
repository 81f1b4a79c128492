//! The services: one file each, and one const table of operations each.

pub(crate) mod app_service;
pub(crate) mod arm;
pub(crate) mod control;
pub(crate) mod entra;
pub(crate) mod imds;
pub(crate) mod keyvault;

use crate::operations::{Operation, Service};

/// The operations of a service; services that only exist to answer 501 have none.
pub(crate) const fn operations(service: Service) -> &'static [&'static [Operation]] {
    match service {
        Service::Entra => entra::OPERATIONS,
        Service::Imds => imds::OPERATIONS,
        Service::WebApp => app_service::OPERATIONS,
        Service::Arm => arm::OPERATIONS,
        Service::KeyVault => keyvault::OPERATIONS,
        Service::Control => control::OPERATIONS,
        Service::Graph | Service::Blob => &[],
    }
}
