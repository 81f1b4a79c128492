//! The emulated services: one module and one constant table of operations each.

pub(crate) mod app_service;
pub(crate) mod arm;
pub(crate) mod blob;
pub(crate) mod control;
pub(crate) mod entra;
pub(crate) mod graph;
pub(crate) mod imds;
pub(crate) mod keyvault;
pub(crate) mod managed_identity;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use crate::operations::{AzureService, RouteTable, ServiceOperation};
use crate::request::ServiceRequest;

/// The operations of a service; empty for services that only respond with 501.
pub(crate) const fn operations_of_service(
    service: AzureService,
) -> &'static [&'static [ServiceOperation]] {
    match service {
        AzureService::Entra => entra::OPERATIONS,
        AzureService::Imds => imds::OPERATIONS,
        AzureService::AppService => app_service::OPERATIONS,
        AzureService::Arm => arm::OPERATIONS,
        AzureService::KeyVault => keyvault::OPERATIONS,
        AzureService::ManagedIdentity => managed_identity::OPERATIONS,
        AzureService::Control => control::OPERATIONS,
        AzureService::Blob => blob::OPERATIONS,
        AzureService::StaticWebsite => blob::WEBSITE_OPERATIONS,
        AzureService::Graph => graph::OPERATIONS,
        AzureService::DataLakeStorage
        | AzureService::QueueStorage
        | AzureService::TableStorage
        | AzureService::FileStorage => &[],
    }
}

/// The routes of a service.
pub(crate) fn routes_of_service(service: AzureService) -> &'static RouteTable {
    static TABLES: LazyLock<HashMap<AzureService, RouteTable>> = LazyLock::new(|| {
        AzureService::ALL
            .into_iter()
            .map(|service| (service, RouteTable::new(operations_of_service(service))))
            .collect()
    });
    static EMPTY: LazyLock<RouteTable> = LazyLock::new(|| RouteTable::new(&[]));
    TABLES.get(&service).unwrap_or(&EMPTY)
}

/// The segments of a request's path, as the routes of a service match them.
pub(crate) fn route_segments(service: AzureService, request: &ServiceRequest) -> Vec<Cow<'_, str>> {
    match service {
        AzureService::Graph => graph::odata_segments(request.segments()),
        AzureService::Imds | AzureService::AppService => imds::segments_without_node(request),
        _ => request.segments().collect(),
    }
}

#[cfg(test)]
mod tests;
