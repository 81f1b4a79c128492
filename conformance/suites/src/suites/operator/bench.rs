//! Benchmark of the operator with a real API server: the time to reconcile a fleet of HostedClusters compared
//! with a plain loop that writes the same bytes; requests and writes after everything has settled; memory;
//! and the objects that one change affects.
//!
//! It only measures. `cargo xtask bench operator` compares the results with the goals. The API server's audit
//! log, not the operator, shows which requests were made and when.

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

/// The extent of a benchmark run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperatorBenchmarkScale {
    /// The number of HostedClusters.
    pub(crate) clusters: usize,
    /// How long requests are counted after everything has settled.
    pub(crate) settled_window: Duration,
    /// How long nothing must be written until the state counts as settled.
    pub(crate) quiet_time: Duration,
}

impl OperatorBenchmarkScale {
    /// A small run that only checks that the benchmark works.
    pub(crate) const SMOKE_TEST: Self = Self {
        clusters: 5,
        settled_window: Duration::from_secs(3),
        quiet_time: Duration::from_secs(2),
    };

    /// The extent for a number of HostedClusters. For a full fleet, the window is longer than the operator's
    /// resync interval and the lifetime of its watches.
    pub(crate) const fn for_clusters(clusters: usize) -> Self {
        let settled_window = Duration::from_secs(if clusters < FULL_FLEET_SIZE { 20 } else { 360 });
        Self { clusters, settled_window, quiet_time: Duration::from_secs(5) }
    }
}

/// One measured value.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OperatorMeasurement {
    subject: &'static str,
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

/// The trial that runs the benchmark and writes its results to `output`. It fails if something could not be
/// measured.
pub(crate) fn trials(
    inputs: ControlPlaneInputs,
    scale: OperatorBenchmarkScale,
    output: PathBuf,
) -> Vec<Trial> {
    vec![Trial::test("bench::a_fleet_of_hosted_clusters", move || {
        let runtime = tokio::runtime::Runtime::new()?;
        let measurements = runtime
            .block_on(benchmark_run::run_benchmark(&inputs, scale))
            .inspect_err(|failed| {
                // The caller reads only the results, so the error goes to standard error.
                benchmark_run::print_progress(failed.message().unwrap_or_default());
            })?;
        std::fs::write(&output, serde_json::to_string(&measurements)?)?;
        Ok(())
    })]
}

/// A trial that runs the benchmark with few clusters and discards the results, so that the benchmark stays
/// usable.
pub(crate) fn smoke_trial(inputs: ControlPlaneInputs) -> Trial {
    Trial::test("bench::a_small_fleet_can_be_measured", move || {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime
            .block_on(benchmark_run::run_benchmark(&inputs, OperatorBenchmarkScale::SMOKE_TEST))?;
        Ok(())
    })
}

/// The number of clusters from which a run counts as a full fleet.
const FULL_FLEET_SIZE: usize = 500;

/// Subjects in the results.
const OPERATOR_SUBJECT: &str = "lanyard operator";
const WRITE_LOOP_SUBJECT: &str = "plain loop";

/// The measured values of a run.
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

/// Converts a count to a double. The counts of the benchmark are far below 2^53.
fn count_to_f64(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::INFINITY, f64::from)
}
