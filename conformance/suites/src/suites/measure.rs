//! Benchmark of the node side: `lanyard node`, and upstream's driver and provider, one after the other with
//! one local Azure and one Kubernetes API.
//!
//! It only measures. `cargo xtask bench node` compares the results with the goals.

mod node_load;
mod node_stack;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde::Serialize;

use self::node_load::NodeLoad;
use self::node_stack::{NodeStack, NodeStackKind};
use super::failed_with_causes;
use crate::azure_target::LocalAzureTarget;
use crate::driver_processes::DriverFixtureDirectory;
use crate::suite_cluster::SuiteCluster;

/// How often the measured plugin checks the vault for new versions.
const ROTATION_INTERVAL: Duration = Duration::from_secs(40);

/// The number of rounds in which every volume is republished after the rotation interval.
const REPUBLISH_ROUNDS: u32 = 3;

/// How long a process may settle before memory is measured.
const REST_TIME: Duration = Duration::from_secs(5);

/// The kubelet publishes volumes in parallel.
const PARALLEL_PUBLISHES: usize = 20;

#[derive(Debug)]
pub(crate) struct NodeBenchmarkFixture {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) azure: Arc<LocalAzureTarget>,
    pub(crate) lanyard_program: PathBuf,
    pub(crate) driver_program: PathBuf,
    pub(crate) provider_program: PathBuf,
    pub(crate) crd_directory: String,
    /// The output file.
    pub(crate) output: PathBuf,
}

/// One measured value.
#[derive(Debug, Clone, Serialize)]
struct NodeMeasurement {
    subject: &'static str,
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

/// The trial that runs the benchmark. It fails if something could not be measured.
pub(crate) fn trials(fixture: NodeBenchmarkFixture) -> Vec<Trial> {
    vec![Trial::test("measure::the_node_side", move || {
        let runtime = Arc::clone(&fixture.suite_cluster.runtime);
        let measurements = runtime.block_on(fixture.measure_all())?;
        let text = serde_json::to_string(&measurements).map_err(failed_with_causes)?;
        std::fs::write(&fixture.output, text).map_err(failed_with_causes)
    })]
}

impl NodeBenchmarkFixture {
    async fn measure_all(&self) -> Result<Vec<NodeMeasurement>, Failed> {
        let load = NodeLoad::create(self).await?;
        let mut all = Vec::new();
        for kind in [NodeStackKind::Upstream, NodeStackKind::Lanyard] {
            all.extend(self.measure_stack(kind, &load).await?);
        }
        Ok(all)
    }

    async fn measure_stack(
        &self,
        kind: NodeStackKind,
        load: &NodeLoad,
    ) -> Result<Vec<NodeMeasurement>, Failed> {
        let directory = self.suite_cluster.directory();
        let directories = DriverFixtureDirectory::new(
            directory,
            kind.short_name(),
            self.suite_cluster.kubectl.kubeconfig(),
        )
        .map_err(failed_with_causes)?;
        let mut results = NodeMeasurements { subject: kind.display_name(), rows: Vec::new() };
        let stack = NodeStack::start(self, kind, &directories).await?;
        let clock = SystemClock::new();
        clock.sleep(REST_TIME).await;
        results.add("idle_memory", "MiB", stack.resident_memory()?);
        let volumes = NodeLoad::volumes(self, &directories, kind)?;
        let used = stack.processor_time()?;
        let mounted = stack.publish_all(&volumes, PARALLEL_PUBLISHES).await?;
        let used = stack.processor_time()? - used;
        results.add("cold_mounts_time", "ms", mounted.total);
        results.add("cold_mount_median", "ms", mounted.median());
        results.add("cold_mount_slowest", "ms", mounted.slowest());
        results.add("cold_mounts_processor_time", "ms", used);
        let unchanged = stack.publish_all(&volumes, 1).await?;
        results.add("unchanged_republish_median", "ms", unchanged.median());
        clock.sleep(REST_TIME).await;
        results.add("memory_100_volumes_9000_classes", "MiB", stack.resident_memory()?);
        let before =
            (load.vault_request_count(self).await?, NodeLoad::pod_status_write_count(self)?);
        let begin = clock.monotonic();
        let mut latencies = Vec::new();
        for _ in 0..REPUBLISH_ROUNDS {
            // A kubelet's period is not a multiple of the interval. A quarter more ensures that the interval
            // has passed.
            clock.sleep(ROTATION_INTERVAL + ROTATION_INTERVAL / 4).await;
            latencies.push(stack.publish_all(&volumes, PARALLEL_PUBLISHES).await?.median());
        }
        let after =
            (load.vault_request_count(self).await?, NodeLoad::pod_status_write_count(self)?);
        let intervals =
            clock.monotonic().saturating_sub(begin).as_secs_f64() / ROTATION_INTERVAL.as_secs_f64();
        let per_interval = |count: u64| count_to_f64(count) / intervals;
        results.add("vault_requests_per_interval", "requests", per_interval(after.0 - before.0));
        results.add("api_writes_per_interval", "writes", per_interval(after.1 - before.1));
        latencies.sort_by(f64::total_cmp);
        results.add("late_republish_median", "ms", latencies[latencies.len() / 2]);
        results.add("memory_after_rotations", "MiB", stack.resident_memory()?);
        stack.unpublish_all(&volumes).await?;
        stack.stop().await;
        Ok(results.rows)
    }
}

/// The measured values of one subject.
struct NodeMeasurements {
    subject: &'static str,
    rows: Vec<NodeMeasurement>,
}

impl NodeMeasurements {
    fn add(&mut self, metric: &'static str, unit: &'static str, value: f64) {
        self.rows.push(NodeMeasurement { subject: self.subject, metric, unit, value });
    }
}

/// Converts a count to a double. The counts of the benchmark are far below 2^53.
fn count_to_f64(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
