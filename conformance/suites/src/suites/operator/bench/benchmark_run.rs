//! The measurement, from the first write to the last look.

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
use super::operator_process::{OperatorMemory, OperatorProcess};
use super::write_loop::{WriteStrategy, WriteThroughput};
use super::write_script::WriteScript;
use super::{OperatorBenchmarkScale, OperatorMeasurement, OperatorMeasurements, count_to_f64};

/// Measures everything, in one run. The peer and the operator each write all clusters twice, and the
/// faster run of each counts: the speed of the machine differs by more than what is compared. Each run
/// has its own API server, which has answered a few of the same writes before: a server that holds more
/// objects is slower.
pub(super) async fn run_benchmark(
    ground: &ControlPlaneInputs,
    scale: OperatorBenchmarkScale,
) -> Result<Vec<OperatorMeasurement>, Failed> {
    let script = record_write_script(ground, scale.quiet_time).await?;
    print_progress(&format!("{} writes for each cluster", script.len()));
    let peer = WriteLoop {
        inputs: ground,
        script: &script,
        sample_clusters: (scale.clusters / 20).max(1),
    };
    let manner = peer.fastest_strategy().await?;
    let before = peer.write_all_clusters(manner, scale.clusters).await?;
    let mut run = OperatorBenchmarkRun::start(peer, scale).await?;
    let first = run.measure_all_phases().await?;
    let OperatorBenchmarkRun { measurements: mut sheet, .. } = run;
    let mut run = OperatorBenchmarkRun::start(peer, scale).await?;
    let (operator, second) = run.measure_convergence().await?;
    operator.stop().await?;
    drop(run);
    let after = peer.write_all_clusters(manner, scale.clusters).await?;
    let ours = if second.writes_per_second() > first.writes_per_second() { second } else { first };
    ours.add_measurements(&mut sheet, scale.clusters);
    let best = if after.writes_per_second() > before.writes_per_second() { after } else { before };
    sheet.add_write_loop("converge_rate", "writes/s", best.writes_per_second());
    sheet.add_write_loop("arrival_rate", "writes/s", best.writes_per_second());
    sheet.add_write_loop("converge_time", "s", best.duration.as_secs_f64());
    sheet.add_write_loop(
        "writes_per_cluster",
        "writes",
        count_to_f64(best.writes) / count_to_f64(scale.clusters),
    );
    sheet.add_write_loop("requests_at_once", "requests", count_to_f64(best.strategy.concurrency));
    Ok(sheet.0)
}

/// What an operator did until all clusters had everything.
#[derive(Debug)]
struct ConvergenceResult {
    requests: AuditSummary,
    /// From its start to its last write, in seconds.
    duration_seconds: f64,
    /// In seconds.
    cpu_seconds: f64,
}

impl ConvergenceResult {
    /// Writes in a second.
    fn writes_per_second(&self) -> f64 {
        count_to_f64(self.requests.writes()) / self.duration_seconds
    }

    fn add_measurements(&self, sheet: &mut OperatorMeasurements, clusters: usize) {
        let (asked, clusters) = (&self.requests, count_to_f64(clusters));
        sheet.add_operator("converge_rate", "writes/s", self.writes_per_second());
        sheet.add_operator("converge_time", "s", self.duration_seconds);
        sheet.add_operator("longest_pause", "s", asked.longest_pause().as_secs_f64());
        sheet.add_operator("writes_per_cluster", "writes", count_to_f64(asked.writes()) / clusters);
        sheet.add_operator(
            "requests_per_cluster",
            "requests",
            count_to_f64(asked.requests()) / clusters,
        );
        sheet.add_operator(
            "requests_at_once",
            "requests",
            asked.total_write_time().as_secs_f64() / self.duration_seconds,
        );
        sheet.add_operator("converge_processor_time", "s", self.cpu_seconds);
        sheet.add_operator("converge_refused", "requests", count_to_f64(asked.failed_requests()));
    }
}

/// The peer, and what it writes.
#[derive(Clone, Copy)]
struct WriteLoop<'a> {
    inputs: &'a ControlPlaneInputs,
    script: &'a WriteScript,
    /// How many clusters it writes where that is enough.
    sample_clusters: usize,
}

/// The peer at an API server.
struct StartedWriteLoop<'a> {
    api_server: BenchmarkApiServer,
    script: &'a WriteScript,
    /// How many clusters it has written.
    written_clusters: usize,
}

impl<'a> WriteLoop<'a> {
    /// An API server of its own, with a few clusters: what a server does for the first time takes
    /// longer.
    async fn start(self) -> Result<StartedWriteLoop<'a>, Failed> {
        let stage = BenchmarkApiServer::start(self.inputs).await?;
        let mut started =
            StartedWriteLoop { api_server: stage, script: self.script, written_clusters: 0 };
        started.write_clusters(WriteStrategy::ALL[0], self.sample_clusters).await?;
        Ok(started)
    }

    async fn fastest_strategy(self) -> Result<WriteStrategy, Failed> {
        let mut started = self.start().await?;
        let mut best: Option<WriteThroughput> = None;
        for manner in WriteStrategy::ALL {
            let pace = started.write_clusters(manner, self.sample_clusters).await?;
            if best.is_none_or(|best| pace.writes_per_second() > best.writes_per_second()) {
                best = Some(pace);
            }
        }
        Ok(best.map_or(WriteStrategy::ALL[0], |best| best.strategy))
    }

    async fn write_all_clusters(
        self,
        manner: WriteStrategy,
        clusters: usize,
    ) -> Result<WriteThroughput, Failed> {
        self.start().await?.write_clusters(manner, clusters).await
    }
}

impl StartedWriteLoop<'_> {
    async fn write_clusters(
        &mut self,
        manner: WriteStrategy,
        clusters: usize,
    ) -> Result<WriteThroughput, Failed> {
        let kubeconfig = self.api_server.write_loop_kubeconfig();
        let first = self.written_clusters;
        self.written_clusters += clusters;
        let pace = manner.write_clusters(&kubeconfig, self.script, first, clusters).await?;
        let counted = self.api_server.audit_log.read_new_lines()?;
        if counted.writes() != u64::try_from(pace.writes)? {
            return Err("the server counts other writes than the peer".into());
        }
        print_progress(&format!(
            "{manner:?}: {:.0} writes/s of {} clusters",
            pace.writes_per_second(),
            clusters
        ));
        Ok(pace)
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
    /// On an API server of its own.
    async fn start(peer: WriteLoop<'a>, scale: OperatorBenchmarkScale) -> Result<Self, Failed> {
        let stage = peer.start().await?.api_server;
        stage.delete_write_loop_statuses().await?;
        let fleet = HostedClusterFleet::from_template(&peer.inputs.example);
        let (clock, sheet) = (SystemClock::new(), OperatorMeasurements::default());
        Ok(Self {
            api_server: stage,
            fleet,
            script: peer.script,
            scale,
            clock,
            measurements: sheet,
        })
    }

    async fn measure_all_phases(&mut self) -> Result<ConvergenceResult, Failed> {
        self.measure_idle().await?;
        let (mut operator, converged) = self.measure_convergence().await?;
        self.add_memory("converged_memory", "converged_memory_own", operator.read_memory()?);
        self.measure_settled(&mut operator).await?;
        self.measure_one_change(&mut operator).await?;
        self.measure_arrivals(&mut operator).await?;
        operator.stop().await?;
        Ok(converged)
    }

    /// An operator that has nothing to do.
    async fn measure_idle(&mut self) -> Result<(), Failed> {
        let mut operator = self.api_server.start_operator()?;
        let mut asked = AuditSummary::default();
        let patience = Duration::from_mins(1);
        self.wait_until(&mut operator, "everything is watched", patience, |run| {
            asked.merge(run.api_server.audit_log.read_new_lines()?);
            Ok(asked.watched_kind_count() >= WATCHED_KIND_COUNT && asked.lease_writes() > 0)
        })
        .await?;
        self.clock.sleep(self.scale.quiet_time).await;
        self.add_memory("idle_memory", "idle_memory_own", operator.read_memory()?);
        operator.stop().await?;
        self.api_server.audit_log.read_new_lines().map(drop)
    }

    /// All HostedClusters are there, and an operator begins.
    async fn measure_convergence(
        &mut self,
    ) -> Result<(OperatorProcess, ConvergenceResult), Failed> {
        self.api_server.create_clusters(&self.fleet, 0..self.scale.clusters).await?;
        self.api_server.audit_log.read_new_lines()?;
        let begin = self.clock.now();
        let mut operator = self.api_server.start_operator()?;
        let asked = self.wait_until_settled(&mut operator, self.scale.clusters).await?;
        let took = seconds_until_last_write(begin, &asked)?;
        let converged = ConvergenceResult {
            duration_seconds: took,
            cpu_seconds: operator.cpu_seconds()?,
            requests: asked,
        };
        print_progress(&converged.requests.summary_lines().join("\n"));
        print_progress(&format!(
            "operator: {:.0} writes/s of {} clusters",
            converged.writes_per_second(),
            self.scale.clusters
        ));
        Ok((operator, converged))
    }

    /// What is asked though nothing changes.
    async fn measure_settled(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let before = ObjectVersions::fetch(&self.api_server.client).await?;
        let (found, all) = (before.len(), self.expected_object_count(self.scale.clusters));
        if found != all {
            return Err(format!("{found} objects, and there should be {all}").into());
        }
        self.api_server.audit_log.read_new_lines()?;
        let begin = self.clock.monotonic();
        self.clock.sleep(self.scale.settled_window).await;
        let asked = self.api_server.audit_log.read_new_lines()?;
        let minutes = self.clock.monotonic().saturating_sub(begin).as_secs_f64() / 60.0;
        operator.expect_running()?;
        self.measurements.add_operator(
            "settled_writes",
            "writes/min",
            count_to_f64(asked.writes()) / minutes,
        );
        let leases = count_to_f64(asked.lease_writes()) / minutes;
        self.measurements.add_operator("settled_lease_writes", "writes/min", leases);
        self.measurements.add_operator(
            "settled_requests",
            "requests/min",
            count_to_f64(asked.requests()) / minutes,
        );
        print_progress(&asked.summary_lines().join("\n"));
        self.add_memory("settled_memory", "settled_memory_own", operator.read_memory()?);
        let changed =
            before.changed_objects(&ObjectVersions::fetch(&self.api_server.client).await?);
        expect_objects("changed though nothing did", &changed, &BTreeSet::new())
    }

    /// One secret has another name.
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
        let asked = self.wait_until_settled(operator, self.scale.clusters).await?;
        let took = seconds_until_last_write(begin, &asked)?;
        let changed =
            before.changed_objects(&ObjectVersions::fetch(&self.api_server.client).await?);
        let room = fleet::control_plane_namespace(number);
        let affected = BTreeSet::from([
            format!("HostedCluster {}/{name}", fleet::NAMESPACE),
            format!("HostedClusterIdentities {}/{name}", fleet::NAMESPACE),
            format!("HostedControlPlane {room}/{name}"),
            format!("SecretProviderClass {room}/managed-azure-disk-csi"),
            format!("Secret {room}/azure-disk-csi-config"),
            format!("Deployment {room}/azure-disk-csi-driver-controller"),
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
        self.measurements.add_operator("one_name_writes", "writes", count_to_f64(asked.writes()));
        Ok(())
    }

    /// HostedClusters that come while the operator runs.
    async fn measure_arrivals(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let more = (self.scale.clusters / 5).max(1);
        self.api_server.audit_log.read_new_lines()?;
        let begin = self.clock.now();
        let numbers = self.scale.clusters..self.scale.clusters + more;
        self.api_server.create_clusters(&self.fleet, numbers).await?;
        let asked = self.wait_until_settled(operator, self.scale.clusters + more).await?;
        // They are writes, too, at the same time.
        let writes = count_to_f64(asked.writes()) + count_to_f64(more);
        self.measurements.add_operator(
            "arrival_rate",
            "writes/s",
            writes / seconds_until_last_write(begin, &asked)?,
        );
        Ok(())
    }

    /// Waits until something was written, then nothing for a while, and so many clusters have
    /// everything: a server that holds its breath is quiet, too. Returns what was asked.
    async fn wait_until_settled(
        &mut self,
        operator: &mut OperatorProcess,
        clusters: usize,
    ) -> Result<AuditSummary, Failed> {
        let mut asked = AuditSummary::default();
        let all = self.expected_object_count(clusters);
        for _ in 0..MAX_QUIET_PERIODS {
            self.wait_until_quiet(operator, &mut asked).await?;
            let has_all = ObjectVersions::fetch(&self.api_server.client).await?.len() >= all;
            let meanwhile = self.api_server.audit_log.read_new_lines()?;
            let is_quiet = meanwhile.writes() == 0;
            asked.merge(meanwhile);
            if has_all && is_quiet {
                return Ok(asked);
            }
        }
        Err(format!(
            "{MAX_QUIET_PERIODS} times it was quiet for a while, and then there was more to write or \
             some of {all} objects were missing"
        )
        .into())
    }

    /// How many objects so many clusters come to, their HostedClusters included.
    fn expected_object_count(&self, clusters: usize) -> usize {
        (self.script.object_count() + 1) * clusters
    }

    /// Waits until something was written and then nothing for a while.
    async fn wait_until_quiet(
        &mut self,
        operator: &mut OperatorProcess,
        asked: &mut AuditSummary,
    ) -> Result<(), Failed> {
        let mut quiet_since = self.clock.monotonic();
        self.wait_until(operator, "all is settled", SETTLE_TIMEOUT, |run| {
            let new = run.api_server.audit_log.read_new_lines()?;
            let now = run.clock.monotonic();
            if new.writes() > 0 {
                quiet_since = now;
            }
            asked.merge(new);
            let quiet = now.saturating_sub(quiet_since);
            Ok(asked.writes() > 0 && quiet >= run.scale.quiet_time)
        })
        .await
    }

    async fn wait_until(
        &mut self,
        operator: &mut OperatorProcess,
        what: &str,
        patience: Duration,
        mut is_so: impl FnMut(&mut Self) -> Result<bool, Failed>,
    ) -> Result<(), Failed> {
        let deadline = self.clock.monotonic() + patience;
        while !is_so(self)? {
            operator.expect_running()?;
            if self.clock.monotonic() > deadline {
                return Err(format!("after {} s: not so: {what}", patience.as_secs()).into());
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn add_memory(&mut self, resident: &'static str, own: &'static str, memory: OperatorMemory) {
        self.measurements.add_operator(resident, "MiB", memory.resident);
        self.measurements.add_operator(own, "MiB", memory.anonymous);
    }
}

/// From a time to the last write.
fn seconds_until_last_write(begin: Timestamp, asked: &AuditSummary) -> Result<f64, Failed> {
    let last = asked.last_write().ok_or("nothing was written")?;
    Ok(last.duration_since(begin).as_secs_f64())
}

fn expect_objects(
    what: &str,
    is: &BTreeSet<String>,
    should: &BTreeSet<String>,
) -> Result<(), Failed> {
    if is == should {
        return Ok(());
    }
    let more: Vec<_> = is.difference(should).take(MAX_LISTED_OBJECTS).collect();
    let less: Vec<_> = should.difference(is).take(MAX_LISTED_OBJECTS).collect();
    Err(format!("{what}: {} objects; not expected: {more:?}; missing: {less:?}", is.len()).into())
}

/// Nobody has to hear this for the work to go on.
pub(super) fn print_progress(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// How many kinds an operator watches.
const WATCHED_KIND_COUNT: usize = 13;
const SETTLE_TIMEOUT: Duration = Duration::from_mins(30);
/// How often everything may be quiet before all is made.
const MAX_QUIET_PERIODS: usize = 60;
/// How often the audit log is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How many objects are named that should not be.
const MAX_LISTED_OBJECTS: usize = 20;
