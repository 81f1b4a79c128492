//! Compares the creation of a cluster's infrastructure with a serial one, in virtual time.

use super::row::{BenchMetric, BenchRow, MetricGoal, ReportedMeasurement, UpstreamProgram};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The name that the benchmark reports for lanyard.
const SUBJECT: &str = "lanyard";

/// Builds and runs the benchmark, and compares its measurements.
pub(super) fn measure(repository: &Repository) -> Result<Vec<BenchRow>, TaskError> {
    let mut command = repository.cargo();
    // Virtual time does not depend on the profile, and this one is built already.
    command.args(["bench", "--locked", "--package", "lanyard", "--all-features"]);
    command.args(["--profile", "dev", "--bench", "infra"]);
    let answer = process::capture_stdout(&mut command)?;
    let measurements: Vec<ReportedMeasurement> = serde_json::from_slice(answer.as_ref())
        .map_err(|source| TaskError::Answer { command: process::command_line(&command), source })?;
    super::bench_rows(SUBJECT, &metrics(), &measurements)
}

/// At most a third of the serial creation, and at most 10 % more than the critical path.
fn metrics() -> Vec<BenchMetric> {
    let metric = |name: &'static str, factor: f64, upstream: &'static str| BenchMetric {
        name,
        goal: MetricGoal::AtMostOfUpstream { factor, limit: None },
        upstream: vec![UpstreamProgram { name: upstream, absence_reason: None }],
    };
    vec![
        metric("create_cluster", 0.33, "serial, polls every 30 s"),
        metric("create_cluster_over_critical_path", 1.1, "critical path"),
    ]
}
