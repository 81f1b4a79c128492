//! Lists the implemented operations, with the unmodified Azure clients that were tested with each.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lanyard_emulator_core::emulated_service::ServiceSet;
use lanyard_emulator_core::operations::OperationSupport;
use lanyard_emulator_state::azure_service::AzureService;
use serde::Serialize;

/// An implemented operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct OperationSummary {
    /// The service, such as `key-vault`.
    pub service: &'static str,
    /// The stable id of the operation, such as `Vaults_Get`.
    pub id: &'static str,
    /// The HTTP method.
    pub method: String,
    /// The path, with placeholders in braces. If query parameters or headers select the operation,
    /// they follow.
    pub path: String,
    /// `full`, `partial` (see `note`) or `echo` (stored and returned as given).
    pub support: &'static str,
    /// The part that a partial implementation lacks, or its limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
    /// The conformance suites whose unmodified clients use the operation successfully.
    pub clients: Vec<&'static str>,
}

/// Lists the operations of a set of services, by service and in the order of their tables.
pub(crate) fn list_operations(services: &ServiceSet) -> Vec<OperationSummary> {
    let of_service = |service| operations_of_service(services, service);
    AzureService::ALL.into_iter().flat_map(of_service).collect()
}

fn operations_of_service(
    services: &ServiceSet,
    service: AzureService,
) -> impl Iterator<Item = OperationSummary> {
    services.routes(service).rows().map(move |row| {
        let clients = clients_of(service.name(), row.id);
        let is_proved = !clients.is_empty() || service == AzureService::Control;
        let (support, note) = match row.support {
            OperationSupport::Full if !is_proved => ("partial", Some(NOT_PROVED)),
            OperationSupport::Full => ("full", None),
            OperationSupport::Partial(note) => ("partial", Some(note)),
            OperationSupport::Echo => ("echo", None),
        };
        OperationSummary {
            service: service.name(),
            id: row.id,
            method: row.method.as_str().to_owned(),
            path: row.displayed_path(),
            support,
            note,
            clients,
        }
    })
}

/// The note of an operation that no unmodified client of Azure has used in a conformance suite.
const NOT_PROVED: &str = "no client of Azure proves it";

/// The recorded conformance results, one per line: service, operation and suites.
const RECORDED_CLIENTS: &str = include_str!("operation_clients.txt");

fn recorded_clients() -> &'static BTreeMap<(&'static str, &'static str), Vec<&'static str>> {
    static CLIENTS: LazyLock<BTreeMap<(&'static str, &'static str), Vec<&'static str>>> =
        LazyLock::new(|| {
            RECORDED_CLIENTS
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .filter_map(|line| {
                    let mut words = line.split_whitespace();
                    Some(((words.next()?, words.next()?), words.collect()))
                })
                .collect()
        });
    &CLIENTS
}

fn clients_of(service: &'static str, id: &'static str) -> Vec<&'static str> {
    recorded_clients().get(&(service, id)).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::operations;

    #[test]
    fn every_recorded_operation_exists() {
        let known: Vec<_> = operations().iter().map(|row| (row.service, row.id)).collect();
        for recorded in recorded_clients().keys() {
            assert!(known.contains(recorded), "{recorded:?} is no operation; record again");
        }
    }
}
