//! The node plugin beside the Secrets Store CSI driver and its Azure provider.

use super::row::{BenchMetric, BenchPeer, BenchRow, MetricGoal};
use crate::conformance;
use crate::image::{self, ImageKind};
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The names under which the numbers are reported.
const SUBJECT: &str = "lanyard node";
const UPSTREAM_PEER: BenchPeer =
    BenchPeer { name: "driver 1.6.0 + provider 1.8.2", absence_reason: None };

/// Builds the programs, has the conformance driver measure, and sets the numbers side by side.
pub(super) fn measure(house: &Repository) -> Result<Vec<BenchRow>, TaskError> {
    // As it is shipped.
    let lanyard = image::build_release(house, ImageKind::Node)?.root.join("lanyard");
    let mut command = conformance::node_benchmark_command(house, &lanyard)?;
    let file = house.target_directory().join("node-measurements.json");
    command.arg("--measurements").arg(&file);
    super::bench_rows(
        SUBJECT,
        &node_metrics(),
        &super::run_and_read_measurements(&mut command, &file)?,
    )
}

/// What is measured, and what it should be.
fn node_metrics() -> Vec<BenchMetric> {
    let beside = |name, factor, limit| BenchMetric {
        name,
        goal: MetricGoal::AtMostOfPeer { factor, limit },
        peers: vec![UPSTREAM_PEER],
    };
    let metric = |name, goal| BenchMetric { name, goal, peers: vec![UPSTREAM_PEER] };
    vec![
        beside("idle_memory", 0.2, Some(10.0)),
        beside("memory_100_volumes_9000_classes", 0.2, Some(15.0)),
        metric("memory_after_rotations", MetricGoal::None),
        beside("cold_mounts_time", 0.1, None),
        metric("cold_mount_median", MetricGoal::None),
        metric("cold_mount_slowest", MetricGoal::None),
        metric("cold_mounts_processor_time", MetricGoal::None),
        metric("unchanged_republish_median", MetricGoal::AtMost(1.0)),
        metric("late_republish_median", MetricGoal::None),
        // One for each of the nine objects that a hundred volumes share.
        metric("vault_requests_per_interval", MetricGoal::AtMost(9.0)),
        metric("api_writes_per_interval", MetricGoal::AtMost(0.0)),
    ]
}
