//! Compares the operator with a plain loop that writes the same bytes.

use super::row::{BenchMetric, BenchRow, MetricGoal, UpstreamProgram};
use crate::conformance;
use crate::image::{self, ImageKind};
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The names that the conformance driver reports.
const SUBJECT: &str = "lanyard operator";
const PLAIN_LOOP: UpstreamProgram = UpstreamProgram { name: "plain loop", absence_reason: None };

/// Builds the programs, runs the operator benchmark of the conformance driver with a fleet of `clusters`, and
/// compares the measurements.
pub(super) fn measure(repository: &Repository, clusters: u32) -> Result<Vec<BenchRow>, TaskError> {
    // The released build.
    let lanyard = image::build_release(repository, ImageKind::Lanyard)?.root.join("lanyard");
    let mut command = conformance::operator_benchmark_command(repository, &lanyard)?;
    let file = repository.target_directory().join("operator-measurements.json");
    command.arg("--measurements").arg(&file).arg("--clusters").arg(clusters.to_string());
    super::bench_rows(
        SUBJECT,
        &operator_metrics(),
        &super::run_and_read_measurements(&mut command, &file)?,
    )
}

/// The metrics and their goals.
fn operator_metrics() -> Vec<BenchMetric> {
    let compared = |name, goal| BenchMetric { name, goal, upstream: vec![PLAIN_LOOP] };
    let alone = |name, goal| BenchMetric { name, goal, upstream: Vec::new() };
    vec![
        compared("converge_rate", MetricGoal::AtLeastOfUpstream(0.8)),
        compared("converge_time", MetricGoal::AtMostOfUpstream { factor: 1.25, limit: None }),
        alone("longest_pause", MetricGoal::None),
        alone("converge_refused", MetricGoal::AtMost(0.0)),
        compared("writes_per_cluster", MetricGoal::None),
        alone("requests_per_cluster", MetricGoal::None),
        compared("requests_at_once", MetricGoal::None),
        alone("converge_processor_time", MetricGoal::None),
        compared("arrival_rate", MetricGoal::None),
        alone("settled_writes", MetricGoal::AtMost(0.0)),
        alone("settled_lease_writes", MetricGoal::None),
        alone("settled_requests", MetricGoal::None),
        alone("idle_memory", MetricGoal::None),
        alone("idle_memory_own", MetricGoal::None),
        alone("converged_memory", MetricGoal::None),
        alone("converged_memory_own", MetricGoal::AtMost(60.0)),
        alone("settled_memory", MetricGoal::None),
        // The memory must not grow; the tolerance of a tenth is for the allocator.
        alone("settled_memory_own", MetricGoal::AtMostTimes(1.1, "converged_memory_own")),
        // Objects: the cluster, its control plane, its reported status, and the class, the configuration and
        // the deployment of the component.
        alone("changed_by_one_name", MetricGoal::Exactly(6.0)),
        alone("unaffected_by_one_name", MetricGoal::None),
        alone("one_name_time", MetricGoal::None),
        alone("one_name_writes", MetricGoal::None),
    ]
}
