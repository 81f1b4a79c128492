//! Measures in virtual time how long the creation of a self-managed cluster takes, with its identities and roles,
//! while the local Azure takes as long as Azure usually does. Prints the measurements as JSON.
//!
//! The engine and the local Azure share one clock, so the results do not depend on the machine.

#![expect(clippy::unwrap_used, reason = "a benchmark fails like a test")]

#[path = "infra/azure_latency.rs"]
mod azure_latency;
#[path = "../tests/support/cluster_resources.rs"]
mod cluster_resources;
#[path = "../tests/support/virtual_time_azure.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod virtual_time_azure;

use std::io::Write as _;
use std::time::Duration;

use lanyard_changes::{
    AzureAccess, AzureGraph, NoProgress, RunContext, RunOptions, apply, open_directory, read_live,
};
use lanyard_clock::SharedClock;
use lanyard_infra::{plan_changes, stacks::can_contain};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::azure_latency::{LatencyClient, critical_path, operation_rules};
use crate::cluster_resources::{cluster_identifiers, cluster_resources};
use crate::virtual_time_azure::{VirtualTimeAzure, run_in_virtual_time};

/// The duration of the creation, compared with a serial one.
const CREATION: &str = "create_cluster";
/// The same duration, compared with the critical path.
const OVER_CRITICAL_PATH: &str = "create_cluster_over_critical_path";
/// The name in the measurements of what is measured.
const LANYARD: &str = "lanyard";
/// The same graph, one resource after the other, with the poll interval of the Azure SDK for Go.
const SERIAL: &str = "serial, polls every 30 s";
/// The slowest chain of dependent resources, without polls.
const CRITICAL_PATH: &str = "critical path";

fn main() {
    run_in_virtual_time(async {
        let parallel = RunOptions::default();
        let poll_interval = Duration::from_secs(30);
        let as_reference = RunOptions { parallel: 1, poll_interval, ..parallel };
        let runs = [(LANYARD, parallel), (SERIAL, as_reference)];
        let mut measurements = Vec::new();
        for (subject, options) in runs {
            let (graph, time) = create_cluster(options).await;
            if measurements.is_empty() {
                measurements.push(measurement(
                    CRITICAL_PATH,
                    OVER_CRITICAL_PATH,
                    critical_path(&graph),
                ));
                measurements.push(measurement(subject, OVER_CRITICAL_PATH, time));
            }
            measurements.push(measurement(subject, CREATION, time));
        }
        let text = serde_json::to_string(&measurements).unwrap();
        writeln!(std::io::stdout().lock(), "{text}").unwrap();
    });
}

fn measurement(subject: &str, metric: &str, time: Duration) -> Value {
    let value = time.as_secs_f64();
    json!({ "subject": subject, "metric": metric, "unit": "virtual s", "value": value })
}

/// Creates a cluster in a new local Azure. Returns its graph and the duration.
async fn create_cluster(options: RunOptions) -> (AzureGraph, Duration) {
    let azure = VirtualTimeAzure::start().await;
    let settings = json!({ "resourceManager": { "longRunning": operation_rules() } });
    azure.change("PATCH", "settings", &settings.to_string()).await;
    let graph = AzureGraph::new(cluster_resources(&azure.cluster.azure.subscription)).unwrap();
    let identifiers = cluster_identifiers();
    let cluster = identifiers.journal_cluster(&azure.cluster.azure.subscription);
    let tags = identifiers.ownership_tags();
    let directory = TempDir::new().unwrap();
    let journal = open_directory(directory.path().to_owned(), &cluster, can_contain).await.unwrap();
    let clock = azure.shared_clock();
    let arm = azure.owner_client(|inner| LatencyClient::wrap(inner, SharedClock::clone(&clock)));
    let access = AzureAccess::new(arm, azure.owner_graph());
    let context = RunContext {
        access: &access,
        journal: &journal,
        tags: &tags,
        caller: &[],
        clock: &clock,
        progress: &NoProgress,
        options,
    };
    let work = async {
        let live = read_live(&access, &graph).await.unwrap();
        let plan = plan_changes(&graph, &live, &journal.state(), &tags);
        let began = clock.monotonic();
        let report = apply(context, &graph, &plan, live).await.unwrap();
        assert!(report.succeeded(), "{:?}", report.outcomes);
        clock.monotonic().saturating_sub(began)
    };
    let advance = async {
        loop {
            azure.advance(Duration::from_secs(1)).await;
        }
    };
    let time = tokio::select! {
        time = work => time,
        () = advance => unreachable!("the time advances forever"),
    };
    azure.shutdown().await;
    (graph, time)
}
