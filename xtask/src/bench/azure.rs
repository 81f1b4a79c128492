//! Compares the local Azure: its vaults with a TLS server that returns the same bytes without any work, and
//! its blobs with Azurite.

use super::row::{BenchMetric, BenchRow, MetricGoal, UpstreamProgram};
use crate::conformance;
use crate::image::{self, ImageKind};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;

/// The names that the conformance driver reports.
const SUBJECT: &str = "lanyard azure";
const BARE_SERVER: UpstreamProgram =
    UpstreamProgram { name: "bare TLS server", absence_reason: None };
const AZURITE: &str = "Azurite 3.35.0";

/// Builds the programs, runs the benchmark of the local Azure in the conformance driver with up to `objects`
/// objects of each kind, and compares the measurements.
pub(super) fn measure(repository: &Repository, objects: u32) -> Result<Vec<BenchRow>, TaskError> {
    let absence_reason = (!tools::has_node(repository)).then_some("Node.js is not installed");
    // The released build.
    let lanyard = image::build_release(repository, ImageKind::Azure)?.root.join("lanyard");
    let mut command =
        conformance::azure_benchmark_command(repository, &lanyard, absence_reason.is_none())?;
    let file = repository.target_directory().join("azure-measurements.json");
    command.arg("--measurements").arg(&file).arg("--objects").arg(objects.to_string());
    super::bench_rows(
        SUBJECT,
        &azure_metrics(&UpstreamProgram { name: AZURITE, absence_reason }),
        &super::run_and_read_measurements(&mut command, &file)?,
    )
}

/// The metrics and their goals.
fn azure_metrics(azurite: &UpstreamProgram) -> Vec<BenchMetric> {
    let alone = |name, goal| BenchMetric { name, goal, upstream: Vec::new() };
    let vault = |name, goal| BenchMetric { name, goal, upstream: vec![BARE_SERVER] };
    let blob = |name, goal| BenchMetric { name, goal, upstream: vec![azurite.clone()] };
    let tenth = MetricGoal::AtMostOfUpstream { factor: 0.1, limit: None };
    let twice = MetricGoal::AtMostOfUpstream { factor: 2.0, limit: None };
    // Both are starts until a first response, so both depend on the speed of the machine.
    let first_token = match azurite.absence_reason {
        Some(_) => MetricGoal::None,
        None => MetricGoal::AtMostTimesUpstream {
            factor: 0.025,
            program: AZURITE,
            metric: "first_blob",
        },
    };
    let mut metrics = vec![
        alone("first_start", MetricGoal::None),
        alone("first_token", first_token),
        alone("first_secret", MetricGoal::None),
        blob("first_blob", tenth),
        blob("idle_memory", MetricGoal::AtMost(28.0)),
        blob("idle_memory_own", MetricGoal::None),
        alone("loaded_memory", MetricGoal::AtMost(60.0)),
        alone("loaded_memory_own", MetricGoal::None),
        blob("blob_memory", MetricGoal::None),
        blob("blob_memory_own", MetricGoal::None),
        vault("get_secret_http1_rate", MetricGoal::AtLeastOfUpstream(0.5)),
        vault("get_secret_http1_p99", MetricGoal::None),
        vault("get_secret_http1_processor_time", twice),
        vault("get_secret_http1_generator_share", MetricGoal::None),
        vault("get_secret_http2_rate", MetricGoal::AtLeastOfUpstream(0.5)),
        vault("get_secret_http2_p99", MetricGoal::None),
        vault("get_secret_http2_processor_time", twice),
        vault("get_secret_http2_generator_share", MetricGoal::None),
        blob("get_blob_rate", MetricGoal::AtLeastOfUpstream(10.0)),
        blob("get_blob_p99", MetricGoal::None),
        blob("get_blob_processor_time", tenth),
        blob("get_blob_generator_share", MetricGoal::None),
        blob("put_blob_rate", MetricGoal::AtLeastOfUpstream(10.0)),
        blob("put_blob_p99", MetricGoal::None),
        blob("put_blob_processor_time", tenth),
        blob("put_blob_generator_share", MetricGoal::None),
    ];
    for [few, some, many, growth] in OPERATION_COSTS {
        metrics.extend([few, some, many].map(|name| alone(name, MetricGoal::None)));
        metrics.push(alone(growth, MetricGoal::AtMost(GROWTH_LIMIT)));
    }
    metrics
}

/// For each operation, its cost with 10, 1,000 and 100,000 objects, and the ratio of the last to the first.
const OPERATION_COSTS: [[&str; 4]; 4] = [
    ["get_secret_10", "get_secret_1000", "get_secret_100000", "get_secret_growth"],
    ["list_secrets_10", "list_secrets_1000", "list_secrets_100000", "list_secrets_growth"],
    ["assign_role_10", "assign_role_1000", "assign_role_100000", "assign_role_growth"],
    ["get_resource_10", "get_resource_1000", "get_resource_100000", "get_resource_growth"],
];

/// The largest accepted ratio of an operation's cost with 100,000 objects to that with 10. The tolerance is
/// for the processor's caches.
const GROWTH_LIMIT: f64 = 1.5;
