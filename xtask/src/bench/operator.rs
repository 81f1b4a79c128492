//! The operator beside a plain loop that writes the very same bytes.

use super::row::{BenchMetric, BenchPeer, BenchRow, MetricGoal};
use crate::conformance;
use crate::image::{self, ImageKind};
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The names under which the numbers are reported.
const SUBJECT: &str = "lanyard operator";
const PLAIN_LOOP_PEER: BenchPeer = BenchPeer { name: "plain loop", absence_reason: None };

/// Builds the programs, has the judge of the operator measure a fleet of this many clusters, and sets
/// the numbers side by side.
pub(super) fn measure(house: &Repository, clusters: u32) -> Result<Vec<BenchRow>, TaskError> {
    // As it is shipped.
    let lanyard = image::build_release(house, ImageKind::Lanyard)?.root.join("lanyard");
    let mut command = conformance::operator_benchmark_command(house, &lanyard)?;
    let file = house.target_directory().join("operator-measurements.json");
    command.arg("--measurements").arg(&file).arg("--clusters").arg(clusters.to_string());
    super::bench_rows(
        SUBJECT,
        &operator_metrics(),
        &super::run_and_read_measurements(&mut command, &file)?,
    )
}

/// What is measured, and what it should be.
fn operator_metrics() -> Vec<BenchMetric> {
    let beside = |name, goal| BenchMetric { name, goal, peers: vec![PLAIN_LOOP_PEER] };
    let alone = |name, goal| BenchMetric { name, goal, peers: Vec::new() };
    vec![
        beside("converge_rate", MetricGoal::AtLeastOfPeer(0.8)),
        beside("converge_time", MetricGoal::AtMostOfPeer { factor: 1.25, limit: None }),
        alone("longest_pause", MetricGoal::None),
        alone("converge_refused", MetricGoal::AtMost(0.0)),
        beside("writes_per_cluster", MetricGoal::None),
        alone("requests_per_cluster", MetricGoal::None),
        beside("requests_at_once", MetricGoal::None),
        alone("converge_processor_time", MetricGoal::None),
        beside("arrival_rate", MetricGoal::None),
        alone("settled_writes", MetricGoal::AtMost(0.0)),
        alone("settled_lease_writes", MetricGoal::None),
        alone("settled_requests", MetricGoal::None),
        alone("idle_memory", MetricGoal::None),
        alone("idle_memory_own", MetricGoal::None),
        alone("converged_memory", MetricGoal::None),
        alone("converged_memory_own", MetricGoal::AtMost(60.0)),
        alone("settled_memory", MetricGoal::None),
        // It does not grow: a tenth is what an allocator may do.
        alone("settled_memory_own", MetricGoal::AtMostTimes(1.1, "converged_memory_own")),
        // The cluster, its control plane, what is told of it; the class, the configuration and the
        // deployment of the component.
        alone("changed_by_one_name", MetricGoal::Exactly(6.0)),
        alone("unaffected_by_one_name", MetricGoal::None),
        alone("one_name_time", MetricGoal::None),
        alone("one_name_writes", MetricGoal::None),
    ]
}
