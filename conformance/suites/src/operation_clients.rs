//! The operations of the local Azure that the clients of a suite use, and the file that records them.
//!
//! A recorded operation that a suite no longer uses fails the suite: the documentation names the suite as the
//! proof that the operation works with unmodified clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio::runtime::Runtime;

use crate::azure_target::LocalAzureTarget;
use crate::file_error::FileError;
use crate::local_azure::{ControlApi, LocalAzureError, LoggedRequest};

/// The file in the repository.
const FILE: &str = "local-azure/emulator/src/operation_clients.txt";

const HEADER: &str =
    "# The operations that the clients of each conformance suite use successfully.\n";

/// Parts of user agents that no client of another project has. Lanyard uses the Azure SDK for Rust, so in every
/// suite but `rust` its requests are those of lanyard's own programs. `drills.py` sends requests without an SDK.
const OWN_USER_AGENTS: [&str; 2] = ["azsdk-rust", "Python-urllib"];

/// The operations of a suite could not be compared or recorded.
#[derive(Debug, Error)]
pub(crate) enum OperationClientsError {
    #[error("the request log could not be read")]
    RequestLog(#[from] LocalAzureError),
    #[error("the request log is incomplete: its first entry has the number {first}")]
    IncompleteLog { first: u64 },
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "the suite no longer uses these operations of the local Azure: {operations}. If this is intended, \
         run `cargo xtask conformance {suite} --record-clients`"
    )]
    Missing { suite: String, operations: String },
}

/// An operation: the name of its service and its id.
type OperationName = (String, String);

/// The suites that use each operation.
#[derive(Debug, Default, PartialEq, Eq)]
struct OperationClients(BTreeMap<OperationName, BTreeSet<String>>);

impl OperationClients {
    fn parse(text: &str) -> Self {
        let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some(((words.next()?, words.next()?), words.collect()))
        });
        Self(rows.collect())
    }

    fn to_text(&self) -> String {
        let mut text = HEADER.to_owned();
        for ((service, operation), suites) in &self.0 {
            write!(text, "{service} {operation}").unwrap_or_default();
            for suite in suites {
                write!(text, " {suite}").unwrap_or_default();
            }
            text.push('\n');
        }
        text
    }

    fn of_suite(&self, suite: &str) -> BTreeSet<OperationName> {
        let rows = self.0.iter().filter(|(_, suites)| suites.contains(suite));
        rows.map(|(operation, _)| operation.clone()).collect()
    }

    /// Replaces the operations of a suite.
    fn record(&mut self, suite: &str, operations: BTreeSet<OperationName>) {
        for suites in self.0.values_mut() {
            suites.remove(suite);
        }
        for operation in operations {
            self.0.entry(operation).or_default().insert(suite.to_owned());
        }
        self.0.retain(|_, suites| !suites.is_empty());
    }
}

/// The request log of the local Azure of a suite, with the logs of trials that have their own local Azure.
#[derive(Debug)]
pub(crate) struct SuiteRequestLog {
    azure: Arc<LocalAzureTarget>,
    runtime: Arc<Runtime>,
    /// The requests to each local Azure of a trial that has ended.
    of_trials: Mutex<Vec<Vec<LoggedRequest>>>,
}

impl SuiteRequestLog {
    pub(crate) fn of(azure: &Arc<LocalAzureTarget>, runtime: &Arc<Runtime>) -> Arc<Self> {
        let (azure, runtime) = (Arc::clone(azure), Arc::clone(runtime));
        Arc::new(Self { azure, runtime, of_trials: Mutex::default() })
    }

    /// Adds the requests to the local Azure of a trial, before the trial ends it.
    pub(crate) fn add_trial(&self, control_api: &ControlApi) -> Result<(), LocalAzureError> {
        let requests = self.runtime.block_on(control_api.requests_since(0))?;
        self.of_trials.lock().unwrap_or_else(PoisonError::into_inner).push(requests);
        Ok(())
    }

    /// The operations that the clients used successfully.
    fn used_operations(
        &self,
        suite: &str,
    ) -> Result<BTreeSet<OperationName>, OperationClientsError> {
        let requests = self.runtime.block_on(self.azure.control_api().requests_since(0))?;
        let mut used = used_operations(suite, &requests)?;
        for requests in &*self.of_trials.lock().unwrap_or_else(PoisonError::into_inner) {
            used.append(&mut used_operations(suite, requests)?);
        }
        Ok(used)
    }

    /// Compares the operations that the suite used with the recorded ones, or records them. Returns a line
    /// for the output.
    pub(crate) fn verify(
        &self,
        suite: &str,
        repository: &Path,
        record: bool,
    ) -> Result<String, OperationClientsError> {
        let used = self.used_operations(suite)?;
        let path = repository.join(FILE);
        let text = fs::read_to_string(&path).map_err(FileError::of("read", &path))?;
        let mut clients = OperationClients::parse(&text);
        let recorded = clients.of_suite(suite);
        let new = used.difference(&recorded).count();
        let count = used.len();
        if record {
            clients.record(suite, used);
            fs::write(&path, clients.to_text()).map_err(FileError::of("write", &path))?;
            return Ok(format!("{count} operations of the local Azure used and recorded"));
        }
        let missing = recorded.difference(&used).map(|(service, id)| format!("{service} {id}"));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            let (suite, operations) = (suite.to_owned(), missing.join(", "));
            return Err(OperationClientsError::Missing { suite, operations });
        }
        Ok(format!("{count} operations of the local Azure used, {new} of them not recorded"))
    }
}

/// The operations with a successful reply to a client of the suite.
fn used_operations(
    suite: &str,
    requests: &[LoggedRequest],
) -> Result<BTreeSet<OperationName>, OperationClientsError> {
    if let Some(first) = requests.first().map(|request| request.sequence)
        && first > 1
    {
        return Err(OperationClientsError::IncompleteLog { first });
    }
    let is_client = |user_agent: Option<&str>| match user_agent {
        _ if suite == "rust" => true,
        Some(user_agent) => !OWN_USER_AGENTS.iter().any(|own| user_agent.contains(own)),
        None => false,
    };
    let used = requests
        .iter()
        .filter(|request| (200..400).contains(&request.status))
        .filter(|request| is_client(request.user_agent.as_deref()))
        .filter_map(|request| Some((request.service.clone()?, request.operation.clone()?)))
        .filter(|(service, _)| service != "control");
    Ok(used.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(
        sequence: u64,
        operation: &str,
        status: u16,
        user_agent: Option<&str>,
    ) -> LoggedRequest {
        LoggedRequest {
            sequence,
            service: Some("arm".to_owned()),
            operation: Some(operation.to_owned()),
            status,
            user_agent: user_agent.map(str::to_owned),
            ..LoggedRequest::default()
        }
    }

    fn arm_operations(ids: &[&str]) -> BTreeSet<OperationName> {
        ids.iter().map(|id| ("arm".to_owned(), (*id).to_owned())).collect()
    }

    #[test]
    fn only_successful_requests_of_clients_count() {
        let requests = || {
            vec![
                request(1, "A", 200, Some("AZURECLI/2.91.0")),
                request(2, "B", 404, Some("AZURECLI/2.91.0")),
                request(3, "C", 302, Some("python-requests/2.34")),
                request(4, "D", 200, Some("azsdk-rust-keyvault-secrets/1.0")),
                request(5, "E", 201, None),
                request(6, "F", 200, Some("Python-urllib/3.11")),
            ]
        };
        assert_eq!(used_operations("azcli", &requests()).unwrap(), arm_operations(&["A", "C"]));
        let of_rust = used_operations("rust", &requests()).unwrap();
        assert_eq!(of_rust, arm_operations(&["A", "C", "D", "E", "F"]));
    }

    #[test]
    fn log_without_its_first_entries_is_rejected() {
        let error = used_operations("azcli", &[request(7, "A", 200, None)]).unwrap_err();
        assert!(matches!(error, OperationClientsError::IncompleteLog { first: 7 }), "{error}");
    }

    #[test]
    fn recording_a_suite_keeps_the_others_and_sorts_the_rows() {
        let mut clients =
            OperationClients::parse("# Comment\narm B azcli go\narm A azcli\nentra T python\n");
        clients.record("azcli", arm_operations(&["C", "B"]));
        let text = format!("{HEADER}arm B azcli go\narm C azcli\nentra T python\n");
        assert_eq!(clients.to_text(), text);
        assert_eq!(OperationClients::parse(&text), clients);
        assert_eq!(clients.of_suite("azcli"), arm_operations(&["B", "C"]));
    }
}
