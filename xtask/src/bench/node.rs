//! Compares the node plugin with the Secrets Store CSI driver and its Azure provider.

use super::row::{BenchMetric, BenchRow, MetricGoal, UpstreamProgram};
use crate::conformance;
use crate::image::{self, ImageKind};
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The names that the conformance driver reports.
const SUBJECT: &str = "lanyard node";
const DRIVER_AND_PROVIDER: UpstreamProgram =
    UpstreamProgram { name: "driver 1.6.0 + provider 1.8.2", absence_reason: None };

/// Builds the programs, runs the benchmark of the conformance driver, and compares the measurements.
pub(super) fn measure(repository: &Repository) -> Result<Vec<BenchRow>, TaskError> {
    // The released build.
    let lanyard = image::build_release(repository, ImageKind::Node)?.root.join("lanyard");
    let mut command = conformance::node_benchmark_command(repository, &lanyard)?;
    let file = repository.target_directory().join("node-measurements.json");
    command.arg("--measurements").arg(&file);
    super::bench_rows(
        SUBJECT,
        &node_metrics(),
        &super::run_and_read_measurements(&mut command, &file)?,
    )
}

/// The metrics and their goals.
fn node_metrics() -> Vec<BenchMetric> {
    let compared = |name, factor, limit| BenchMetric {
        name,
        goal: MetricGoal::AtMostOfUpstream { factor, limit },
        upstream: vec![DRIVER_AND_PROVIDER],
    };
    let metric = |name, goal| BenchMetric { name, goal, upstream: vec![DRIVER_AND_PROVIDER] };
    vec![
        compared("idle_memory", 0.2, Some(10.0)),
        compared("memory_100_volumes_9000_classes", 0.2, Some(15.0)),
        metric("memory_after_rotations", MetricGoal::None),
        compared("cold_mounts_time", 0.1, None),
        metric("cold_mount_median", MetricGoal::None),
        metric("cold_mount_slowest", MetricGoal::None),
        metric("cold_mounts_processor_time", MetricGoal::None),
        compared("unchanged_republish_median", 1.5, None),
        metric("late_republish_median", MetricGoal::None),
        // One request for each of the nine objects that a hundred volumes share.
        metric("vault_requests_per_interval", MetricGoal::AtMost(9.0)),
        metric("api_writes_per_interval", MetricGoal::AtMost(0.0)),
    ]
}
