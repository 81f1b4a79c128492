//! Numbers about the node side: our one process beside upstream's driver and provider, over the
//! same local Azure and the same Kubernetes API, one after the other in one run.
//!
//! This measures and knows no goals; `cargo xtask bench node` does.

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

/// How often a contestant looks at its vaults.
const ROTATION_INTERVAL: Duration = Duration::from_secs(40);

/// How often every volume is published again once this time is over.
const REPUBLISH_ROUNDS: u32 = 3;

/// How long a process may come to rest.
const REST_TIME: Duration = Duration::from_secs(5);

/// The kubelet publishes volumes side by side.
const PARALLEL_PUBLISHES: usize = 20;

/// What is measured with.
#[derive(Debug)]
pub(crate) struct NodeBenchmarkFixture {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) azure: Arc<LocalAzureTarget>,
    pub(crate) lanyard_program: PathBuf,
    pub(crate) driver_program: PathBuf,
    pub(crate) provider_program: PathBuf,
    pub(crate) crd_directory: String,
    /// Where the numbers go.
    pub(crate) output: PathBuf,
}

/// One number about one subject.
#[derive(Debug, Clone, Serialize)]
struct NodeMeasurement {
    subject: &'static str,
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

/// One trial, which fails where something could not be measured.
pub(crate) fn trials(stage: NodeBenchmarkFixture) -> Vec<Trial> {
    vec![Trial::test("measure::the_node_side", move || {
        let runtime = Arc::clone(&stage.suite_cluster.runtime);
        let measurements = runtime.block_on(stage.measure_all())?;
        let text = serde_json::to_string(&measurements).map_err(failed_with_causes)?;
        std::fs::write(&stage.output, text).map_err(failed_with_causes)
    })]
}

impl NodeBenchmarkFixture {
    async fn measure_all(&self) -> Result<Vec<NodeMeasurement>, Failed> {
        let load = NodeLoad::create(self).await?;
        let mut all = Vec::new();
        for who in [NodeStackKind::Upstream, NodeStackKind::Lanyard] {
            all.extend(self.measure_stack(who, &load).await?);
        }
        Ok(all)
    }

    async fn measure_stack(
        &self,
        who: NodeStackKind,
        load: &NodeLoad,
    ) -> Result<Vec<NodeMeasurement>, Failed> {
        let directory = self.suite_cluster.directory();
        let nook = DriverFixtureDirectory::new(
            directory,
            who.short_name(),
            self.suite_cluster.kubectl.kubeconfig(),
        )
        .map_err(failed_with_causes)?;
        let mut sheet = NodeMeasurements { subject: who.display_name(), rows: Vec::new() };
        let contestant = NodeStack::start(self, who, &nook).await?;
        let clock = SystemClock::new();
        clock.sleep(REST_TIME).await;
        sheet.add("idle_memory", "MiB", contestant.resident_memory()?);
        let volumes = NodeLoad::volumes(self, &nook, who)?;
        let used = contestant.processor_time()?;
        let mounted = contestant.publish_all(&volumes, PARALLEL_PUBLISHES).await?;
        let used = contestant.processor_time()? - used;
        sheet.add("cold_mounts_time", "ms", mounted.total);
        sheet.add("cold_mount_median", "ms", mounted.median());
        sheet.add("cold_mount_slowest", "ms", mounted.slowest());
        sheet.add("cold_mounts_processor_time", "ms", used);
        let unchanged = contestant.publish_all(&volumes, 1).await?;
        sheet.add("unchanged_republish_median", "ms", unchanged.median());
        clock.sleep(REST_TIME).await;
        sheet.add("memory_100_volumes_9000_classes", "MiB", contestant.resident_memory()?);
        let before =
            (load.vault_request_count(self).await?, NodeLoad::pod_status_write_count(self)?);
        let begin = clock.monotonic();
        let mut latencies = Vec::new();
        for _ in 0..REPUBLISH_ROUNDS {
            // A kubelet's period is no multiple of the interval; a quarter more is enough to be late.
            clock.sleep(ROTATION_INTERVAL + ROTATION_INTERVAL / 4).await;
            latencies.push(contestant.publish_all(&volumes, PARALLEL_PUBLISHES).await?.median());
        }
        let after =
            (load.vault_request_count(self).await?, NodeLoad::pod_status_write_count(self)?);
        let intervals =
            clock.monotonic().saturating_sub(begin).as_secs_f64() / ROTATION_INTERVAL.as_secs_f64();
        let per_interval = |count: u64| count_to_f64(count) / intervals;
        sheet.add("vault_requests_per_interval", "requests", per_interval(after.0 - before.0));
        sheet.add("api_writes_per_interval", "writes", per_interval(after.1 - before.1));
        latencies.sort_by(f64::total_cmp);
        sheet.add("late_republish_median", "ms", latencies[latencies.len() / 2]);
        sheet.add("memory_after_rotations", "MiB", contestant.resident_memory()?);
        contestant.unpublish_all(&volumes).await?;
        contestant.stop().await;
        Ok(sheet.rows)
    }
}

/// The numbers of one subject.
struct NodeMeasurements {
    subject: &'static str,
    rows: Vec<NodeMeasurement>,
}

impl NodeMeasurements {
    fn add(&mut self, metric: &'static str, unit: &'static str, value: f64) {
        self.rows.push(NodeMeasurement { subject: self.subject, metric, unit, value });
    }
}

/// Counts here are far below what a double holds exactly.
fn count_to_f64(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
