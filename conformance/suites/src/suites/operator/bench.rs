//! Numbers about the operator at a real API server: how fast a fleet gets what it should have, beside
//! the rate at which the same server takes the same bytes from a plain loop; what is asked once all
//! is settled; memory; and what one change changes.
//!
//! This measures and knows no goals; `cargo xtask bench operator` does. Who wrote what and when is
//! told by the API server's audit log, not by the operator.

mod audit_log;
mod benchmark_api_server;
mod benchmark_run;
mod fleet;
mod object_versions;
mod operator_process;
mod write_loop;
mod write_script;

use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::Trial;
use serde::Serialize;

pub(crate) use self::benchmark_api_server::ControlPlaneInputs;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperatorBenchmarkScale {
    /// How many HostedClusters there are.
    pub(crate) clusters: usize,
    /// How long is counted what is asked once all is settled.
    pub(crate) settled_window: Duration,
    /// How long nothing must have been written before all is settled.
    pub(crate) quiet_time: Duration,
}

impl OperatorBenchmarkScale {
    /// Enough to see that the program works.
    pub(crate) const SMOKE_TEST: Self = Self {
        clusters: 5,
        settled_window: Duration::from_secs(3),
        quiet_time: Duration::from_secs(2),
    };

    /// So many HostedClusters. The window of a whole fleet is longer than the time after which the
    /// operator looks at each of them though nothing was told, and than its watches last.
    pub(crate) const fn for_clusters(clusters: usize) -> Self {
        let settled_window = Duration::from_secs(if clusters < FULL_FLEET_SIZE { 20 } else { 360 });
        Self { clusters, settled_window, quiet_time: Duration::from_secs(5) }
    }
}

/// One number about one subject.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OperatorMeasurement {
    subject: &'static str,
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

/// One trial, which fails where something could not be measured. The numbers go to the file.
pub(crate) fn trials(
    ground: ControlPlaneInputs,
    scale: OperatorBenchmarkScale,
    output: PathBuf,
) -> Vec<Trial> {
    vec![Trial::test("bench::a_fleet_of_hosted_clusters", move || {
        let runtime = tokio::runtime::Runtime::new()?;
        let measurements = runtime
            .block_on(benchmark_run::run_benchmark(&ground, scale))
            .inspect_err(|failed| {
                // Who calls reads the numbers alone.
                benchmark_run::print_progress(failed.message().unwrap_or_default());
            })?;
        std::fs::write(&output, serde_json::to_string(&measurements)?)?;
        Ok(())
    })]
}

/// The same with few clusters, and no number is kept: this program must not rot.
pub(crate) fn smoke_trial(ground: ControlPlaneInputs) -> Trial {
    Trial::test("bench::a_small_fleet_can_be_measured", move || {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime
            .block_on(benchmark_run::run_benchmark(&ground, OperatorBenchmarkScale::SMOKE_TEST))?;
        Ok(())
    })
}

/// From how many clusters on a fleet is measured as a whole.
const FULL_FLEET_SIZE: usize = 500;

/// The names of the rows.
const OPERATOR_SUBJECT: &str = "lanyard operator";
const WRITE_LOOP_SUBJECT: &str = "plain loop";

/// The numbers of one subject.
#[derive(Debug, Default)]
struct OperatorMeasurements(Vec<OperatorMeasurement>);

impl OperatorMeasurements {
    fn add_operator(&mut self, metric: &'static str, unit: &'static str, value: f64) {
        self.0.push(OperatorMeasurement { subject: OPERATOR_SUBJECT, metric, unit, value });
    }

    fn add_write_loop(&mut self, metric: &'static str, unit: &'static str, value: f64) {
        self.0.push(OperatorMeasurement { subject: WRITE_LOOP_SUBJECT, metric, unit, value });
    }
}

/// Counts here are far below what a double holds exactly.
fn count_to_f64(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::INFINITY, f64::from)
}
