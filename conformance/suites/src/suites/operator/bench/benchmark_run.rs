//! The phases of a benchmark run.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use serde_json::json;

use super::audit_log::AuditSummary;
use super::benchmark_api_server::{BenchmarkApiServer, ControlPlaneInputs, record_write_script};
use super::fleet::{self, HostedClusterFleet};
use super::object_versions::ObjectVersions;
use super::operator_process::OperatorProcess;
use super::write_loop::{WriteStrategy, WriteThroughput};
use super::write_script::WriteScript;
use super::{OperatorBenchmarkScale, OperatorMeasurement, OperatorMeasurements, count_to_f64};
use crate::process_usage::ProcessMemory;

/// Runs the whole benchmark. The write loop and the operator each write all clusters twice, and the faster
/// run counts, because the speed of the machine varies by more than the compared difference. Each run has its
/// own API server, because a server with more objects is slower. The server has processed some of the writes
/// before, because first requests take longer.
pub(super) async fn run_benchmark(
    inputs: &ControlPlaneInputs,
    scale: OperatorBenchmarkScale,
) -> Result<Vec<OperatorMeasurement>, Failed> {
    let script = record_write_script(inputs, scale.quiet_time).await?;
    print_progress(&format!("{} writes for each cluster", script.len()));
    let write_loop =
        WriteLoop { inputs, script: &script, sample_clusters: (scale.clusters / 20).max(1) };
    let strategy = write_loop.fastest_strategy().await?;
    let before = write_loop.write_all_clusters(strategy, scale.clusters).await?;
    let run = OperatorBenchmarkRun::start(write_loop, scale).await?;
    let (first, mut results) = run.measure_all_phases().await?;
    let run = OperatorBenchmarkRun::start(write_loop, scale).await?;
    let second = run.measure_convergence_only().await?;
    let after = write_loop.write_all_clusters(strategy, scale.clusters).await?;
    // Failed requests of the slower run count as well.
    let failed = first.requests.failed_requests() + second.requests.failed_requests();
    results.add_operator("converge_refused", "requests", count_to_f64(failed));
    let ours = if second.writes_per_second() > first.writes_per_second() { second } else { first };
    ours.add_measurements(&mut results, scale.clusters);
    let best = if after.writes_per_second() > before.writes_per_second() { after } else { before };
    results.add_write_loop("converge_rate", "writes/s", best.writes_per_second());
    results.add_write_loop("arrival_rate", "writes/s", best.writes_per_second());
    results.add_write_loop("converge_time", "s", best.duration.as_secs_f64());
    results.add_write_loop(
        "writes_per_cluster",
        "writes",
        count_to_f64(best.writes) / count_to_f64(scale.clusters),
    );
    results.add_write_loop("requests_at_once", "requests", count_to_f64(best.strategy.concurrency));
    Ok(results.0)
}

/// The requests of an operator until all clusters are reconciled.
#[derive(Debug)]
struct ConvergenceResult {
    requests: AuditSummary,
    /// From the start to the last write, in seconds.
    duration_seconds: f64,
    processor_time: Duration,
}

impl ConvergenceResult {
    /// The write rate.
    fn writes_per_second(&self) -> f64 {
        count_to_f64(self.requests.writes()) / self.duration_seconds
    }

    fn add_measurements(&self, results: &mut OperatorMeasurements, clusters: usize) {
        let (requests, clusters) = (&self.requests, count_to_f64(clusters));
        results.add_operator("converge_rate", "writes/s", self.writes_per_second());
        results.add_operator("converge_time", "s", self.duration_seconds);
        results.add_operator("longest_pause", "s", requests.longest_pause().as_secs_f64());
        results.add_operator(
            "writes_per_cluster",
            "writes",
            count_to_f64(requests.writes()) / clusters,
        );
        results.add_operator(
            "requests_per_cluster",
            "requests",
            count_to_f64(requests.requests()) / clusters,
        );
        results.add_operator(
            "requests_at_once",
            "requests",
            requests.total_write_time().as_secs_f64() / self.duration_seconds,
        );
        results.add_operator("converge_processor_time", "s", self.processor_time.as_secs_f64());
    }
}

/// The write loop and its script.
#[derive(Clone, Copy)]
struct WriteLoop<'a> {
    inputs: &'a ControlPlaneInputs,
    script: &'a WriteScript,
    /// The number of clusters that a short run writes.
    sample_clusters: usize,
}

/// The write loop with its API server.
struct StartedWriteLoop<'a> {
    api_server: BenchmarkApiServer,
    script: &'a WriteScript,
    /// The number of clusters that it has written.
    written_clusters: usize,
}

impl<'a> WriteLoop<'a> {
    /// Starts an API server and writes a few clusters to it, because first requests take longer.
    async fn start(self) -> Result<StartedWriteLoop<'a>, Failed> {
        let api_server = BenchmarkApiServer::start(self.inputs).await?;
        let mut started = StartedWriteLoop { api_server, script: self.script, written_clusters: 0 };
        started.write_clusters(WriteStrategy::ALL[0], self.sample_clusters).await?;
        Ok(started)
    }

    async fn fastest_strategy(self) -> Result<WriteStrategy, Failed> {
        let mut started = self.start().await?;
        let mut best: Option<WriteThroughput> = None;
        for strategy in WriteStrategy::ALL {
            let throughput = started.write_clusters(strategy, self.sample_clusters).await?;
            if best.is_none_or(|best| throughput.writes_per_second() > best.writes_per_second()) {
                best = Some(throughput);
            }
        }
        Ok(best.map_or(WriteStrategy::ALL[0], |best| best.strategy))
    }

    async fn write_all_clusters(
        self,
        strategy: WriteStrategy,
        clusters: usize,
    ) -> Result<WriteThroughput, Failed> {
        self.start().await?.write_clusters(strategy, clusters).await
    }
}

impl StartedWriteLoop<'_> {
    async fn write_clusters(
        &mut self,
        strategy: WriteStrategy,
        clusters: usize,
    ) -> Result<WriteThroughput, Failed> {
        let kubeconfig = self.api_server.write_loop_kubeconfig();
        let first = self.written_clusters;
        self.written_clusters += clusters;
        let throughput = strategy.write_clusters(&kubeconfig, self.script, first, clusters).await?;
        let counted = self.api_server.audit_log.read_new_lines()?;
        if counted.writes() != u64::try_from(throughput.writes)? {
            return Err("the API server counted other writes than the write loop".into());
        }
        print_progress(&format!(
            "{strategy:?}: {:.0} writes/s of {} clusters",
            throughput.writes_per_second(),
            clusters
        ));
        Ok(throughput)
    }
}

struct OperatorBenchmarkRun<'a> {
    api_server: BenchmarkApiServer,
    fleet: HostedClusterFleet,
    script: &'a WriteScript,
    scale: OperatorBenchmarkScale,
    clock: SystemClock,
    measurements: OperatorMeasurements,
}

impl<'a> OperatorBenchmarkRun<'a> {
    /// Starts the run with a new API server.
    async fn start(
        write_loop: WriteLoop<'a>,
        scale: OperatorBenchmarkScale,
    ) -> Result<Self, Failed> {
        let api_server = write_loop.start().await?.api_server;
        api_server.delete_write_loop_statuses().await?;
        let fleet = HostedClusterFleet::from_template(&write_loop.inputs.example);
        let (clock, results) = (SystemClock::new(), OperatorMeasurements::default());
        Ok(Self {
            api_server,
            fleet,
            script: write_loop.script,
            scale,
            clock,
            measurements: results,
        })
    }

    async fn measure_all_phases(
        mut self,
    ) -> Result<(ConvergenceResult, OperatorMeasurements), Failed> {
        self.measure_idle().await?;
        let (mut operator, converged) = self.measure_convergence().await?;
        self.add_memory("converged_memory", "converged_memory_own", operator.read_memory()?);
        self.measure_settled(&mut operator).await?;
        self.measure_one_change(&mut operator).await?;
        self.measure_arrivals(&mut operator).await?;
        operator.stop().await?;
        Ok((converged, self.measurements))
    }

    /// Measures only the convergence of one operator.
    async fn measure_convergence_only(mut self) -> Result<ConvergenceResult, Failed> {
        let (operator, converged) = self.measure_convergence().await?;
        operator.stop().await?;
        Ok(converged)
    }

    /// Measures an operator without HostedClusters.
    async fn measure_idle(&mut self) -> Result<(), Failed> {
        let mut operator = self.api_server.start_operator()?;
        let mut requests = AuditSummary::default();
        let timeout = Duration::from_mins(1);
        self.wait_until(&mut operator, "every kind is watched", timeout, |run| {
            requests.merge(run.api_server.audit_log.read_new_lines()?);
            Ok(requests.watched_kind_count() >= WATCHED_KIND_COUNT && requests.lease_writes() > 0)
        })
        .await?;
        self.clock.sleep(self.scale.quiet_time).await;
        self.add_memory("idle_memory", "idle_memory_own", operator.read_memory()?);
        operator.stop().await?;
        self.api_server.audit_log.read_new_lines().map(drop)
    }

    /// Creates all HostedClusters, then starts an operator and waits until it has reconciled them.
    async fn measure_convergence(
        &mut self,
    ) -> Result<(OperatorProcess, ConvergenceResult), Failed> {
        self.api_server.create_clusters(&self.fleet, 0..self.scale.clusters).await?;
        self.api_server.audit_log.read_new_lines()?;
        let begin = self.clock.now();
        let mut operator = self.api_server.start_operator()?;
        let requests = self.wait_until_settled(&mut operator, self.scale.clusters).await?;
        let took = seconds_until_last_write(begin, &requests)?;
        let converged = ConvergenceResult {
            duration_seconds: took,
            processor_time: operator.processor_time()?,
            requests,
        };
        print_progress(&converged.requests.summary_lines().join("\n"));
        print_progress(&format!(
            "operator: {:.0} writes/s of {} clusters",
            converged.writes_per_second(),
            self.scale.clusters
        ));
        Ok((operator, converged))
    }

    /// Measures the requests while nothing changes.
    async fn measure_settled(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let before = ObjectVersions::fetch(&self.api_server.client).await?;
        let (found, all) = (before.len(), self.expected_object_count(self.scale.clusters));
        if found != all {
            return Err(format!("found {found} objects, expected {all}").into());
        }
        self.api_server.audit_log.read_new_lines()?;
        let begin = self.clock.monotonic();
        self.clock.sleep(self.scale.settled_window).await;
        let requests = self.api_server.audit_log.read_new_lines()?;
        let minutes = self.clock.monotonic().saturating_sub(begin).as_secs_f64() / 60.0;
        operator.expect_running()?;
        self.measurements.add_operator(
            "settled_writes",
            "writes/min",
            count_to_f64(requests.writes()) / minutes,
        );
        let leases = count_to_f64(requests.lease_writes()) / minutes;
        self.measurements.add_operator("settled_lease_writes", "writes/min", leases);
        self.measurements.add_operator(
            "settled_requests",
            "requests/min",
            count_to_f64(requests.requests()) / minutes,
        );
        print_progress(&requests.summary_lines().join("\n"));
        self.add_memory("settled_memory", "settled_memory_own", operator.read_memory()?);
        let changed =
            before.changed_objects(&ObjectVersions::fetch(&self.api_server.client).await?);
        expect_objects("changed though nothing did", &changed, &BTreeSet::new())
    }

    /// Renames one secret and measures its effect.
    async fn measure_one_change(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let before = ObjectVersions::fetch(&self.api_server.client).await?;
        let number = self.scale.clusters / 2;
        let name = fleet::cluster_name(number);
        let disk = json!({"credentialsSecretName": format!("{name}-other-disk")});
        let patch = json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
            "managedIdentities": {"controlPlane": {"disk": disk}},
        }}}}});
        self.api_server.audit_log.read_new_lines()?;
        let begin = self.clock.now();
        let parameters = PatchParams::default();
        self.api_server
            .hosted_cluster_api()
            .patch(&name, &parameters, &Patch::Merge(patch))
            .await?;
        let requests = self.wait_until_settled(operator, self.scale.clusters).await?;
        let took = seconds_until_last_write(begin, &requests)?;
        let changed =
            before.changed_objects(&ObjectVersions::fetch(&self.api_server.client).await?);
        let namespace = fleet::control_plane_namespace(number);
        let affected = BTreeSet::from([
            format!("HostedCluster {}/{name}", fleet::NAMESPACE),
            format!("HostedClusterIdentities {}/{name}", fleet::NAMESPACE),
            format!("HostedControlPlane {namespace}/{name}"),
            format!("SecretProviderClass {namespace}/managed-azure-disk-csi"),
            format!("Secret {namespace}/azure-disk-csi-config"),
            format!("Deployment {namespace}/azure-disk-csi-driver-controller"),
        ]);
        expect_objects("changed by one secret's name", &changed, &affected)?;
        self.measurements.add_operator(
            "changed_by_one_name",
            "objects",
            count_to_f64(changed.len()),
        );
        self.measurements.add_operator(
            "unaffected_by_one_name",
            "objects",
            count_to_f64(before.len() - changed.len()),
        );
        self.measurements.add_operator("one_name_time", "ms", took * 1_000.0);
        self.measurements.add_operator(
            "one_name_writes",
            "writes",
            count_to_f64(requests.writes()),
        );
        Ok(())
    }

    /// Creates HostedClusters while the operator runs.
    async fn measure_arrivals(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let more = (self.scale.clusters / 5).max(1);
        self.api_server.audit_log.read_new_lines()?;
        let begin = self.clock.now();
        let numbers = self.scale.clusters..self.scale.clusters + more;
        self.api_server.create_clusters(&self.fleet, numbers).await?;
        let requests = self.wait_until_settled(operator, self.scale.clusters + more).await?;
        // The creations are concurrent writes and count as well.
        let writes = count_to_f64(requests.writes()) + count_to_f64(more);
        self.measurements.add_operator(
            "arrival_rate",
            "writes/s",
            writes / seconds_until_last_write(begin, &requests)?,
        );
        Ok(())
    }

    /// Waits until the operator has written something and then nothing for `quiet_time`, and all clusters
    /// have their objects, because a stalled server is quiet too. Returns the requests.
    async fn wait_until_settled(
        &mut self,
        operator: &mut OperatorProcess,
        clusters: usize,
    ) -> Result<AuditSummary, Failed> {
        let mut requests = AuditSummary::default();
        let all = self.expected_object_count(clusters);
        for _ in 0..MAX_QUIET_PERIODS {
            self.wait_until_quiet(operator, &mut requests).await?;
            let has_all = ObjectVersions::fetch(&self.api_server.client).await?.len() >= all;
            let meanwhile = self.api_server.audit_log.read_new_lines()?;
            let is_quiet = meanwhile.writes() == 0;
            requests.merge(meanwhile);
            if has_all && is_quiet {
                return Ok(requests);
            }
        }
        Err(format!(
            "{MAX_QUIET_PERIODS} times it was quiet for a while, and then there was more to write or \
             some of {all} objects were missing"
        )
        .into())
    }

    /// The number of objects of the clusters, including their HostedClusters.
    fn expected_object_count(&self, clusters: usize) -> usize {
        (self.script.object_count() + 1) * clusters
    }

    /// Waits until the operator has written something and then nothing for `quiet_time`.
    async fn wait_until_quiet(
        &mut self,
        operator: &mut OperatorProcess,
        requests: &mut AuditSummary,
    ) -> Result<(), Failed> {
        let mut quiet_since = self.clock.monotonic();
        self.wait_until(operator, "the operator has settled", SETTLE_TIMEOUT, |run| {
            let new = run.api_server.audit_log.read_new_lines()?;
            let now = run.clock.monotonic();
            if new.writes() > 0 {
                quiet_since = now;
            }
            requests.merge(new);
            let quiet = now.saturating_sub(quiet_since);
            Ok(requests.writes() > 0 && quiet >= run.scale.quiet_time)
        })
        .await
    }

    async fn wait_until(
        &mut self,
        operator: &mut OperatorProcess,
        what: &str,
        timeout: Duration,
        mut condition: impl FnMut(&mut Self) -> Result<bool, Failed>,
    ) -> Result<(), Failed> {
        let deadline = self.clock.monotonic() + timeout;
        while !condition(self)? {
            operator.expect_running()?;
            if self.clock.monotonic() > deadline {
                return Err(format!(
                    "condition did not hold within {} s: {what}",
                    timeout.as_secs()
                )
                .into());
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn add_memory(&mut self, resident: &'static str, own: &'static str, memory: ProcessMemory) {
        self.measurements.add_operator(resident, "MiB", memory.resident);
        self.measurements.add_operator(own, "MiB", memory.anonymous);
    }
}

/// The seconds from `begin` to the last write.
fn seconds_until_last_write(begin: Timestamp, requests: &AuditSummary) -> Result<f64, Failed> {
    let last = requests.last_write().ok_or("nothing was written")?;
    Ok(last.duration_since(begin).as_secs_f64())
}

fn expect_objects(
    what: &str,
    found: &BTreeSet<String>,
    expected: &BTreeSet<String>,
) -> Result<(), Failed> {
    if found == expected {
        return Ok(());
    }
    let more: Vec<_> = found.difference(expected).take(MAX_LISTED_OBJECTS).collect();
    let less: Vec<_> = expected.difference(found).take(MAX_LISTED_OBJECTS).collect();
    Err(format!("{what}: {} objects; not expected: {more:?}; missing: {less:?}", found.len())
        .into())
}

/// Prints progress to standard error, ignoring write errors.
pub(super) fn print_progress(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// The number of kinds that an operator watches.
const WATCHED_KIND_COUNT: usize = 13;
const SETTLE_TIMEOUT: Duration = Duration::from_mins(30);
/// The number of quiet periods until the benchmark fails.
const MAX_QUIET_PERIODS: usize = 60;
/// How often the audit log is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The number of unexpected or missing objects that an error lists.
const MAX_LISTED_OBJECTS: usize = 20;
